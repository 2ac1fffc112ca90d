"""Smaller views of a view: some of its operations, some of its levels; and a view as text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable

from .errors import TraceError
from .groups import blocks_with, split
from .rows import Row, Value, View
from .shown import shown
from .view import stem

__all__ = ["Chosen", "fold", "is_one", "names_in", "outline", "predicate", "section", "shut"]


def section(whole: View, start: int | None = None, stop: int | None = None) -> View:
    """Some operations of level 1, counted as in a slice.

    Args:
        whole: A view.
        start: The first operation.
        stop: The one after the last.

    Returns:
        A view of these operations, with the inputs they read; of the results only those of the
        last operation, if it is among them.
    """
    first, end, _ = slice(start, stop).indices(len(whole.rows))
    if (first, end) == (0, len(whole.rows)):
        return whole
    rows = whole.rows[first:end]
    before = {v.name: v for row in whole.rows[:first] for r in row.walk() for v in r.outputs}
    read = {name for row in rows for name in row.inputs}

    given = {value.name for value in (*whole.inputs, *whole.captures)}

    def used(values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(value for value in values if value.name in read)

    return dataclasses.replace(
        whole,
        rows=rows,
        inputs=used(whole.inputs),
        captures=used(whole.captures),
        earlier=used(v for name, v in before.items() if name not in given),
        outputs=whole.outputs if end == len(whole.rows) else (),
        notes=(*whole.notes, f"operations {first} to {end - 1} of {len(whole.rows)} are shown"),
    )


Chosen = str | Collection[str] | Callable[[Row], bool] | None
"""Operations, chosen by a name (of a result, of the operation, whole or its stem, of a module), by
several names, or by a predicate."""


def fold(whole: View, depth: int | None = None, *, collapse: Chosen = None, expand: Chosen = None) -> View:
    """Fold operations, so that what is inside them is not shown.

    Args:
        whole: A view.
        depth: The deepest level that is shown; None shows all.
        collapse: Operations to fold although `depth` would show their inside.
        expand: Operations to open although `depth` or `collapse` would not. What encloses them
            opens too; of repeated blocks only theirs.

    Returns:
        A view in which folded rows have no children and say what is gone. A plain function made of
        the one ATen op that does its work is shown as one, unless it is in `expand`.

    Raises:
        TraceError: A name is that of no operation.
    """
    folded, opened = predicate(whole, collapse), predicate(whole, expand)
    if expand is not None:
        whole = split(whole, blocks_with(whole, opened))

    def walk(row: Row) -> tuple[Row, bool]:
        inner = [walk(child) for child in row.children]
        wanted = (expand is not None and opened(row)) or any(forced for _, forced in inner)
        allowed = (depth is None or row.depth < depth) and not row.times and not folded(row) and not is_one(row)
        if not row.children or wanted or allowed:
            return dataclasses.replace(row, children=tuple(child for child, _ in inner)), wanted
        return shut(row), False

    return dataclasses.replace(whole, rows=tuple(walk(row)[0] for row in whole.rows))


def shut(row: Row) -> Row:
    """A row whose inside is not shown; it says what is gone."""
    if not row.children:
        return row
    names = tuple(child.symbol for child in row.children)
    count = 0 if is_one(row) else sum(map(_operations, row.children))
    return dataclasses.replace(row, children=(), made_of=names, folded=count)


def _operations(row: Row) -> int:
    """How many operations a row and those inside it are: a group is none."""
    return row.count if row.depth else sum(map(_operations, row.children))


def is_one(row: Row) -> bool:
    """Whether a row is a plain function made of the one op that does its work: they are shown as one."""
    if row.depth == 0 or row.wrapper:
        return False
    inner = row.children
    return len(inner) == 1 and not inner[0].children and inner[0].outputs == row.outputs


def _names(row: Row) -> set[str]:
    """What a row is called; the path of a module is the name of its group, not of what runs in it."""
    path = [row.module] if row.depth == 0 and row.module else []
    return {row.symbol, stem(row.symbol), *path, *(value.name for value in row.outputs)}


def names_in(chosen: Chosen) -> set[str]:
    """The names that were given, none where a predicate or something else was."""
    if isinstance(chosen, str):
        return {chosen}
    return set(chosen) if isinstance(chosen, Collection) and _are_names(chosen) else set()


def _are_names(chosen: object) -> bool:
    names = () if chosen is None else (chosen,) if isinstance(chosen, str) else chosen
    return isinstance(names, Collection) and all(isinstance(name, str) for name in names)


def predicate(whole: View, chosen: Chosen) -> Callable[[Row], bool]:
    """Whether a row is among those that are chosen.

    Raises:
        TraceError: A name is that of no operation, or neither a name nor a predicate was given.
    """
    if callable(chosen):
        return chosen
    if not _are_names(chosen):
        raise TraceError(
            f"collapse= and expand= do not take {shown(chosen)}",
            way_out="give a name, several in a list, or a predicate on rows: lambda row: row.depth > 1",
        )
    wanted = names_in(chosen)
    if unknown := sorted(wanted.difference(*map(_names, whole.walk())) if wanted else ()):
        raise TraceError(
            f"nothing in {whole.name} is called {unknown[0]!r}",
            way_out="give the name of a result, an operation (`torch.mul`, `mul`) or a module path",
        )
    return lambda row: not wanted.isdisjoint(_names(row))


def outline(shown: View) -> str:
    """A view as indented text, one line an operation.

    Args:
        shown: A view, folded or not.

    Returns:
        Text without a newline at its end.

    Example:
        >>> print(outline(view(t)))  # doctest: +SKIP
        f(x: f32[4])
          t0 = torch.mul(x)  # f32[4], model.py:3
          return t0
    """
    lines = [f"{shown.name}({', '.join(f'{v.name}: {v.short}' for v in shown.inputs)})"]
    lines += [_line(row) for row in shown.walk()]
    lines += [f"  ! {shown.failure.splitlines()[0]}"] if shown.failure else []
    lines += ["  return " + ", ".join(v.name for v in shown.outputs)] if shown.outputs else []
    return "\n".join([*lines, *(f"  ({note})" for note in shown.notes)])


def _line(row: Row) -> str:
    call = row.call + (f" [+{row.folded} inside]" if row.folded else "")
    types = ", ".join(value.short for value in row.outputs)
    about = ", ".join(filter(None, (types, row.source.place if row.source else "", row.construction)))
    return "  " * row.depth + (f"{row.name} = " if row.name else "") + call + (f"  # {about}" if about else "")
