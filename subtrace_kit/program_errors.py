"""How a program that cannot be recorded is told so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .errors import TraceError
from .source import Source, is_internal

if TYPE_CHECKING:
    from .owners import Change
    from .recorder import Recorder

__all__ = ["as_trace_error", "changed_owner", "left_changed", "unknown_result"]


def changed_owner(change: Change, fn: Any) -> TraceError:
    """The error for a program that puts a Python value into something that was there before."""
    key = "" if change.key is None else f" {change.key!r}" if change.how == "attribute" else f"[{change.key!r}]"
    return TraceError(
        f"the program changes {change.how.removesuffix('s')}{key} of {change.owner.path or 'the module'}"
        f" to a {type(change.value).__name__}",
        source=_definition(fn),
        cause="a counter, a log or a cache that is filled at the first call: a trace would repeat the recorded value",
        way_out="run the program once before tracing it if it only prepares itself; else keep the value out of it",
    )


def left_changed(tensor: torch.Tensor, fn: Any) -> TraceError:
    """The error for a tensor that autograd has taken into a graph for good."""
    return TraceError(
        f"the program writes a value with a gradient into a {type(tensor).__name__} from outside that is a view",
        source=_definition(fn),
        cause="torch cannot take such a view out of the graph again: it now requires a gradient",
        way_out="pass a clone() of it, or write under torch.no_grad()",
    )


def unknown_result(leaf: Any, fn: Any) -> TraceError:
    """The error for a result in which tensors may hide."""
    return TraceError(
        f"the program returns a {type(leaf).__name__}, which may hold tensors that the trace cannot see",
        source=_definition(fn),
        cause="an object that is no list, tuple, dict or registered pytree node",
        way_out="return its tensors, or register the class with torch.utils._pytree.register_pytree_node",
    )


def as_trace_error(error: Exception, recorder: Recorder) -> TraceError:
    if isinstance(error, TraceError):
        return error
    events = [event for seen, event in recorder.failures if seen is error]
    where = f" in {events[-1].symbol.name}" if events else ""
    inner = f" ({events[0].symbol.name})" if len(events) > 1 else ""
    told = TraceError(
        f"{type(error).__name__}{where}{inner}: {error}",
        source=events[-1].source if events else _innermost(error),
        handler=_innermost(error),
        cause="the program fails in eager as well, or its class has no rule for this op",
        way_out="run the program once without trace(); add the rule to the class",
    )
    told.failed = events[0].symbol.name if events else ""
    return told


def _innermost(error: BaseException) -> Source | None:
    """The innermost user line of a traceback."""
    found = None
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if not is_internal(code.co_filename):
            found = Source(code.co_filename, step.tb_lineno, code.co_name)
        step = step.tb_next
    return found


def _definition(fn: Any) -> Source | None:
    code = getattr(fn, "__code__", None)
    return Source(code.co_filename, code.co_firstlineno, code.co_name) if code else None
