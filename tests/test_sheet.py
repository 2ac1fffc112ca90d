import pytest
from handmade import W, X, call, captured, example, make, mul, plain
from test_groups import blocks

from subtrace_kit.errors import TraceError
from subtrace_kit.groups import grouped
from subtrace_kit.seen import Seen, Summary
from subtrace_kit.sheet import Folds, Sheet
from subtrace_kit.view import view


def test_rows_by_id_and_what_is_around_them() -> None:
    sheet = Sheet(view(example()))
    assert list(sheet.rows)[:3] == ["op_0", "op_0_0", "op_0_0_0"]
    assert [row.id for row in sheet.above("op_0_0_1")] == ["op_0_0", "op_0"]
    assert sheet.end(sheet.rows["op_0"]) == 4
    assert list(sheet.above("nothing")) == []


def test_folds() -> None:
    row, inner = (Sheet(view(example())).rows[key] for key in ("op_0", "op_0_0_0"))
    assert not Folds(1).is_open(row)
    assert Folds(2).is_open(row)
    assert Folds(1, opened=frozenset({"op_0"})).is_open(row)
    assert not Folds(None, closed=frozenset({"op_0"})).is_open(row)
    assert not Folds(None, opened=frozenset({inner.id})).is_open(inner)


def test_a_function_made_of_one_op_is_closed_unless_opened() -> None:
    t = plain("t")
    sheet = Sheet(view(make([call("torch.relu", (W,), t, call("aten.relu.default", (W,), t))])))
    assert len(sheet.lines(Folds(None))) == 1
    assert len(sheet.lines(Folds(None, opened=frozenset({"op_0"})))) == 2


def test_values_of_results_inputs_and_captures() -> None:
    sheet = Sheet(view(make((mul(),), inputs=(X,), captures=(captured(W, "fc.weight"),))))
    assert sheet.values["w"].path == "fc.weight"
    assert sheet.values["x"].cls == "Pair"
    assert "mul_1" in sheet.values


def test_names_that_are_known() -> None:
    sheet = Sheet(grouped(view(blocks(2))))
    known = [sheet.knows(name) for name in ("blocks", "blocks.1.act", "u1", "x", "blocks.7", "")]
    assert known == [True, True, True, True, False, False]
    assert list(sheet.modules)[:3] == ["blocks", "blocks.0", "blocks.0.act"]
    assert Sheet(view(example())).knows("x_a")


def test_a_value_at_a_moment_is_what_was_written_last_before() -> None:
    one, two = Summary(1, low=1.0), Summary(1, low=2.0)
    write = call("torch.Tensor.mul_", (W, 2), W, seen=(Seen("w", two),))
    sheet = Sheet(view(make([call("torch.sin", (W,), plain("t")), write], inputs=(W,))), (Seen("w", one),))
    assert [sheet.value_at("w", place) for place in (-1, 0, 1, 9)] == [one, one, two, two]
    assert sheet.value_at("t", 9) is None


def test_chosen_folds_open_what_is_around() -> None:
    sheet = Sheet(view(example()))
    folds = sheet.chosen(1, "mul", lambda row: row.id == "op_0_0_1")
    assert folds.opened == {"op_0", "op_0_0", "op_0_0_1"}
    assert folds.closed == {"op_0_0_0", "op_0_0_2"}
    with pytest.raises(TraceError, match="nothing in f is called"):
        sheet.chosen(None, None, ["nothing"])


def test_only_the_latest_folds_are_kept() -> None:
    sheet = Sheet(view(example()))
    for depth in range(20):
        sheet.lines(Folds(depth))
    assert len(sheet._shown) <= 4
