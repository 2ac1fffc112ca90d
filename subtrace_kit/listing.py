"""The rows and values of a view by id and name; what is inside operations is made when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from .rows import Row, Value, View

__all__ = ["Listing", "Names"]


class Listing(Mapping[str, Row]):
    """All rows by id, outermost first.

    Args:
        view: The view. The id of a row inside an operation is that of the operation and its place.
    """

    def __init__(self, view: View) -> None:
        self.view = view
        self.upper: dict[str, Row] = {}
        self._parents: dict[str, str] = {}
        self._add(view.rows, "")

    def _add(self, rows: tuple[Row, ...], parent: str) -> None:
        """Note the groups, and the operations of level 1."""
        for row in rows:
            self.upper[row.id] = row
            if parent:
                self._parents[row.id] = parent
            if not row.depth:
                self._add(row.children, row.id)

    def __getitem__(self, key: str) -> Row:
        if (row := self.upper.get(key)) is not None:
            return row
        parent, _, place = key.rpartition("_")
        children = self[parent].children if parent and place.isdigit() else ()
        if not children or int(place) >= len(children):
            raise KeyError(key)
        return children[int(place)]

    def __iter__(self) -> Iterator[str]:
        return (row.id for row in self.view.walk())

    @cached_property
    def _size(self) -> int:
        return sum(row.count for row in self.view.rows)

    def __len__(self) -> int:
        return self._size

    def parent(self, key: str) -> str:
        """Id of the row that encloses a row, empty for one that nothing encloses."""
        if key in self.upper:
            return self._parents.get(key, "")
        return key.rpartition("_")[0] if key in self else ""


class Names(Mapping[str, Value]):
    """Every value by name: first those that are seen from outside operations, then what they hold.

    Args:
        listing: The rows.
    """

    def __init__(self, listing: Listing) -> None:
        self.listing = listing

    @cached_property
    def outer(self) -> dict[str, Value]:
        """The values that are seen from outside operations."""
        view = self.listing.view
        known = {value.name: value for row in self.listing.upper.values() for value in row.outputs}
        return known | {v.name: v for v in (*view.inputs, *view.captures, *view.outputs)}

    @cached_property
    def _holders(self) -> dict[str, Value]:
        """The values that hold others, by the names of those."""
        return {name: value for value in self.outer.values() for name in value.names[1:]}

    @cached_property
    def _all(self) -> dict[str, Value]:
        return {value.name: value for row in self.listing.view.walk() for value in row.outputs} | self.outer

    def __getitem__(self, key: str) -> Value:
        if key in self.outer:
            return self.outer[key]
        if (holder := self._holders.get(key)) is None:
            return self._all[key]
        kind = next(kind for _, name, kind in holder.inner if name == key)
        return Value(key, kind, kind)

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)
