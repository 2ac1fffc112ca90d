import re

import pytest
import torch
from handmade import W, X, call, example, make, mul, plain, sin

import subtrace_kit
from subtrace_kit import _dot
from subtrace_kit.explorer import start
from subtrace_kit.panes import details_pane, error_pane, picture_pane, status
from subtrace_kit.zoo import TwoTensor

pytestmark = pytest.mark.usefixtures("pure")


def traced() -> subtrace_kit.Trace:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (TwoTensor(x, x) * 2).a

    return subtrace_kit.trace(program)(torch.ones(2))


def test_status() -> None:
    state = start(example(), depth=1)
    assert status(state) == "f, as written: 1 of 2 shown, 10 rows in all"
    assert status(state.search("nothing")).endswith("in all. nothing is found for 'nothing'")
    assert status(state.only("w")) == "f, as written: 1 of 1 shown, 10 rows in all, only w"
    assert status(start(make(()))).startswith("f, as written: nothing to show")


def test_the_error_of_a_failed_trace_is_shown_in_full() -> None:
    assert error_pane(start(example())) == ""
    shown = error_pane(start(make((mul(), sin()), inputs=(X, W), failure="Error: <b>")))
    assert shown == '<div class="error" role="alert">Error: &lt;b&gt;</div>'


def test_details_say_what_becomes_of_an_object_when_the_trace_is_lowered() -> None:
    state = start(traced()).search("op:twotensor")
    assert "<td>lowered</td><td>elided  twotensor: TwoTensor" in details_pane(state)


def test_another_pass_beside() -> None:
    state = start(traced()).compare("lowered")
    shown = details_pane(state)
    assert "<th>as written</th><th>lowered</th>" in shown
    assert "vanished: twotensor = TwoTensor" in shown
    turned = details_pane(state.choose("lowered").compare("as written"))
    assert "<th>as written</th><th>lowered</th>" in turned
    assert re.search(r'<tr class="here">.*mul_1', turned)
    assert "side by side" not in details_pane(state.compare("as written"))


def test_the_picture_stands_in_an_element_of_its_own() -> None:
    shown = picture_pane(start(example(), depth=1), "s1")
    assert '<div class="pane s1" role="img"' in shown
    assert "<svg" in shown


def test_without_an_engine_the_picture_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_dot.VARIABLE, "<none>")
    _dot.engine.cache_clear()
    assert picture_pane(start(example()), "s").startswith("<p>no picture: $SUBTRACE_DOT is &#x27;&lt;none&gt;")


def test_a_trace_without_operations() -> None:
    assert details_pane(start(make((), inputs=(X,)))) == "<p>no operation</p>"
    assert details_pane(start(make([call("torch.f", (W,), plain("t"))])))
