from pathlib import Path

import pytest
import torch
from handmade import W, X, build, call, captured, example, make, mul, pair, plain

from subtrace_kit.explorer import start
from subtrace_kit.fragments import details, label, lines_of, snippet
from subtrace_kit.groups import grouped
from subtrace_kit.sheet import Folds, Sheet
from subtrace_kit.source import Source
from subtrace_kit.symbols import Kind
from subtrace_kit.trace import Construction
from subtrace_kit.view import view

EVIL = '<img src=x onerror="alert(1)">'


def sheet(*rows: object, **fields: object) -> Sheet:
    return Sheet(grouped(view(make(rows, **fields))))


def labels(shown: Sheet, folds: Folds) -> list[str]:
    return [label(line, folds) for line in shown.lines(folds)]


@pytest.fixture
def model(tmp_path: Path) -> Source:
    path = tmp_path / "model.py"
    path.write_text("".join(f"line {i} < {i + 1}\n" for i in range(1, 21)))
    return Source(str(path), 10, "f")


def test_labels_say_what_is_open_and_how_deep() -> None:
    down, right = "\N{BLACK DOWN-POINTING TRIANGLE}", "\N{BLACK RIGHT-POINTING TRIANGLE}"
    assert labels(sheet(mul(), name="f"), Folds(2)) == [
        f"{down} mul = torch.mul  Pair f32[4]",
        f"    {right} mul = aten.mul.Tensor  Pair f32[4]",
    ]
    assert labels(sheet(mul()), Folds(3))[-1] == "          mul = Pair  Pair f32[4]  [built]"


def test_labels_of_groups_say_how_many_operations_are_inside() -> None:
    rows = [call("torch.relu", (W,), plain(f"t{i}")) for i in range(20)]
    (text,) = labels(sheet(*rows), Folds())
    assert text == "\N{BLACK RIGHT-POINTING TRIANGLE} torch.relu x 20  (20 operations)"


def test_labels_are_short_and_say_what_failed() -> None:
    shown = sheet(call("torch." + "f" * 300, (W,), plain("t")), failure="no")
    (text,) = labels(shown, Folds())
    assert len(text) == 120
    assert "\N{CROSS MARK}" in text


def test_details_name_arguments_results_and_what_is_inside() -> None:
    shown = details(start(example()).sheet, "op_0")
    assert "<code>mul = torch.mul(x, w)</code>" in shown
    assert '<td>in</td><td><code>x</code></td><td><span class="wrapper">Pair f32[4]</span></td>' in shown
    assert ".a: x_a f32[4]<br>.b: x_b f32[4]" in shown
    assert "<td>out</td><td><code>mul</code></td>" in shown
    assert "made of</td><td>aten.mul.Tensor</td>" in shown


def test_details_say_what_is_written_and_captured() -> None:
    t = make([call("torch.Tensor.mul_", (W, plain("c")), W)], captures=(captured(plain("c"), "fc.weight"),))
    shown = details(Sheet(view(t)), "op_0")
    assert "<td>out, written</td><td><code>w</code></td>" in shown
    assert "<td>in</td><td><code>fc.weight</code></td>" in shown


def test_details_give_the_entry_of_the_ledger() -> None:
    entry = Construction(mul().output, False, "only its inner tensors are used")
    shown = details(start(example(ledger=(entry,))).sheet, "op_0_0_2")
    assert "not built" in shown
    assert "<td>why</td><td>only its inner tensors are used</td>" in shown
    assert "<td>lowered</td><td>kept: it is returned</td>" in details(
        start(example()).sheet, "op_0", "kept: it is returned"
    )


def test_many_arguments_are_cut() -> None:
    shown = details(sheet(call("torch.cat", [plain(f"t{i}") for i in range(40)], plain("u"))), "op_0")
    assert "and 28 more" in shown


def test_no_such_row() -> None:
    assert details(sheet(), "op_0") == "<p>no operation</p>"


def test_a_snippet_marks_its_line_and_escapes_the_others(model: Source) -> None:
    shown = snippet(model)
    assert "<mark>  10  line 10 &lt; 11</mark>" in shown
    assert shown.count("line ") == 7
    assert snippet(Source(model.file, 1)).count("line ") == 4
    assert snippet(Source("/no/such/file.py", 3)) == "<p>its source cannot be read</p>"


def test_the_users_line_stands_beside_that_of_the_class(model: Source) -> None:
    handler = Source(model.file, 15, "__torch_dispatch__")
    inner = call("aten.mul.Tensor", (W, 2), plain("t"), source=handler)
    outer = call("aten.mul.Tensor", (X, 2), plain("t"), inner, source=model)
    shown = sheet(call("torch.mul", (X, 2), plain("t"), outer, source=model))
    for key in ("op_0", "op_0_0", "op_0_0_0"):
        assert lines_of(shown, shown.rows[key]) == (model, handler)
    text = details(shown, "op_0")
    assert text.index("your line: model.py:10") < text.index("in the class: model.py:15")


def test_a_group_shows_the_users_first_line_and_how_many_there_are(model: Source) -> None:
    other, handler = Source(model.file, 12), Source(model.file, 15)
    inner = call("aten.sin.default", (W,), plain("t"), source=handler)
    rows = (
        call("getattr", (X, "a"), plain("x_a"), module="fc", kind=Kind.PRIM),
        call("torch.sin", (W,), plain("t"), inner, source=model, module="fc"),
        call("torch.cos", (W,), plain("u"), source=other, module="fc"),
    )
    shown = Sheet(grouped(view(make(rows))))
    (group,) = shown.view.rows
    assert lines_of(shown, group) == (model, handler)
    assert "your lines, the first of 2: model.py:10" in details(shown, group.id)
    assert "your line: model.py:12" in details(shown, "op_2")


def test_lowered_operations_know_both_lines(model: Source) -> None:
    handler = Source(model.file, 15)
    shown = sheet(call("aten.mul.Tensor", (W, 2), plain("t"), source=model, handler=handler))
    assert lines_of(shown, shown.rows["op_0"]) == (model, handler)


def test_everything_from_user_code_is_escaped(tmp_path: Path) -> None:
    evil = type(EVIL, (torch.Tensor,), {})
    file = tmp_path / f"{EVIL[:10]}.py"
    file.write_text(EVIL)
    value = pair("p", plain("a"), plain("b"), cls=evil, metadata=EVIL)
    shown = sheet(
        build(value),
        call(EVIL, (value, EVIL), plain(EVIL), module=EVIL, source=Source(str(file), 1, EVIL)),
        captures=(captured(value, EVIL),),
    )
    for key in shown.rows:
        assert "<img" not in details(shown, key, EVIL)
