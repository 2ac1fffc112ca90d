"""Data flow between the operations that a view shows."""

from __future__ import annotations

from dataclasses import dataclass

from .bundles import Bundle, bundled, bundles
from .rows import Row, Value, View
from .symbols import Kind

__all__ = ["Edge", "Flow", "flow", "nodes"]


@dataclass(frozen=True)
class Edge:
    """A value on its way.

    Args:
        source: Id of the row, or of the input (`in_0`, `cap_0`, `earlier_0`), that made or last
            wrote the value. A row with children has written the inner tensors of a wrapper value.
        target: Id of the row, or of the result (`out_0`), that reads it. A row with children takes
            a wrapper value of which only inner tensors are read inside.
        name: The value's name.
        wrapper: Whether it is a wrapper value.
        order: No value goes this way: the target writes what the source has read before.
    """

    source: str
    target: str
    name: str
    wrapper: bool = False
    order: bool = False


@dataclass(frozen=True)
class Flow:
    """Edges, and the nodes that come with them.

    Args:
        edges: In the order of the operations.
        unknown: The names that are read but made nowhere, whose nodes are `unknown_0`, ...
        bundles: The captured values that are drawn together; edges begin at their bundle.
    """

    edges: tuple[Edge, ...]
    unknown: tuple[str, ...]
    bundles: tuple[Bundle, ...] = ()


def nodes(shown: View) -> tuple[tuple[str, Value], ...]:
    """The values that a view starts from, each with the id of its node."""
    kinds = {"in": shown.inputs, "cap": shown.captures, "earlier": shown.earlier}
    return tuple((f"{kind}_{i}", value) for kind, values in kinds.items() for i, value in enumerate(values))


def flow(shown: View) -> Flow:
    """The data flow of a view, by the names of values.

    An operation hangs on the last one that wrote what it reads. What a wrapper holds was made where
    its inner tensors were made; who writes one of these also writes the wrapper.

    Args:
        shown: A view, folded or not.

    Returns:
        Edges in the order of the operations.

    Example:
        >>> [(e.source, e.target, e.name) for e in flow(view(t)).edges]  # doctest: +SKIP
        [('in_0', 'op_0_0', 'x'), ('op_0_0', 'out_0', 't0')]
    """
    state = _State()
    for node, value in nodes(shown):
        state.define(node, value)
    for row in shown.rows:
        state.visit(row)
    for i, value in enumerate(shown.outputs):
        state.note(value)
        state.arrive(f"out_{i}", value.name, 1)
    found = bundles(state.edges)
    return Flow(bundled(state.edges, found), tuple(state.unknown), found)


class _State:
    """Who wrote each value last, while a view is walked in order."""

    def __init__(self) -> None:
        self.edges: dict[Edge, None] = {}
        self.entered: frozenset[str] = frozenset()  # what the enclosing rows take
        self.joined: set[tuple[str, str]] = set()
        self.unknown: dict[str, str] = {}  # name -> node
        self.writers: dict[str, tuple[str, ...]] = {}
        self.readers: dict[str, list[str]] = {}  # since the last write
        self.passed: dict[str, tuple[str, int]] = {}  # returned as it is, by an operation of a level
        self.inner: dict[str, tuple[str, ...]] = {}
        self.owners: dict[str, dict[str, None]] = {}

    def visit(self, row: Row) -> str:
        """Add the edges of a row and of all inside; return the last node."""
        for value in row.outputs:
            self.note(value)
        if not row.children:
            return self.leaf(row)
        outer = self.entered
        self.enter(row)
        last = [self.visit(child) for child in row.children][-1]
        for value in row.outputs:
            if value.name not in self.writers:
                self.define(last, value)
        self.writers |= {name: (row.id,) for name in row.writes if name in self.inner}
        self.entered = outer
        return last

    def enter(self, row: Row) -> None:
        """The wrapper values that go into a row as a whole, and into nothing inside it."""
        inside = {name for leaf in row.walk() if not leaf.children for name in leaf.inputs}
        for name in row.inputs:
            if name in self.inner and name not in inside and name not in self.entered:
                self.arrive(row.id, name, row.depth, whole=True)
        self.entered = self.entered | frozenset(row.inputs)

    def leaf(self, row: Row) -> str:
        for name in row.inputs:
            self.arrive(row.id, name, row.depth)
            if row.kind is not Kind.CONSTRUCTOR and row.symbol != "getattr":  # These hold, not read.
                self.readers.setdefault(name, []).append(row.id)
        for name in row.writes:
            self.write(row.id, name)
        for value in row.outputs:
            if value.name not in self.writers:
                self.define(row.id, value)
            elif value.name not in row.writes:
                self.passed[value.name] = row.id, row.depth
        return row.id

    def note(self, value: Value) -> None:
        """Learn what a wrapper value holds."""
        if value.cls and value.name not in self.inner:
            self.inner[value.name] = tuple(name for _, name, _ in value.inner)
            for name in self.inner[value.name]:
                self.owners.setdefault(name, {})[value.name] = None

    def define(self, node: str, value: Value) -> None:
        self.note(value)
        self.writers[value.name] = (node,)
        for name in self.inner.get(value.name, ()):
            self.writers.setdefault(name, (node,))

    def arrive(self, node: str, name: str, depth: int, *, whole: bool = False) -> None:
        for source in self.sources(name, depth)[: 1 if whole else None]:
            if source != node:
                self.edges.setdefault(Edge(source, node, name, name in self.inner))
                self.joined.add((source, node))

    def sources(self, name: str, depth: int) -> tuple[str, ...]:
        if (passed := self.passed.get(name)) and depth <= passed[1]:
            return (passed[0],)
        if name in self.writers:
            return self.writers[name]
        return (self.unknown.setdefault(name, f"unknown_{len(self.unknown)}"),)

    def write(self, node: str, name: str) -> None:
        parts, owners = self.inner.get(name, ()), self.owners.get(name, {})
        for touched in (name, *parts, *owners):
            self.order(node, touched)
            self.passed.pop(touched, None)
        old = self.writers.get(name, ())
        for owner in owners:
            kept = [w for w in self.writers.get(owner, ()) if w not in old and w != node]
            self.writers[owner] = (*kept, node)
        for written in (name, *parts):
            self.writers[written] = (node,)

    def order(self, node: str, name: str) -> None:
        """Everyone who has read a value since it was last written comes before its next writer."""
        for reader in self.readers.pop(name, ()):
            if reader != node and (reader, node) not in self.joined:
                self.edges.setdefault(Edge(reader, node, name, order=True))
