"""Two outcomes side by side: equality of values and of what a class keeps beside its tensors."""

import pytest
import torch
from verified import two

import subtrace_kit
from subtrace_kit import verify
from subtrace_kit.comparison import Comparison, alike
from subtrace_kit.zoo import TwoTensor


class Plain:
    """Without an `==` of its own."""

    def __init__(self, value):
        self.value = value


class Wary(TwoTensor):
    """It has no rule for `equal`."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.equal.default:
            raise NotImplementedError("equal")
        return super().__torch_dispatch__(func, types, args, kwargs)


def wary(value):
    return Wary(torch.tensor([value]), torch.ones(1))


ALIKE = [
    (1, 1),
    (float("nan"), float("nan")),
    ([1, {"a": Plain(2)}], [1, {"a": Plain(2)}]),
    (torch.tensor([1.0, float("nan")]), torch.tensor([1.0, float("nan")])),
    (wary(1.0), wary(1.0)),
    ({1, 2}, {2, 1}),
    (torch.eye(2).to_sparse(), torch.eye(2).to_sparse()),
]
DIFFERENT = [
    (1, True),
    (1, 1.0),
    ((1,), [1]),
    (Plain(1), Plain(2)),
    (torch.ones(1), torch.ones(1, 1)),
    (torch.ones(1), torch.ones(1, dtype=torch.float64)),
    (wary(1.0), wary(2.0)),
    (torch.ones(2), torch.ones(2, requires_grad=True)),
    ({"a": 1}, {"b": 1}),
    (torch.eye(2).to_sparse(), (torch.eye(2) * 2).to_sparse()),
    (torch.eye(2).to_sparse(), torch.eye(2)),
]


@pytest.mark.parametrize(("found", "wanted"), ALIKE)
def test_alike(found, wanted):
    assert alike(found, wanted)


@pytest.mark.parametrize(("found", "wanted"), DIFFERENT)
def test_not_alike(found, wanted):
    assert not alike(found, wanted)


def values(found, wanted, **tolerance):
    """The check of one value on each side."""
    sides = ({"results": {"out": {"class": torch.Tensor, "values": value}}} for value in (found, wanted))
    return Comparison(*sides, **tolerance).check("results", "values")


def test_values_are_equal_to_the_bit():
    nan, inf = float("nan"), float("inf")
    assert values(torch.tensor([nan, inf, -0.0]), torch.tensor([nan, inf, -0.0])).verdict == "same"
    assert values(torch.tensor([0.0]), torch.tensor([-0.0])).verdict == "differs"
    assert values(torch.tensor([2**60]), torch.tensor([2**60 + 1])).verdict == "differs"
    assert values(torch.tensor([inf]), torch.tensor([-inf])).verdict == "differs"
    assert values(torch.ones(2), torch.ones(3)).differences == ("out: not compared, for the shapes differ",)
    assert values(torch.ones(2).to(torch.float8_e4m3fn), torch.ones(2).to(torch.float8_e4m3fn)).verdict == "same"
    assert values(torch.tensor([1j]), torch.tensor([1j])).verdict == "same"


def test_a_tolerance_makes_differences_close():
    assert values(torch.ones(2), torch.ones(2) + 1e-6, rtol=1e-5).verdict == "close"
    assert values(torch.ones(2), torch.ones(2) + 1e-6, atol=1e-5).verdict == "close"
    assert values(torch.ones(2), torch.ones(2) + 1e-3, rtol=1e-5).verdict == "differs"
    assert values(torch.tensor([0.0]), torch.tensor([-0.0]), atol=1e-9).verdict == "close"


def test_attributes_of_a_class_without_equality():
    x = wary(1.0)
    x.other, x.nan = wary(2.0), torch.tensor(float("nan"))
    assert verify(subtrace_kit.trace(lambda x: x * 2)(x), x).row("arguments").verdict == "same"


def test_what_only_one_side_has():
    x = two(2)
    trace = subtrace_kit.trace(lambda x: x.sin())(x)
    report = verify(trace.replace(program=lambda x: x.sin() * 1), x)
    assert report.row("ops").differences == ("op 1: only in eager: aten.mul.Tensor to TwoTensor",)
