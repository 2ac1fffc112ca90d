"""What the explorer shows of one operation, as HTML: everything from user code is escaped here."""

from __future__ import annotations

import html
import linecache
from collections.abc import Iterable, Iterator
from itertools import islice

from .rows import Row, Value
from .sheet import Folds, Line, Sheet
from .source import Source

__all__ = [
    "CSS",
    "details",
    "escape",
    "facts",
    "heading",
    "label",
    "line_title",
    "lines_of",
    "snippet",
    "source",
    "table",
    "title",
]

AROUND = 3
"""Lines of source shown before and after the marked one."""
LOOKED_AT = 50
"""Rows inside a row that are looked at to describe it."""
MOST_INNER = 8
MOST_VALUES = 12

CSS = """
.stk { background: #fff; padding: 0 4px; font: 13px/1.4 system-ui, sans-serif; color: #1f2933; }
.stk pre { white-space: pre;
  font: 12px/1.35 ui-monospace, Menlo, Consolas, monospace; margin: 2px 0 6px; padding: 4px 6px;
  background: #f6f8fa; border: 1px solid #d8dee4; overflow-x: auto; }
.stk pre mark { background: #fff3bf; display: block; margin: 0 -6px; padding: 0 3px; border-left: 3px solid #b35900; }
.stk h4 { margin: 8px 0 2px; font-size: 12px; color: #5b6770; }
.stk table { border-collapse: collapse; }
.stk td, .stk th { text-align: left; vertical-align: top; padding: 1px 10px 1px 0; font-size: 12px; }
.stk td code { white-space: nowrap; } .stk td.full code { white-space: normal; overflow-wrap: anywhere; }
.stk code { font: 12px ui-monospace, Menlo, Consolas, monospace; }
.stk .op { font-weight: bold; overflow-wrap: anywhere; }
.stk .badge { border: 1px solid; border-radius: 3px; padding: 0 4px; font-size: 11px; margin-left: 4px; }
.stk .kept { color: #8a4500; } .stk .elided { color: #5b6770; border-style: dashed; }
.stk .failed { color: #c62828; } .stk .wrapper { color: #0b5fa5; }
.stk .gone { color: #c62828; text-decoration: line-through; } .stk .new { color: #2e7d4f; }
.stk tr.here td { background: #fff3bf; }
.stk .side { display: flex; flex-wrap: wrap; gap: 0 8px; } .stk .side > div { flex: 1 1 260px; min-width: 0; }
.stk .pane { height: 340px; border: 1px solid #d8dee4; }
.stk-explorer .widget-html-content { min-width: 0; width: 100%; }
.stk .scroll { overflow-x: auto; }
.stk p { margin: 2px 0; }
.stk .error { white-space: pre-wrap; color: #c62828; border-left: 3px solid #c62828; padding-left: 8px; }
"""


def escape(words: object) -> str:
    """Text in HTML: no markup is left in it."""
    return html.escape(str(words), quote=True)


def label(line: Line, folds: Folds) -> str:
    """A row as one line of plain text, for the list of operations."""
    row = line.row
    mark = "\N{BLACK DOWN-POINTING TRIANGLE} " if folds.is_open(row) else "\N{BLACK RIGHT-POINTING TRIANGLE} "
    text = "    " * line.indent + (mark if row.children else "  ") + title(row)
    return text if len(text) <= 120 else f"{text[:117]}..."


def title(row: Row) -> str:
    """A row in a few words."""
    fate = {"kept": "  [built]", "elided": "  [not built]"}.get(row.construction, "")
    failed = "\N{CROSS MARK} " if row.failing else ""
    return failed + _title(row) + fate


def _title(row: Row) -> str:
    if row.depth == 0:
        count = _count(row)
        return f"{row.symbol}  ({count} operation{'s' * (count != 1)})"
    name = row.symbol.replace("torch.nn.functional.", "F.").replace("torch.Tensor.", "Tensor.")
    types = ", ".join(value.short for value in row.outputs)
    return f"{row.name} = {name}  {types}".strip() if row.name else row.call


def _count(row: Row) -> int:
    """How many operations the user wrote in a group."""
    return sum(_count(child) if child.depth == 0 else 1 for child in row.children)


def badge(words: str, kind: str = "") -> str:
    """A word in a frame."""
    return f'<span class="badge {kind}">{escape(words)}</span>'


def table(rows: Iterable[Iterable[str]], head: Iterable[str] = ()) -> str:
    """A table of cells that are HTML already."""
    top = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table>{f"<tr>{top}</tr>" if top else ""}{body}</table></div>'


def details(sheet: Sheet, key: str, fate: str = "", seen: str = "") -> str:
    """All there is to say of one operation.

    Args:
        sheet: The pass.
        key: Id of the row.
        fate: The ledger's entry for what it builds, as text.
        seen: Its values, as HTML.

    Returns:
        HTML without any script.
    """
    row = sheet.rows.get(key)
    if row is None:
        return "<p>no operation</p>"
    return heading(row) + sources(sheet, row) + facts(sheet, row, fate, seen)


def facts(sheet: Sheet, row: Row, fate: str = "", seen: str = "") -> str:
    """All there is to say of one operation under its heading, but for the source."""
    return "".join([_values(sheet, row), _facts(row, fate), seen])


_BUILT = {"kept": "an object is built", "elided": "not built"}


def heading(row: Row) -> str:
    """An operation with its arguments, and what is special about it."""
    badges = [badge(_BUILT[row.construction], row.construction)] if row.construction else []
    badges += [badge("failed", "failed")] if row.failing else []
    badges += [badge("level " + str(row.depth))] if row.depth else []
    call = f"{row.name} = {row.call}" if row.name and row.depth else row.call
    return f'<div class="op"><code>{escape(call)}</code>{"".join(badges)}</div>'


def _values(sheet: Sheet, row: Row) -> str:
    made = {value.name for value in row.outputs}
    taken = [sheet.values.get(name) or Value(name, "", "") for name in row.inputs]
    lines = [_value("in", value) for value in taken[:MOST_VALUES]]
    lines += [("", f"and {len(taken) - MOST_VALUES} more", "", "")] if len(taken) > MOST_VALUES else []
    lines += [_value("out, written" if v.name in row.writes else "out", v) for v in row.outputs[:MOST_VALUES]]
    lines += [("writes", f"<code>{escape(name)}</code>", "", "") for name in row.writes if name not in made]
    return table(lines, ("", "name", "type", "inside")) if lines else ""


def _value(role: str, value: Value) -> tuple[str, str, str, str]:
    name = f"<code>{escape(value.path or value.name)}</code>"
    short = escape(value.short)
    inner = [f".{path}: {name} {kind}" for path, name, kind in value.inner[:MOST_INNER]]
    inner += [f"and {len(value.inner) - MOST_INNER} more"] if len(value.inner) > MOST_INNER else []
    inner += [f"metadata: {value.metadata}"] if value.metadata else []
    kind = f'<span class="wrapper">{short}</span>' if value.cls else short
    return role, name, kind, "<br>".join(map(escape, inner))


def _facts(row: Row, fate: str) -> str:
    facts = [("module", row.module)] if row.module and not row.module.startswith("backward of ") else []
    facts += [("caused by", row.module)] if row.module.startswith("backward of ") else []
    facts += [("why", row.reason)] if row.reason else []
    facts += [("lowered", fate)] if fate and not row.reason else []
    inside = dict.fromkeys(child.symbol for child in row.children[:LOOKED_AT])
    facts += [("made of", ", ".join(inside) + (", ..." if len(row.children) > LOOKED_AT else ""))] if inside else []
    return table((name, escape(text)) for name, text in facts) if facts else ""


# ------------------------------------------------------------------------------------------ sources


def sources(sheet: Sheet, row: Row) -> str:
    """The user's source with the line marked, and beside it that of the class's handler."""
    user, handler = lines_of(sheet, row)
    found = [(line_title(row), user), ("in the class", handler)]
    shown = [source(title, s) for title, s in found if s is not None]
    return f'<div class="side">{"".join(shown)}</div>' if shown else ""


def line_title(row: Row) -> str:
    """`your line`, or how many lines a group comes from, of which the first is shown."""
    places = {(line.file, line.line) for line in _lines(row)} if row.depth == 0 else set()
    return f"your lines, the first of {len(places)}" if len(places) > 1 else "your line"


def _lines(row: Row) -> Iterator[Source]:
    """The user's lines of what is in a group, in order."""
    for child in row.children:
        if child.depth == 0:
            yield from _lines(child)
        elif child.source is not None:
            yield child.source


def source(title: str, line: Source) -> str:
    """A line of source among those around it, under a title."""
    return f"<div><h4>{title}: {escape(line.place)}</h4>{snippet(line)}</div>"


def lines_of(sheet: Sheet, row: Row) -> tuple[Source | None, Source | None]:
    """The user's line that a row belongs to, and the line of the class that ran it or runs inside it."""
    around = [row, *sheet.above(row.id)]
    outer = next((r for r in reversed(around) if r.depth == 1 and r.source), None)
    user = outer.source if outer else next(_lines(row), None) if row.depth == 0 else row.source
    inside = [row.handler, row.source if row.depth > 1 else None]
    inside += [r.handler or r.source for r in islice(row.walk(), LOOKED_AT) if r.depth > 1]
    return user, next((source for source in inside if source is not None and source != user), None)


def snippet(source: Source, around: int = AROUND) -> str:
    """Lines of a file with one marked; empty where the file cannot be read."""
    first = max(1, source.line - around)
    numbered = [(n, linecache.getline(source.file, n)) for n in range(first, source.line + around + 1)]
    while numbered and not numbered[-1][1].strip():
        numbered.pop()
    lines = [_numbered(n, text.rstrip("\n"), n == source.line) for n, text in numbered]
    return f"<pre>{''.join(lines)}</pre>" if lines else "<p>its source cannot be read</p>"


def _numbered(number: int, text: str, marked: bool) -> str:
    line = f"{number:4}  {escape(text)}"
    return f"<mark>{line}</mark>" if marked else f"{line}\n"
