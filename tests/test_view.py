import dataclasses
import random
from typing import Any

import pytest
from handmade import (
    MUL,
    SIN,
    W,
    X,
    build,
    call,
    captured,
    chain,
    example,
    make,
    mul,
    pair,
    plain,
    sin,
)

from subtrace_kit import bound_rows
from subtrace_kit.errors import TraceError
from subtrace_kit.explorer import start
from subtrace_kit.flow import flow
from subtrace_kit.fold import fold, outline, section
from subtrace_kit.groups import grouped
from subtrace_kit.symbols import Kind
from subtrace_kit.trace import Construction
from subtrace_kit.view import Row, Value, View, view


def arrows(shown: View) -> list[tuple[str, str, str]]:
    return [(e.source, e.target, e.name) for e in flow(shown).edges if not e.order]


def orders(shown: View) -> list[tuple[str, str, str]]:
    return [(e.source, e.target, e.name) for e in flow(shown).edges if e.order]


# ------------------------------------------------------------------------------------- rows
def test_rows_are_the_operations_with_their_level_and_position() -> None:
    rows = list(view(example()).walk())
    assert [(r.id, r.depth, r.symbol, r.name) for r in rows[:5]] == [
        ("op_0", 1, "torch.mul", "mul"),
        ("op_0_0", 2, "aten.mul.Tensor", "mul"),
        ("op_0_0_0", 3, "aten.mul.Tensor", "mul_1"),
        ("op_0_0_1", 3, "aten.mul.Tensor", "mul_2"),
        ("op_0_0_2", 3, "Pair", "mul"),
    ]
    assert [r.kind for r in rows[:5]] == [Kind.FUNCTION, *[Kind.ATEN] * 3, Kind.CONSTRUCTOR]
    assert [r.construction for r in rows[:5]] == ["", "", "", "", "kept"]
    assert [r.wrapper for r in rows[:5]] == [True, True, False, False, True]
    assert rows[0].call == "torch.mul(x, w)"
    assert rows[0].inputs == ("x", "w")
    assert rows[0].type == "Pair f32[4] {a: f32[4], b: f32[4]}"
    assert rows[0].source is not None
    assert rows[0].source.place == "model.py:3"


def test_values_say_class_and_inner_tensors() -> None:
    shown = view(make((), inputs=(pair("x", plain("x_a"), plain("x_b"), metadata={"axis": 1}), W)))
    assert shown.inputs == (
        Value(
            "x",
            "Pair f32[4] {a: f32[4], b: f32[4]}",
            "Pair f32[4]",
            "Pair",
            (("a", "x_a", "f32[4]"), ("b", "x_b", "f32[4]")),
            metadata="{'axis': 1}",
        ),
        Value("w", "f32[4]", "f32[4]"),
    )


def test_inner_tensors_of_nested_wrappers_have_a_path() -> None:
    outer = pair("o", pair("o_a", plain("p"), plain("q")), plain("r"))
    (value,) = view(make((), inputs=(outer,))).inputs
    assert [(path, name) for path, name, _ in value.inner] == [("a.a", "p"), ("a.b", "q"), ("b", "r")]


def test_captures_are_known_by_their_path() -> None:
    (value,) = view(make((), captures=(captured(W, "fc1.weight"),))).captures
    assert (value.name, value.path) == ("w", "fc1.weight")


def test_metadata_whose_repr_fails_or_has_an_address_is_shown_all_the_same() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise ValueError("no repr")

    def shown(metadata: Any) -> str:
        return view(make((), inputs=(pair("x", plain("a"), plain("b"), metadata=metadata),))).inputs[0].metadata

    assert "Broken" in shown(Broken())
    assert "0x" not in shown(object())


def test_view_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        view(example()).name = "g"  # type: ignore[misc]


def test_failing_marks_the_last_operation_and_the_last_one_inside_it() -> None:
    shown = view(make((mul(), sin()), inputs=(X, W), failure="RuntimeError: no"))
    assert [row.id for row in shown.walk() if row.failing] == ["op_1", "op_1_0", "op_1_0_2"]
    assert not any(row.failing for row in view(example()).walk())


def test_ledger_marks_constructions() -> None:
    ledger = (Construction(MUL, False, "only its inner tensors are used"), Construction(SIN, True, "returned"))
    rows = {r.name: r for r in view(example(ledger=ledger)).walk() if r.construction}
    assert (rows["mul"].construction, rows["mul"].reason) == ("elided", "only its inner tensors are used")
    assert (rows["sin"].construction, rows["sin"].reason) == ("kept", "returned")


def test_constructions_that_no_row_shows_are_listed_by_class_and_reason() -> None:
    ledger = (*(Construction(p, False, "unused") for p in (MUL, SIN)), Construction(X, True, "returned"))
    assert view(make((), ledger=ledger)).elided == (("Pair", ("mul", "sin"), "unused"),)


@pytest.mark.parametrize(
    ("name", "writes"),
    [
        ("torch.Tensor.mul_", ("t",)),
        ("aten.mul_.Tensor", ("t",)),
        ("setattr", ("t",)),
        ("torch.Tensor.__setitem__", ("t",)),
        ("torch.Tensor.__iadd__", ("t",)),
        ("torch.Tensor.__invert__", ()),
        ("torch.Tensor.__add__", ()),
        ("torch.mul", ()),
        ("aten._to_copy.default", ()),
    ],
)
def test_in_place_operations_are_known_by_their_names(name: str, writes: tuple[str, ...]) -> None:
    assert view(make([call(name, (plain("t"), W))])).rows[0].writes == writes


def test_writes_inside_count_but_not_those_of_values_made_inside() -> None:
    t, u = plain("t"), plain("u")
    inside = (
        call("aten.clone.default", (t,), u),
        call("aten.add_.Tensor", (u, W), u),
        call("aten.neg_.default", (t,), t),
    )
    (row,) = view(make([call("torch.f", (X,), None, *inside)])).rows
    assert row.writes == ("t",)
    assert row.inputs == ("x", "t", "w")


# ------------------------------------------------------------------------------------- fold
def test_fold_by_depth() -> None:
    whole = view(example())
    assert [whole.size, fold(whole, 2).size, fold(whole, 1).size] == [6, 2, 2]
    row = fold(whole, 1).rows[0]
    assert (row.children, row.folded, row.made_of) == ((), 4, ("aten.mul.Tensor",))
    assert fold(whole).size == 6


@pytest.mark.parametrize("chosen", ["mul", "torch.mul", {"mul"}, ["torch.mul", "mul"], lambda row: row.name == "mul"])
def test_collapse_chosen_operations(chosen: Any) -> None:
    assert [len(row.children) for row in fold(view(example()), collapse=chosen).rows] == [0, 1]


def test_expand_opens_what_encloses_it() -> None:
    shown = fold(view(example()), 1, expand=lambda row: row.id == "op_1_0")
    assert [r.id for r in shown.walk()] == ["op_0", "op_1", "op_1_0", "op_1_0_0", "op_1_0_1", "op_1_0_2"]


def test_collapse_by_module() -> None:
    inside = call("aten.t.default", (W,), plain("u")), call("aten.t.default", (plain("u"),), plain("v"))
    shown = grouped(view(make([call("torch.f", (W,), plain("v"), *inside, module="fc1")])))
    assert fold(shown).size == 2
    assert fold(shown, collapse="fc1").size == 1


def test_a_name_of_nothing_is_refused() -> None:
    with pytest.raises(TraceError, match="nothing in f is called 'mull'"):
        fold(view(example()), collapse="mull")


def test_a_plain_function_made_of_one_op_is_one_row() -> None:
    t = plain("t")
    shown = fold(view(make([call("torch.relu", (W,), t, call("aten.relu.default", (W,), t))])))
    assert [(r.symbol, r.made_of, r.folded) for r in shown.walk()] == [("torch.relu", ("aten.relu.default",), 0)]
    assert fold(view(make([call("torch.relu", (W,), t, call("aten.relu.default", (W,), t))])), expand="t").size == 1
    assert len(list(fold(shown).walk())) == 1


# ---------------------------------------------------------------------------------- section
def test_section_keeps_what_it_reads() -> None:
    shown = section(view(example()), 1)
    assert [row.symbol for row in shown.rows] == ["torch.sin"]
    assert shown.inputs == ()
    assert [value.name for value in shown.earlier] == ["mul"]
    assert [value.name for value in shown.outputs] == ["sin"]
    assert shown.notes == ("operations 1 to 1 of 2 are shown",)
    assert ("earlier_0", "op_1_0_0", "mul_1") in arrows(shown)


def test_section_without_the_end_has_no_result() -> None:
    shown = section(view(example()), 0, 1)
    assert [value.name for value in shown.inputs] == ["x", "w"]
    assert shown.outputs == ()
    assert section(shown, None, None) is shown


# ------------------------------------------------------------------------------------- flow
def test_flow_on_all_levels_goes_by_inner_tensors() -> None:
    found = arrows(view(example()))
    assert ("in_0", "op_0_0_0", "x_a") in found
    assert ("in_1", "op_0_0_1", "w") in found
    assert ("op_0_0_0", "op_0_0_2", "mul_1") in found
    assert ("op_0_0_0", "op_1_0_0", "mul_1") in found
    assert ("op_1_0_2", "out_0", "sin") in found


def test_a_wrapper_goes_into_the_outermost_box_as_a_whole() -> None:
    found = arrows(view(example()))
    assert [edge for edge in found if edge[2] in ("x", "mul")] == [
        ("in_0", "op_0", "x"),
        ("op_0_0_2", "op_1", "mul"),
    ]


def test_flow_folded() -> None:
    assert flow(fold(view(example()), 1)).edges == flow(fold(view(example()), 1)).edges
    found = [(e.source, e.target, e.name, e.wrapper) for e in flow(fold(view(example()), 1)).edges]
    assert found == [
        ("in_0", "op_0", "x", True),
        ("in_1", "op_0", "w", False),
        ("op_0", "op_1", "mul", True),
        ("op_1", "out_0", "sin", True),
    ]


def test_later_readers_hang_on_the_last_writer_and_earlier_ones_come_first() -> None:
    t, u, v = plain("t"), plain("u"), plain("v")
    rows = [call("torch.sin", (t,), u), call("torch.Tensor.mul_", (t, 2), t), call("torch.cos", (t,), v)]
    shown = view(make(rows, inputs=(t,), output=(u, v)))
    assert ("in_0", "op_1", "t") in arrows(shown)
    assert ("op_1", "op_2", "t") in arrows(shown)
    assert ("in_0", "op_2", "t") not in arrows(shown)
    assert orders(shown) == [("op_0", "op_1", "t")]


def test_a_write_to_an_inner_tensor_is_a_write_to_the_wrapper() -> None:
    inner = X.inner[0][1]
    rows = [
        call("getattr", (X, "a"), inner, kind=Kind.PRIM),
        call("torch.Tensor.mul_", (inner, 2), inner),
        call("torch.sin", (X,), SIN),
    ]
    shown = view(make(rows, inputs=(X,), output=SIN))
    assert ("op_0", "op_1", "x_a") in arrows(shown)
    assert ("op_1", "op_2", "x") in arrows(shown)


def test_a_write_to_a_wrapper_is_a_write_to_its_inner_tensors() -> None:
    rows = [call("torch.Tensor.mul_", (X, 2), X), call("torch.neg", (X.inner[0][1],), plain("t"))]
    assert ("op_0", "op_1", "x_a") in arrows(view(make(rows, inputs=(X,))))


def test_an_in_place_operation_with_its_inside_is_one_writer_of_the_wrapper() -> None:
    a, b = (p for _, p in X.inner)
    inside = call("aten.mul_.Tensor", (a, 2), a), call("aten.mul_.Tensor", (b, 2), b)
    rows = [call("torch.Tensor.mul_", (X, 2), X, *inside), call("torch.sin", (X,), SIN)]
    found = arrows(view(make(rows, inputs=(X,), output=SIN)))
    assert [edge for edge in found if edge[1] == "op_1"] == [("op_0", "op_1", "x")]


def test_a_returned_argument_is_passed_on_at_its_level_only() -> None:
    rows = [
        call("torch.Tensor.contiguous", (X,), X),
        call("torch.sin", (X,), SIN),
        call("torch.mul", (SIN, X), MUL, *mul().subsymbols),
    ]
    found = arrows(view(make(rows, inputs=(X, W))))
    assert ("op_0", "op_1", "x") in found
    assert ("in_0", "op_2_0_0", "x_a") in found


def test_holding_a_value_is_not_reading_it() -> None:
    t, u = plain("t"), plain("u")
    rows = [build(pair("p", t, u)), call("torch.Tensor.mul_", (t, 2), t)]
    assert orders(view(make(rows, inputs=(t, u)))) == []


def test_what_nothing_makes_is_said() -> None:
    found = flow(view(make([call("torch.sin", (plain("ghost"),), plain("t"))])))
    assert found.unknown == ("ghost",)
    assert [(e.source, e.target) for e in found.edges] == [("unknown_0", "op_0")]


def test_a_captured_value_read_only_inside_reaches_the_folded_operation() -> None:
    t, u = plain("t"), plain("u")
    row = call("torch.f", (X,), u, call("aten.a.default", (X, t), plain("s")), call("aten.b.default", (plain("s"),), u))
    shown = fold(view(make([row], inputs=(X,), captures=(captured(t, "scale"),))), 1)
    assert arrows(shown) == [("in_0", "op_0", "x"), ("cap_0", "op_0", "t")]


def test_every_edge_joins_nodes_that_are_shown() -> None:
    whole = view(example())
    rng = random.Random(0)
    for _ in range(50):
        chosen = {row.id for row in whole.walk() if rng.random() < 0.5}
        shown = section(fold(whole, collapse=lambda row, c=chosen: row.id in c), rng.choice([None, 1]))
        ids = {row.id for row in shown.walk()} | {"in_0", "in_1", "earlier_0", "out_0"}
        assert {end for e in flow(shown).edges for end in (e.source, e.target)} <= ids


# ------------------------------------------------------------------------- outline and size
def test_outline() -> None:
    assert outline(fold(view(example()), 2)) == "\n".join(
        [
            "f(x: Pair f32[4], w: f32[4])",
            "  mul = torch.mul(x, w)  # Pair f32[4], model.py:3",
            "    mul = aten.mul.Tensor(x, w) [+3 inside]  # Pair f32[4]",
            "  sin = torch.sin(mul)  # Pair f32[4]",
            "    sin = aten.sin.default(mul) [+3 inside]  # Pair f32[4]",
            "  return sin",
        ]
    )


def test_outline_says_what_failed_and_what_is_left_out() -> None:
    shown = section(view(make((mul(), sin()), inputs=(X, W), failure="Error: no\nmore")), 1)
    assert outline(shown).splitlines()[-2:] == ["  ! Error: no", "  (operations 1 to 1 of 2 are shown)"]


def test_a_long_chain_needs_no_recursion() -> None:
    shown = view(chain(20_000))
    assert shown.size == 20_000
    assert len(flow(fold(shown, 1)).edges) == 20_001


def test_rows_name_all_results() -> None:
    row: Row = view(make([call("torch.split", (W, 2), (plain("a"), plain("b")))])).rows[0]
    assert (row.name, row.type) == ("a, b", "f32[4], f32[4]")


# -------------------------------------------------------------------------------------- lazily
def test_no_texts_are_made_before_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    for name in ("_call", "type_text", "_repr"):
        monkeypatch.setattr(bound_rows, name, lambda *what: made.append(what) or "text")
    state = start(make([mul(), sin()] * 600, inputs=(X, W), output=SIN), depth=1).expand().step()
    assert len(state.sheet.rows) == 6001
    assert len(state.lines) == 1201
    assert made == []
    assert state.row is not None
    assert state.row.call == "text"
    assert len(made) == 1


def test_rows_that_are_made_late_are_like_those_made_at_once() -> None:
    for late in view(example()).walk():
        whole = dataclasses.replace(late)
        assert type(whole) is Row
        assert late == whole
        assert whole == late
        assert hash(late) == hash(whole)
        assert repr(late) == repr(whole)
        assert late.count == whole.count
        assert [type(dataclasses.replace(value)) for value in late.outputs] == [Value] * len(late.outputs)
    assert view(example()) == view(example())
