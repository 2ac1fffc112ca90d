import linecache
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import graphviz
import pytest
import torch
from handmade import MUL, SIN, W, X, build, call, captured, chain, example, make, mul, pair, plain, sin

from subtrace_kit import _dot, look
from subtrace_kit.draw import draw, mime_bundle
from subtrace_kit.errors import TraceError
from subtrace_kit.source import Source
from subtrace_kit.symbols import Kind
from subtrace_kit.trace import Construction, Trace


@pytest.fixture(autouse=True)
def pure(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The engine that gives the same picture everywhere; printed traces have their own tests."""
    monkeypatch.setenv(_dot.VARIABLE, "pure")
    monkeypatch.setattr(Trace, "__str__", lambda self: f"def {self.name}(): ...")
    _dot.engine.cache_clear()
    yield
    _dot.engine.cache_clear()


def line(source: str, node: str) -> str:
    """The statement of a node or box."""
    (found,) = [text for text in source.splitlines() if re.search(rf"\bid={node}\b", text)]
    return found.strip()


def svg(source: str) -> ET.Element:
    done = subprocess.run([str(_dot.engine()), "-Tsvg"], input=source.encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert b"rror" not in done.stderr, done.stderr.decode()
    return ET.fromstring(done.stdout)


def texts(root: ET.Element) -> list[str]:
    return [(e.text or "") for e in root.iter("{http://www.w3.org/2000/svg}text")]


def kinds(root: ET.Element, kind: str) -> int:
    return sum(1 for e in root.iter() if e.get("class") == kind)


# ------------------------------------------------------------------------- what is drawn
def test_an_operation_is_a_node_with_its_name_result_and_type() -> None:
    source = draw(make([call("torch.relu", (W,), plain("t"))], inputs=(W,))).source
    assert "<b>torch.relu</b><br/>" in line(source, "op_0")
    assert ">t: f32[4]<" in line(source, "op_0")
    assert re.search(r"\bin_0 -> op_0 \[", source)


def test_levels_are_boxes_in_boxes() -> None:
    source = draw(example()).source
    assert [re.findall(r"subgraph (\w+)", source)] == [
        ["cluster_op_0", "cluster_op_0_0", "cluster_op_1", "cluster_op_1_0"]
    ]
    root = svg(source)
    assert (kinds(root, "cluster"), kinds(root, "node")) == (4, 9)


def test_depth() -> None:
    source = draw(example(), 1).source
    assert "subgraph" not in source
    assert "+4 inside" in line(source, "op_0")
    assert re.findall(r"(\w+) -> (\w+)", source) == [
        ("in_0", "op_0"),
        ("in_1", "op_0"),
        ("op_0", "op_1"),
        ("op_1", "out_0"),
    ]


def test_collapse_and_expand() -> None:
    assert "cluster_op_0 " not in draw(example(), collapse="mul").source
    assert re.findall(r"subgraph (\w+)", draw(example(), 1, expand={"sin"}).source) == [
        "cluster_op_1",
        "cluster_op_1_0",
    ]
    assert re.findall(r"subgraph (\w+)", draw(example(), expand="mul", depth=1).source)[0] == "cluster_op_0"


def test_wrapper_values_have_colour_and_double_lines() -> None:
    t = plain("t")
    source = draw(make([mul(), call("torch.sum", (MUL,), t)], inputs=(X, W), output=t), 1).source
    assert "peripheries=2" in line(source, "op_0")
    assert look.BLUE in line(source, "op_0")
    assert "peripheries" not in line(source, "op_1")
    assert f'op_0 -> op_1 [color="{look.BLUE}:white:{look.BLUE}"' in source
    assert "op_1 -> out_0 [tooltip=t]" in source


def test_a_wrapper_input_shows_its_class_and_its_inner_tensors_as_ports() -> None:
    source = draw(example()).source
    assert "<b>x</b>: Pair f32[4]" in line(source, "in_0")
    assert '<td port="p0" bgcolor="white"><b>.a</b><br/>' in line(source, "in_0")
    assert "in_0:p0:s -> op_0_0_0" in source


def test_a_wrapper_goes_into_a_box() -> None:
    assert re.search(r"op_0_0_2 -> op_1_0_0 \[.*lhead=cluster_op_1\b", draw(example()).source)


def test_many_inner_tensors_are_cut() -> None:
    inner = tuple((f"f{i}", plain(f"x_{i}")) for i in range(20))
    value = X.replace(inner=inner)
    source = draw(make([call("torch.f", (value,), None)], inputs=(value,))).source
    assert line(source, "in_0").count("<td port=") == look.MOST_CELLS
    assert "+14" in line(source, "in_0")


def test_inputs_captures_and_results_have_shapes_of_their_own() -> None:
    trace = make([call("torch.mul", (W, plain("c")), plain("t"))], inputs=(W,), output=plain("t"))
    source = draw(trace.replace(captures=(captured(plain("c"), "fc1.weight"),))).source
    assert "shape=ellipse" in line(source, "in_0")
    assert "<b>w</b>" in line(source, "in_0")
    assert "shape=cylinder" in line(source, "cap_0")
    assert "<b>fc1.weight</b>" in line(source, "cap_0")
    assert re.search(r"out_0 \[label=<<b>return t</b>.*shape=house", source)


def test_constructions_are_marked() -> None:
    ledger = (Construction(MUL, False, "only its inner tensors are used"), Construction(SIN, True, "returned"))
    source = draw(example(ledger=ledger)).source
    elided, kept = line(source, "op_0_0_2"), line(source, "op_1_0_2")
    assert 'style="filled,dashed"' in elided
    assert "not built" in elided
    assert "style=filled " in kept
    assert "not built" not in kept
    assert "elided: only its inner tensors are used" in elided
    assert "kept: returned" in kept


def test_constructions_that_lowering_left_out_are_a_dashed_note() -> None:
    ledger = tuple(Construction(pair(f"p{i}", plain("a"), plain("b")), False, "not returned") for i in range(9))
    source = draw(make([call("torch.relu", (W,), plain("t"))], inputs=(W,), ledger=ledger)).source
    (note,) = [text for text in source.splitlines() if text.strip().startswith("elided ")]
    assert "objects not built" in note
    assert "Pair x9: p0, p1, p2, p3, ..." in note
    assert "not returned" in note
    assert "shape=note" in note
    assert "dashed" in note


def test_an_in_place_operation_orders_its_neighbours() -> None:
    t, u, v = plain("t"), plain("u"), plain("v")
    rows = [call("torch.sin", (t,), u), call("torch.Tensor.mul_", (t, 2), t), call("torch.cos", (t,), v)]
    source = draw(make(rows, inputs=(t,), output=(u, v))).source
    assert re.search(r"op_0 -> op_1 \[.*style=dotted", source)
    assert re.search(r"op_1 -> op_2 \[(?!.*dotted)", source)
    assert "dotted arrow: comes before a write" in source


def test_arrows_of_several_results_bear_names() -> None:
    a, b = plain("a"), plain("b")
    rows = [call("torch.split", (W, 2), (a, b)), call("torch.add", (a, b), plain("t"))]
    source = draw(make(rows, inputs=(W,), output=plain("t"))).source
    assert "op_0 -> op_1 [label=<a>" in source
    assert "op_0 -> op_1 [label=<b>" in source


def test_names_are_short_and_the_tooltip_is_whole() -> None:
    long = plain("t", tuple(range(1000, 1020)))
    trace = make([call("torch.nn.functional.linear", (W,), long, source=Source("a.py", 7, "f"), module="fc1")])
    text = line(draw(trace).source, "op_0")
    assert "<b>F.linear</b>" in text
    assert "..." in text
    tip = re.search(r'tooltip="([^"]*)"', text)
    assert tip
    assert tip[1].split("&#10;")[0] == "t = torch.nn.functional.linear(w)"
    assert "1019]" in tip[1]
    assert "a.py:7" in tip[1]
    assert "in module fc1" in tip[1]


def test_prims_are_shown_with_their_arguments() -> None:
    source = draw(make([call("getattr", (X, "a"), plain("x_a"), kind=Kind.PRIM)], inputs=(X,))).source
    assert "<b>getattr(x, &#x27;a&#x27;)</b>" in line(source, "op_0")


def test_the_legend_explains_the_marks_that_occur() -> None:
    assert "double line: a wrapper value" in draw(example()).source
    assert "double line" not in draw(chain(2)).source
    assert "double line" not in draw(example(), legend=False).source


def test_rankdir() -> None:
    assert "rankdir=LR" in draw(example(), rankdir="LR").source
    assert "rankdir=TB" in draw(example()).source


# -------------------------------------------------------------------------------- failure
def test_the_failing_operation_is_red_down_to_the_innermost() -> None:
    source = draw(make((mul(), sin()), inputs=(X, W), failure="RuntimeError in torch.sin: no\nsecond line")).source
    for node in ("op_1", "op_1_0", "op_1_0_2"):
        assert f'color="{look.RED}"' in line(source, node)
        assert "penwidth=3" in line(source, node)
    assert "RuntimeError in torch.sin: no" in line(source, "op_1_0_2")
    assert "second line" not in source
    assert look.RED not in line(source, "op_0")
    assert look.RED not in line(source, "op_1_0_0")


def test_the_failing_operation_is_red_when_folded() -> None:
    source = draw(make((mul(), sin()), inputs=(X, W), failure="RuntimeError: no"), 1).source
    assert "RuntimeError: no" in line(source, "op_1")
    assert "penwidth=3" in line(source, "op_1")


def test_a_trace_that_failed_at_once_is_drawn() -> None:
    assert "red: failed" in draw(make((), inputs=(W,), failure="Error")).source


# ------------------------------------------------------------------------------ large ones
def levels(count: int) -> Trace:
    """`count` operations of level 1, each with 3 inside."""
    values = [plain(f"t{i}") for i in range(count + 1)]
    rows = []
    for i in range(count):
        u, v = plain(f"u{i}"), plain(f"v{i}")
        inside = call("aten.a.default", (values[i],), u), call("aten.b.default", (u,), v)
        rows.append(call("torch.f", (values[i],), values[i + 1], *inside, call("aten.c.default", (v,), values[i + 1])))
    return make(rows, inputs=values[:1], output=values[-1])


def test_a_large_trace_folds_by_itself_and_says_so() -> None:
    small, large = draw(levels(60)), draw(levels(100))
    assert small.shown.size == 180
    assert "folded" not in small.source
    assert large.shown.size == 100
    assert "folded to depth 1: depth=, expand= or start=," in large.source
    assert draw(levels(100), depth=2).shown.size == 300


def test_what_is_expanded_stays_so_when_a_large_trace_folds() -> None:
    assert draw(levels(100), expand="t7").shown.size == 102


def layers(count: int) -> Trace:
    """Blocks of two operations, each of which reads two parameters of its module."""
    rows, before, captures = [], plain("x"), []
    for i in range(count):
        for name in ("up", "down"):
            w, b, after = (plain(f"{name}{kind}{i}") for kind in ("w", "b", ""))
            rows.append(call("torch.linear", (before, w, b), after, module=f"blocks.{i}.{name}"))
            captures += [captured(w, f"blocks.{i}.{name}.weight"), captured(b, f"blocks.{i}.{name}.bias")]
            before = after
    return make(rows, inputs=(plain("x"),), output=before, captures=tuple(captures))


def test_the_parameters_of_many_operations_are_drawn_together() -> None:
    few, many = draw(layers(5)).source, draw(layers(7)).source
    assert few.count("shape=cylinder") == 20
    assert many.count("shape=cylinder") == 14
    node = line(many, "caps_0")
    assert "<b>2 captured tensors</b><br/>" in node
    assert "blocks.0.up.bias: f32[4]" in node
    assert re.search(r"\bcaps_0 -> op_0 \[", many)


def test_a_model_of_many_layers_is_one_block() -> None:
    for options in ({}, {"depth": 1}):
        picture = draw(layers(120), **options)  # type: ignore[arg-type]
        assert picture.shown.size == 1
        assert "<b>blocks.# x 120</b>" in picture.source
        assert "repeated blocks are folded" in picture.source
        assert line(picture.source, "caps_0").count("blocks.0.up.weight") == 2
        assert "and 478 more" in picture.source
        assert "+240 inside" in picture.source
    assert draw(layers(120), expand="blocks.7.up").shown.size == 4
    assert draw(layers(120), start=0, stop=230).shown.size == 230


def test_too_many_operations_are_refused_with_a_way_out() -> None:
    with pytest.raises(TraceError, match="5001 operations are too many") as caught:
        draw(chain(5001))
    assert "depth=1" in caught.value.way_out
    assert "stop=" in caught.value.way_out
    assert draw(chain(5001), start=10, stop=20).shown.size == 10


def test_a_slice_says_so() -> None:
    picture = draw(chain(300), start=100, stop=110)
    assert "operations 100 to 109 of 300 are shown" in picture.source
    assert "made earlier" in line(picture.source, "earlier_0")


def test_two_thousand_nodes_are_written_in_well_under_a_second() -> None:
    trace = chain(2000)
    started = time.perf_counter()
    source = draw(trace).source
    assert time.perf_counter() - started < 1.5  # About 0.2 s on an idle machine.
    assert source.count(" -> ") == 2001


# -------------------------------------------------------------------------------- escaping
HOSTILE = [
    '<&">',
    "a\\",
    "a\\\\",
    "\\N \\G \\l",
    'x" ]; evil -> node [label="',
    "<b>bold</b>",
    "<script>alert(1)</script>",
    "&lt;&#60;&nbsp;",
    "one\ntwo\r\tthree",
    "\u00e9\u2192\u6f22\u5b57\U0001f600",
    "\x1b[31m\x7f\x00",
    "\ud800",
    "->",
    "",
    "   ",
    "]]>",
    "}",
    "/* // #",
    "x:y:z",
    "a" * 5000,
]


def hostile(word: str) -> Trace:
    name = word.replace("\0", "").replace("\ud800", "?")  # What Python allows a class.
    file = name.replace("/", "") + ".py"
    linecache.cache[file] = (1, None, [word + "\n"], file)
    cls = type("Evil", (torch.Tensor,), {})
    cls.__name__ = name
    value = pair(f"v{word}", plain(f"a{word}"), plain("b"), cls=cls, metadata={word: word}).replace(
        inner=((word, plain(f"a{word}")), ("b", plain("b")))
    )
    made, t = value.replace(name=f"out{word}", inner=(("a", plain("t1")), ("b", plain("b")))), plain(f"t2{word}")
    inside = call(f"aten.{word}", (value,), [plain("t1"), t]), build(made)
    rows = [
        call(word, (value, word), made, *inside, source=Source(file, 1, word), module=word),
        call(f"get{word}", (t, word), plain(f"q{word}"), kind=Kind.PRIM),
    ]
    return make(
        rows,
        inputs=(value, plain(f"p{word}")),
        output=[made],
        name=word,
        captures=(captured(plain("c"), word),),
        ledger=(Construction(value, False, word),),
        failure=word or "x",
    ).replace(provenance=(word,))


@pytest.mark.parametrize("word", HOSTILE, ids=ascii)
def test_nothing_from_user_code_is_markup(word: str) -> None:
    for options in ({}, {"depth": 1}, {"start": 1}):
        picture = draw(hostile(word), **options)  # type: ignore[arg-type]
        assert picture.source.isascii()
        root = svg(picture.source)
        shown = picture.shown
        sources = len(shown.inputs) + len(shown.captures) + len(shown.earlier)
        unknown = picture.source.count("made elsewhere")
        assert kinds(root, "node") == sources + shown.size + len(shown.outputs) + unknown + 1
        assert not [e for e in root.iter() if e.tag.endswith("script")]


def test_user_text_is_shown_as_it_is() -> None:
    for word in ('<&">', "\\N \\G \\l", "&lt;&#60;&nbsp;", "<b>bold</b>", "a -> b"):
        root = svg(draw(make([call(word, (W,), plain("t"))], inputs=(W,))).source)
        assert word in texts(root)
        tips = {e.get("{http://www.w3.org/1999/xlink}title", "").replace("\u200b", "") for e in root.iter()}
        assert any(tip.startswith(f"t = {word}(w)") for tip in tips)


# ------------------------------------------------------------------------------- notebooks
def test_a_trace_in_a_notebook_is_text_svg_and_png() -> None:
    bundle = mime_bundle(example())
    assert list(bundle) == ["text/plain", "image/svg+xml", "image/png"]
    assert bundle["text/plain"] == "def f(): ..."
    assert "<svg" in bundle["image/svg+xml"]
    assert bundle["image/png"].startswith(b"\x89PNG")
    assert example()._repr_mimebundle_() == bundle


def test_large_pictures_have_a_coarse_png_or_none() -> None:
    def pixels(count: int) -> int:
        png = mime_bundle(chain(count))["image/png"]
        return int.from_bytes(png[20:24], "big")

    assert pixels(41) < pixels(40)
    assert "image/png" not in mime_bundle(chain(150))


def test_of_a_long_trace_a_part_is_shown() -> None:
    bundle = mime_bundle(chain(6000))
    assert bundle["text/plain"].endswith("(operations 0 to 199 of 6000 are shown)")
    assert "operations 0 to 199 of 6000 are shown" in bundle["image/svg+xml"]
    failed = mime_bundle(chain(6000).replace(failure="Error: at the end"))
    assert "operations 5800 to 5999 of 6000 are shown" in failed["image/svg+xml"]
    assert "Error: at the end" in failed["image/svg+xml"]


def without_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dot, "_find", lambda: None)
    monkeypatch.setenv(_dot.VARIABLE, "")
    _dot.engine.cache_clear()


def test_without_an_engine_there_is_text_and_one_line_of_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    without_engine(monkeypatch)
    (text,) = mime_bundle(example()).values()
    assert text.splitlines() == [
        "def f(): ...",
        "# no picture: no layout engine was found; `pip install graphviz-pure` brings one",
    ]
    assert "subgraph" in draw(example()).source
    assert list(draw(example())._repr_mimebundle_()) == ["text/plain"]


def test_an_engine_that_fails_is_no_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if sys.platform == "win32":
        pytest.skip("the stand-in is a shell script")
    broken = tmp_path / "dot"
    broken.write_text("#!/bin/sh\necho it is broken >&2\necho more >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv(_dot.VARIABLE, str(broken))
    _dot.engine.cache_clear()
    (text,) = mime_bundle(example()).values()
    assert text.splitlines()[1:] == ["# no picture: it is broken"]


def test_a_picture_shows_itself() -> None:
    picture = draw(example(), 1)
    assert isinstance(picture, graphviz.Digraph)
    assert repr(picture) == "<Picture of f: 2 operations>"
    bundle = picture._repr_mimebundle_()
    assert list(bundle) == ["text/plain", "image/svg+xml", "image/png"]
    assert bundle["text/plain"].splitlines()[0] == "f(x: Pair f32[4], w: f32[4])"
    assert list(picture._repr_mimebundle_(include=["image/png"])) == ["image/png"]
    assert "image/png" not in picture._repr_mimebundle_(exclude=["image/png"])


def test_a_picture_can_be_changed_and_saved(tmp_path: Path) -> None:
    twin = draw(example()).copy()
    twin.attr(bgcolor="grey")
    assert twin.source != draw(example()).source
    assert repr(twin) == "<Picture of f: 6 operations>"
    assert Path(draw(example()).render(tmp_path / "f", format="svg")).read_text().count("<svg") == 1


def test_the_picture_is_the_same_each_time() -> None:
    code = "import handmade, subtrace_kit; print(subtrace_kit.draw(handmade.example()).source)"
    here = Path(__file__).parent
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], cwd=here, capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": f"{here}:{here.parent}", "PATH": ""},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert runs[0] == runs[1]
    assert "cluster_op_1_0" in runs[0]


def test_a_picture_with_a_wrapper_in_grey_differs_by_its_lines() -> None:
    colours: Any = re.compile(r'(fill|font)?color="?#?[\w:#]+"?')
    source = draw(make([call("torch.a", (X,), MUL), call("torch.b", (X,), plain("t"))], inputs=(X,)), 1).source
    a, b = (colours.sub("", line(source, node)) for node in ("op_0", "op_1"))
    assert "peripheries=2" in a
    assert "peripheries" not in b
