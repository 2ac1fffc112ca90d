"""One pass of a trace as the explorer walks it: rows by id, what encloses them, and which are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from .fold import Chosen, is_one, predicate
from .groups import blocks_with, split
from .listing import Listing, Names
from .rows import Row, View
from .seen import Seen, Summary

__all__ = ["Folds", "Line", "Sheet"]


@dataclass(frozen=True)
class Folds:
    """Which rows are open.

    Args:
        depth: The deepest level that is shown; None shows all.
        opened: Ids of rows that are open all the same.
        closed: Ids of rows that are closed all the same.
        apart: Repeated blocks that stand outside of their row, by the ids of their first rows.
    """

    depth: int | None = 1
    opened: frozenset[str] = frozenset()
    closed: frozenset[str] = frozenset()
    apart: frozenset[str] = frozenset()

    def is_open(self, row: Row) -> bool:
        """Whether what is inside a row is shown."""
        if row.id in self.closed:
            return False
        if row.id in self.opened:
            return bool(row.children)
        is_deep = self.depth is not None and row.depth >= self.depth
        return not is_deep and not row.times and bool(row.children) and not is_one(row)  # The cheapest goes first.


@dataclass(frozen=True)
class Line:
    """A row where it is shown.

    Args:
        row: The row.
        indent: How many rows enclose it.
    """

    row: Row
    indent: int


@dataclass(frozen=True, eq=False)
class Sheet:
    """A view with what is needed to walk in it; it is made once for each pass.

    Args:
        view: The view, with all its rows.
        first: What the inputs and captured tensors were, where the trace was recorded with values.
        whole: The sheet that this one is made of, where blocks stand outside of their rows in it.
    """

    view: View
    first: tuple[Seen, ...] = ()
    whole: Sheet | None = None
    _shown: dict[tuple[Folds, str], tuple[tuple[Line, ...], dict[str, int]]] = field(default_factory=dict)
    _found: dict[str, tuple[str, ...]] = field(default_factory=dict)

    @cached_property
    def rows(self) -> Listing:
        """All rows by id, outermost first."""
        return Listing(self.view)

    @cached_property
    def order(self) -> dict[str, int]:
        """The place of each row among all; a part of a row of blocks has that of the first row in it."""
        if self.whole is not None:
            order = dict(self.whole.order)
            parts = [row for key, row in self.rows.upper.items() if key not in order]
            return order | {row.id: order[row.children[0].id] for row in parts}
        return {key: place for place, key in enumerate(self.rows)}

    @cached_property
    def values(self) -> Names:
        """Every value by name."""
        if self.whole is not None:
            return self.whole.values
        return Names(self.rows)

    @cached_property
    def failing(self) -> str:
        """Id of the innermost operation that failed, empty where none did."""
        key, rows = "", self.view.rows
        while row := next((row for row in reversed(rows) if row.failing), None):
            key, rows = row.id, row.children
        return key

    def end(self, row: Row) -> int:
        """The place of the last row inside a row, or its own."""
        while row.children:
            row = row.children[-1]
        return self.order[row.id]

    @cached_property
    def history(self) -> dict[str, list[tuple[int, Summary]]]:
        """What each value was, and from which place among the rows on."""
        if self.whole is not None:
            return self.whole.history
        found: dict[str, list[tuple[int, Summary]]] = {seen.name: [(-1, seen.summary)] for seen in self.first}
        if not found and not any(row.seen for row in self.rows.upper.values()):
            return found  # Recorded without values: nothing has to be looked through.
        for row in self.view.walk():
            for seen in row.seen if row.depth else ():
                found.setdefault(seen.name, []).append((self.end(row), seen.summary))
        return found

    def value_at(self, name: str, place: int) -> Summary | None:
        """What a value was when the row at a place had ended; None where that is not known."""
        known = [summary for end, summary in self.history.get(name, ()) if end <= place]
        return known[-1] if known else None

    def above(self, key: str) -> Iterator[Row]:
        """Yield the rows around a row, innermost first."""
        while (key := self.rows.parent(key)) != "":
            yield self.rows[key]

    def lines(self, folds: Folds, alone: str = "") -> tuple[Line, ...]:
        """The rows that are shown.

        Args:
            folds: Which rows are open.
            alone: A module path or the name of a value: only its rows are shown.
        """
        return self._lines(folds, alone)[0]

    def places(self, folds: Folds, alone: str = "") -> dict[str, int]:
        """The place of each row among those that are shown, by id."""
        return self._lines(folds, alone)[1]

    def _lines(self, folds: Folds, alone: str) -> tuple[tuple[Line, ...], dict[str, int]]:
        if (known := self._shown.get((folds, alone))) is None:
            lines = tuple(self._walk(self.view.rows, folds, 0, alone))
            known = lines, {line.row.id: place for place, line in enumerate(lines)}
            if len(self._shown) > 3:  # What was folded otherwise a while ago is soon made again.
                del self._shown[next(iter(self._shown))]
            self._shown[folds, alone] = known
        return known

    def _walk(self, rows: tuple[Row, ...], folds: Folds, indent: int, alone: str) -> Iterator[Line]:
        for row in rows:
            if not alone or self._is_about(row, alone):
                yield Line(row, indent)
                if folds.is_open(row):
                    yield from self._walk(row.children, folds, indent + 1, "")
            elif alone in self.modules or row.mentions(alone):
                yield from self._walk(row.children, folds, indent, alone)

    def _is_about(self, row: Row, alone: str) -> bool:
        if alone in self.modules:
            return row.module == alone or row.module.startswith(f"{alone}.")
        return row.depth != 0 and row.mentions(alone) and alone in _mentions(row)

    @cached_property
    def modules(self) -> dict[str, None]:
        """The paths of modules, in order."""
        paths: dict[str, None] = {}
        for row in self.view.rows:
            row.add_modules(paths)
        found: dict[str, None] = {}
        for path in filter(None, paths):
            parts = path.split(".") if not path.startswith("backward of ") else [path]
            found |= dict.fromkeys(".".join(parts[: i + 1]) for i in range(len(parts)))
        return found

    def knows(self, name: str) -> bool:
        """Whether a name is that of a module or a value."""
        return name in self.modules or name in self.values.outer or any(row.mentions(name) for row in self.view.rows)

    def find(self, text: str) -> tuple[str, ...]:
        """Ids of the rows whose operation, class, module or names contain a text.

        Args:
            text: What to look for, in any case; `op:`, `class:`, `module:` or `name:` before it
                says where.
        """
        if text not in self._found:
            found = self.whole.find(text) if self.whole else self._search(text.strip().lower()) if text.strip() else ()
            self._found[text] = tuple(key for key in found if not self.whole or key in self.rows)
        return self._found[text]

    def _search(self, text: str) -> Iterator[str]:
        where, colon, wanted = text.partition(":")
        if not colon or where not in _PLACES:
            where, wanted = "", text
        for row in self.view.walk():
            places = [_PLACES[where]] if where else _PLACES.values()
            if any(wanted.strip() in word.lower() for place in places for word in place(row)):
                yield row.id

    def chosen(self, depth: int | None, collapse: Chosen, expand: Chosen) -> Folds:
        """Folds from what a user gives: a depth, names or a predicate, as for `draw`.

        Raises:
            TraceError: A name is that of no operation, value or module.
        """
        folded, opened = predicate(self.view, collapse), predicate(self.view, expand)
        closed = frozenset(row.id for row in (() if collapse is None else self.view.walk()) if folded(row))
        wanted = {row.id for row in (() if expand is None else self.view.walk()) if opened(row)}
        around = {row.id for key in wanted for row in self.above(key) if not row.times}
        apart = frozenset() if expand is None else blocks_with(self.view, lambda row: row.id in wanted)
        return Folds(depth, frozenset(wanted | around), closed - wanted - around, apart)

    def split(self, apart: frozenset[str]) -> Sheet:
        """The same pass with some blocks outside of their rows, see `groups.split`."""
        return Sheet(split(self.view, apart), self.first, self) if apart else self


def _mentions(row: Row) -> set[str]:
    """The names that a row reads, makes or writes."""
    made = {name for value in row.outputs for name in (value.name, *(inner for _, inner, _ in value.inner))}
    return {*row.inputs, *row.writes, *made}


_PLACES: dict[str, Callable[[Row], list[str]]] = {
    "op": lambda row: [row.symbol],
    "class": lambda row: [value.cls for value in row.outputs],
    "module": lambda row: [row.module],
    "name": lambda row: [value.name for value in row.outputs],
}
