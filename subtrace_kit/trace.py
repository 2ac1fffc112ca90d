"""The trace: what a program did, as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .errors import TraceError
from .guards import Guard
from .intercept import flatten_tree
from .owners import Owner
from .proxies import Proxy, SubclassTensorProxy, TensorProxy
from .seen import Seen
from .source import Source
from .symbols import DEFAULT_CONTEXT, BoundSymbol, Context, type_text

__all__ = ["Attribute", "Capture", "Constant", "Construction", "Ledger", "Tie", "Trace", "TrainingFlag"]


@dataclass(frozen=True)
class Capture:
    """A tensor that is neither input nor result: a parameter, a buffer, a closed-over tensor.

    Args:
        proxy: The value.
        path: How the user knows it (`fc1.weight`), or a made-up name.
        fetch: Returns the tensor as it is now.
        others: More places that held the same tensor (tied weights); they must still hold it.
    """

    proxy: TensorProxy
    path: str
    fetch: Callable[[], Any] = field(compare=False, repr=False)
    others: tuple[Callable[[], Any], ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class TrainingFlag:
    """The training flag and the hooks of a module that the program knows.

    Args:
        path: How the user knows the module.
        module: The module.
        training: Its flag when the program was recorded.
        fetch: Returns the module that is at its place now.
        hooks: The hooks that it had, and its `forward` where that was replaced.
    """

    path: str
    module: Any = field(compare=False, repr=False)
    training: bool = True
    fetch: Callable[[], Any] = field(default=lambda: None, compare=False, repr=False)
    hooks: tuple[Any, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Tie:
    """An argument that the program also finds outside its arguments: it must be the same object at each run.

    Args:
        argument: Index of the leaf of the arguments.
        attributes: The way from there to the tensor, for one inside a wrapper.
        path: How the user knows the other place.
        fetch: Returns what is there now.
    """

    argument: int
    attributes: tuple[str, ...]
    path: str
    fetch: Callable[[], Any] = field(compare=False, repr=False)


@dataclass(frozen=True)
class Attribute:
    """A Python value on a tensor among the arguments, outside its metadata, that code reads.

    Args:
        argument: Index of the leaf of the arguments.
        way: The attributes from there to the value.
        value: What it was when the program was recorded.
        by_class: Whether only a class reads it: it matters once its handlers are unrolled.
        ask: What to ask of the value, where a fact about it was recorded; `fact` is its name.
    """

    argument: int
    way: tuple[str, ...]
    value: Any
    by_class: bool = False
    ask: Callable[[Any], Any] | None = field(default=None, compare=False, repr=False)
    fact: str = ""


@dataclass(frozen=True)
class Constant:
    """A Python value outside the arguments that the program reads: a number, a text, a flag.

    Args:
        path: How the user knows it.
        value: What it was when the program was recorded.
        fetch: Returns what it is now.
        by_class: Whether only a class reads it: it matters once its handlers are unrolled.
    """

    path: str
    value: Any
    fetch: Callable[[], Any] = field(compare=False, repr=False)
    by_class: bool = False


@dataclass(frozen=True)
class Construction:
    """What became of one construction of a wrapper object when the trace was lowered.

    Args:
        proxy: The wrapper value.
        kept: Whether the lowered trace builds the object.
        reason: Why.
        source: The line that built it.
    """

    proxy: SubclassTensorProxy
    kept: bool
    reason: str
    source: Source | None = None

    def to_text(self, *, device: bool = True) -> str:
        """One line: what was built, what became of it, why, and where it was built."""
        where = f"  {self.source.place}" if self.source is not None else ""
        fate = "kept  " if self.kept else "elided"
        return f"{fate}  {self.proxy.name}: {type_text(self.proxy, device=device)}, {self.reason}{where}"

    def __str__(self) -> str:
        return self.to_text()


class Ledger(tuple[Construction, ...]):
    """What became of each construction, in order; it prints one a line."""

    __slots__ = ()

    def to_text(self, *, device: bool = True) -> str:
        """A line for each construction; without devices it is the same on every machine."""
        return "\n".join(c.to_text(device=device) for c in self) or "the trace builds no wrapper"

    def __repr__(self) -> str:
        return self.to_text()


class _NotLowered(Ledger):
    """Of a trace that was not lowered."""

    __slots__ = ()

    def to_text(self, *, device: bool = True) -> str:
        return "not lowered yet: subtrace_kit.lower(trace).ledger says what becomes of each wrapper"


NO_LEDGER = _NotLowered()


@dataclass(frozen=True)
class Trace:
    """A recorded program. Call it, print it, lower it, draw it.

    Args:
        name: The program's name, a Python identifier.
        guard: The kind of input it fits, and how inputs are laid out.
        bound_symbols: The operations, in order.
        output: The result: proxies and Python values in the structure that the program returned.
        provenance: One line for the recording and one for each pass.
        captures: Tensors that are neither inputs nor results, by reference.
        ledger: After lowering, what became of each construction.
        context: The global state at the start.
        flags: The training flags and hooks of modules that it was recorded with.
        constants: The Python values outside the arguments that it was recorded with.
        ties: Arguments that the program also finds elsewhere.
        attributes: Python values on tensors among the arguments, outside their metadata.
        owners: Objects, lists and dicts outside the arguments that it writes into.
        handler_writes: What handlers keep outside the trace and may read again, so that it cannot be lowered.
        handler_logs: The counters and logs that they write there, which a lowered trace leaves alone.
        program: The function or module that was recorded.
        failure: For the trace that an error carries: the text of the error at the last operation.
        seen: What the inputs and captured tensors were, where that was asked for.
    """

    name: str
    guard: Guard
    bound_symbols: Sequence[BoundSymbol]
    output: Any
    provenance: tuple[str, ...]
    captures: tuple[Capture, ...] = ()
    ledger: Ledger = NO_LEDGER
    context: Context = DEFAULT_CONTEXT
    failure: str = ""
    flags: tuple[TrainingFlag, ...] = ()
    constants: tuple[Constant, ...] = ()
    owners: tuple[Owner, ...] = ()
    handler_writes: tuple[str, ...] = ()
    handler_logs: tuple[str, ...] = ()
    ties: tuple[Tie, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    program: Callable[..., Any] | None = field(default=None, compare=False, repr=False)
    seen: tuple[Seen, ...] = field(default=(), compare=False, repr=False)

    @property
    def inputs(self) -> tuple[Proxy, ...]:
        """The tensors among the arguments, flat and in order."""
        return self.guard.proxies

    @property
    def results(self) -> tuple[Proxy, ...]:
        """The proxies in the result, in order, those in registered classes too."""
        return tuple(leaf for leaf in flatten_tree(self.output)[0] if isinstance(leaf, Proxy))

    def replace(self, **changes: Any) -> Trace:
        """The same trace with other fields."""
        return dataclasses.replace(self, **changes)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the trace on arguments of the kind it was recorded for.

        Args:
            *args: Positional arguments, in the structure of the recorded call.
            **kwargs: Keyword arguments, likewise.

        Returns:
            What the program returns for these arguments.

        Raises:
            TraceError: The arguments are of another kind, or an operation fails.
        """
        from .running import runner  # Running needs the code generator, which reads traces.

        return runner(self)(args, kwargs)

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, *, levels: int | None = None, comments: bool = True, device: bool = True) -> str:
        """The trace as Python source.

        Args:
            levels: How many levels to show, 1 being what the user wrote; None shows all.
            comments: Whether types and source lines are shown.
            device: Whether devices are named in comments.

        Returns:
            Text that compiles as Python.

        Raises:
            TraceError: `levels` is no number of levels.
        """
        from .text import to_text  # Text is a view: it reads traces.

        return to_text(self, levels=levels, comments=comments, device=device)

    def __repr__(self) -> str:
        return self.to_text(levels=1)

    def __copy__(self) -> Trace:
        return self  # It never changes.

    def __deepcopy__(self, memo: object) -> Trace:
        raise _one_process("copied in depth", "use the trace itself: it never changes, and each run leaves it as it is")

    def __reduce_ex__(self, protocol: object) -> tuple[object, ...]:
        raise _one_process(
            "pickled",
            "save what it shows, str(t) or save_html(t, path); record the program again where you want to run it",
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        from .draw import mime_bundle

        return mime_bundle(self)


def _one_process(done: str, way_out: str) -> TraceError:
    return TraceError(
        f"a trace cannot be {done}",
        cause="it looks tensors and values up in the program's own objects, those of this process, at each run",
        way_out=way_out,
    )
