"""Operations in groups: under the module that ran them, and repeated blocks as one."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from .rows import Row, View
from .symbols import Kind

__all__ = ["grouped"]

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
    rows = _by_module(whole.rows, (), classes or {})
    return dataclasses.replace(whole, rows=_repeats(rows, {}))


# ------------------------------------------------------------------------------------------ modules


def _by_module(rows: Sequence[Row], above: tuple[str, ...], classes: Mapping[str, str]) -> tuple[Row, ...]:
    """Rows that run in one module below `above`, one after the other, in a row of their own."""
    found: list[Row] = []
    start = 0
    while start < len(rows):
        part = _part(rows[start], len(above))
        stop = start + 1
        while part and stop < len(rows) and _part(rows[stop], len(above)) == part:
            stop += 1
        if part:
            found.append(_module_row(rows[start:stop], (*above, part), classes))
        else:
            found += rows[start:stop]
        start = stop
    return tuple(found)


def _part(row: Row, level: int) -> str:
    """The name of the module at a level of a row's path."""
    parts = (row.module,) if row.module.startswith(_BACKWARD) else tuple(filter(None, row.module.split(".")))
    return parts[level] if level < len(parts) else ""


def _module_row(rows: Sequence[Row], path: tuple[str, ...], classes: Mapping[str, str]) -> Row:
    inside = _by_module(rows, path, classes)
    name = ".".join(path)
    kind = classes.get(name, "")
    if len(inside) == 1 and not kind and inside[0].depth == 0:
        return inside[0]  # A list of modules does nothing of its own.
    return _group(f"mod_{len(path)}_{rows[0].id}", f"{name}: {kind}" if kind else name, inside, module=name)


def _group(key: str, symbol: str, rows: Sequence[Row], *, module: str = "", times: int = 0) -> Row:
    """A row that stands for others."""
    made = {value.name: value for row in rows for value in row.outputs}
    known: set[str] = set()
    reads: dict[str, None] = {}
    for row in rows:
        reads |= dict.fromkeys(name for name in row.inputs if name not in known)
        known.update(value.name for value in row.outputs)
        known.update(name for value in row.outputs for _, name, _ in value.inner)
    return Row(
        id=key,
        depth=0,
        symbol=symbol,
        call=symbol,
        kind=Kind.FUNCTION,
        inputs=tuple(reads),
        outputs=rows[-1].outputs,
        writes=tuple({name: None for row in rows for name in row.writes if name not in made or name in reads}),
        wrapper=any(row.wrapper for row in rows),
        source=rows[0].source,
        module=module,
        failing=any(row.failing for row in rows),
        children=tuple(rows),
        times=times,
    )


# ------------------------------------------------------------------------------------------ repeats


def _repeats(rows: tuple[Row, ...], shapes: dict[object, int]) -> tuple[Row, ...]:
    """Rows with repeated blocks among them as one row each."""
    rows = tuple(_inside(row, shapes) for row in rows)
    shape = [_shape(row, shapes) for row in rows]
    later = _next_alike(shape)
    found: list[Row] = []
    start = 0
    while start < len(rows):
        period, times = _run(shape, later, start)
        if _is_worth(rows[start], period, times):
            found.append(_repeated(rows[start : start + period * times], period, times))
            start += period * times
        else:
            found.append(rows[start])
            start += 1
    return tuple(found)


def _inside(row: Row, shapes: dict[object, int]) -> Row:
    return dataclasses.replace(row, children=_repeats(row.children, shapes)) if row.depth == 0 else row


def _shape(row: Row, shapes: dict[object, int]) -> int:
    """A number that is equal for rows that do the same to values of the same kinds."""
    types = tuple(value.type for value in row.outputs)
    inside = tuple(_shape(child, shapes) for child in row.children)
    line = (row.source.file, row.source.line) if row.source else None
    key = (_what(row), row.kind, types, row.construction, line, row.failing, inside)
    return shapes.setdefault(key, len(shapes))


def _what(row: Row) -> str:
    """What a row does, without the path of its module."""
    name, colon, kind = row.symbol.partition(": ")
    return kind if row.depth == 0 and colon else re.sub(r"\d+", "#", name) if row.depth == 0 else row.symbol


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


def _repeated(rows: tuple[Row, ...], period: int, times: int) -> Row:
    first = rows[0]
    name = _what(first) if period == 1 else f"{period} operations from {_what(first)}"
    return _group(f"rep_{first.id}", f"{name} x {times}", rows, times=times)
