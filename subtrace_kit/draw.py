"""Pictures: a view of a trace as a graphviz graph."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import graphviz

from . import _dot, look
from .called import trace_of
from .errors import TraceError
from .flow import Flow, flow, nodes
from .fold import Chosen, fold, names_in, outline, predicate, section
from .groups import grouped, module_classes
from .options import expect_level, expect_one_of, expect_place
from .picture import Picture, bundle
from .rows import Row, View
from .trace import Trace
from .view import view

__all__ = ["Picture", "draw", "mime_bundle", "picture_of"]

FOLD_ABOVE = 200
"""Operations above which a picture folds levels by itself."""
REFUSE_ABOVE = 5000
"""Operations above which no picture is drawn: a layout would take minutes."""
BLOCKS = "modules are boxes, repeated blocks are folded: expand= or start=, stop= show more"
DIRECTIONS = ("TB", "LR", "BT", "RL")


def draw(
    trace: Trace | TraceError,
    depth: int | None = None,
    *,
    collapse: Chosen = None,
    expand: Chosen = None,
    start: int | None = None,
    stop: int | None = None,
    rankdir: str = "TB",
    legend: bool = True,
) -> Picture:
    """Draw a trace.

    A node is an operation, an arrow a value on its way, a box the inside of an operation. A double
    border or arrow is a wrapper value.

    Args:
        trace: A trace of any pass, or the TraceError that ended one: its failing operation is red.
        depth: The deepest level that is drawn, 1 being what the user wrote; 0 draws modules alone,
            where there are any. None draws all levels, or as many as fit 200 operations; the picture
            says so. Of more than 200 operations in modules the repeated blocks are folded,
            `Block x 24`.
        collapse: Operations to draw without their inside: a name (of a result, an operation or a
            module path), several, or a predicate on `view.Row`. A module path stands for all that ran
            in the module, `blocks` for `blocks.3` too; modules are then boxes, repeated ones folded,
            as `explore` shows them.
        expand: Operations to draw with their inside in spite of `depth` and `collapse`; of repeated
            blocks those that are named: `Block x 3`, the block, `Block x 8`.
        start: The first operation of level 1 that is drawn, counted as in a slice.
        stop: The one after the last.
        rankdir: Direction of the flow: `TB`, `LR`, `BT` or `RL`.
        legend: Whether the marks that occur are explained at the top.

    Returns:
        A `graphviz.Digraph`; `.source` is its DOT text, `.render("trace.svg")` or
        `.render("trace.png")` saves it.

    Raises:
        TraceError: There are more than 5,000 operations to draw, the error has no trace, an option does
            not take its value, or a name is that of no operation.

    Example:
        >>> picture = subtrace_kit.draw(t, depth=1)  # doctest: +SKIP
        >>> picture.render("trace.svg")  # doctest: +SKIP
        'trace.svg'
    """
    trace = trace_of(trace, "draw")
    expect_level(depth, "draw", "depth", least=0)
    expect_place(start, "draw", "start")
    expect_place(stop, "draw", "stop")
    expect_one_of(rankdir, "draw", "rankdir", DIRECTIONS)
    _dot.engine()  # Tells the graphviz package where the engine is.
    shown = _shown(trace, depth, slice(start, stop), collapse, expand)
    _refuse_many(shown.size)
    return picture_of(shown, flow(shown), rankdir, legend=legend)


def _shown(trace: Trace, depth: int | None, part: slice, collapse: Chosen, expand: Chosen) -> View:
    """What is drawn: modules are boxes where they are asked for, or where all is too much."""
    whole, classes = view(trace), module_classes(trace)
    names = names_in(collapse) | names_in(expand)
    boxes = grouped(whole, classes) if names or depth == 0 else whole
    if depth == 0 or any(row.depth == 0 and not names.isdisjoint((row.module, row.symbol)) for row in boxes.walk()):
        chosen = {"collapse": collapse and predicate(boxes, collapse), "expand": expand and predicate(boxes, expand)}
        some = section(whole, part.start, part.stop)
        boxes = boxes if some is whole else grouped(some, classes)
        return _told(_fitting(lambda level: fold(boxes, level, **chosen), depth))
    shown = _fitting(
        lambda level: section(fold(whole, level, collapse=collapse, expand=expand), part.start, part.stop), depth
    )
    if shown.size > FOLD_ABOVE and part == slice(None) and any(row.module for row in whole.rows):
        blocks = fold(grouped(whole, classes), depth or 1, collapse=collapse, expand=expand)
        return _told(blocks) if blocks.size < shown.size else shown
    return shown


def _told(boxes: View) -> View:
    """Modules in boxes, with a note where repeated ones are folded."""
    is_folded = any(row.times and not row.children for row in boxes.walk())
    return dataclasses.replace(boxes, notes=(*boxes.notes, BLOCKS)) if is_folded else boxes


def picture_of(shown: View, found: Flow, rankdir: str = "TB", *, legend: bool = True) -> Picture:
    """The picture of a view and its data flow."""
    heading = {"label": look.title(shown, found, legend=legend), "rankdir": rankdir}
    picture = Picture(
        re.sub(r"\W", "_", shown.name, flags=re.ASCII) or "trace",
        graph_attr=look.GRAPH | heading,
        node_attr=look.NODE,
        edge_attr=look.EDGE,
    )
    picture.shown = shown
    _add_sources(picture, shown, found)
    for row in shown.rows:
        _add_row(picture, row, shown.failure)
    for i, value in enumerate(shown.outputs):
        picture.node(f"out_{i}", id=f"out_{i}", **look.result(value))
    for i, name in enumerate(found.unknown):
        picture.node(f"unknown_{i}", id=f"unknown_{i}", **look.unknown(name))
    if shown.elided:
        picture.node("elided", **look.note(shown))
    _add_edges(picture, shown, found)
    return picture


def _add_sources(picture: Picture, shown: View, found: Flow) -> None:
    values = dict(nodes(shown))
    for several in found.bundles:
        picture.node(several.node, **look.bundle(several, [values.pop(node) for node in several.members]))
    for node, value in values.items():
        picture.node(node, **look.source(node, value))


def _fitting(at: Callable[[int | None], View], depth: int | None) -> View:
    """The view at `depth`, or else at the deepest level that is still legible."""
    shown = at(depth)
    level = max((row.depth for row in shown.walk()), default=1)
    note: tuple[str, ...] = ()
    while depth is None and shown.size > FOLD_ABOVE and level > 1:
        level -= 1
        shown = at(level)
        note = (f"folded to depth {level}: depth=, expand= or start=, stop= show more",)
    return dataclasses.replace(shown, notes=(*shown.notes, *note))


def _refuse_many(size: int) -> None:
    if size > REFUSE_ABOVE:
        raise TraceError(
            f"{size} operations are too many for a picture (at most {REFUSE_ABOVE})",
            cause="a long program, or one drawn at all levels",
            way_out="draw(t, depth=1), draw(t, start=0, stop=200), or collapse= with a predicate",
        )


def _add_row(graph: graphviz.Digraph, row: Row, failure: str) -> None:
    if not row.children:
        graph.node(row.id, **look.node(row, failure))
        return
    with graph.subgraph(name=f"cluster_{row.id}") as box:
        box.attr(**look.box(row))
        for child in row.children:
            _add_row(box, child, failure)


def _add_edges(picture: Picture, shown: View, found: Flow) -> None:
    rows = {row.id: row for row in shown.walk()}
    ports = look.ports(shown)
    for edge in found.edges:
        tail, head = rows.get(edge.source), rows.get(edge.target)
        style = look.arrow(edge, several=tail is not None and len(tail.outputs) > 1)
        if tail and tail.children:
            style["ltail"] = f"cluster_{tail.id}"
        if head and head.children:
            style |= {"lhead": f"cluster_{head.id}", "minlen": "2"}
        begin = ports.get((edge.source, edge.name)) or (_ends(tail)[1] if tail else edge.source)
        picture.edge(begin, _ends(head)[0] if head else edge.target, **style)


def _ends(row: Row) -> tuple[str, str]:
    """The first and the last node inside a row."""
    leaves = [leaf.id for leaf in row.walk() if not leaf.children]
    return leaves[0], leaves[-1]


def mime_bundle(trace: Trace) -> dict[str, Any]:
    """A trace as a notebook shows it: text always, and pictures where they can be made.

    Args:
        trace: A trace of any pass.

    Returns:
        `text/plain`, the printed trace, and `image/svg+xml` and `image/png`: a notebook that is not
        trusted shows no SVG. Without a layout engine the text ends with a line of advice. Of more
        than 200 operations of level 1 the first are shown, where the trace has failed the last.

    Example:
        >>> sorted(mime_bundle(t))  # doctest: +SKIP
        ['image/png', 'image/svg+xml', 'text/plain']
    """
    start, stop = (-FOLD_ABOVE, None) if trace.failure else (None, FOLD_ABOVE)
    picture = draw(trace, start=start, stop=stop)
    long = len(trace.bound_symbols) > FOLD_ABOVE
    return bundle(picture, outline(picture.shown) if long else str(trace))
