"""Repeated blocks in the explorer: the one that is looked for stands apart from those before and after it."""

import pytest
from handmade import chain
from test_groups import blocks

from subtrace_kit.explorer import Explorer, start


def shown(state: Explorer) -> list[str]:
    return [line.row.symbol for line in state.lines]


ONE_OPEN = ["blocks", "blocks.# x 3", "blocks.3", "blocks.3.act", "torch.relu", "torch.add", "blocks.# x 8"]


def test_of_repeated_blocks_only_the_named_one_opens() -> None:
    assert shown(start(blocks(12), expand="blocks.3")) == ONE_OPEN


@pytest.mark.parametrize("text", ["name:t3", "module:blocks.3"])
def test_a_search_opens_only_the_block_of_the_match(text: str) -> None:
    state = start(blocks(12)).search(text)
    assert shown(state) == ONE_OPEN
    assert state.place in (2, 3)
    assert "blocks.# x 7" in shown(state.search("name:t11"))


@pytest.mark.parametrize("key", ["mod_2_op_6", "op_7"])
def test_a_block_that_is_closed_goes_back_among_its_like(key: str) -> None:
    state = start(blocks(12)).search("name:t3")
    closed = state.collapse(key)
    assert shown(closed) == ["blocks", "blocks.# x 12"]
    assert closed.at == "rep_mod_2_op_0"
    assert shown(state.to_depth(1)) == shown(closed)


def test_what_is_closed_inside_a_block_leaves_it_open() -> None:
    state = start(blocks(12)).search("name:t3")
    assert shown(state.collapse("mod_3_op_6")) == [symbol for symbol in ONE_OPEN if symbol != "torch.relu"]


def test_a_part_of_the_blocks_is_stepped_to_opened_and_closed() -> None:
    state = start(blocks(12)).search("name:t3").last()
    assert state.row is not None
    assert (state.row.symbol, state.row.times) == ("blocks.# x 8", 8)
    opened = state.expand()
    assert len(opened.lines) == len(state.lines) + 8  # The blocks in it stay closed.
    assert shown(opened.collapse()) == shown(state)


def test_a_loop_opens_at_the_operation_that_is_found() -> None:
    state = start(chain(100)).search("name:t50")
    assert shown(state) == ["torch.relu x 49", "torch.relu", "torch.relu x 50"]
    assert shown(state.collapse()) == ["torch.relu x 100"]


def test_from_block_to_block_by_search_all_stays_in_place() -> None:
    state = start(blocks(12)).search("op:torch.add")
    seen = []
    for _ in range(12):
        seen.append(state.row.name if state.row else "")
        state = state.next_match()
    assert seen == [f"u{i}" for i in range(12)]
    assert not any("x" in symbol for symbol in shown(state))
