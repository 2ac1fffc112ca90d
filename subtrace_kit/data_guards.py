"""The remark of a lowered trace on values from data that it was recorded with."""

from __future__ import annotations

from collections.abc import Iterator

from .proxies import NumberProxy, TensorProxy
from .symbols import BoundSymbol
from .trace import Trace

__all__ = ["with_data_guards"]

_SHOWN = 4


def with_data_guards(trace: Trace) -> Trace:
    """The same trace, with a line of provenance that names the values from data which each run compares.

    Args:
        trace: A lowered trace: where it runs with other data, they must give these values again.
    """
    found = [name for outer in trace.bound_symbols for bound in _run(outer) for name in _guarded(bound)]
    if not found:
        return trace
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    line = f"guards values from data: {', '.join(found[:_SHOWN])}{more} must be as recorded"
    return trace.replace(provenance=(*trace.provenance, line))


def _run(bound: BoundSymbol) -> Iterator[BoundSymbol]:
    """An operation, and what answers in place of the handlers that it reaches."""
    yield bound
    for step in bound.subsymbols if bound.replayed else ():
        yield from step.subsymbols


def _guarded(bound: BoundSymbol) -> Iterator[str]:
    for proxy in bound.results:
        if isinstance(proxy, NumberProxy) and proxy.guarded:
            yield proxy.name
        elif bound.checked and isinstance(proxy, TensorProxy):
            yield f"{proxy.name}.shape"
