"""How a picture looks: labels, colours and shapes of what a view shows.

What a colour says, a shape or a line says too. Everything that comes from user code goes through
`text` or `tip`, which leave no markup in it.
"""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Sequence

import graphviz

from .bundles import Bundle
from .flow import Edge, Flow, nodes
from .rows import Row, Value, View
from .symbols import Kind

MOST_CELLS = 6
"""Inner tensors that are drawn of one wrapper value."""
MOST_NAMES, MOST_TOLD = 2, 40
"""Captured values of a bundle that are named in its node and in its tooltip."""

_ASTRAL = "\U00010000"
"""The first character whose reference graphviz cannot read in a tooltip."""

Attributes = dict[str, str]


def _style(pairs: str) -> Attributes:
    return dict(pair.split("=") for pair in pairs.split())


INK, PALE, BLUE, RED, PURPLE, ORANGE = (
    "#1f2933",
    "#5b6770",
    "#0b5fa5",
    "#c62828",
    "#6a4c93",
    "#b35900",
)
_FONT = _style(f"fontname=Helvetica fontsize=10 fontcolor={INK}")
GRAPH = _FONT | _style("nodesep=0.22 ranksep=0.38 labelloc=t labeljust=l bgcolor=white margin=0.1")
GRAPH |= {"compound": "true", "tooltip": " "}
NODE = _FONT | _style("shape=box style=rounded,filled margin=0.12,0.05 height=0.3")
NODE |= _style("fillcolor=white color=#7b8794")
EDGE = _FONT | _style("fontsize=8 color=#7b8794 arrowsize=0.6")

_WRAPPER = _style(f"fillcolor=#e3f0fb color={BLUE} peripheries=2")
_KEPT = _style(f"fillcolor=#fdebc8 color={ORANGE} peripheries=2 style=filled penwidth=1.4")
_ELIDED = _style(f"color={ORANGE} style=filled,dashed fillcolor=white fontcolor={PALE}")
_FAILING = _style(f"color={RED} penwidth=3")
_INPUT = _style("shape=ellipse style=filled fillcolor=#edf0f3 margin=0.04,0.02")
_CAPTURE = _style(f"shape=cylinder style=filled fillcolor=#f1e9f7 color={PURPLE}")
_EARLIER = _style(f"shape=plaintext style= fontcolor={PALE}")
_OUTPUT = _style("shape=house style=filled fillcolor=#e4f3e7 color=#2e7d4f margin=0.08,0.03")
_NOTE = _style(f"shape=note style=filled,dashed fillcolor=#fffdf3 color={ORANGE}")
_BOX = _style("style=rounded,filled margin=8")
_LEVELS = ("#f4f6f8", "#e6ebf0", "#d8e0e8", "#cad4de")
_DOUBLE = _style(f"color={BLUE}:white:{BLUE}")
_ORDER = _style("style=dotted arrowhead=empty")


def node(row: Row, failure: str) -> Attributes:
    """An operation without its inside."""
    lines = [_short(f"{value.name}: {value.short}") for value in row.outputs[:4]]
    lines += [f"+{len(row.outputs) - 4} more results"] if len(row.outputs) > 4 else []
    lines += ["not built"] if row.construction == "elided" else []
    lines += [f"+{row.folded} inside"] if row.folded else []
    fault = textwrap.wrap(failure.splitlines()[0], 44)[:4] if row.failing else []
    style = {"kept": _KEPT, "elided": _ELIDED}.get(row.construction) or _border(*row.outputs)
    style = style | (_FAILING if row.failing else {})
    return {"id": row.id, "label": _label(_name(row), lines, fault), **style, **_about(row)}


def box(row: Row) -> Attributes:
    """The box around the inside of an operation."""
    inside = {value.name for child in row.children for value in child.outputs}
    results = ", ".join(f"{v.name}: {v.short}" for v in row.outputs if v.name not in inside)  # Arrows cross titles.
    label = f"<<b>{text(_name(row))}</b>{f'  {_small(_short(results, 44))}' if results else ''}>"
    style = _BOX | {"fillcolor": _LEVELS[max(1, min(row.depth, len(_LEVELS))) - 1]}
    style["color"] = BLUE if _border(*row.outputs) else "#9aa5b1"
    return {
        "id": row.id,
        "label": label,
        **style,
        **(_FAILING if row.failing else {}),
        **_about(row),
    }


def _border(*values: Value) -> Attributes:
    return _WRAPPER if any(value.cls for value in values) else {}


def _name(row: Row) -> str:
    if row.kind is Kind.PRIM:
        return _short(row.call)
    name = row.symbol.replace("torch.nn.functional.", "F.").replace("torch.Tensor.", "Tensor.")
    return _short(name)


def _about(row: Row) -> Attributes:
    """All there is to say of an operation, as a tooltip."""
    lines = [f"{row.name} = {row.call}" if row.name else row.call]
    lines += [f"{value.name}: {value.type}" for value in row.outputs]
    lines += [f"metadata: {value.metadata}" for value in row.outputs if value.metadata]
    lines += [f"writes {', '.join(row.writes)}"] if row.writes else []
    lines += [f"{row.source.place}  {row.source.text}"] if row.source else []
    lines += [f"in module {row.module}"] if row.module else []
    lines += [f"{row.construction}: {row.reason}"] if row.reason else []
    return tip(*lines, *([f"made of {', '.join(row.made_of[:8])}"] if row.made_of else []))


def source(node: str, value: Value) -> Attributes:
    """An input, a captured value, or one that was made earlier, which its node's id says."""
    captured, earlier = node.startswith("cap"), node.startswith("earlier")
    name = value.path or value.name
    about = tip(f"{name}: {value.type}", *([value.metadata] if value.metadata else []))
    if value.inner:
        name = f"{name} (made earlier)" if earlier else name
        table = _table(name, value, PURPLE if captured else PALE if earlier else BLUE)
        return {"id": node, "label": table, "shape": "plain", "style": "", **about}
    lines = [_short(value.short), *(["made earlier"] if earlier else [])]
    style = _CAPTURE if captured else _EARLIER if earlier else _INPUT
    return {"id": node, "label": _label(_short(name), lines), **style, **about}


def bundle(found: Bundle, values: Sequence[Value]) -> Attributes:
    """Captured values that are drawn together: their names, as far as there is room."""
    names = [value.path or value.name for value in values]
    lines = [_short(name) for name in names[:MOST_NAMES]]
    lines += [f"and {len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    told = [f"{name}: {value.type}" for name, value in zip(names, values, strict=True)]
    about = tip(*told[:MOST_TOLD], *([f"and {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []))
    border = {"peripheries": "2"} if any(value.cls for value in values) else {}
    return {"id": found.node, "label": _label(found.name, lines), **_CAPTURE, **border, **about}


def _table(name: str, value: Value, color: str) -> str:
    """A wrapper value: a heading, and under it a cell for each inner tensor."""
    cells = [
        f'<td port="p{i}" bgcolor="white"><b>.{text(_short(path))}</b><br/>{_small(_short(kind))}</td>'
        for i, (path, _, kind) in enumerate(value.inner[:MOST_CELLS])
    ]
    if (more := len(value.inner) - MOST_CELLS) > 0:
        cells.append(f'<td bgcolor="white">+{more}</td>')
    back = (_CAPTURE if color == PURPLE else _WRAPPER)["fillcolor"]
    head = f"<b>{text(_short(name))}</b>: {text(_short(value.short))}"
    return (
        f'<<table border="1" cellborder="1" cellspacing="2" cellpadding="0" color="{color}" bgcolor="white"><tr><td>'
        f'<table border="0" cellborder="1" cellspacing="3" cellpadding="2" color="{color}" bgcolor="{back}">'
        f'<tr><td border="0" colspan="{len(cells)}">{head}</td></tr>'
        f"<tr>{''.join(cells)}</tr></table></td></tr></table>>"
    )


def ports(shown: View) -> dict[tuple[str, str], str]:
    """Where an arrow begins that carries an inner tensor of an input: (node, name) -> port."""
    return {
        (node, name): f"{node}:p{i}:s"
        for node, value in nodes(shown)
        for i, (_, name, _) in enumerate(value.inner[:MOST_CELLS])
    }


def result(value: Value) -> Attributes:
    """A value that the program returns."""
    label = _label(_short(f"return {value.name}"), [_short(value.short)])
    border = {"peripheries": "2"} if value.cls else {}
    return {"label": label, **_OUTPUT, **border, **tip(f"{value.name}: {value.type}")}


def unknown(name: str) -> Attributes:
    """A value that nothing in the trace makes."""
    return {"label": _label(_short(name), ["made elsewhere"]), **_EARLIER}


def note(shown: View) -> Attributes:
    """The objects that a lowered trace does not build."""
    lines = []
    for cls, names, reason in shown.elided[:6]:
        some = ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
        lines += textwrap.wrap(f"{cls} x{len(names)}: {some}", 44)
        lines += textwrap.wrap(reason, 44)
    lines += [f"and {len(shown.elided) - 6} more kinds"] if len(shown.elided) > 6 else []
    return {"label": _label("objects not built", lines), **_NOTE}


def arrow(edge: Edge, *, several: bool) -> Attributes:
    """A value on its way; its name is written on it where it is one of several results."""
    style = _ORDER if edge.order else _DOUBLE if edge.wrapper else {}
    label = {"label": f"<{text(_short(edge.name))}>"} if several and not edge.order else {}
    return style | label | tip(edge.name)


def title(shown: View, found: Flow, *, legend: bool) -> str:
    """The heading: name, last pass, what is left out, and what the marks mean."""
    marks = "; ".join(_marks(shown, found)) if legend else ""
    lines = [f'<font point-size="13"><b>{text(_short(shown.name))}</b></font>']
    lines += [_small(line) for line in textwrap.wrap(shown.provenance, 60)[:2]]
    notes = [line for note in shown.notes for line in textwrap.wrap(note, 60)]
    lines += [f'<font color="#9a3412"><b>{text(line)}</b></font>' for line in notes]
    lines += [_small(line) for line in textwrap.wrap(marks, 60)]
    return "<" + "".join(f'{line}<br align="left"/>' for line in lines) + ">"


def _marks(shown: View, found: Flow) -> list[str]:
    """What the marks mean that occur in a picture."""
    built = {row.construction for row in shown.walk()}
    marks = {
        "double line: a wrapper value": any(edge.wrapper for edge in found.edges),
        "cylinder: captured": bool(shown.captures),
        "square: an object is built": "kept" in built,
        "dashed: not built": "elided" in built or bool(shown.elided),
        "dotted arrow: comes before a write": any(edge.order for edge in found.edges),
        "red: failed": bool(shown.failure),
    }
    return [mark for mark, occurs in marks.items() if occurs]


def _label(head: str, lines: Iterable[str] = (), fault: Iterable[str] = ()) -> str:
    parts = [f"<b>{text(head)}</b>", *map(_small, lines)]
    parts += [f'<font point-size="9" color="{RED}"><b>{text(line)}</b></font>' for line in fault]
    return f"<{'<br/>'.join(parts)}>"


def _small(words: str) -> str:
    return f'<font point-size="9" color="{PALE}">{text(words)}</font>'


def _short(words: str, most: int = 34) -> str:
    return words if len(words) <= most else f"{words[: most - 3]}..."


def text(words: str) -> str:
    """Text for a label: no markup, no escapes, one line, not empty, ASCII by references."""
    if not words.isascii() or not words.isprintable():
        words = "".join(c if c.isprintable() and c < _ASTRAL else ascii(c)[1:-1] for c in words)
    words = html.escape(words if words.strip() else "\N{NO-BREAK SPACE}")
    return words.replace("\\", r"\\").encode("ascii", "xmlcharrefreplace").decode()


def tip(*lines: str) -> Attributes:
    """A tooltip. Graphviz reads escapes in it twice, so something must part backslash and letter."""
    words = "&#10;".join(text(_short(line, 400)) for line in lines)
    return {"tooltip": graphviz.nohtml(words.replace(r"\\", r"\\&#8203;"))}
