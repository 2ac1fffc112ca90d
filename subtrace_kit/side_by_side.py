"""Two passes side by side: which operations are in both, which vanished and which are new."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property, lru_cache

from .fragments import escape
from .rows import Row
from .sheet import Sheet
from .symbols import Kind

__all__ = ["Pairing", "pairing", "to_html"]

SHOWN = 9
"""Rows shown before and after the current one."""

Key = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class Pairing:
    """The operations of two passes that do the work, those with nothing inside, line by line.

    Args:
        lines: Pairs of rows: None on the right is an operation that vanished, on the left a new one.
    """

    lines: tuple[tuple[Row | None, Row | None], ...]

    @cached_property
    def places(self) -> tuple[dict[str, int], dict[str, int]]:
        """The line of each row of the left and of the right pass, by id."""
        left = {pair[0].id: i for i, pair in enumerate(self.lines) if pair[0] is not None}
        return left, {pair[1].id: i for i, pair in enumerate(self.lines) if pair[1] is not None}

    @property
    def vanished(self) -> list[Row]:
        """Operations of the left pass only."""
        return [left for left, right in self.lines if left is not None and right is None]

    @property
    def new(self) -> list[Row]:
        """Operations of the right pass only."""
        return [right for left, right in self.lines if right is not None and left is None]

    @cached_property
    def summary(self) -> str:
        """What vanished and what is new, in words."""
        left = sum(a is not None for a, _ in self.lines)
        right = sum(b is not None for _, b in self.lines)
        told = f"{left} operations, beside {right}"
        for rows, what in ((self.vanished, "vanished"), (self.new, "new")):
            kinds = Counter(_what(row) for row in rows).most_common()
            listed = ", ".join(f"{name} x{count}" if count > 1 else name for name, count in kinds[:6])
            more = f", and {len(kinds) - 6} more kinds" if len(kinds) > 6 else ""
            told += f"; {what}: {len(rows)}" + (f" ({listed}{more})" if rows else "")
        return told


def _what(row: Row) -> str:
    return f"object {row.symbol}" if row.kind is Kind.CONSTRUCTOR else row.symbol


@lru_cache(maxsize=2)
def pairing(left: Sheet, right: Sheet) -> Pairing:
    """Put the operations of two passes side by side, by name and results, in their order.

    Args:
        left: One pass.
        right: The other.
    """
    a, b = _leaves(left), _leaves(right)
    places = {key: place for place, key in enumerate(b)}
    right_rows = list(b.values())
    lines: list[tuple[Row | None, Row | None]] = []
    done = 0
    for key, row in a.items():
        place = places.get(key, -1)
        if place < done:  # Not there, or moved before what was paired already.
            lines.append((row, None))
            continue
        lines += [(None, new) for new in right_rows[done:place]]
        lines.append((row, right_rows[place]))
        done = place + 1
    return Pairing((*lines, *((None, new) for new in right_rows[done:])))


def _leaves(sheet: Sheet) -> dict[tuple[Key, int], Row]:
    """The rows that do the work, each by its operation, its results, and how often those came before."""
    seen: Counter[Key] = Counter()
    found: dict[tuple[Key, int], Row] = {}
    for row in sheet.view.walk():
        if row.children:
            continue
        key = row.symbol, tuple(value.name for value in row.outputs) or row.inputs
        found[key, seen[key]] = row
        seen[key] += 1
    return found


def to_html(early: Sheet, late: Sheet, names: tuple[str, str], at: str, *, here: int = 0) -> str:
    """The two passes around the current operation, as a table.

    Args:
        early: The pass that comes first.
        late: The pass that is made of it.
        names: What the two are called.
        at: Id of the current row.
        here: Which of the two it is in, 0 or 1.
    """
    found = pairing(early, late)
    sheet = (early, late)[here]
    place = found.places[here].get(_first(sheet, at), 0)
    first = max(0, place - SHOWN)
    lines = found.lines[first : place + SHOWN + 1]
    body = "".join(_line(*pair, _is_in(pair[here], at, sheet)) for pair in lines)
    head = f"<tr><th>{escape(names[0])}</th><th>{escape(names[1])}</th></tr>"
    hidden = len(found.lines) - len(lines)
    note = f"<p>{hidden} more lines before and after</p>" if hidden else ""
    return f"<p>{escape(found.summary)}</p><table>{head}{body}</table>{note}"


def _first(sheet: Sheet, key: str) -> str:
    """Id of the first row inside a row that does work."""
    row = sheet.rows.get(key)
    while row is not None and row.children:
        row = row.children[0]
    return row.id if row else ""


def _is_in(row: Row | None, key: str, sheet: Sheet) -> bool:
    return row is not None and (row.id == key or any(outer.id == key for outer in sheet.above(row.id)))


def _line(left: Row | None, right: Row | None, here: bool) -> str:
    a = _cell(left, "" if right else "gone", "vanished: ")
    b = _cell(right, "" if left else "new", "new: ")
    return f'<tr class="here">{a}{b}</tr>' if here else f"<tr>{a}{b}</tr>"


def _cell(row: Row | None, mark: str, word: str) -> str:
    if row is None:
        return "<td></td>"
    text = f"{row.name} = {row.symbol}" if row.name else row.call
    return f'<td><code class="{mark}">{escape((word if mark else "") + text)}</code></td>'
