"""Checks that a trace is sound: run after every pass in tests."""

from __future__ import annotations

from .errors import TraceError
from .proxies import SubclassTensorProxy
from .shown import a_kind
from .symbols import BoundSymbol, Kind
from .trace import Trace

__all__ = ["check_trace"]


def check_trace(trace: Trace) -> Trace:
    """Make sure that every name is defined once before its use, and that outputs are defined.

    Args:
        trace: Any trace.

    Returns:
        The same trace.

    Raises:
        TraceError: It is not sound; the error names the value and the operation.
    """
    known = {p.name for p in (*trace.inputs, *(c.proxy for c in trace.captures))}
    for bound in trace.bound_symbols:
        for proxy in bound.arguments:
            if proxy.name not in known:
                raise _unsound(f"{bound.symbol.name} uses {proxy.name}, which nothing before it defines", bound)
        for proxy in bound.results:
            if proxy.name in known:
                raise _unsound(f"{bound.symbol.name} defines {proxy.name} again", bound)
            known.add(proxy.name)
        _check_constructor(bound)
    for proxy in trace.results:
        if proxy.name not in known:
            raise _unsound(f"the result {proxy.name} is defined by no operation", None)
    return trace


def _check_constructor(bound: BoundSymbol) -> None:
    if bound.symbol.kind is not Kind.CONSTRUCTOR:
        return
    proxy = bound.output
    if not isinstance(proxy, SubclassTensorProxy) or proxy.cls is not bound.symbol.fn:
        raise _unsound(f"the constructor {bound.symbol.name} gives {a_kind(proxy)}", bound)
    if [p.name for p in bound.args] != [p.name for _, p in proxy.inner]:
        raise _unsound(f"the inner tensors of {proxy.name} are not those it is built from", bound)


def _unsound(what: str, bound: BoundSymbol | None) -> TraceError:
    return TraceError(
        what,
        source=bound.source if bound else None,
        cause="an operation made a tensor in a way that torch's dispatcher does not show",
        way_out="run `t` itself instead of lower(t); keep such tensors in places that __tensor_flatten__ names",
    )
