from typing import Any

from handmade import call, chain, example, make, plain

from subtrace_kit.fold import fold, shut
from subtrace_kit.groups import grouped
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
