"""The explorer's state: which pass, which operation, what is open; every step gives a new one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from .errors import TraceError
from .fold import Chosen
from .groups import block_of
from .rows import Row
from .sheet import Folds, Line, Sheet
from .shown_passes import Passes
from .trace import Trace

__all__ = ["Explorer", "start"]

DEFAULT = Folds()
COLLAPSE_ABOVE = 2000
"""Operations above which all is folded at first."""


def start(
    trace: Trace | TraceError,
    *,
    depth: int | None = None,
    collapse: Chosen = None,
    expand: Chosen = None,
    passes: Mapping[str, Trace] | None = None,
) -> Explorer:
    """The explorer of a trace at its first operation, or at the one that failed.

    Args:
        trace: A trace of any pass, or the error that ended one.
        depth: The deepest level that is shown; None shows all of a small trace.
        collapse: Operations to fold: a name, several, or a predicate on `view.Row`.
        expand: Operations to open in spite of `depth` and `collapse`.
        passes: More traces to choose from, by the name that is shown.

    Returns:
        The state; its methods give others.

    Raises:
        TraceError: The error has no trace, or a name is that of no operation.

    Example:
        >>> start(t).step().row.symbol  # doctest: +SKIP
        'torch.relu'
    """
    known = Passes.of(trace, passes or {})
    sheet = known.sheet(known.first)
    note = ""
    if depth is None and (count := len(sheet.rows)) > COLLAPSE_ABOVE:
        depth, note = 1, f"{count} operations: folded to level 1; expand what you want to see"
    folds = sheet.chosen(depth, collapse, expand)
    state = Explorer(known, known.first, folds=folds, first_folds=folds, message=note)
    return state.reveal(sheet.failing) if sheet.failing else state.first()


@dataclass(frozen=True)
class Explorer:
    """What the explorer shows; it never changes, each method gives another one.

    Args:
        passes: The traces to choose from.
        label: The chosen pass.
        at: Id of the current operation.
        folds: What is open.
        first_folds: What was open at first.
        query: What is searched for.
        alone: A module path or a value's name: only its rows are shown.
        beside: The pass that is shown beside, empty where none is.
        message: What the last step has to say.
    """

    passes: Passes
    label: str
    at: str = ""
    folds: Folds = DEFAULT
    first_folds: Folds = DEFAULT
    query: str = ""
    alone: str = ""
    beside: str = ""
    message: str = ""

    # --------------------------------------------------------------------------------- questions

    @property
    def sheet(self) -> Sheet:
        """The chosen pass with its rows."""
        return self.passes.sheet(self.label, self.folds.apart)

    @property
    def lines(self) -> tuple[Line, ...]:
        """The rows that are shown."""
        return self.sheet.lines(self.folds, self.alone)

    @property
    def row(self) -> Row | None:
        """The current operation; None in a trace without any."""
        return self.sheet.rows.get(self.at)

    @property
    def place(self) -> int:
        """The place of the current operation among the rows that are shown."""
        return self.sheet.places(self.folds, self.alone).get(self.at, 0)

    @property
    def matches(self) -> tuple[str, ...]:
        """Ids of the rows that the search finds."""
        return self.sheet.find(self.query)

    # --------------------------------------------------------------------------------- steps

    def step(self, by: int = 1) -> Explorer:
        """Go on by some rows, backwards if negative; stop at the ends."""
        return self.to(self.place + by)

    def back(self) -> Explorer:
        """Go to the row before."""
        return self.step(-1)

    def first(self) -> Explorer:
        """Go to the first row."""
        return self.to(0)

    def last(self) -> Explorer:
        """Go to the last row."""
        return self.to(len(self.lines) - 1)

    def to(self, place: int) -> Explorer:
        """Go to a place among the rows that are shown."""
        if not self.lines:
            return self._replace(at="", message="no operation is shown")
        place = min(max(place, 0), len(self.lines) - 1)
        return self._replace(at=self.lines[place].row.id, message=self.message if not self.at else "")

    def reveal(self, key: str) -> Explorer:
        """Go to a row and open what encloses it; of repeated blocks its own.

        Raises:
            TraceError: The pass has no such row.
        """
        if key not in self.sheet.rows:
            raise TraceError(f"{self.label} has no operation {key!r}", way_out="give the id of a row of this pass")
        state = self._replace(folds=self._around(key), at=key)
        if key not in state.sheet.places(state.folds, state.alone):
            state = state._replace(alone="")
        return state

    def _around(self, key: str) -> Folds:
        """Folds with what encloses a row open."""
        folds, inner, hidden, apart = self.folds, key, set(), set()
        for row in self.sheet.above(key):
            if not folds.is_open(row):
                apart |= {block_of(row, inner)} if row.times else set()
                hidden |= set() if row.times else {row.id}
            inner = row.id
        if not hidden and not apart:
            return folds
        return Folds(folds.depth, folds.opened | hidden, folds.closed - hidden, folds.apart | apart)

    # --------------------------------------------------------------------------------- folding

    def expand(self, key: str = "") -> Explorer:
        """Show what is inside a row, the current one if none is named; repeated blocks stay closed."""
        row = self.sheet.rows.get(key or self.at)
        if row is None or not row.children:
            return self._replace(message="nothing is inside this operation")
        blocks = {child.id for child in row.children if row.times and child.depth == 0}
        return self._fold(opened=self.folds.opened | {row.id} - blocks, closed=self.folds.closed - {row.id} | blocks)

    def collapse(self, key: str = "") -> Explorer:
        """Fold a row, or the one around it where it is not open."""
        row, folds = self.sheet.rows.get(key or self.at), self.folds
        apart = self._apart(row)
        if row is not None and not apart and not folds.is_open(row):
            row = next(self.sheet.above(row.id), None)
            apart = self._apart(row)
        if row is None:
            return self._replace(message="nothing is open here")
        return self._fold(opened=folds.opened - {row.id}, closed=folds.closed | {row.id}, apart=folds.apart - apart)

    def _apart(self, row: Row | None) -> set[str]:
        """The block that goes back among its like when a row is closed: one that stands apart."""
        if row is None or (row.depth and self.folds.is_open(row)):
            return set()
        run = next(self.passes.sheet(self.label).above(row.id), None)
        return {block_of(run, row.id)} & self.folds.apart if run and run.times else set()

    def toggle(self, key: str = "") -> Explorer:
        """Open a row that is closed, close one that is open."""
        row = self.sheet.rows.get(key or self.at)
        return self.collapse(key) if row is None or self.folds.is_open(row) else self.expand(key)

    def to_depth(self, depth: int | None) -> Explorer:
        """Show the levels down to a depth, and nothing that was opened or closed by hand."""
        return self._fold(depth=depth, opened=frozenset(), closed=frozenset(), apart=frozenset())

    def _fold(self, **changes: object) -> Explorer:
        """Other folds; what is folded away hands over to the row around it that is shown."""
        state = self._replace(folds=dataclasses.replace(self.folds, **changes))  # type: ignore[arg-type]
        return state._settled()

    def _settled(self) -> Explorer:
        """The same state at a row that is shown."""
        places = self.sheet.places(self.folds, self.alone)
        if self.at in places:
            return self
        around = (row.id for row in self.sheet.above(self.at) if row.id in places)
        key = next(around, None) or self._nearest(places)
        return dataclasses.replace(self, at=key)

    def _nearest(self, places: dict[str, int]) -> str:
        """The first row that is shown at or after the current one, else the last."""
        order = self.sheet.order
        here = order.get(self.at, 0)
        return next((key for key in places if order[key] >= here), next(reversed(places), ""))

    # --------------------------------------------------------------------------------- choosing

    def choose(self, label: str) -> Explorer:
        """Show another pass, at the operation with the same result if it has one.

        Raises:
            TraceError: There is no such pass.
        """
        self.passes.check(label)
        problem = self.passes.problem(label)
        if problem:
            return self._replace(message=problem)
        state = dataclasses.replace(
            self, label=label, at="", alone="", folds=Folds(self.folds.depth), message="",
        )  # fmt: skip
        if label == self.passes.first:
            state = dataclasses.replace(state, folds=self.first_folds)
        return state._at_same(self.row)

    def _at_same(self, row: Row | None) -> Explorer:
        """At the row with a result of this name, or at the first."""
        names = {value.name for value in row.outputs} if row else set()
        places = self.sheet.places(self.folds, self.alone)
        key = next((k for k in places if names.intersection(v.name for v in self.sheet.rows[k].outputs)), "")
        return self._replace(at=key, message="") if key else self.first()

    def search(self, text: str) -> Explorer:
        """Search, and go to the first match at the current row or after it."""
        state = self._replace(query=text, message="")
        return state.next_match(0) if text.strip() else state

    def next_match(self, by: int = 1) -> Explorer:
        """Go to the next match (1), the one before (-1), or to the first from here on (0)."""
        if not self.matches:
            return self._replace(message=f"nothing is found for {self.query!r}" if self.query else "")
        order = self.sheet.order
        here = order.get(self.at, 0)
        ahead = [key for key in self.matches if (order[key] >= here if by == 0 else (order[key] - here) * by > 0)]
        found = (ahead or list(self.matches))[-1 if by < 0 else 0]
        count = f"match {self.matches.index(found) + 1} of {len(self.matches)}"
        return self.reveal(found)._replace(message=count)

    def only(self, name: str) -> Explorer:
        """Show one module, or the history of one value, alone; an empty name shows all again."""
        name = name.strip()
        if name and not self.sheet.knows(name):
            return self._replace(message=f"no module and no value is called {name!r}")
        return self._replace(alone=name, message="")._settled()

    def compare(self, label: str) -> Explorer:
        """Show another pass beside; an empty label shows one alone.

        Raises:
            TraceError: There is no such pass.
        """
        if label:
            self.passes.check(label)
            if problem := self.passes.problem(label):
                return self._replace(message=problem)
        return self._replace(beside=label, message="")

    def say(self, message: str) -> Explorer:
        """The same state with something to say."""
        return self._replace(message=message)

    def _replace(self, **changes: object) -> Explorer:
        changes.setdefault("message", "")
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]
