"""How a program that cannot be recorded is told so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from . import ops
from .causes import HIGHER_ORDER, UNINITIALIZED, Failure, cause_of, is_declined, unsupported
from .errors import TraceError
from .protocol import rule_source
from .shown import a_kind, article, key_text, message
from .source import Source, definition, innermost
from .values import Event, values_in

if TYPE_CHECKING:
    from .owners import Change
    from .recorder import Recorder
    from .values import Event

__all__ = [
    "as_trace_error",
    "changed_class",
    "changed_owner",
    "depends_on_handlers",
    "left_changed",
    "not_looked_at",
    "unknown_result",
    "went_on",
    "written_out_of_sight",
]


def not_looked_at(tensor: torch.Tensor, path: str, error: Exception) -> TraceError:
    """The error for an argument whose class fails when it is asked for shape, strides or device."""
    return TraceError(
        f"argument {path}, {a_kind(tensor)}, cannot be looked at: {type(error).__name__}: {message(error)}",
        handler=innermost(error),
        cause="its class answers for sizes, strides or device in __torch_dispatch__; with fake=True a mode of torch "
        "answers in its place",
        way_out="trace without fake=True, or see why x.shape, x.stride() or x.device fails",
    )


def changed_owner(change: Change, fn: Any) -> TraceError:
    """The error for a program that puts a Python value into something that was there before."""
    key = (
        ""
        if change.key is None
        else f" {key_text(change.key)}"
        if change.how == "attribute"
        else f"[{key_text(change.key)}]"
    )
    if change.how == "state":
        return TraceError(
            f"the program draws from {change.owner.path or 'the module'}, which is in another state afterwards",
            source=_definition(fn),
            cause="an iterator, a generator or a cache from outside: a trace would repeat what it gave when recorded",
            way_out="pass what it gives as an argument; call a cached function once before tracing",
        )
    return TraceError(
        f"the program changes {change.how.removesuffix('s')}{key} of {change.owner.path or 'the module'}"
        f" to {a_kind(change.value)}",
        source=_definition(fn),
        cause="a counter, a log or a cache that is filled at the first call: a trace would repeat the recorded value",
        way_out="run the program once before tracing it if it only prepares itself; else keep the value out of it",
    )


def changed_class(tensor: torch.Tensor, cls: type, fn: Any) -> TraceError:
    """The error for a program that makes a tensor from outside one of another class."""
    return TraceError(
        f"the program changes the class of {article(cls.__name__)} to {type(tensor).__name__}",
        source=_definition(fn),
        cause="an assignment to __class__: what a trace knows of a tensor holds for its class",
        way_out="build an object of the other class",
    )


def went_on(error: BaseException, event: Event) -> TraceError:
    """The error for a program that goes on after an op that failed for the data it was given."""
    return TraceError(
        f"the program goes on after {event.symbol.name} failed: {type(error).__name__}: {message(error)}",
        source=event.source,
        cause="try / except around an op that fails on some data only: the trace holds only the side taken",
        way_out="ask before (torch.linalg.cholesky_ex, a check outside the traced program), or let it fail",
    )


def depends_on_handlers(source: Source | None, fn: Any) -> TraceError:
    """The error for a program that does something else if a handler, or a text, tells it something else."""
    return TraceError(
        "the program depends on data that left torch inside a handler, or as a text of a tensor",
        source=source or _definition(fn),
        cause="a number, a tag or a branch that a handler takes from data (.item(), an `if`), or f'{tensor}': the"
        " program reads it, and a trace would keep what it was told when it was recorded",
        way_out="keep it a tensor inside the wrapper, or read it outside the traced program",
    )


def left_changed(tensor: torch.Tensor, fn: Any) -> TraceError:
    """The error for a tensor that autograd has taken into a graph for good."""
    return TraceError(
        f"the program writes a value with a gradient into {a_kind(tensor)} from outside that is a view",
        source=_definition(fn),
        cause="torch cannot take such a view out of the graph again: it now requires a gradient",
        way_out="pass a clone() of it, or write under torch.no_grad()",
    )


def unknown_result(leaf: Any, fn: Any) -> TraceError:
    """The error for a result in which tensors may hide."""
    return TraceError(
        f"the program returns {a_kind(leaf)}, which may hold tensors that the trace cannot see",
        source=_definition(fn),
        cause="an object that is no list, tuple, dict or registered pytree node",
        way_out="return its tensors, or register the class with torch.utils._pytree.register_pytree_node",
    )


def written_out_of_sight(tensor: torch.Tensor, fn: Any) -> TraceError:
    """The error for a tensor from outside that something wrote where nothing is recorded."""
    return TraceError(
        f"{a_kind(tensor)} of shape {list(tensor.shape)} from outside was written out of sight, and stays so",
        source=_definition(fn),
        cause="another thread of the program, or one that runs beside it, writes into the same tensor",
        way_out="write it in the thread that is recorded; keep other threads off it meanwhile",
    )


def as_trace_error(error: Exception, recorder: Recorder, fn: Any) -> TraceError:
    """What to say of whatever ended the program."""
    if isinstance(error, TraceError):
        return error
    seen = unsupported(error, recorder.failures)
    events = [event for other, event in recorder.failures if other is seen]
    failure = _failure(seen, events)
    cause, way_out = cause_of(failure)
    told = TraceError(
        _what(failure, events),
        source=events[-1].source if events else innermost(error) or _definition(fn),
        handler=_declining(events) if is_declined(seen) else innermost(seen),
        cause=cause,
        way_out=way_out,
    )
    if not (failure.in_class or is_declined(seen)):
        told.inside = "inside it"  # a hook, or the backward of a Function
    told.failed = events[0].symbol.name if events else ""
    return told


def _failure(error: BaseException, events: list[Event]) -> Failure:
    if not events:
        return Failure(error)
    classes = {v.cls.__name__: None for v in values_in((events[0].args, events[0].kwargs)) if v.cls is not None}
    backward = any(event.symbol.name.rpartition(".")[2] in ops.BACKWARD for event in events)
    return Failure(error, events[0].symbol.name, tuple(classes), backward)


def _what(failure: Failure, events: list[Event]) -> str:
    kind, text = type(failure.error).__name__, failure.text
    where = f" in {events[-1].symbol.name}" if events else ""
    inner = f" ({events[0].symbol.name})" if len(events) > 1 else ""
    inner += f", module {events[-1].module}" if events and events[-1].module else ""
    if is_declined(failure.error):  # torch's own text lists the modes of the recorder among the handlers
        text = f"{' and '.join(failure.classes)}.__torch_dispatch__ returned NotImplemented"
    if (operator := re.search(HIGHER_ORDER, text)) is not None:  # torch's own text speaks of the recorder's mode
        text = f"torch.{operator[1]} cannot be recorded"
    if re.search(UNINITIALIZED, text):  # torch's own text speaks of load_state_dict
        text = "a parameter or buffer of a lazy module is not there yet"
    return f"{kind}{where}{inner}: {text}"


def _declining(events: list[Event]) -> Source | None:
    """The handler that has answered NotImplemented: it is in no traceback."""
    cls = next((v.cls for e in events[:1] for v in values_in((e.args, e.kwargs)) if v.cls is not None), None)
    return None if cls is None else rule_source(cls, "__torch_dispatch__")


def _definition(fn: Any) -> Source | None:
    return definition(getattr(fn, "__code__", None))
