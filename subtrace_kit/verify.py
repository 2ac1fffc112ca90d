"""verify: run a program and its trace on equal inputs, and compare all that a caller can see.

verify() -> _rows -> a run of each side      side.Side, on copies.copy_arguments, with undo.given_back
                       -> what it leaves     outcome.look: facts by path, taken before anything is undone
                  -> side by side            comparison.Comparison -> report.Check
                  -> again, noting the ops   sent_ops.SentOps
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from .called import expect_trace, expect_whole
from .comparison import Comparison
from .copies import Given
from .errors import TraceError
from .made_inputs import make_arguments
from .outcome import FACTS
from .report import DIFFERS, SKIPPED, Check, Report
from .shown import message
from .side import Side
from .trace import Trace

__all__ = ["verify"]


def verify(
    trace: Trace, /, *args: Any, backward: bool = True, raises: bool = False, rtol: float = 0.0, atol: float = 0.0,
    **kwargs: Any,
) -> Report:  # fmt: skip
    """Run eager and a trace side by side, and compare all that a caller can see.

    Both run on copies of the arguments and from the same state, twice: the second time the ops that reach
    each class are noted. Arguments, captured tensors, Python objects that the program changes, and random
    state stay as they are. Keyword arguments of the program called `backward`, `raises`, `rtol` or `atol`
    must be given by position.

    Args:
        trace: What `subtrace_kit.trace` recorded, or a pass made of it.
        *args: The program's arguments; without any, random ones of the recorded kind are made up.
        backward: Whether a backward is run from the results that require a gradient, and one through it.
        raises: Whether a difference raises.
        rtol: Relative tolerance for values; those within it are reported as `close`.
        atol: Absolute tolerance for values.
        **kwargs: The program's keyword arguments.

    Returns:
        A report: `ok`, one row a check, readable as text and in a notebook. `report.row("values")` gives
        one; further rows are strides, aliasing, arguments, captured, gradients, ops and more.

    Raises:
        TraceError: The trace is that of a failed program or does not know its program, the arguments
            are not of its kind or cannot be copied or made up, eager and the trace both fail, or, with
            `raises`, a check differs.

    Example:
        >>> import torch, subtrace_kit
        >>> t = subtrace_kit.trace(lambda x: x.t() + 1)(torch.ones(2, 3))
        >>> subtrace_kit.verify(t, torch.ones(2, 3)).ok
        True
    """
    expect_trace(trace, "verify", ", *args")
    expect_whole(trace, "verified")
    if trace.program is None:
        raise TraceError("this trace has no program to compare with", way_out="verify a trace that trace() returned")
    made_up = not (args or kwargs) and bool(trace.guard.arguments)
    given = _made_up(trace) if made_up else (args, kwargs)
    trace.guard.check(*given)
    sides = Side(trace.program, trace, given, backward), Side(trace, trace, given, backward)
    report = Report(trace.name, tuple(_rows(*sides, made_up, (rtol, atol))))
    if raises:
        report.raise_if_wrong()
    return report


def _made_up(trace: Trace) -> Given:
    try:
        made = make_arguments(trace.guard)
        trace.guard.check(*made)
    except (RuntimeError, AssertionError) as error:
        reason = (message(error) or type(error).__name__).splitlines()[0]
        raise TraceError(
            f"no arguments can be made up for {trace.name}: {reason}",
            cause="arguments that share memory or are sparse, special values inside a class, or a missing device",
            way_out="give the arguments: subtrace_kit.verify(t, *args)",
        ) from error
    return made


def _rows(eager: Side, trace: Side, made_up: bool, tolerance: tuple[float, float]) -> Iterator[Check]:
    wanted, found = eager.outcome(), trace.outcome()
    if "error" in wanted or "error" in found:
        texts = [side["error"]["run"]["error"] if "error" in side else "" for side in (found, wanted)]
        yield _failed(texts[0], texts[1], made_up)
        return
    compare = Comparison(found, wanted, *tolerance)
    yield compare.check("structure")
    for fact in FACTS:
        yield compare.check("results", fact)
    for section in ("aliasing", "identity", "arguments", "captured", "Python state", "random state"):
        yield compare.check(section)
    yield _gradients(compare, eager.backward)
    yield _second_gradients(compare)
    yield _ops(eager, trace)


def _failed(found: str, wanted: str, made_up: bool) -> Check:
    """The one row where a side fails; no row where eager cannot be compared with."""
    if wanted and (found or made_up):
        way_out = "give the arguments yourself" if made_up else "run it without the kit first"
        raise TraceError(f"the program fails in eager: {wanted}", way_out=way_out)
    text = f"the trace gives a result where eager raises {wanted}" if wanted else f"the trace raises {found}"
    return Check("run", DIFFERS, (text,), "nothing else is compared")


def _gradients(compare: Comparison, backward: bool) -> Check:
    found, wanted = compare.errors("backward")
    if found != wanted:
        return Check("gradients", DIFFERS, (f"backward: {found or 'no error'} instead of {wanted or 'no error'}",))
    check = compare.check("gradients")
    if wanted and check.verdict != DIFFERS:
        return Check("gradients", SKIPPED, note=f"the backward fails in eager too: {wanted}")
    return check if backward else dataclasses.replace(check, note="as left without a backward")


def _second_gradients(compare: Comparison) -> Check:
    found, wanted = compare.errors("second")
    if wanted:
        return Check("second gradients", SKIPPED, note=f"eager has none: {wanted}")
    if found:
        return Check("second gradients", DIFFERS, (f"backward: {found} instead of no error",))
    return compare.check("second gradients")


def _ops(eager: Side, trace: Side) -> Check:
    if any(line.startswith("unroll") for line in trace.trace.provenance):
        return Check("ops", SKIPPED, note="the classes are not asked in a lowered trace")
    found, wanted = trace.sent(), eager.sent()
    return Comparison(found, wanted).check("ops")
