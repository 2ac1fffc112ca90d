"""The view model: a trace as frozen rows, from which text, pictures and the explorer are drawn."""

from __future__ import annotations

import dataclasses

from .bound_rows import Reader
from .rows import Row, Value, View
from .touched import constructed, stem
from .trace import Construction, Trace

__all__ = ["Row", "Value", "View", "stem", "view"]


def view(trace: Trace) -> View:
    """A trace as frozen rows, whole. What a row says is worked out when it is first looked at.

    Args:
        trace: A trace of any pass.

    Returns:
        Its view; `section` and `fold` of `fold.py` make smaller ones of it.

    Example:
        >>> [(row.depth, row.symbol, row.name) for row in view(t).walk()]  # doctest: +SKIP
        [(1, 'torch.mul', 't0'), (2, 'aten.mul.Tensor', 't0')]
    """
    reader = Reader({entry.proxy.name: entry for entry in trace.ledger})
    last = len(trace.bound_symbols) - 1
    rows = tuple(
        [
            reader.row(bound, f"op_{i}", 1, bool(trace.failure) and i == last)
            for i, bound in enumerate(trace.bound_symbols)
        ]
    )
    return View(
        trace.name,
        trace.provenance[-1] if trace.provenance else "",
        tuple(map(reader.value, trace.inputs)),
        tuple(dataclasses.replace(reader.value(c.proxy), path=c.path) for c in trace.captures),
        reader.values(trace.results),
        rows,
        _elided(trace),
        trace.failure,
    )


def _elided(trace: Trace) -> tuple[tuple[str, tuple[str, ...], str], ...]:
    """The constructions that no row shows."""
    if not trace.ledger:
        return ()
    shown = {name for bound in trace.bound_symbols for name in constructed(bound)}
    entries = [entry for entry in trace.ledger if not entry.kept and entry.proxy.name not in shown]
    return _by_class(entries)


def _by_class(entries: list[Construction]) -> tuple[tuple[str, tuple[str, ...], str], ...]:
    groups: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        groups.setdefault((entry.proxy.cls.__name__, entry.reason), []).append(entry.proxy.name)
    return tuple((cls, tuple(names), reason) for (cls, reason), names in groups.items())
