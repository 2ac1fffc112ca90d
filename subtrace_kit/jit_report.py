"""What a jitted function has met so far, for people to read."""

from __future__ import annotations

import html
from dataclasses import dataclass

__all__ = ["CacheInfo", "EntryReport", "JitReport"]

_SHOWN = 3
_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"


@dataclass(frozen=True)
class CacheInfo:
    """How often a jitted function found a trace.

    Args:
        hits: Calls that a trace was there for.
        misses: Calls that were of a new kind of input.
        entries: How many kinds of input it knows.
        limit: How many it takes.
        backend: What runs them.
    """

    hits: int
    misses: int
    entries: int
    limit: int
    backend: str = "eager"


@dataclass(frozen=True)
class EntryReport:
    """One kind of input.

    Args:
        kind: The arguments, one by one.
        runs: How many calls were of this kind.
        differences: In what it differed from the kinds that were known before it, from the latest first.
        notes: What the backend did with it.
    """

    kind: str
    runs: int
    differences: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def new_because(self) -> str:
        """What made it new."""
        more = len(self.differences) - _SHOWN
        found = "; ".join(self.differences[:_SHOWN]) or "the first call"
        return f"{found}; and {more} more" if more > 0 else found

    @property
    def lines(self) -> list[str]:
        """All but the runs, line by line."""
        return [self.kind, f"new because: {self.new_because}", *self.notes]


@dataclass(frozen=True)
class JitReport:
    """The kinds of input that a jitted function has met, the oldest first. A notebook shows it as a table.

    Args:
        name: The function's name.
        info: Hits and misses.
        entries: The kinds of input.

    Example:
        >>> JitReport("f", CacheInfo(2, 1, 1, 64), (EntryReport("x: f32[2]", 3),))
        jit(f), backend eager: 1 of 64 kinds of input, hits 2, misses 1
          1. ran 3 times
             x: f32[2]
             new because: the first call
    """

    name: str
    info: CacheInfo
    entries: tuple[EntryReport, ...]

    @property
    def title(self) -> str:
        """One line."""
        i = self.info
        kinds = f"{i.entries} of {i.limit} kinds of input"
        return f"jit({self.name}), backend {i.backend}: {kinds}, hits {i.hits}, misses {i.misses}"

    def __str__(self) -> str:
        lines = [self.title]
        for number, entry in enumerate(self.entries, 1):
            lines.append(f"  {number}. {_times(entry.runs)}")
            lines += [f"     {line}" for line in entry.lines]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><td style="{_CELL}">{number}.</td><td style="{_CELL}">{_times(entry.runs)}</td>'
            f'<td style="{_CELL};font-family:monospace">{"<br>".join(map(html.escape, entry.lines))}</td></tr>'
            for number, entry in enumerate(self.entries, 1)
        )
        title = f'<caption style="{_CELL};font-weight:bold">{html.escape(self.title)}</caption>'
        return f'<table style="border-collapse:collapse">{title}{rows}</table>'


def _times(runs: int) -> str:
    return f"ran {runs} time{'' if runs == 1 else 's'}"
