from typing import Any

from handmade import call, chain, example, make, plain

from subtrace_kit.fold import fold, shut
from subtrace_kit.groups import blocks_with, grouped, split
from subtrace_kit.view import view


def blocks(count: int, *, last: Any = ()) -> Any:
    """A program of blocks of two operations, each in a module."""
    rows, before = [], plain("x")
    for i in range(count):
        t, u = plain(f"t{i}"), plain(f"u{i}")
        rows.append(call("torch.relu", (before,), t, module=f"blocks.{i}.act"))
        rows.append(call("torch.add", (t, before), u, module=f"blocks.{i}"))
        before = u
    return make([*rows, *last], inputs=(plain("x"),), output=before)


CLASSES = {f"blocks.{i}": "Block" for i in range(20)} | {f"blocks.{i}.act": "ReLU" for i in range(20)}


def test_operations_stand_under_their_modules() -> None:
    shown = grouped(view(blocks(2, last=[call("torch.sum", (plain("u1"),), plain("s"))])), CLASSES)
    assert [(r.depth, r.symbol) for r in shown.walk()] == [
        (0, "blocks"),
        (0, "blocks.0: Block"),
        (0, "blocks.0.act: ReLU"),
        (1, "torch.relu"),
        (1, "torch.add"),
        (0, "blocks.1: Block"),
        (0, "blocks.1.act: ReLU"),
        (1, "torch.relu"),
        (1, "torch.add"),
        (1, "torch.sum"),
    ]


def test_repeated_blocks_are_one_row_with_a_count() -> None:
    (outer,) = grouped(view(blocks(12)), CLASSES).rows
    (row,) = outer.children
    assert (row.symbol, row.times, len(row.children)) == ("Block x 12", 12, 12)
    assert row.inputs == ("x",)
    assert row.name == "u11"


def test_a_block_that_differs_ends_the_run() -> None:
    trace = blocks(8)
    rows = list(trace.bound_symbols)
    rows[8] = rows[8].replace(symbol=call("torch.sin", ()).symbol)
    (row,) = grouped(view(trace.replace(bound_symbols=tuple(rows))), CLASSES).rows
    assert [r.symbol for r in row.children] == ["Block x 4", "blocks.4: Block", "Block x 3"]


def test_a_loop_of_operations_is_one_row() -> None:
    (row,) = grouped(view(chain(100))).rows
    assert (row.symbol, row.times) == ("torch.relu x 100", 100)


def test_a_loop_of_several_operations_is_one_row() -> None:
    values = [plain(f"t{i}") for i in range(41)]
    rows = [call(("torch.relu", "torch.sin")[i % 2], (values[i],), values[i + 1]) for i in range(40)]
    (row,) = grouped(view(make(rows))).rows
    assert (row.symbol, row.times, len(row.children)) == ("2 operations from torch.relu x 20", 20, 40)


def test_a_few_alike_operations_stay_as_they_are() -> None:
    assert [row.symbol for row in grouped(view(chain(4))).rows] == ["torch.relu"] * 4


def test_ids_are_unique_and_no_operation_is_lost() -> None:
    for trace in (blocks(7), chain(50), example()):
        whole, shown = view(trace), grouped(view(trace), CLASSES)
        ids = [row.id for row in shown.walk()]
        assert len(set(ids)) == len(ids)
        assert [row.id for row in shown.walk() if row.depth] == [row.id for row in whole.walk()]


def test_groups_fold_by_name() -> None:
    shown = grouped(view(blocks(2)), CLASSES)
    assert fold(shown, collapse="blocks.1").size == 3
    assert shut(shown.rows[0]).folded == 4  # of operations: the groups inside do not count


def test_a_long_program_that_repeats_nothing() -> None:
    values = [plain(f"t{i}", (i + 1,)) for i in range(5001)]
    rows = [call("torch.cat", (values[i],), values[i + 1]) for i in range(5000)]
    assert len(grouped(view(make(rows))).rows) == 5000


# ------------------------------------------------------------------------- blocks that stand apart
def symbols(trace: Any, *apart: str) -> list[str]:
    (outer,) = split(grouped(view(trace), CLASSES), apart).rows
    return [row.symbol for row in outer.children]


def test_a_block_stands_between_those_before_and_after() -> None:
    assert symbols(blocks(12), "mod_2_op_6") == ["Block x 3", "blocks.3: Block", "Block x 8"]
    assert symbols(blocks(12), "mod_2_op_0", "mod_2_op_22") == ["blocks.0: Block", "Block x 10", "blocks.11: Block"]
    assert symbols(blocks(12)) == symbols(blocks(12), "nothing") == ["Block x 12"]
    assert symbols(blocks(3), *(f"mod_2_op_{i}" for i in (0, 2, 4))) == [f"blocks.{i}: Block" for i in range(3)]


def test_the_parts_take_and_give_what_flows_between_them() -> None:
    (outer,) = split(grouped(view(blocks(12)), CLASSES), ["mod_2_op_6"]).rows
    assert [(row.inputs[0], row.name) for row in outer.children] == [("x", "u2"), ("u2", "u3"), ("u3", "u11")]
    ids = [row.id for row in outer.walk()]
    assert len(ids) == len(set(ids)) == 1 + 2 + 12 + 12 + 24


def test_blocks_of_several_operations_are_split_between_blocks() -> None:
    values = [plain(f"t{i}") for i in range(41)]
    rows = [call(("torch.relu", "torch.sin")[i % 2], (values[i],), values[i + 1]) for i in range(40)]
    whole = grouped(view(make(rows)))
    shown = split(whole, blocks_with(whole, lambda row: row.id == "op_7"))
    assert [row.symbol for row in shown.rows] == [
        "2 operations from torch.relu x 3", "torch.relu", "torch.sin", "2 operations from torch.relu x 16",
    ]  # fmt: skip


def test_no_operation_is_lost_by_any_split() -> None:
    for trace in (blocks(7), chain(50)):
        whole = grouped(view(trace), CLASSES)
        for key in (row.id for row in view(trace).rows):
            shown = split(whole, blocks_with(whole, lambda row, key=key: row.id == key))
            assert [row.id for row in shown.walk() if row.depth] == [row.id for row in whole.walk() if row.depth]
            assert not any(row.times for row in shown.walk() if any(child.id == key for child in row.walk()))


def test_where_all_blocks_are_wanted_none_stands_apart() -> None:
    whole = grouped(view(blocks(12)), CLASSES)
    assert blocks_with(whole, lambda row: row.symbol == "Block x 12") == frozenset()


def test_a_named_block_is_unfolded_alone() -> None:
    shown = fold(grouped(view(blocks(12)), CLASSES), 1, expand="blocks.3")
    assert [row.symbol for row in shown.walk()] == [
        "blocks", "Block x 3", "blocks.3: Block", "blocks.3.act: ReLU", "torch.relu", "torch.add", "Block x 8",
    ]  # fmt: skip
