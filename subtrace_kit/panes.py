"""The panes of the explorer as HTML: details, values, picture, two passes side by side."""

from __future__ import annotations

from . import side_by_side
from .explorer import Explorer
from .fragments import details, escape, table
from .rows import Row
from .scene import scene
from .seen import Summary
from .sheet import Sheet

__all__ = ["details_pane", "error_pane", "objects", "picture_pane", "seen_table", "status"]

MOST_SEEN = 10
_BARS = "\N{LOWER ONE EIGHTH BLOCK}\N{LOWER ONE QUARTER BLOCK}\N{LOWER THREE EIGHTHS BLOCK}\N{LOWER HALF BLOCK}" + (
    "\N{LOWER FIVE EIGHTHS BLOCK}\N{LOWER THREE QUARTERS BLOCK}\N{LOWER SEVEN EIGHTHS BLOCK}\N{FULL BLOCK}"
)


def error_pane(state: Explorer) -> str:
    """The error of a failed trace; empty for any other."""
    return f'<div class="error" role="alert">{escape(state.passes.error)}</div>' if state.passes.error else ""


def status(state: Explorer) -> str:
    """Where the explorer stands, and what the last step has to say, as plain text."""
    where = f"{state.place + 1} of {len(state.lines)} shown" if state.lines else "nothing to show"
    whole = f", {len(state.sheet.rows)} rows in all"
    alone = f", only {state.alone}" if state.alone else ""
    told = f". {state.message}" if state.message else ""
    return f"{state.sheet.view.name}, {state.label}: {where}{whole}{alone}{told}"


def details_pane(state: Explorer) -> str:
    """All there is to say of the current operation, and the pass beside it where one is chosen."""
    row = state.row
    beside = ""
    if state.beside and state.beside != state.label:
        names = sorted((state.label, state.beside), key=state.passes.labels.index)
        sheets = [state.sheet if name == state.label else state.passes.sheet(name) for name in names]
        here = names.index(state.label)
        beside = side_by_side.to_html(sheets[0], sheets[1], (names[0], names[1]), state.at, here=here)
        beside = f"<h4>side by side</h4>{beside}"
    fate = state.passes.fate(state.label, objects(row)) if row else ""
    seen = seen_table(state.sheet, row) if row else ""
    return beside + details(state.sheet, state.at, fate, seen)


def objects(row: Row) -> set[str]:
    """The wrapper values that a row makes."""
    return {value.name for value in row.outputs if value.cls and value.name not in row.writes}


def picture_pane(state: Explorer, scope: str) -> str:
    """The picture, without its marks, in an element of a class; or why there is none."""
    drawn = scene(state)
    if drawn.problem:
        return f"<p>{escape(drawn.problem)}</p>"
    notes = "".join(f"<p>drawn: {escape(note)}</p>" for note in drawn.shown.notes)
    return f'{notes}<div class="pane {scope}" role="img" aria-label="picture of the trace">{drawn.svg}</div>'


# -------------------------------------------------------------------------------------------- values


def seen_table(sheet: Sheet, row: Row) -> str:
    """What the values of an operation were, where the trace was recorded with them."""
    if not sheet.history:
        return ""
    start, end = sheet.order[row.id], sheet.end(row)
    made = {v.name for v in row.outputs if v.name not in row.inputs or v.name in row.writes}
    names = [(name, "in", start - 1) for name in row.inputs]
    names += [(name, "out", end) for name in sorted(made.union(row.writes))]
    known = [(role, name, sheet.value_at(name, place)) for n, role, place in names for name in _plain(sheet, n)]
    found = [(role, name, summary) for role, name, summary in dict.fromkeys(known) if summary is not None][:MOST_SEEN]
    lines = [_seen(*one) for one in found]
    head = ("", "values", "least", "mean", "greatest", "not finite", "histogram")
    is_part = any(summary.nans or summary.infs for _, _, summary in found)
    note = "<p>least, mean, greatest and histogram: of the finite values only</p>" if is_part else ""
    return table(lines, head) + note + _in_full(found) if lines else ""


def _in_full(found: list[tuple[str, str, Summary]]) -> str:
    """The values of small tensors, which take as many lines as they need."""
    lines = [f"<tr><td>{role}</td>{_cell(name)}{_cell(s.items, 'full')}</tr>" for role, name, s in found if s.items]
    return f"<h4>in full</h4><table>{''.join(lines)}</table>" if lines else ""


def _cell(words: str, kind: str = "") -> str:
    return f'<td class="{kind}"><code>{escape(words)}</code></td>'


def _plain(sheet: Sheet, name: str) -> list[str]:
    """The plain tensors of a value."""
    value = sheet.values.get(name)
    return [inner for _, inner, _ in value.inner] if value is not None and value.inner else [name]


def _seen(role: str, name: str, seen: Summary) -> list[str]:
    numbers = ["" if n is None else f"{n:.4g}" for n in (seen.low, seen.mean, seen.high)]
    cells = [role, name, *numbers, _not_finite(seen), bars(seen.bins)]
    return [f"<code>{escape(cell)}</code>" if cell else "" for cell in cells]


def _not_finite(seen: Summary) -> str:
    """`2 nan, 1 inf of 9`: the two mean different faults."""
    kinds = [f"{count} {kind}" for count, kind in ((seen.nans, "nan"), (seen.infs, "inf")) if count]
    return f"{', '.join(kinds)} of {seen.count}" if kinds else "0"


def bars(bins: tuple[int, ...]) -> str:
    """A histogram as a line of bars, as high as their counts."""
    most = max(bins, default=0)
    return "".join(_BARS[max(0, round(8 * n / most) - 1)] if n else " " for n in bins)
