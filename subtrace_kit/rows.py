"""The records of the view model: a trace as it is shown."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from .seen import Seen
from .source import Source
from .symbols import Kind

__all__ = ["Row", "Value", "View"]


@dataclass(frozen=True)
class Value:
    """A value as it is shown.

    Args:
        name: Its name in the trace.
        type: Its type in full, inner tensors included.
        short: Its type without the inner tensors.
        cls: Name of its wrapper class, empty for a plain value.
        inner: The plain tensors inside, each as (attribute path, name, type).
        path: How the user knows it, for a captured tensor.
        metadata: What its class keeps beside the inner tensors, as text.
    """

    name: str
    type: str
    short: str
    cls: str = ""
    inner: tuple[tuple[str, str, str], ...] = ()
    path: str = ""
    metadata: str = ""

    @property
    def names(self) -> list[str]:
        """Its name, and those of the plain tensors inside."""
        return [self.name, *(name for _, name, _ in self.inner)]


@dataclass(frozen=True)
class Row:
    """An operation as it is shown.

    Args:
        id: Its position, for instance `op_3_0`: the first operation inside the fourth.
        depth: Its level; 1 is what the user wrote.
        symbol: The operation's name.
        call: It with its arguments, shortened.
        kind: What the operation stands for.
        inputs: Names it reads; those read only inside it come last.
        outputs: Its results; for an in-place operation its argument.
        writes: Names it writes in place.
        wrapper: Whether a wrapper value goes in or comes out.
        source: The user's line (inside a class, the line of the class).
        module: Path of the nn.Module it ran in.
        construction: For a constructor `kept` or `elided`, else empty.
        reason: Why it is kept or elided, where the trace says so.
        failing: Whether the error of a failed trace arose here.
        children: The operations it is made of.
        made_of: Names of the operations directly inside, where they are folded away.
        folded: How many operations are folded away inside it.
        handler: In a lowered trace, the line of the class that ran it.
        times: For a group of repeated blocks, how many there are.
        seen: What its results were, where the trace was recorded with them.
    """

    id: str
    depth: int
    symbol: str
    call: str
    kind: Kind
    inputs: tuple[str, ...]
    outputs: tuple[Value, ...]
    writes: tuple[str, ...] = ()
    wrapper: bool = False
    source: Source | None = None
    module: str = ""
    construction: str = ""
    reason: str = ""
    failing: bool = False
    children: tuple[Row, ...] = ()
    made_of: tuple[str, ...] = ()
    folded: int = 0
    handler: Source | None = None
    times: int = 0
    seen: tuple[Seen, ...] = ()

    @property
    def name(self) -> str:
        """The names of the outputs."""
        return ", ".join(value.name for value in self.outputs)

    @property
    def type(self) -> str:
        """The types of the outputs, in full."""
        return ", ".join(value.type for value in self.outputs)

    @property
    def count(self) -> int:
        """How many rows this one and those inside it are."""
        return 1 + sum(child.count for child in self.children)

    @property
    def likeness(self) -> Hashable:
        """What is equal for rows that do the same to values of the same kinds."""
        types = tuple(value.type for value in self.outputs)
        line = (self.source.file, self.source.line) if self.source else None
        inside = tuple(child.likeness for child in self.children)
        return self.symbol, self.kind, types, self.construction, line, self.failing, inside

    def mentions(self, name: str) -> bool:
        """Whether a value's name occurs here or inside."""
        here = name in self.inputs or name in self.writes or any(name in value.names for value in self.outputs)
        return here or any(child.mentions(name) for child in self.children)

    def add_modules(self, found: dict[str, None]) -> None:
        """Add the paths of the modules in which this row and those inside it ran."""
        found[self.module] = None
        for child in self.children:
            child.add_modules(found)

    def walk(self) -> Iterator[Row]:
        """Yield this row and all rows inside it, outermost first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True)
class View:
    """A trace as it is shown.

    Args:
        name: The program's name.
        provenance: The last line of the trace's provenance.
        inputs: The tensors among the arguments.
        captures: Tensors that are neither inputs nor results.
        outputs: The values in the result.
        rows: The operations of level 1, the others inside them.
        elided: Constructions that no row shows, as (class, names, reason).
        failure: The error of a failed trace.
        earlier: Values that operations made which the view does not show.
        notes: What the view leaves out, in words.
    """

    name: str
    provenance: str
    inputs: tuple[Value, ...]
    captures: tuple[Value, ...]
    outputs: tuple[Value, ...]
    rows: tuple[Row, ...]
    elided: tuple[tuple[str, tuple[str, ...], str], ...] = ()
    failure: str = ""
    earlier: tuple[Value, ...] = ()
    notes: tuple[str, ...] = ()

    def walk(self) -> Iterator[Row]:
        """Yield all rows, outermost first."""
        for row in self.rows:
            yield from row.walk()

    @property
    def size(self) -> int:
        """How many operations are shown as nodes: those with none shown inside."""
        return sum(not row.children for row in self.walk())
