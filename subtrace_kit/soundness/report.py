"""The report of check: one row for each rule."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from ..errors import TraceError
from ..table import html_table, text_table
from .rule import Fault

__all__ = ["BROKEN", "HOLDS", "NOT_TRIED", "Finding", "Soundness"]

HOLDS, BROKEN, NOT_TRIED = "holds", "broken", "not tried"
_COLORS = {HOLDS: "#2e7d4f", BROKEN: "#c62828", NOT_TRIED: "#5b6770"}
_SHOWN = 3


@dataclass(frozen=True, repr=False)
class Finding:
    """What came of one rule.

    Args:
        name: The rule: `flatten`, `views`, `gradients`, ...
        says: The rule as a sentence.
        verdict: `holds`, `broken` or `not tried`.
        faults: What breaks it, with the line in the class and the way out.
        note: What was tried, or why nothing was.
    """

    name: str
    says: str
    verdict: str
    faults: tuple[Fault, ...] = ()
    note: str = ""

    @property
    def lines(self) -> list[str]:
        """The rule where it is broken, the first faults, the note."""
        shown = self.faults[:_SHOWN]
        alike = [list(faults) for _, faults in groupby(shown, lambda fault: (fault.source, fault.way_out))]
        lines = [line for faults in alike for line in (*(f.text for f in faults[:-1]), *faults[-1].lines)]
        broken = [self.says, *"\n".join(lines).splitlines()] if self.faults else []
        more = len(self.faults) - _SHOWN
        return broken + ([f"and {more} more"] if more > 0 else []) + self.note.splitlines()

    def __str__(self) -> str:
        return "\n".join((f"{self.name}: {self.verdict}", *(f"  {line}" for line in self.lines)))

    __repr__ = __str__


@dataclass(frozen=True)
class Soundness:
    """The rules for a wrapper subclass, tried one by one. It prints; a notebook shows it as a table.

    Args:
        name: The name of the class.
        examples: How the examples read.
        rows: The findings.

    Example:
        >>> Soundness("Mine", ("Mine f32[2]",), (Finding("flatten", "It can be taken apart.", "holds"),))
        Mine: 1 rule holds
        tried on Mine f32[2]
          flatten  holds
    """

    name: str
    examples: tuple[str, ...]
    rows: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether no rule is broken."""
        return all(row.verdict != BROKEN for row in self.rows)

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The rules that are broken."""
        return tuple(row for row in self.rows if row.verdict == BROKEN)

    def row(self, name: str) -> Finding:
        """The finding of the rule of that name.

        Raises:
            KeyError: There is none.
        """
        rows = {row.name: row for row in self.rows}
        if name not in rows:
            raise KeyError(f"no rule {name!r}; there are {', '.join(rows)}")
        return rows[name]

    def raise_if_broken(self) -> None:
        """Raise the report as an error if a rule is broken.

        Raises:
            TraceError: A rule is broken; the error's text is that of the report.
        """
        if not self.ok:
            raise TraceError(str(self))

    @property
    def title(self) -> str:
        """The outcome in one line."""
        counts = [(word, sum(row.verdict == word for row in self.rows)) for word in _COLORS]
        held, *others = [f"{n} {word}" for word, n in counts if n or word == HOLDS]
        rules = held.replace("holds", "rule holds" if held.startswith("1 ") else "rules hold")
        return f"{self.name}: {', '.join([rules, *others])}"

    @property
    def _head(self) -> str:
        return f"{self.title}\ntried on {', '.join(self.examples)}"

    def _cells(self) -> list[tuple[str, str, list[str]]]:
        return [(row.name, row.verdict, row.lines) for row in self.rows]

    def __str__(self) -> str:
        return text_table(self._head, self._cells())

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self._head, self._cells(), _COLORS)
