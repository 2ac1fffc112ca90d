"""Whether a run that its data have broken off may be made again from the start."""

from __future__ import annotations

from dataclasses import dataclass

from . import ops
from .memory import hands_on
from .passes import has_effect
from .proxies import NumberProxy, names_in
from .symbols import BoundSymbol, Kind
from .trace import Trace

__all__ = ["Repeatable", "draws", "repeatable"]


@dataclass(frozen=True)
class Repeatable:
    """What a run does up to the last value from data that it compares.

    Args:
        allowed: Whether nothing is left of it, random numbers aside.
        draws: Whether it draws random numbers of torch's own generators.
    """

    allowed: bool
    draws: bool


def repeatable(trace: Trace) -> Repeatable:
    """Whether a run leaves no mark where a value from data is not as recorded.

    Args:
        trace: A lowered trace.

    Returns:
        What it does before its last comparison: writes into its own temporaries are no mark.
    """
    before = _before_last_guard(trace)
    outside = {name for proxy in (*trace.inputs, *(c.proxy for c in trace.captures)) for name in names_in(proxy)}
    allowed = True
    for bound in before:
        allowed = allowed and not _leaves_mark(bound, outside)
        if _hands_on(bound, outside):
            outside.update(name for proxy in bound.outputs for name in names_in(proxy))
    return Repeatable(allowed, any(map(_draws_numbers, before)))


def _before_last_guard(trace: Trace) -> list[BoundSymbol]:
    found: list[BoundSymbol] = []
    last = 0
    for outer in trace.bound_symbols:
        inside = [inner for _, inner in outer.walk()]
        found += inside
        if any(map(_compares, inside)):
            last = len(found)
    return found[:last]


def _compares(bound: BoundSymbol) -> bool:
    return bound.checked or any(isinstance(p, NumberProxy) and p.guarded for p in bound.outputs)


def _leaves_mark(bound: BoundSymbol, outside: set[str]) -> bool:
    if bound.symbol in ops.STATE_WRITES or bound.symbol is ops.BUMP:
        return not outside.isdisjoint(names_in(bound.args[0]))
    if bound.symbol.kind is Kind.ATEN:
        written = ops.written(bound.args, bound.kwargs, ops.op_info(bound.symbol.fn))
        own_generator = bound.kwargs.get("generator") is not None
        return own_generator or any(not outside.isdisjoint(names_in(p)) for p in written)
    if bound.effect or getattr(bound.symbol.fn, "__name__", "") in ops.EFFECTS:
        return True  # not all that it does is listed below it
    known = bound.symbol.kind is Kind.CONSTRUCTOR or bound.symbol is ops.GETATTR or bound.subsymbols
    return not known and not _compares(bound) and has_effect(bound)


def _hands_on(bound: BoundSymbol, outside: set[str]) -> bool:
    """Whether results may share memory with what stands outside."""
    if all(outside.isdisjoint(names_in(p)) for p in bound.arguments):
        return False
    unsure = bound.has_wrapper or getattr(bound.symbol.fn, "namespace", "") != "aten"
    return unsure or hands_on(bound)


def _draws_numbers(bound: BoundSymbol) -> bool:
    return bound.symbol.kind is Kind.ATEN and ops.op_info(bound.symbol.fn).random


def draws(trace: Trace) -> bool:
    """Whether a trace draws random numbers of torch's own generators."""
    return any(_draws_numbers(inner) for outer in trace.bound_symbols for _, inner in outer.walk())
