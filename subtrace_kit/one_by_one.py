"""A trace's operations, called one by one through their classes: no text is generated, nothing is lowered."""

from __future__ import annotations

import operator
from typing import Any

import torch

from . import ops
from .errors import TraceError
from .intercept import build_wrapper
from .proxies import Proxy
from .symbols import BoundSymbol, Kind, map_tree
from .trace import Trace

__all__ = ["OneByOne"]


class OneByOne:
    """What eager runs for a backward: the ops that autograd sends, under no_grad.

    Args:
        trace: A backward.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace, self.__name__ = trace, trace.name

    def __call__(self, *args: Any) -> Any:
        """Run on saved values and gradients."""
        known = dict(zip(self.trace.guard.positional, args, strict=True))
        with torch.no_grad():
            for bound in self.trace.bound_symbols:
                _bind(bound.output, _call(bound, known), known)
        return _filled(self.trace.output, known)


def _filled(tree: Any, known: dict[str, Any]) -> Any:
    return map_tree(lambda leaf: known[leaf.name] if isinstance(leaf, Proxy) else leaf, tree)


def _call(bound: BoundSymbol, known: dict[str, Any]) -> Any:
    args, kwargs = _filled((bound.args, bound.kwargs), known)
    kind, proxy = bound.symbol.kind, bound.output
    if kind is Kind.CONSTRUCTOR:
        inner = dict(zip((name for name, _ in proxy.inner), args, strict=True))
        return build_wrapper(proxy.cls, inner, proxy.metadata, torch.Size(proxy.shape), proxy.stride)
    if kind is Kind.PRIM:
        return _prim(bound)(*args)
    return (bound.symbol.fn.apply if kind is Kind.APPLY else bound.symbol.fn)(*args, **kwargs)


def _prim(bound: BoundSymbol) -> Any:
    known = {ops.GETATTR: getattr, ops.SETATTR: setattr, ops.DELATTR: delattr}
    name = bound.symbol.name.removeprefix("operator.")
    found = known.get(bound.symbol) or getattr(operator, name, None)
    if found is None:
        raise TraceError(f"{bound.symbol.name} cannot be called by itself", source=bound.source)
    return found


def _bind(names: Any, values: Any, known: dict[str, Any]) -> None:
    """Give the results of an operation their names."""
    if isinstance(names, Proxy):
        known[names.name] = values
    elif isinstance(names, (list, tuple)) and isinstance(values, (list, tuple)):
        for name, value in zip(names, values, strict=True):
            _bind(name, value, known)
