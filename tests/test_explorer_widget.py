import sys
from pathlib import Path

import pytest
import torch
from handmade import MUL, SIN, W, X, chain, example, make, mul, sin

import subtrace_kit
from subtrace_kit import explore
from subtrace_kit.errors import TraceError
from subtrace_kit.explorer_widget import ALL, LISTED, ExplorerWidget


def click(widget: ExplorerWidget, text: str) -> None:
    (button,) = [b for b in buttons(widget) if b.description == text]
    button.click()


def buttons(widget: object) -> list:
    found = [widget] if type(widget).__name__ == "Button" else []
    return found + [b for child in getattr(widget, "children", ()) for b in buttons(child)]


def test_clicks_step_and_fold() -> None:
    widget = explore(example(), depth=1)
    assert [key for _, key in widget.list.options] == ["op_0", "op_1"]
    click(widget, "Step")
    assert (widget.state.at, widget.list.value, widget.place.value) == ("op_1", "op_1", 1)
    click(widget, "Back")
    click(widget, "Expand")
    assert [key for _, key in widget.list.options] == ["op_0", "op_0_0", "op_1"]
    click(widget, "Collapse")
    assert len(widget.list.options) == 2


def test_the_list_the_slider_and_play_step() -> None:
    widget = explore(example())
    widget.list.value = "op_0_0_1"
    assert widget.state.at == "op_0_0_1"
    widget.place.value = 0
    assert widget.state.at == "op_0"
    widget.play.value = 2
    assert widget.state.at == "op_0_0_0"
    assert widget.place.value == 2


def test_search_goes_to_the_match() -> None:
    widget = explore(example(), depth=1)
    widget.search.value = "aten.sin"
    assert widget.state.at == "op_1_0"
    assert "match 1 of 3" in widget.status.value
    click(widget, "Next")
    assert widget.state.at == "op_1_0_0"


def test_a_trace_without_operations_is_shown() -> None:
    assert explore(make((), inputs=(X,))).list.options == ()


def test_the_list_is_a_window_that_moves() -> None:
    t = chain(1000)
    widget = explore(t, expand=lambda row: row.times > 0)
    assert len(widget.list.options) == LISTED
    click(widget, "Last")
    assert widget.list.value == "op_999"
    assert len(widget.list.options) <= LISTED


def test_each_control_changes_the_state() -> None:
    widget = explore(example(), depth=1)
    widget.depth.value = 2
    assert widget.state.folds.depth == 2
    widget.depth.value = ALL
    assert (widget.state.folds.depth, len(widget.state.lines)) == (None, 10)
    widget.alone.value = "w"
    assert widget.state.alone == "w"
    widget.alone.value = ""
    widget.mode.value = "scroll"
    assert "overflow: auto" in widget.marks.value


def test_passes_are_chosen_and_compared() -> None:
    widget = explore(example(), passes={"mine": make((sin(),), inputs=(MUL,), output=SIN)})
    widget.beside.value = "mine"
    assert "side by side" in widget.details.value
    widget.passes.value = "mine"
    assert widget.state.label == "mine"
    assert widget.list.value == "op_0"


def test_a_pass_that_cannot_be_made_leaves_the_toggle_where_it_was() -> None:
    t = subtrace_kit.trace(lambda x: x.detach())(torch.ones(2, requires_grad=True))
    widget = explore(t)
    widget.passes.value = "backward"
    assert widget.passes.value == "as written"
    assert "no gradient reaches" in widget.status.value


def test_the_picture_is_sent_once_and_the_marks_at_each_step() -> None:
    widget = explore(example())
    sent: list[str] = []
    widget.picture.observe(lambda event: sent.append("picture"), "value")
    widget.marks.observe(lambda event: sent.append("marks"), "value")
    click(widget, "Step")
    click(widget, "Step")
    assert sent == ["marks", "marks"]
    click(widget, "First")
    click(widget, "Collapse")
    assert sent.count("picture") == 1


def test_two_explorers_do_not_style_each_other() -> None:
    assert explore(example()).scope != explore(example()).scope


def test_saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    widget = explore(example())
    for kind in ("svg", "png", "html"):
        click(widget, f"Save {kind}")
        assert f"saved as f.{kind}" in widget.status.value
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f.html", "f.png", "f.svg"]
    (tmp_path / "f.svg").unlink()
    (tmp_path / "f.svg").mkdir()
    click(widget, "Save svg")
    assert "not saved" in widget.status.value


def test_a_failed_trace_shows_its_error() -> None:
    widget = explore(make((mul(), sin()), inputs=(X, W), failure="RuntimeError: <no>"))
    assert "RuntimeError: &lt;no&gt;" in widget.error.value
    assert widget.list.value == "op_1_0_2"


def test_without_ipywidgets_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "subtrace_kit.explorer_widget", None)
    with pytest.raises(TraceError, match=r"needs ipywidgets.*\n.*pip install ipywidgets"):
        explore(example())
