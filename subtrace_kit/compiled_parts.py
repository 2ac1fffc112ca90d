"""A lowered trace in which a backend runs the parts that it has compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from .backends import Backend
from .computing import agrees
from .cut import Cut, Draft, cut
from .errors import TraceError
from .intercept import is_watched_otherwise
from .part import Part
from .running import runner
from .shown import message
from .symbols import BoundSymbol, Kind, Symbol
from .trace import Trace

__all__ = ["CompiledPart", "Notes", "with_compiled_parts"]


class Notes:
    """What became of a trace, for people to read.

    Args:
        backend: The backend's name.
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.compiled: list[CompiledPart] = []
        self.stay: Counter[str] = Counter()

    def lines(self) -> tuple[str, ...]:
        """A line for what is compiled, and one for each reason why an operation is not."""
        running = [part for part in self.compiled if not part.refused]
        count = sum(len(part.part.bound_symbols) for part in running)
        parts = f"{len(running)} part{'' if len(running) == 1 else 's'}"
        found = [f"{self.backend} runs {count} ops in {parts}" if running else f"{self.backend} runs nothing"]
        stay = self.stay + Counter(part.refused for part in self.compiled if part.refused)
        found += [f"eager: {reason}{f' ({number} times)' if number > 1 else ''}" for reason, number in stay.items()]
        return tuple(found)


class CompiledPart:
    """A part of a trace, as the trace calls it.

    Where torch is watched (a dispatch mode, a transform, forward-mode derivatives), and where the first results
    are not of the recorded kind, it runs the ops one by one.

    Args:
        part: The operations.
        trace: They, as a trace of its own.
        call: What the backend made of it.
    """

    def __init__(self, part: Part, trace: Trace, call: Callable[..., Any]) -> None:
        self.part, self.trace, self.compiled = part, trace, call
        self.call: Callable[..., Any] = self.first
        self.refused = ""

    def __call__(self, *tensors: torch.Tensor) -> Any:
        if is_watched_otherwise():
            return self.eager(*tensors)
        return self.call(*tensors)

    def eager(self, *tensors: torch.Tensor) -> Any:
        """The ops one by one."""
        return runner(self.trace).function(*tensors)

    def first(self, *tensors: torch.Tensor) -> Any:
        """The first run: its results must be of the recorded kind."""
        found = self.compiled(*tensors)
        self.refused = self.difference(found, tensors)
        self.call = self.eager if self.refused else self.compiled
        return self.eager(*tensors) if self.refused else found

    def difference(self, found: Any, tensors: tuple[torch.Tensor, ...]) -> str:
        """How results are not of the recorded kind; empty where they are."""
        wanted = self.part.outputs
        if not isinstance(found, (list, tuple)) or len(found) != len(wanted):
            return f"what was compiled gives other than a tuple of {len(wanted)} results"
        memory = [t.untyped_storage().data_ptr() for t in (*tensors, *found) if isinstance(t, torch.Tensor)]
        for tensor, proxy in zip(found, wanted, strict=True):
            if type(tensor) is not torch.Tensor or not agrees(tensor, proxy) or tensor.requires_grad:
                return f"what was compiled gives {proxy.name} with another class, shape, strides, dtype or device"
            if tensor.numel() and memory.count(tensor.untyped_storage().data_ptr()) > 1:
                return f"what was compiled gives {proxy.name} in memory that is not its own"
        return ""


def with_compiled_parts(trace: Trace, backend: Backend, options: dict[str, Any]) -> tuple[Trace, Notes | None]:
    """Let a backend compile what it takes of a lowered trace.

    Args:
        trace: The lowered trace.
        backend: The backend.
        options: What the user gave to it.

    Returns:
        A trace with the same guards and results, and what is to be said; no notes for a backend that compiles nothing.

    Raises:
        TraceError: The backend cannot work here.
    """
    if backend.compile is None:
        return trace, None
    with torch.inference_mode(False), torch.no_grad():
        pieces = cut(trace)
        notes = Notes(backend.name)
        notes.stay += pieces.stay
        body = tuple(_body(trace, pieces, backend, options, notes))
    line = f"compiled: {'; '.join(notes.lines())}"
    return trace.replace(bound_symbols=body, provenance=(*trace.provenance, line)), notes


def _body(trace: Trace, pieces: Cut, backend: Backend, options: dict[str, Any], notes: Notes) -> list[BoundSymbol]:
    found: list[BoundSymbol] = []
    for piece, wanted in zip(pieces.pieces, pieces.wanted(trace), strict=True):
        if not isinstance(piece, Draft):
            found.append(piece)
            continue
        part, rest = piece.resolve(trace, wanted)
        made = _compiled(part, f"{trace.name}_part_{len(notes.compiled)}", backend, options, notes)
        found += piece.originals if made is None else [made, *rest]
    return found


def _compiled(part: Part, name: str, backend: Backend, options: dict[str, Any], notes: Notes) -> BoundSymbol | None:
    """A part as one operation; None where it stays as it is."""
    if not part.outputs:
        return None
    trace = part.trace(name)
    assert backend.compile is not None
    try:
        call = backend.compile(trace, **options)
    except NotImplementedError as error:
        notes.stay[message(error)] += len(part.bound_symbols)
        return None
    except TraceError:
        raise
    except Exception as error:
        raise _failed(backend, part, error) from error
    made = CompiledPart(part, trace, call)
    notes.compiled.append(made)
    symbol = Symbol(name, Kind.FUNCTION, made)
    source = part.bound_symbols[0].source
    return BoundSymbol(symbol, part.inputs, {}, part.outputs, part.bound_symbols, source, context=part.context)


def _failed(backend: Backend, part: Part, error: Exception) -> TraceError:
    names = ", ".join(dict.fromkeys(bound.symbol.name for bound in part.bound_symbols))
    return TraceError(
        f"backend {backend.name!r} cannot compile a part of {len(part.bound_symbols)} ops ({names:.200}): "
        f"{type(error).__name__}: {message(error).strip().splitlines()[0] if message(error).strip() else ''}",
        source=part.bound_symbols[0].source,
        cause="an op, a dtype or a shape that the compiler does not know, or a fault of it",
        way_out='jit(fn, backend="eager"); a backend that raises NotImplementedError leaves such a part to eager',
    )
