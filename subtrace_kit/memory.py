"""Which values of a trace may share memory, from what the schemas of its ops say."""

from __future__ import annotations

from collections.abc import Iterable

from . import ops
from .symbols import BoundSymbol, Kind

__all__ = ["UNDECLARED_VIEWS", "hands_on", "shared_memory"]

UNDECLARED_VIEWS = frozenset({ops.aten._unsafe_view.default})


def hands_on(bound: BoundSymbol) -> bool:
    """Whether the results of an operation may share memory with its arguments."""
    if bound.symbol.kind is not Kind.ATEN:
        return True
    func = bound.symbol.fn
    return func in UNDECLARED_VIEWS or any(result.alias_info for result in func._schema.returns)


def shared_memory(steps: Iterable[BoundSymbol]) -> dict[str, frozenset[str]]:
    """What the results of operations may share memory with.

    Args:
        steps: Operations in order, at one level.

    Returns:
        For each result the values it may be made of: itself, if it has memory of its own, else what its
        arguments are made of.
    """
    found: dict[str, frozenset[str]] = {}
    for bound in steps:
        given = frozenset().union(*(found.get(p.name, frozenset({p.name})) for p in bound.arguments))
        for proxy in bound.results:
            found[proxy.name] = given if given and hands_on(bound) else frozenset({proxy.name})
    return found
