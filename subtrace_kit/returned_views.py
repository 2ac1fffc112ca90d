"""Which results of a program autograd must know as views of other tensors."""

from __future__ import annotations

from collections import Counter

import torch

from .proxies import Proxy, SubclassTensorProxy
from .symbols import BoundSymbol
from .trace import Trace

__all__ = ["returned_views"]

_NO_VIEWS = frozenset({torch.ops.aten.detach.default})
"""Ops whose result shares memory with an argument without being a view of it."""


def returned_views(trace: Trace) -> frozenset[str]:
    """The wrappers from a tensor outside, or from one that two results share, up to a result that is a view of it.

    A later write through such a result, with a gradient, reaches what it is a view of: that holds for
    the objects that view ops make, not for objects that a constructor makes.

    Args:
        trace: A trace as written.

    Returns:
        Names of values that the view ops themselves must make.
    """
    base_of = {name: base for outer in trace.bound_symbols for name, base in _views(outer)}
    results = {p.name for p in trace.results if isinstance(p, SubclassTensorProxy)}
    outside = {p.name for p in (*trace.inputs, *(capture.proxy for capture in trace.captures))}
    chains = [_chain(name, base_of) for name in results]
    ends = Counter(chain[-1] for chain in chains)
    shown = [c for c in chains if ends[c[-1]] > 1 or not outside.isdisjoint(c)]
    return frozenset(name for chain in shown for name in chain[:-1])


def _chain(name: str, base_of: dict[str, str]) -> list[str]:
    """A value, what it is a view of, what that is a view of, and so on."""
    chain = [name]
    while (base := base_of.get(chain[-1])) is not None:
        chain.append(base)
    return chain


def _views(outer: BoundSymbol) -> list[tuple[str, str]]:
    """Each wrapper that a view op gives, and the wrapper that it is a view of."""
    found = []
    for _, bound in outer.walk():
        if bound.is_step and (base := _viewed(bound)) is not None and not (outer.context and outer.context.inference):
            found += [(p.name, base.name) for p in bound.results if isinstance(p, SubclassTensorProxy)]
    return found


def _viewed(step: BoundSymbol) -> Proxy | None:
    """The wrapper that the results of an op are views of."""
    if step.symbol.fn is None or step.symbol.fn in _NO_VIEWS:
        return None
    taken = {
        name for result in step.symbol.fn._schema.returns if result.alias_info for name in result.alias_info.before_set
    }
    for argument, value in zip(step.symbol.fn._schema.arguments, step.args, strict=False):
        info = argument.alias_info
        if info and not info.is_write and taken & info.before_set and isinstance(value, SubclassTensorProxy):
            return value
    return None
