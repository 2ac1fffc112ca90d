"""Where the values of a trace are used for the last time: there a run lets go of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .proxies import Proxy
from .symbols import BoundSymbol
from .trace import Trace

__all__ = ["last_uses"]


def last_uses(trace: Trace) -> list[list[str]]:
    """For each operation, the names of the values that no later one needs.

    Args:
        trace: Any trace. Its inputs, captured tensors and results stay.

    Returns:
        A list of names for each of its bound symbols.
    """
    kept = {p.name for p in (*trace.inputs, *(c.proxy for c in trace.captures), *trace.results)}
    last: dict[str, int] = {}
    for index, bound in enumerate(trace.bound_symbols):
        for proxy in (*_assigned(bound.output), *(p for p in _used(bound) if p.name in last)):
            if proxy.name not in kept:
                last[proxy.name] = index
    found: list[list[str]] = [[] for _ in trace.bound_symbols]
    for name, index in last.items():
        found[index].append(name)
    return found


def _assigned(output: Any) -> Iterator[Proxy]:
    """The values that the statement of an operation gives names to."""
    if isinstance(output, Proxy):
        yield output
    elif isinstance(output, (list, tuple)):
        for item in output:
            yield from _assigned(item)


def _used(bound: BoundSymbol) -> Iterator[Proxy]:
    """The values that an operation takes; of a replayed one, also those that its steps find outside."""
    yield from bound.arguments
    for inner in bound.subsymbols if bound.replayed else ():
        for _, step in inner.walk():
            yield from step.arguments
