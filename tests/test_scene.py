import re
from pathlib import Path

import pytest
from handmade import W, X, call, chain, example, make, mul, plain
from test_groups import blocks

from subtrace_kit import _dot
from subtrace_kit.errors import TraceError
from subtrace_kit.explorer import Explorer, start
from subtrace_kit.scene import DRAWN, marks, neighbours, part, save_picture, scene

pytestmark = pytest.mark.usefixtures("pure")


def long(count: int = 300) -> Explorer:
    return start(chain(count), expand=lambda row: row.times > 0)


def test_it_is_drawn_once_for_what_is_open() -> None:
    state = start(example())
    assert scene(state) is scene(state.step().step())
    assert scene(state.collapse()) is not scene(state)
    assert scene(state.collapse()) is scene(state.step(9).reveal("op_0").collapse())


def test_the_picture_shows_the_rows_that_are_shown() -> None:
    drawn = scene(start(example(), depth=1, expand="torch.sin"))
    assert [row.id for row in drawn.shown.walk()] == ["op_0", "op_1", "op_1_0"]
    assert drawn.svg.startswith("<svg")
    assert {"op_0", "op_1", "op_1_0", "in_0", "in_1", "out_0"} <= drawn.spots.keys()


def test_arrows_are_numbered_as_in_the_picture() -> None:
    drawn = scene(start(example(), depth=1))
    titles = re.findall(r'<g id="edge(\d+)" class="edge">\s*<title>(\w+)&#45;&gt;(\w+)', drawn.svg)
    assert titles
    for number, source, target in titles:
        edge = drawn.edges[int(number) - 1]
        assert (edge.source, edge.target) == (source, target)


def test_the_current_operation_and_its_neighbours_are_marked() -> None:
    state = start(example(), depth=1)
    style = marks(scene(state), state, "s1")
    assert '.s1 [id="op_0"] path' in style.split("fill: #fff3bf")[0]
    assert '.s1 [id="in_0"] polygon' in style
    assert style.index('[id="op_1"]') < style.index("stroke-dasharray")
    assert marks(scene(state), state.step(), "s1") != style


def test_neighbours_of_a_box_are_those_of_all_inside() -> None:
    drawn = scene(start(example()))
    before, after = neighbours(drawn, "op_0")
    assert {drawn.edges[i].source for i in before} == {"in_0", "in_1"}
    assert {drawn.edges[i].target for i in after} <= {"op_1", "op_1_0", "op_1_0_0", "op_1_0_1"}
    assert neighbours(drawn, "nothing") == ([], [])


def test_of_many_rows_a_part_is_drawn() -> None:
    state = long().to(150)
    drawn = scene(state)
    assert state.at in drawn.spots
    assert len(drawn.shown.rows[0].children) < DRAWN
    assert drawn.shown.notes == ("rows 137 to 168 of 301",)
    assert [value.name for value in drawn.shown.earlier] == ["t135"]
    assert drawn.shown.outputs == ()
    assert scene(state.step()) is drawn


def test_each_step_of_a_long_trace_is_in_its_picture() -> None:
    state = long(120)
    for place in range(len(state.lines)):
        at = state.to(place)
        assert at.at in scene(at).spots
    assert scene(at).shown.outputs


def test_a_part_says_what_was_made_before_it() -> None:
    state = start(make([mul(), call("torch.neg", (plain("mul_1"),), plain("n"))], inputs=(X, W)))
    shown = part(state.sheet, state.lines, state.sheet.rows, 5, 6)
    assert [row.id for row in shown.rows] == ["op_1"]
    assert [value.name for value in shown.earlier] == ["mul_1"]


def test_of_a_module_alone_only_its_own_results_are_shown() -> None:
    state = start(blocks(2), depth=1)
    first, last = (scene(state.only(f"blocks.{i}")).shown for i in (0, 1))
    assert [value.name for value in (*first.earlier, *first.outputs)] == []
    assert [value.name for value in last.earlier] == ["u0"]
    assert [value.name for value in last.outputs] == ["u1"]


def test_modules_are_boxes_and_repeated_blocks_one_node() -> None:
    state = start(blocks(5, last=[call("torch.sum", (plain("u4"),), plain("s"), module="head")]))
    drawn = scene(state)
    assert "blocks.# x 5" in drawn.svg
    assert {"mod_1_op_0", "rep_mod_2_op_0", "op_10"} <= drawn.spots.keys()
    assert next((e.source, e.target) for e in drawn.edges if e.name == "u4") == ("rep_mod_2_op_0", "op_10")


def test_follow_puts_the_current_operation_in_the_middle() -> None:
    state = long().to(150)
    assert "translate" in marks(scene(state), state, "s")
    assert "translate" not in marks(scene(start(example(), depth=1)), start(example(), depth=1), "s")
    assert marks(scene(state), state, "s", "scroll").startswith(".s { overflow: auto; }")
    assert "max-width: 100%" in marks(scene(state), state, "s", "fit")


def test_an_operation_that_is_not_drawn_is_marked_where_it_is_inside() -> None:
    state = start(example(), depth=1)
    drawn = scene(state)
    assert '[id="op_1"]' in marks(drawn, state.reveal("op_1_0_2"), "s").split("fff3bf")[0]


def test_markup_in_names_stays_text() -> None:
    evil = '<img src=x onerror="alert(1)">'
    drawn = scene(start(make([call("torch.f", (W,), plain("t"), module=evil)], inputs=(W,))))
    assert "<img" not in drawn.svg


def test_without_an_engine_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_dot.VARIABLE, "/no/such/dot")
    _dot.engine.cache_clear()
    drawn = scene(start(example()))
    assert drawn.problem.startswith("no picture")
    assert marks(drawn, start(example()), "s")
    with pytest.raises(TraceError, match="no picture"):
        save_picture(start(example()), "x.svg")


def test_save(tmp_path: Path) -> None:
    state = start(example(), depth=1)
    assert "#fff3bf" in save_picture(state, tmp_path / "a.svg").read_text()
    assert save_picture(state, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(TraceError, match=r"as .svg or .png, not '.gif'"):
        save_picture(state, tmp_path / "a.gif")
