"""A static page of the explorer: it needs no kernel, no network and no Jupyter."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from . import fragments, panes
from .called import expect_explorable
from .errors import TraceError
from .explorer import Explorer, start
from .fold import Chosen, is_one
from .options import expect_level, expect_path
from .rows import Row
from .scene import DRAWN, STRIDE, scene
from .sheet import Folds, Sheet
from .side_by_side import pairing
from .source import Source
from .trace import Trace

__all__ = ["page", "save_html", "save_page"]

MOST_ROWS = 20_000
"""Rows of one pass that a page holds."""
MOST_PICTURES = 40
"""Parts of a long pass that are drawn."""


def save_html(
    trace: Trace | TraceError,
    path: str | Path,
    depth: int | None = None,
    *,
    collapse: Chosen = None,
    expand: Chosen = None,
    passes: Mapping[str, Trace] | None = None,
) -> Path:
    """Save the explorer of a trace as one HTML file, for people without Jupyter.

    The page steps, folds, searches, compares and shows the pictures of each depth; the keys are
    listed on it. It holds all it needs and loads nothing.

    Args:
        trace: A trace of any pass, or the TraceError that ended one.
        path: Where to save it.
        depth: The deepest level that is open at first; None opens all of a small trace.
        collapse: Operations to fold at first, as for `draw`.
        expand: Operations to open at first.
        passes: More traces to choose from, by the name that is shown.

    Returns:
        The path.

    Raises:
        TraceError: There is no trace, an option does not take its value, or a name is that of no operation.
        OSError: The file cannot be written.

    Example:
        >>> subtrace_kit.save_html(t, "trace.html")  # doctest: +SKIP
        PosixPath('trace.html')
    """
    if isinstance(trace, (str, Path)):
        expect_path(path, "save_html")
    expect_explorable(trace, "save_html", ', "trace.html"')
    expect_path(path, "save_html")
    expect_level(depth, "save_html", "depth", least=0)
    return save_page(start(trace, depth=depth, collapse=collapse, expand=expand, passes=passes), path)


def save_page(state: Explorer, path: str | Path) -> Path:
    """Save what an explorer shows as a page, see `save_html`."""
    path = Path(path)
    path.write_text(page(state), "utf-8")
    return path


def page(state: Explorer) -> str:
    """The text of the page."""
    style = fragments.CSS + _file("page.css")
    script = _file("page_panes.js") + _file("page.js")
    name = fragments.escape(state.sheet.view.name)
    data = json.dumps(_data(state), separators=(",", ":")).replace("<", "\\u003c")
    allowed = f"default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src {_hash(script)}"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{allowed}">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{name}</title>\n<style>{style}</style>\n</head>\n"
        f'<body class="stk"><h1>{name}</h1>{panes.error_pane(state)}<div id="explorer"></div>\n'
        "<noscript>This page needs JavaScript.</noscript>\n"
        f'<script type="application/json" id="data">{data}</script>\n<script>{script}</script>\n</body></html>\n'
    )


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _hash(script: str) -> str:
    """The only script that the page may run, for its content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _data(state: Explorer) -> dict[str, Any]:
    sources = _Sources()
    labels = state.passes.labels
    made = {label: state.choose(label) for label in labels if not state.passes.problem(label)}
    made[state.label] = state
    passes = [
        _pass(made[label], sources) if label in made else {"label": label, "problem": state.passes.problem(label)}
        for label in labels
    ]
    return {
        "name": state.sheet.view.name,
        "first": labels.index(state.label),
        "passes": passes,
        "pairs": _pairs([made[label].sheet if label in made else None for label in labels], passes),
        "sources": sources.shown,
    }


class _Sources:
    """Pieces of source, each written once."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, Source], int] = {}
        self.shown: list[str] = []

    def number(self, title: str, line: Source | None) -> int:
        """The number of a piece, -1 for none."""
        if line is None:
            return -1
        if (title, line) not in self.known:
            self.known[title, line] = len(self.shown)
            self.shown.append(fragments.source(title, line))
        return self.known[title, line]


# --------------------------------------------------------------------------------------------- a pass


def _pass(state: Explorer, sources: _Sources) -> dict[str, Any]:
    sheet = state.sheet
    rows, note = _fitting(sheet)
    places = {row.id: place for place, row in enumerate(rows)}
    return {
        "label": state.label,
        "note": note or state.message,
        "at": places.get(state.at, 0),
        "depth": state.folds.depth,
        "rows": [_row(state, row, places, sources) for row in rows],
        "pictures": _pictures(state),
    }


def _fitting(sheet: Sheet) -> tuple[list[Row], str]:
    """The rows that a page holds: deep levels go first."""
    rows = list(sheet.view.walk())
    level = max((row.depth for row in rows), default=0)
    while len(rows) > MOST_ROWS and level > 1:
        level -= 1
        rows = [row for row in rows if row.depth <= level]
    if len(rows) < len(sheet.rows):
        left = f"this page holds {min(len(rows), MOST_ROWS)} of {len(sheet.rows)} rows"
        return rows[:MOST_ROWS], f"{left}: explore(t) in a notebook shows all"
    return rows, ""


def _row(state: Explorer, row: Row, places: dict[str, int], sources: _Sources) -> list[Any]:
    """What the script knows of a row, see the top of `page.js`."""
    sheet = state.sheet
    user, handler = fragments.lines_of(sheet, row)
    return [
        row.id,
        places.get(sheet.rows.parent(row.id), -1),
        fragments.title(row),
        row.depth,
        int(bool(row.times) or is_one(row)),
        int(state.folds.is_open(row)),
        [fragments.heading(row), fragments.facts(sheet, row, _fate(state, row), panes.seen_table(sheet, row))],
        [sources.number(fragments.line_title(row), user), sources.number("in the class", handler)],
        [row.symbol, " ".join(v.cls for v in row.outputs), row.module, row.name],
        list(row.inputs) + [n for v in row.outputs for n in (v.name, *(inner for _, inner, _ in v.inner))],
    ]


def _fate(state: Explorer, row: Row) -> str:
    return state.passes.fate(state.label, panes.objects(row)) if row.wrapper else ""


def _pictures(state: Explorer) -> list[dict[str, Any]]:
    """The pictures of what is open at first and of each depth; of many rows parts, while there are not too many."""
    deepest = max((row.depth for row in state.sheet.view.walk()), default=0)
    depths = [depth for depth in range(deepest + 1) if depth or any(not r.depth for r in state.sheet.view.rows)]
    found = _parts(state, -1)
    for depth in depths:
        found += _parts(dataclasses.replace(state, folds=Folds(depth), alone=""), depth)
    return found


def _parts(state: Explorer, depth: int) -> list[dict[str, Any]]:
    count = len(state.lines)
    places = [0] if count <= DRAWN else range(0, min(count, STRIDE * MOST_PICTURES), STRIDE)
    scenes = [scene(state.to(place)) for place in places] if count else []
    return [
        {
            "depth": depth,
            "svg": drawn.svg,
            "problem": drawn.problem,
            "notes": list(drawn.shown.notes),
            "spots": list(drawn.spots),
            "edges": [[edge.source, edge.target] for edge in drawn.edges],
        }
        for drawn in scenes
    ]


def _pairs(sheets: list[Sheet | None], passes: list[dict[str, Any]]) -> dict[str, Any]:
    """Which rows of two passes belong together, for each two passes."""
    places = [{row[0]: i for i, row in enumerate(one.get("rows", ()))} for one in passes]
    found: dict[str, Any] = {}
    for i, left in enumerate(sheets):
        for j, right in enumerate(sheets[:i]):
            if left is None or right is None:
                continue
            made = pairing(right, left)
            lines = [[_place(places[j], a), _place(places[i], b)] for a, b in made.lines]
            found[f"{j},{i}"] = {"summary": made.summary, "lines": lines}
    return found


def _place(places: dict[str, int], row: Row | None) -> int:
    return places.get(row.id, -1) if row else -1
