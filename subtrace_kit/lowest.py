"""What a program runs in the end: ops on plain tensors, and constructors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import ops
from .errors import TraceError
from .memory import shared_memory
from .passes import AUTOGRAD
from .proxies import NumberProxy
from .symbols import BoundSymbol, Context, Kind

__all__ = ["expect_pure", "lowest", "steps_of"]

_INSIDE = Context(grad=False, handler=True)


def steps_of(bound: BoundSymbol) -> Iterator[BoundSymbol]:
    """The ATen ops, constructors and prims of the program's own level: wrappers are values here."""
    if bound.symbol.kind in (Kind.FUNCTION, Kind.APPLY):
        for inner in bound.subsymbols:
            yield from steps_of(inner)
    else:
        yield bound


def lowest(bound: BoundSymbol) -> Iterator[BoundSymbol]:
    """What runs in the end: ops on plain tensors, constructors, reads of attributes, arithmetic on numbers.

    Raises:
        TraceError: Something that is more than its ops.
    """
    name = getattr(bound.symbol.fn, "__name__", "")
    writes = bound.symbol in (ops.STORE, ops.ESCAPE, ops.BUMP, *ops.STATE_WRITES)
    if writes or (bound.symbol.kind is Kind.FUNCTION and name in ops.EFFECTS | AUTOGRAD):
        raise TraceError(f"{bound.symbol.name} does more than compute")
    if bound.context is not None and (bound.context.modes or bound.context.inference):
        raise TraceError(f"{bound.symbol.name} runs below a mode of the program, or in inference mode")
    if _takes_number(bound):
        raise TraceError(f"{bound.symbol.name} takes a number from data")
    inside = bound.symbol.kind in (Kind.FUNCTION, Kind.APPLY) or (bound.symbol.kind is Kind.ATEN and bound.has_wrapper)
    if not inside:
        yield bound.replace(context=_INSIDE)
    elif bound.subsymbols:
        for inner in bound.subsymbols:
            yield from lowest(inner)
    elif bound.results:
        raise TraceError(f"what {bound.symbol.name} runs was not seen")


def _takes_number(bound: BoundSymbol) -> bool:
    return bound.on_wrapper and any(isinstance(p, NumberProxy) for p in bound.arguments)


def expect_pure(body: Sequence[BoundSymbol], outside: set[str]) -> None:
    """Nothing outside is written, no generator of the user's own is drawn from."""
    memory = shared_memory([step for outer in body for step in steps_of(outer)])
    for bound in body:
        if bound.replayed or bound.at_class or bound.symbol.kind is Kind.FUNCTION:
            raise TraceError(f"{bound.symbol.name} stays an operation on wrappers")
        if bound.symbol.kind is not Kind.ATEN:
            continue
        written = ops.written(bound.args, bound.kwargs, ops.op_info(bound.symbol.fn))
        if any(not outside.isdisjoint(memory.get(p.name, {p.name})) for p in written):
            raise TraceError(f"{bound.symbol.name} writes something outside")
        if bound.kwargs.get("generator") is not None:
            raise TraceError(f"{bound.symbol.name} draws from a generator of the program")
