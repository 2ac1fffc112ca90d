import math
from typing import Any

import pytest
import torch

import subtrace_kit
from subtrace_kit.errors import TraceError
from subtrace_kit.explorer import start
from subtrace_kit.panes import bars, seen_table
from subtrace_kit.seen import BINS, summarize
from subtrace_kit.zoo import TwoTensor


def items(seen: Any) -> dict[str, str]:
    return {one.name: one.summary.items for one in seen}


def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    pair = TwoTensor(x, y) * 2
    pair.mul_(3)
    return pair.a + pair.b


def recorded(**options: Any) -> Any:
    return subtrace_kit.trace(program, **options)(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.uint16])
def test_a_summary_of_each_dtype(dtype: torch.dtype) -> None:
    found = summarize(torch.tensor([1, 2, 6]).to(dtype))
    assert found is not None
    assert (found.count, found.nonfinite, found.low, found.high, found.mean) == (3, 0, 1, 6, 3)
    assert sum(found.bins) == 3
    assert found.items == "[1, 2, 6]"


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    found = summarize(torch.tensor([math.nan, math.inf, 1.0]))
    assert found is not None
    assert (found.nans, found.infs, found.nonfinite, found.low, found.high) == (1, 1, 2, 1.0, 1.0)
    nothing = summarize(torch.tensor([math.nan]))
    assert nothing is not None
    assert (nothing.nans, nothing.infs, nothing.mean) == (1, 0, None)


def test_nan_and_inf_are_told_apart_in_large_tensors() -> None:
    def lost(x: torch.Tensor) -> torch.Tensor:
        return x.log()

    x = torch.tensor([-1.0, 0.0, 0.0, *[1.0] * 17])
    state = start(subtrace_kit.trace(lost, values=True)(x))
    shown = seen_table(state.sheet, state.row)  # type: ignore[arg-type]
    assert "<code>1 nan, 2 inf of 20</code>" in shown
    assert "least, mean, greatest and histogram: of the finite values only" in shown


def test_small_tensors_in_full_take_as_many_lines_as_they_need() -> None:
    state = start(subtrace_kit.trace(lambda x: x + 1, values=True)(torch.arange(3.0)))
    shown = seen_table(state.sheet, state.row)  # type: ignore[arg-type]
    assert '<td class="full"><code>[1, 2, 3]</code></td>' in shown
    assert "finite values only" not in shown


def test_other_kinds_of_tensors() -> None:
    assert summarize(torch.empty(0)) is not None
    large = summarize(torch.arange(1000.0))
    assert large is not None
    assert (large.items, len(large.bins), sum(large.bins)) == ("", BINS, 1000)
    magnitude = summarize(torch.tensor([3 + 4j]))
    assert magnitude is not None
    assert magnitude.low == 5
    sparse = summarize(torch.eye(2).to_sparse())
    assert sparse is not None
    assert sparse.count == 4
    assert summarize(torch.empty(2, device="meta")) is None


def test_values_are_kept_where_asked_for() -> None:
    t = recorded(values=True)
    assert items(t.seen) == {"x": "[1, 2]", "y": "[3, 4]"}
    assert items(t.bound_symbols[1].seen) == {"mul_1": "[2, 4]", "mul_2": "[6, 8]"}
    assert recorded().seen == ()
    assert all(not b.seen for outer in recorded().bound_symbols for _, b in outer.walk())


def test_a_trace_with_values_is_the_same_trace() -> None:
    assert str(recorded(values=True)) == str(recorded())
    assert torch.equal(recorded(values=True)(torch.ones(2), torch.ones(2)), torch.full((2,), 12.0))


def test_each_write_has_the_values_of_its_moment() -> None:
    state = start(recorded(values=True))
    before, after = (state.search(f"op:{name}") for name in ("torch.tensor.mul", "aten.mul_"))
    assert "[2, 4]" in seen_table(before.sheet, before.row)  # type: ignore[arg-type]
    shown = seen_table(after.sheet, after.row)  # type: ignore[arg-type]
    assert "<td><code>in</code></td><td><code>mul_1</code></td><td><code>2</code></td>" in shown
    assert "<td><code>out</code></td><td><code>mul_1</code></td><td><code>6</code></td>" in shown


def test_lowered_operations_keep_their_values() -> None:
    state = start(recorded(values=True)).choose("lowered")
    assert "[2, 4]" in seen_table(state.sheet, state.row)  # type: ignore[arg-type]


def test_the_class_is_sent_the_same_ops() -> None:
    sent: list[str] = []

    class Spy(TwoTensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            sent.append(str(func))
            return super().__torch_dispatch__(func, types, args, kwargs or {})

    def spied(x: torch.Tensor) -> torch.Tensor:
        return (Spy(x, x) * 2).sin().a

    subtrace_kit.trace(spied)(torch.ones(2))
    plain, sent[:] = list(sent), []
    subtrace_kit.trace(spied, values=True)(torch.ones(2))
    assert sent == plain


def test_fake_tensors_have_no_values() -> None:
    with pytest.raises(TraceError, match="fake tensors have no values"):
        subtrace_kit.trace(program, fake=True, values=True)


def test_bars() -> None:
    assert bars((0, 1, 2, 8)) == " \N{LOWER ONE EIGHTH BLOCK}\N{LOWER ONE QUARTER BLOCK}\N{FULL BLOCK}"
    assert bars(()) == ""
