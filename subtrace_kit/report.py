"""The report of verify: one row for each thing that is compared."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import TraceError
from .table import html_table, text_table

__all__ = ["CLOSE", "DIFFERS", "SAME", "SKIPPED", "Check", "Report"]

SAME, CLOSE, DIFFERS, SKIPPED = "same", "close", "differs", "not compared"
_COLORS = {SAME: "#2e7d4f", CLOSE: "#b35900", DIFFERS: "#c62828", SKIPPED: "#5b6770"}
_SHOWN = 4


@dataclass(frozen=True)
class Check:
    """One thing that is compared.

    Args:
        name: What: `values`, `strides`, `gradients`, ...
        verdict: `same`, `close` (within the tolerance), `differs` or `not compared`.
        differences: A line for each difference: where, what the trace has, what eager has.
        note: What else is to be said, for instance why nothing was compared.
    """

    name: str
    verdict: str
    differences: tuple[str, ...] = ()
    note: str = ""

    @property
    def lines(self) -> list[str]:
        """The note and the first differences."""
        more = len(self.differences) - _SHOWN
        found = [*([self.note] if self.note else []), *self.differences[:_SHOWN]]
        return found + ([f"and {more} more"] if more > 0 else [])


@dataclass(frozen=True)
class Report:
    """Eager and a trace side by side. It prints one line a check; a notebook shows it as a table.

    Args:
        name: The program's name.
        rows: The checks.

    Example:
        >>> Report("f", (Check("values", "same"), Check("strides", "differs", ("out: (1,) instead of (2,)",))))
        f: 1 of 2 checks differ
          values   same
          strides  differs  out: (1,) instead of (2,)
    """

    name: str
    rows: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether no check differs."""
        return all(row.verdict != DIFFERS for row in self.rows)

    def row(self, name: str) -> Check:
        """The check of that name.

        Raises:
            KeyError: There is none.
        """
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise KeyError(f"no row {name!r}; there are {', '.join(rows)}")
        return rows[name]

    def raise_if_wrong(self) -> None:
        """Raise the report as an error if a check differs.

        Raises:
            TraceError: A check differs; the error's text is that of the report.
        """
        if not self.ok:
            raise TraceError(str(self))

    @property
    def title(self) -> str:
        """The outcome in one line."""
        wrong, skipped = (sum(row.verdict == verdict for row in self.rows) for verdict in (DIFFERS, SKIPPED))
        left = f", {skipped} not compared" if skipped else ""
        outcome = f"{wrong} of {len(self.rows)} checks differ" if wrong else "eager and trace agree"
        return f"{self.name}: {outcome}{left}"

    def __str__(self) -> str:
        return text_table(self.title, self._cells())

    __repr__ = __str__

    def _cells(self) -> list[tuple[str, str, list[str]]]:
        return [(row.name, row.verdict, row.lines) for row in self.rows]

    def _repr_html_(self) -> str:
        return html_table(self.title, self._cells(), _COLORS)
