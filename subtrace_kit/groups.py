"""Operations in groups: under the module that ran them, and repeated blocks as one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from .rows import Row, Value, View
from .symbols import Kind
from .trace import Trace

__all__ = ["block_of", "blocks_with", "grouped", "module_classes", "split"]

LEAST_TIMES = 3
"""Blocks in a row from which they are shown as one."""
LEAST_ROWS = 12
"""Operations that a repeated block of a loop, not of modules, saves at least."""
_TRIES = 4  # How many later places that begin alike are tried as the next block.
_BACKWARD = "backward of "


def grouped(whole: View, classes: Mapping[str, str] | None = None) -> View:
    """Group the operations of level 1.

    Operations of one module stand in a row of their own, which has depth 0; blocks that follow each
    other and do the same stand in a row `Block x 12`, which is shown folded.

    Args:
        whole: A view, not folded.
        classes: The class of each module, by its path.

    Returns:
        A view with the same operations, some of them deeper inside.

    Example:
        >>> [row.symbol for row in grouped(view(t), {"blocks.0": "Block"}).rows]  # doctest: +SKIP
        ['torch.relu', 'Block x 12', 'head: Linear']
    """
    grouping = _Grouping(classes or {}, _last_reads(whole))
    return dataclasses.replace(whole, rows=grouping.repeats(grouping.by_module(whole.rows, ())))


def split(whole: View, apart: Collection[str]) -> View:
    """Let some blocks stand outside their rows: `Block x 3`, the block, `Block x 8`.

    Args:
        whole: A view with groups.
        apart: The blocks, by the id of their first row.

    Returns:
        A view with the same operations; a row of repeated blocks that has none of these stays as it is.
    """
    if not apart:
        return whole
    grouping = _Grouping({}, _last_reads(whole))
    return dataclasses.replace(whole, rows=grouping.apart(whole.rows, frozenset(apart)))


def block_of(run: Row, key: str) -> str:
    """The block of a row of repeated blocks in which a row directly inside it is: the id of its first row."""
    place = next(i for i, row in enumerate(run.children) if row.id == key)
    return run.children[place - place % _period(run)].id


def blocks_with(whole: View, wanted: Callable[[Row], bool]) -> frozenset[str]:
    """The repeated blocks in which something is wanted, by their first rows; not where all blocks are wanted."""
    found: set[str] = set()

    def walk(row: Row) -> bool:
        inside = [child.id for child in row.children if walk(child)]
        is_wanted = wanted(row)
        if row.times and not is_wanted:
            found.update(block_of(row, key) for key in inside)
        return is_wanted or bool(inside)

    for row in whole.rows:
        walk(row)
    return frozenset(found)


def module_classes(trace: Trace) -> dict[str, str]:
    """The class of each module that a trace knows, by its path."""
    return {flag.path: type(flag.module).__name__ for flag in trace.flags if flag.path}


@dataclass(frozen=True)
class _Grouping:
    """Makes groups of rows.

    Args:
        classes: The class of each module, by its path.
        last: The last row of level 1 that reads each value.
        shapes: A number for all rows that do the same.
    """

    classes: Mapping[str, str]
    last: Mapping[str, int]
    shapes: dict[object, int] = field(default_factory=dict)

    def by_module(self, rows: Sequence[Row], above: tuple[str, ...]) -> tuple[Row, ...]:
        """Rows that run in one module below `above`, one after the other, in a row of their own."""
        found: list[Row] = []
        for part, same in groupby(rows, lambda row: _part(row, len(above))):
            members = list(same)
            found += [self.module_row(members, (*above, part))] if part else members
        return tuple(found)

    def module_row(self, rows: list[Row], path: tuple[str, ...]) -> Row:
        inside = self.by_module(rows, path)
        name = ".".join(path)
        kind = self.classes.get(name, "")
        return self.group(f"mod_{len(path)}_{rows[0].id}", f"{name}: {kind}" if kind else name, inside, module=name)

    def group(self, key: str, symbol: str, rows: Sequence[Row], *, module: str = "", times: int = 0) -> Row:
        """A row that stands for others: it takes what they read, and gives what is read after them."""
        made: dict[str, Value] = {}
        known: set[str] = set()
        reads: dict[str, None] = {}
        for row in rows:
            reads.update({name: None for name in row.inputs if name not in known})
            made.update({value.name: value for value in row.outputs})
            known.update(name for value in row.outputs for name in value.names)
        end = _end(rows[-1])
        given = [v for v in made.values() if any(self.last.get(name, -1) > end for name in v.names)]
        return Row(
            id=key,
            depth=0,
            symbol=symbol,
            call=symbol,
            kind=Kind.FUNCTION,
            inputs=tuple(reads),
            outputs=tuple(given) or rows[-1].outputs,
            writes=tuple({n: None for row in rows for n in row.writes if n not in made or n in reads}),
            wrapper=any(row.wrapper for row in rows),
            source=rows[0].source,
            module=module,
            failing=any(row.failing for row in rows),
            children=tuple(rows),
            times=times,
        )

    def repeats(self, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        """Rows with repeated blocks among them as one row each."""
        rows = tuple(self.inside(row) for row in rows)
        shape = [self.shape(row) for row in rows]
        later = _next_alike(shape)
        found: list[Row] = []
        start = 0
        while start < len(rows):
            period, times = _run(shape, later, start)
            if not _is_worth(rows[start], period, times):
                period = times = 1
            block = rows[start : start + period * times]
            found += [self.repeated(block, period, times)] if times > 1 else block
            start += period * times
        return tuple(found)

    def apart(self, rows: Sequence[Row], alone: frozenset[str]) -> tuple[Row, ...]:
        """Rows with the blocks `alone` among them outside of their rows."""
        return tuple(part for row in rows for part in (self.parts(row, alone) if row.depth == 0 else (row,)))

    def parts(self, row: Row, alone: frozenset[str]) -> Iterator[Row]:
        """A group; of repeated blocks those before, between and after the ones that stand alone."""
        period = _period(row)
        blocks = [row.children[i : i + period] for i in range(0, len(row.children), period)] if row.times else []
        if not any(block[0].id in alone for block in blocks):
            yield dataclasses.replace(row, children=self.apart(row.children, alone))
            return
        for is_alone, found in groupby(blocks, lambda block: block[0].id in alone):
            some = list(found)
            inner = self.apart([child for block in some for child in block], alone)
            yield from inner if is_alone or len(inner) == inner[0].depth == 1 else [self.part(row, inner, len(some))]

    def part(self, run: Row, rows: tuple[Row, ...], times: int) -> Row:
        name = run.symbol.rpartition(" x ")[0]
        return self.group(f"rep_{rows[0].id}", f"{name} x {times}", rows, times=times)

    def inside(self, row: Row) -> Row:
        return dataclasses.replace(row, children=self.repeats(row.children)) if row.depth == 0 else row

    def repeated(self, rows: tuple[Row, ...], period: int, times: int) -> Row:
        name = _what(rows[0]) if period == 1 else f"{period} operations from {_what(rows[0])}"
        return self.group(f"rep_{rows[0].id}", f"{name} x {times}", rows, times=times)

    def shape(self, row: Row) -> int:
        """A number that is equal for rows that do the same to values of the same kinds."""
        key = row.likeness if row.depth else (_what(row), tuple(map(self.shape, row.children)))
        return self.shapes.setdefault(key, len(self.shapes))


def _period(run: Row) -> int:
    """How many rows a repeated block has."""
    return len(run.children) // (run.times or 1)


def _operations(rows: Sequence[Row]) -> Iterator[Row]:
    """The operations of level 1 in groups or outside."""
    for row in rows:
        yield from (row,) if row.depth else _operations(row.children)


def _last_reads(whole: View) -> dict[str, int]:
    """The place of the last operation of level 1 that reads each value."""
    last = {name: _end(row) for row in _operations(whole.rows) for name in row.inputs}
    end = _end(whole.rows[-1]) + 1 if whole.rows else 0
    return last | dict.fromkeys((value.name for value in whole.outputs), end)


def _part(row: Row, level: int) -> str:
    """The name of the module at a level of a row's path."""
    parts = (row.module,) if row.module.startswith(_BACKWARD) else tuple(filter(None, row.module.split(".")))
    return parts[level] if level < len(parts) else ""


def _end(row: Row) -> int:
    """The place of the last row of level 1 in a group."""
    while row.depth == 0:
        row = row.children[-1]
    return int(row.id.removeprefix("op_"))


def _what(row: Row) -> str:
    """What a row does, without the path of its module."""
    if row.depth:
        return row.symbol
    name, colon, kind = row.symbol.partition(": ")
    return kind if colon else re.sub(r"\d+", "#", name)


def _next_alike(shape: list[int]) -> list[int]:
    """For each place the next one with the same shape, or a place behind the end."""
    seen: dict[int, int] = {}
    later = [len(shape)] * len(shape)
    for place in range(len(shape) - 1, -1, -1):
        later[place] = seen.get(shape[place], len(shape))
        seen[shape[place]] = place
    return later


def _run(shape: list[int], later: list[int], start: int) -> tuple[int, int]:
    """The period and the number of blocks that begin at a place and cover the most."""
    best = (1, 1)
    place = start
    for _ in range(_TRIES):
        if (place := later[place]) >= len(shape):
            break
        period, times = place - start, 1
        while shape[start : start + period] == shape[start + period * times : start + period * (times + 1)]:
            times += 1
        if times > 1 and period * times > best[0] * best[1]:
            best = period, times
    return best


def _is_worth(row: Row, period: int, times: int) -> bool:
    return times >= LEAST_TIMES and ((period == 1 and row.depth == 0) or period * (times - 1) >= LEAST_ROWS)
