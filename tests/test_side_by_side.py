import torch
from handmade import W, build, call, make, mul, pair, plain

import subtrace_kit
from subtrace_kit.sheet import Sheet
from subtrace_kit.side_by_side import pairing, to_html
from subtrace_kit.view import view
from subtrace_kit.zoo import TwoTensor


def sheet(*rows: object) -> Sheet:
    return Sheet(view(make(rows)))


def lines(left: Sheet, right: Sheet) -> list[tuple[str, str]]:
    return [(a.symbol if a else "", b.symbol if b else "") for a, b in pairing(left, right).lines]


def test_operations_in_both_stand_side_by_side() -> None:
    t, u = plain("t"), plain("u")
    one, two, three = call("aten.a", (W,), t), call("aten.b", (t,), u), call("aten.c", (u,), plain("v"))
    assert lines(sheet(one, two), sheet(one, three)) == [("aten.a", "aten.a"), ("aten.b", ""), ("", "aten.c")]
    assert lines(sheet(one, two, three), sheet(two)) == [("aten.a", ""), ("aten.b", "aten.b"), ("aten.c", "")]
    assert lines(sheet(one, two), sheet(two, one)) == [("", "aten.b"), ("aten.a", "aten.a"), ("aten.b", "")]


def test_the_same_operation_on_the_same_value_twice_is_two() -> None:
    write = call("aten.mul_.Tensor", (W, 2), W)
    assert len(pairing(sheet(write, write), sheet(write)).vanished) == 1


def test_what_vanished_when_a_trace_was_lowered() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (TwoTensor(x, y) * 2).a

    t = subtrace_kit.trace(program)(torch.ones(2), torch.ones(2))
    found = pairing(Sheet(view(t)), Sheet(view(subtrace_kit.lower(t))))
    assert [row.symbol for row in found.vanished] == ["TwoTensor", "aten.mul.Tensor", "TwoTensor", "getattr"]
    assert found.new == []
    assert found.summary == (
        "5 operations, beside 1; vanished: 4 (object TwoTensor x2, aten.mul.Tensor, getattr); new: 0"
    )


def test_html_marks_the_current_operation_and_escapes_names() -> None:
    left = sheet(mul(), build(pair("<b>p</b>", plain("a"), plain("b"))))
    shown = to_html(left, sheet(mul()), ("as <written>", "lowered"), "op_0_0_1")
    assert '<tr class="here"><td><code class="">mul_2 = aten.mul.Tensor</code></td>' in shown
    assert '<code class="gone">vanished: &lt;b&gt;p&lt;/b&gt; = Pair</code>' in shown
    assert "<th>as &lt;written&gt;</th>" in shown
    assert "<b>" not in shown


def test_of_long_passes_a_part_is_shown() -> None:
    rows = [call("aten.relu.default", (W,), plain(f"t{i}")) for i in range(5000)]
    shown = to_html(sheet(*rows), sheet(*rows), ("a", "b"), "op_2500")
    assert shown.count("<tr") == 20
    assert "4981 more lines" in shown
