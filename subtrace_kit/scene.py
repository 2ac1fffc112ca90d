"""The explorer's picture: drawn once for what is open, and restyled at each step."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Container, Iterable
from dataclasses import dataclass
from pathlib import Path

from . import _dot
from .draw import Picture, picture_of
from .errors import TraceError
from .explorer import Explorer
from .flow import Edge, flow
from .fold import shut
from .rows import Row, View
from .sheet import Line, Sheet

__all__ = ["MODES", "Scene", "marks", "part", "save_picture", "scene"]

DRAWN = 80
"""Rows that are drawn as a whole; of more a part around the current row is drawn."""
STRIDE = 16
"""Rows after which another part is drawn."""
ROOM = (360, 400)
"""What is taken for the size of the pane, in points, to choose between `fit` and `follow`."""
MODES = ("auto", "fit", "follow", "scroll")
"""Fit: the whole picture. Follow: natural size, the current operation in the middle. Scroll: by hand."""

_HERE, _BEFORE, _AFTER = "#b35900", "#0b5fa5", "#2e7d4f"
_SHAPES = ("polygon", "path", "ellipse")


@dataclass(frozen=True)
class Scene:
    """A picture that is drawn.

    Args:
        svg: The picture, without an XML header.
        shown: The view that it draws.
        edges: The arrows, in the order in which they are numbered in the picture.
        spots: The middle of each operation, in points, by id.
        size: Width and height in points.
        picture: The graph.
        problem: Why there is no picture, empty where there is one.
    """

    svg: str
    shown: View
    edges: tuple[Edge, ...] = ()
    spots: dict[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    size: tuple[float, float] = (0.0, 0.0)
    picture: Picture | None = None
    problem: str = ""


def scene(state: Explorer) -> Scene:
    """The picture of what is open; of a large trace only the part around the current operation.

    Args:
        state: What the explorer shows.

    Returns:
        A picture, the same one as long as the same rows are drawn. Where none can be drawn it says
        why.
    """
    first, last = _window(state.place, len(state.lines))
    places = state.sheet.places(state.folds, state.alone)
    key = ("scene", state.label, state.folds, state.alone, first, last)
    known = state.passes.kept.get(key)
    if not isinstance(known, Scene):
        known = _drawn(part(state.sheet, state.lines, places, first, last))
        state.passes.keep(key, known)
    return known


def _window(place: int, count: int) -> tuple[int, int]:
    if count <= DRAWN:
        return 0, count
    first = max(0, place // STRIDE * STRIDE - STRIDE // 2)
    return first, min(count, first + 2 * STRIDE)


def part(sheet: Sheet, lines: tuple[Line, ...], shown: Container[str], first: int, last: int) -> View:
    """A view of some of the rows that are shown, and of what encloses them.

    Args:
        sheet: The pass.
        lines: The rows that are shown.
        shown: Their ids.
        first: The first one that is drawn.
        last: The one after the last.

    Returns:
        The view; what its rows read is among its inputs, captures and earlier values.
    """
    keep = {line.row.id for line in lines[first:last]}
    keep |= {row.id for key in tuple(keep) for row in sheet.above(key) if row.id in shown}
    roots = dict.fromkeys(_outermost(sheet, line.row.id, keep) for line in lines[first:last])
    rows = tuple(_cut(sheet.rows[key], keep) for key in roots)
    view = dataclasses.replace(sheet.view, rows=rows)
    if [row.id for row in rows] != [row.id for row in sheet.view.rows] or (first, last) != (0, len(lines)):
        view = _without_rest(view, first, last, len(lines))
    return _with_origins(view, sheet)


def _outermost(sheet: Sheet, key: str, keep: set[str]) -> str:
    """The outermost of the rows around a row that are drawn, or itself."""
    around = [row.id for row in sheet.above(key) if row.id in keep]
    return around[-1] if around else key


def _cut(row: Row, keep: set[str]) -> Row:
    children = tuple(_cut(child, keep) for child in row.children if child.id in keep)
    return dataclasses.replace(row, children=children) if children else shut(row)


def _without_rest(view: View, first: int, last: int, count: int) -> View:
    """A part of a view: of the results only those that are made in it."""
    made = {value.name for row in view.walk() for value in row.outputs} if last == count else set()
    outputs = tuple(value for value in view.outputs if value.name in made)
    notes = () if (first, last) == (0, count) else (f"rows {first + 1} to {last} of {count}",)
    return dataclasses.replace(view, outputs=outputs, elided=(), notes=(*view.notes, *notes))


def _with_origins(view: View, sheet: Sheet) -> View:
    """The view with the inputs that it reads, and with what was made before it."""
    rows = list(view.walk())
    read = {name for row in rows for name in row.inputs} | {value.name for value in view.outputs}
    made = {v.name for row in rows for v in row.outputs} | {
        n for row in rows for v in row.outputs for _, n, _ in v.inner
    }
    given = {value.name for value in (*view.inputs, *view.captures)}
    inputs, captures = (
        tuple(v for v in values if v.name in read or any(n in read for _, n, _ in v.inner))
        for values in (view.inputs, view.captures)
    )
    known = given | made | {n for v in (*inputs, *captures) for _, n, _ in v.inner}
    earlier = tuple(sheet.values[name] for name in sorted(read - known) if name in sheet.values)
    return dataclasses.replace(view, inputs=inputs, captures=captures, earlier=earlier)


def _drawn(shown: View) -> Scene:
    if _dot.engine() is None:
        return Scene("", shown, problem=_dot.advice())
    found = flow(shown)
    picture = picture_of(shown, found, legend=False)
    picture.graph_attr["label"] = ""
    try:
        svg = _dot.render(picture.source, "svg").decode()
    except (OSError, subprocess.SubprocessError) as error:
        return Scene("", shown, problem=f"no picture: {(str(error).splitlines() or ['the layout engine failed'])[0]}")
    svg = svg[svg.index("<svg") :]
    spots, size = _measure(svg)
    return Scene(svg, shown, found.edges, spots, size, picture)


def _measure(svg: str) -> tuple[dict[str, tuple[float, float]], tuple[float, float]]:
    """Where each node stands and how large the picture is, in points from its top left corner."""
    root = ET.fromstring(svg)
    left, top, width, height = (float(n) for n in root.get("viewBox", "0 0 0 0").split())
    graph = root[0]
    moved = re.search(r"translate\(([-\d.]+)[ ,]+([-\d.]+)\)", graph.get("transform", ""))
    dx, dy = (float(moved[1]) - left, float(moved[2]) - top) if moved else (0.0, 0.0)
    spots = {}
    for group in graph:
        if group.get("class") in ("node", "cluster") and (corners := _corners(group)):
            xs, ys = zip(*corners, strict=True)
            spots[group.get("id", "")] = (min(xs) + max(xs)) / 2 + dx, (min(ys) + max(ys)) / 2 + dy
    return spots, (width, height)


def _corners(group: ET.Element) -> list[tuple[float, float]]:
    """Points on the outline of a node or box."""
    shape = next((e for e in group.iter() if e.tag.rpartition("}")[2] in _SHAPES), None)
    if shape is None:
        return []
    if shape.get("cx"):
        return [(float(shape.get("cx", 0)), float(shape.get("cy", 0)))]
    numbers = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", shape.get("points") or shape.get("d") or "")]
    return list(zip(numbers[::2], numbers[1::2], strict=False))


# -------------------------------------------------------------------------------------------- marks


def marks(drawn: Scene, state: Explorer, scope: str, mode: str = "auto") -> str:
    """The style sheet that marks the current operation, what it takes from and what goes on with it.

    Args:
        drawn: The picture.
        state: What the explorer shows.
        scope: A CSS class of the element around the picture.
        mode: How the picture stands in its pane, one of `MODES`.

    Returns:
        CSS. Beside the colour there is the thickness of lines, and dashes for what comes after.
    """
    here = spot_of(drawn, state)
    before, after = neighbours(drawn, here)
    rules = [_placed(drawn, here, scope, mode)]
    rules += _marked(scope, [here] if here else [], f"stroke: {_HERE}; stroke-width: 3.5; fill: #fff3bf;")
    rules += _marked(scope, _ends(drawn, before, source=True), f"stroke: {_BEFORE}; stroke-width: 2.5;")
    rules += _marked(
        scope, _ends(drawn, after, source=False), f"stroke: {_AFTER}; stroke-width: 2.5; stroke-dasharray: 5 2;"
    )
    rules += _marked(scope, (f"edge{i + 1}" for i in before), f"stroke: {_BEFORE}; stroke-width: 2.5;")
    rules += _marked(scope, (f"edge{i + 1}" for i in after), f"stroke: {_AFTER}; stroke-width: 2.5;")
    return "\n".join(rules)


def spot_of(drawn: Scene, state: Explorer) -> str:
    """Id of the current operation in the picture, or of the one around it that is drawn."""
    around = [state.at, *(row.id for row in state.sheet.above(state.at))]
    return next((key for key in around if key in drawn.spots), "")


def neighbours(drawn: Scene, here: str) -> tuple[list[int], list[int]]:
    """The arrows that come into an operation and those that leave it, by their numbers."""
    row = next((row for row in drawn.shown.walk() if row.id == here), None)
    inside = {r.id for r in row.walk()} if row else set()
    before = [i for i, e in enumerate(drawn.edges) if e.target in inside and e.source not in inside]
    after = [i for i, e in enumerate(drawn.edges) if e.source in inside and e.target not in inside]
    return before, after


def _ends(drawn: Scene, numbers: Iterable[int], *, source: bool) -> list[str]:
    return sorted({drawn.edges[i].source if source else drawn.edges[i].target for i in numbers})


def _marked(scope: str, ids: Iterable[str], style: str) -> list[str]:
    chosen = [f'.{scope} [id="{key}"] {shape}' for key in ids for shape in _SHAPES]
    return [f"{', '.join(chosen)} {{ {style} }}"] if chosen else []


def _placed(drawn: Scene, here: str, scope: str, mode: str) -> str:
    """Where the picture stands in its pane."""
    if mode == "auto":
        mode = "fit" if all(size <= room for size, room in zip(drawn.size, ROOM, strict=True)) else "follow"
    if mode == "scroll":
        return f".{scope} {{ overflow: auto; }}"
    if mode == "fit":
        return f".{scope} {{ overflow: hidden; }} .{scope} svg {{ max-width: 100%; max-height: 100%; }}"
    x, y = drawn.spots.get(here, (drawn.size[0] / 2, drawn.size[1] / 2))
    return (
        f".{scope} {{ overflow: hidden; position: relative; }} "
        f".{scope} svg {{ position: absolute; left: 50%; top: 50%; transform: translate({-x:.1f}pt, {-y:.1f}pt); }}"
    )


# --------------------------------------------------------------------------------------------- files


def save_picture(state: Explorer, path: str | Path) -> Path:
    """Save the picture that the explorer shows, its current operation marked.

    Args:
        state: What the explorer shows.
        path: Where to; the name ends in `.svg` or `.png`.

    Returns:
        The path.

    Raises:
        TraceError: The name has another ending, or no picture can be drawn.
    """
    path = Path(path)
    drawn = scene(state)
    if path.suffix not in (".svg", ".png"):
        raise TraceError(f"a picture is saved as .svg or .png, not {path.suffix!r}", way_out="give such a name")
    if drawn.picture is None:
        raise TraceError(drawn.problem)
    marked = drawn.picture.copy()
    if (here := spot_of(drawn, state)) and not any(row.id == here and row.children for row in drawn.shown.walk()):
        marked.node(here, penwidth="3", fillcolor="#fff3bf")
    path.write_bytes(_dot.render(marked.source, path.suffix[1:]))
    return path
