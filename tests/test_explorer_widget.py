import sys

import pytest
from handmade import X, chain, example, make

from subtrace_kit import explore
from subtrace_kit.errors import TraceError
from subtrace_kit.explorer_widget import LISTED, ExplorerWidget


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


def test_without_ipywidgets_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "subtrace_kit.explorer_widget", None)
    with pytest.raises(TraceError, match=r"needs ipywidgets.*\n.*pip install ipywidgets"):
        explore(example())
