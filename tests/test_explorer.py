from typing import Any

import pytest
import torch
from handmade import MUL, SIN, W, X, call, captured, chain, example, make, mul, plain, sin
from test_groups import blocks

import subtrace_kit
from subtrace_kit.errors import TraceError
from subtrace_kit.explorer import Explorer, start
from subtrace_kit.trace import Construction
from subtrace_kit.zoo import TwoTensor


def ids(state: Explorer) -> list[str]:
    return [line.row.id for line in state.lines]


def traced() -> Any:
    """A program on wrappers, with gradients."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        pair = TwoTensor(x, y) * 2
        return pair.a + pair.b

    return subtrace_kit.trace(program)(torch.randn(3), torch.randn(3))


# ------------------------------------------------------------------------------------ stepping
def test_it_opens_at_the_first_operation_with_all_levels() -> None:
    state = start(example())
    assert (state.label, state.at, state.place) == ("as written", "op_0", 0)
    assert len(state.lines) == 10
    assert [line.indent for line in state.lines][:3] == [0, 1, 2]


def test_steps_go_through_what_is_shown_and_stop_at_the_ends() -> None:
    state = start(example(), depth=1)
    assert ids(state) == ["op_0", "op_1"]
    assert state.step().at == "op_1"
    assert state.step().step().at == "op_1"
    assert state.step().back().back().at == "op_0"
    assert state.last().at == "op_1"
    assert state.last().first().at == "op_0"
    assert state.step(5).at == "op_1"
    assert state.to(-3).at == "op_0"


def test_a_state_never_changes() -> None:
    state = start(example(), depth=1)
    assert state.step() is not state
    assert state.at == "op_0"


def test_an_empty_trace_has_no_operation() -> None:
    state = start(make((), inputs=(X,)))
    assert (state.row, state.step().message, state.lines) == (None, "no operation is shown", ())
    assert state.expand().collapse().toggle().search("x").row is None


# ------------------------------------------------------------------------------------ folding
def test_expand_and_collapse_the_current_operation() -> None:
    state = start(example(), depth=1).expand()
    assert ids(state) == ["op_0", "op_0_0", "op_1"]
    assert ids(state.collapse()) == ["op_0", "op_1"]
    assert ids(state.step().toggle()) == ["op_0", "op_0_0", "op_0_0_0", "op_0_0_1", "op_0_0_2", "op_1"]


def test_collapse_inside_folds_what_is_around() -> None:
    state = start(example()).reveal("op_0_0_1").collapse()
    assert state.at == "op_0_0"
    assert "op_0_0_1" not in ids(state)


def test_nothing_to_expand_or_to_collapse_is_said() -> None:
    state = start(chain(2))
    assert state.expand().message == "nothing is inside this operation"
    assert state.collapse().message == "nothing is open here"


def test_to_depth_forgets_what_was_opened_by_hand() -> None:
    state = start(example(), depth=1).expand().to_depth(2)
    assert ids(state) == ["op_0", "op_0_0", "op_1", "op_1_0"]


def test_folded_away_the_enclosing_row_is_current() -> None:
    assert start(example()).reveal("op_1_0_2").to_depth(1).at == "op_1"


@pytest.mark.parametrize("chosen", ["mul", ["torch.mul", "mul"], lambda row: row.name == "mul"])
def test_what_is_folded_at_first_is_chosen_as_for_draw(chosen: Any) -> None:
    assert ids(start(example(), collapse=chosen))[:2] == ["op_0", "op_1"]
    assert "op_0_0_0" in ids(start(example(), depth=1, expand=chosen))
    assert "op_1_0" not in ids(start(example(), depth=1, expand=chosen))


def test_modules_are_chosen_by_path() -> None:
    state = start(blocks(4), expand=["blocks.1"])
    assert "mod_2_op_2" in ids(state)
    assert "op_2" in ids(state)


def test_a_name_of_nothing_is_refused() -> None:
    with pytest.raises(TraceError, match="nothing in f is called 'mull'"):
        start(example(), collapse="mull")


def test_repeated_blocks_open_folded() -> None:
    state = start(blocks(12))
    assert [line.row.symbol for line in state.lines] == ["blocks", "blocks.# x 12"]
    assert len(state.step().expand().lines) > 12


def test_a_large_trace_opens_folded_and_says_so() -> None:
    state = start(make([mul() for _ in range(500)]))
    assert state.message == "2501 operations: folded to level 1; expand what you want to see"
    assert state.folds.depth == 1


# ------------------------------------------------------------------------------------ searching
def test_search_opens_what_encloses_the_match() -> None:
    state = start(example(), depth=1).search("aten.sin")
    assert (state.at, state.message) == ("op_1_0", "match 1 of 3")
    assert state.next_match().at == "op_1_0_0"
    assert state.next_match(-1).at == "op_1_0_1"
    assert state.next_match().next_match().next_match().at == "op_1_0"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("op:torch.sin", ["op_1"]),
        ("class:pair", ["op_0", "op_0_0", "op_0_0_2", "op_1", "op_1_0", "op_1_0_2"]),
        ("name:mul_2", ["op_0_0_1"]),
        ("TORCH.MUL", ["op_0"]),
        ("mul_2", ["op_0_0_1"]),
        ("op:", ["op_0", "op_0_0", "op_0_0_0", "op_0_0_1", "op_0_0_2", "op_1"]),
        ("  ", []),
        ("aten::", []),
    ],
)
def test_search_by_operation_class_module_or_name(text: str, found: list[str]) -> None:
    assert list(start(example()).sheet.find(text))[: len(found) or None] == found


def test_search_by_module() -> None:
    state = start(blocks(4)).search("module:blocks.2.act")
    assert state.at == "mod_3_op_4"


def test_a_search_without_a_match_says_so_and_stays() -> None:
    state = start(example()).step().search("conv")
    assert (state.at, state.message) == ("op_0_0", "nothing is found for 'conv'")
    assert state.search("").message == ""


# ------------------------------------------------------------------------------------ alone
def test_a_value_alone_shows_its_history() -> None:
    state = start(example(), depth=1).only("mul_1")
    assert ids(state) == ["op_0", "op_1_0_0"]
    assert ids(start(example(), depth=1).only("w")) == ["op_0"]


def test_a_module_alone() -> None:
    state = start(blocks(2)).only("blocks.1")
    assert ids(state) == ["mod_2_op_2", "mod_3_op_2", "op_2", "op_3"]
    assert state.at == "mod_2_op_2"
    assert len(state.only("").lines) > 4


def test_no_such_name_is_said() -> None:
    state = start(example()).only("nothing")
    assert (state.alone, state.message) == ("", "no module and no value is called 'nothing'")


def test_going_to_a_row_that_is_not_shown_ends_being_alone() -> None:
    assert start(example()).only("w").reveal("op_1").alone == ""


# ------------------------------------------------------------------------------------ passes
def test_the_passes_of_a_trace_on_wrappers() -> None:
    state = start(traced())
    assert state.passes.labels == ("as written", "unrolled", "lowered")
    assert not any(line.row.construction == "kept" for line in state.choose("lowered").lines)


def test_another_pass_is_shown_at_the_same_result() -> None:
    state = start(traced()).search("name:add")
    assert state.choose("lowered").row is not None
    assert "add" in state.choose("lowered").row.name  # type: ignore[union-attr]


def test_backward_is_offered_where_something_requires_a_gradient() -> None:
    t = subtrace_kit.trace(lambda x: x.sin())(torch.ones(2, requires_grad=True))
    state = start(t).choose("backward")
    assert state.passes.labels == ("as written", "backward")
    assert [line.row.symbol for line in state.lines] == [
        "backward of torch.Tensor.sin", "aten.cos.default", "aten.mul.Tensor",
    ]  # fmt: skip


def test_a_pass_that_cannot_be_made_says_why() -> None:
    t = subtrace_kit.trace(lambda x: x.detach())(torch.ones(2, requires_grad=True))
    state = start(t).choose("backward")
    assert state.label == "as written"
    assert state.message.startswith("backward: no gradient reaches the inputs of program")
    assert start(t).compare("backward").message == state.message


def test_no_such_pass() -> None:
    with pytest.raises(TraceError, match="there is no pass 'raised'"):
        start(example()).choose("raised")


def test_a_lowered_trace_stands_for_itself() -> None:
    assert start(subtrace_kit.lower(traced())).passes.labels == ("lowered",)


def test_more_passes_can_be_given() -> None:
    state = start(example(), passes={"mine": make((sin(),), inputs=(MUL,), output=SIN)})
    assert state.choose("mine").lines[0].row.symbol == "torch.sin"


def test_coming_back_to_the_first_pass_finds_its_folds() -> None:
    state = start(example(), depth=1, expand="mul", passes={"mine": make((mul(),))})
    assert ids(state.choose("mine").choose("as written")) == ids(state)


def test_what_became_of_a_construction_is_known_from_any_pass_that_was_looked_at() -> None:
    entry = Construction(MUL, False, "only its inner tensors are used")
    state = start(example(), passes={"lowered": example(ledger=(entry,))})
    assert list(state.passes.ledger) == []
    assert list(state.choose("lowered").passes.ledger) == [entry]


# ------------------------------------------------------------------------------------ failures
def test_a_failed_trace_opens_at_the_failing_operation() -> None:
    state = start(make((mul(), sin()), inputs=(X, W), failure="RuntimeError: no"), depth=1)
    assert state.at == "op_1_0_2"
    assert "op_1_0_2" in ids(state)
    assert state.passes.error == "RuntimeError: no"


def test_an_error_is_opened_by_its_trace() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sin() @ torch.ones(7)

    with pytest.raises(TraceError) as caught:
        subtrace_kit.trace(program)(torch.ones(2))
    state = start(caught.value)
    assert state.row is not None
    assert state.row.failing
    assert state.passes.error == str(caught.value)


@pytest.mark.parametrize("given", [TraceError("no"), None, torch.ones(1)])
def test_what_has_no_trace_is_refused(given: Any) -> None:
    with pytest.raises(TraceError, match=r"no trace"):
        start(given)


def test_captures_are_values_too() -> None:
    t = make([call("torch.mul", (W, plain("c")), plain("t"))], captures=(captured(plain("c"), "fc.weight"),))
    assert ids(start(t).only("c")) == ["op_0"]
