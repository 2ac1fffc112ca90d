"""Calls of the kit that were written another way than they are meant, answered with the right call."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from .errors import TraceError
from .shown import a_kind
from .trace import Trace

__all__ = [
    "Tracer",
    "expect_explorable",
    "expect_program",
    "expect_trace",
    "expect_whole",
    "name_of",
    "no_trace",
    "trace_of",
]


def name_of(fn: Any) -> str:
    """What the user may call a function: its name, or `fn` where it has none that can be written."""
    name = getattr(fn, "__name__", "fn")
    return name if name.isidentifier() else "fn"


def expect_trace(value: Any, call: str, rest: str = "") -> None:
    """Make sure that a trace was given.

    Args:
        value: What was given.
        call: The function that wants a trace.
        rest: What follows the trace in its parentheses.

    Raises:
        TraceError: It is none; the error shows the call that was meant.
    """
    if isinstance(value, Trace):
        return
    program = getattr(value, "traced_program", None)
    name = name_of(value if program is None else program)
    given, cause = a_kind(value), "the program was given instead of a trace of it"
    if program is not None:
        given, cause = f"trace({name})", "trace() takes the function first, and its arguments in a second call"
    elif isinstance(value, TraceError):
        cause = "the error was given instead of the trace up to there, which it carries"
    elif not callable(value):
        cause = "a result of the program, or another value, was given instead of a trace"
    meant = "error.trace" if isinstance(value, TraceError) else f"subtrace_kit.trace({name})(*args)"
    way_out = f"subtrace_kit.{call}({meant}{rest})"
    raise TraceError(f"{call}() takes a trace, not {given}", cause=cause, way_out=way_out)


def expect_explorable(value: Any, call: str, rest: str = "") -> None:
    """Make sure that a trace was given, or an error that ended one.

    Raises:
        TraceError: It is neither, see `expect_trace`.
    """
    if not isinstance(value, TraceError):
        expect_trace(value, call, rest)


def expect_whole(trace: Trace, done: str) -> None:
    """Make sure that a trace is not that of a failed program.

    Args:
        trace: A trace.
        done: What is to be done with it: `run`, `lowered`.

    Raises:
        TraceError: It ends at an operation that failed.
    """
    if not trace.failure:
        return
    last = trace.bound_symbols[-1] if trace.bound_symbols else None
    told = TraceError(
        f"the trace of a failed program cannot be {done}: {trace.failure}",
        source=last.source if last else None,
        cause=f"{trace.name} failed while it was recorded; its trace ends at the operation that failed",
        way_out="print, draw or explore it; mend the program and trace it again",
    )
    told.trace = trace
    raise told


def trace_of(value: Any, call: str) -> Trace:
    """The trace that was given, or that an error carries.

    Raises:
        TraceError: There is none.
    """
    expect_explorable(value, call)
    found = value.trace if isinstance(value, TraceError) else value
    if found is None:
        raise no_trace(value)
    kept: Trace = found
    return kept


def no_trace(error: TraceError) -> TraceError:
    """The error for one that carries no trace."""
    return TraceError(
        "this error has no trace",
        cause="it arose where no program was being recorded, or before the first operation",
        way_out="its text says what happened: print(error)",
    )


def expect_program(fn: Any, asked: Callable[..., Any], given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Make sure that `trace` or `jit` got a function and nothing else.

    Args:
        fn: What was given first.
        asked: The function `trace` or `jit`.
        given: What else was given by position.
        named: What was given by a name that is no option.

    Raises:
        TraceError: The error shows the call that was meant.
    """
    call, program = asked.__name__, getattr(fn, "traced_program", fn)
    if program is not fn:
        what, cause = (
            f"{call}() takes a function, not trace({name_of(program)})",
            "trace() was called on its own result",
        )
    elif not callable(fn):
        what = f"{call}() takes a function or an nn.Module, not {a_kind(fn)}"
        cause = "the result of a call was given instead of the function"
    elif near := [(name, close) for name in named if (close := _option(name, asked)) is not None]:
        name, close = near[0]
        raise TraceError(
            f"{call}() has no option {name!r}",
            cause=f"{close!r} is meant",
            way_out=f"subtrace_kit.{call}({name_of(program)}, {close}={named[name]!r:.80})",
        )
    elif given or named:
        what = f"{call}() takes the function alone, and got {_listed(given, named)} beside it"
        cause = "the arguments of the program belong into a second call"
    else:
        return
    arguments = ", ".join(["..."] * len(given) + [f"{key}=..." for key in named]) or "*args"
    raise TraceError(what, cause=cause, way_out=f"subtrace_kit.{call}({name_of(program)})({arguments})")


def _option(name: str, asked: Callable[..., Any]) -> str | None:
    """The option of a function that a name is nearest to, if to any."""
    options = [p.name for p in inspect.signature(asked).parameters.values() if p.kind is p.KEYWORD_ONLY]
    return next(iter(difflib.get_close_matches(name, options, n=1, cutoff=0.75)), None)


def _listed(given: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    return ", ".join([*map(a_kind, given), *(f"{key}=" for key in named)])


class Tracer:
    """What `trace(fn)` returns: call it with the program's arguments, and it returns the trace.

    Args:
        start: What records the program.
        fn: The program.
    """

    def __init__(self, start: Callable[..., Trace], fn: Any) -> None:
        self._start = start
        self.traced_program = fn

    def __call__(self, /, *args: Any, **kwargs: Any) -> Trace:
        return self._start(*args, **kwargs)

    def __repr__(self) -> str:
        return f"trace({name_of(self.traced_program)}): call it with the program's arguments"
