"""A function of torch stands for an op only where it sends the very same."""

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import subtrace_kit
from subtrace_kit.bindings import quickest_call
from subtrace_kit.symbols import Kind
from subtrace_kit.zoo import ScaleTensor


def two(*shape):
    return TwoTensor(torch.rand(shape) + 0.5, torch.rand(shape) + 0.5)


def calls(program, *args):
    """The name of each op of a lowered trace, and of what is called for it."""
    low = subtrace_kit.lower(subtrace_kit.trace(program)(*args))
    ops = [b for b in low.bound_symbols if b.symbol.kind is Kind.ATEN]
    return [(b.symbol.name, getattr(quickest_call(b), "__name__", "")) for b in ops][:1]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda t: t * 2, ("aten.mul.Tensor", "mul")),
        (lambda t: t * t, ("aten.mul.Tensor", "mul")),
        (lambda t: t**2, ("aten.pow.Tensor_Scalar", "pow")),
        (lambda t: t.sum(0), ("aten.sum.dim_IntList", "sum")),
        (lambda t: torch.nn.functional.gelu(t), ("aten.gelu.default", "gelu")),
        (lambda t: t.view(-1) + 1, ("aten.view.default", "view")),
        (lambda t: torch.cat([t, t]), ("aten.cat.default", "cat")),
        (lambda t: t.add_(1), ("aten.add_.Tensor", "add_")),
    ],
)
def test_the_function_that_sends_the_op_is_found(program, expected):
    with torch.no_grad():
        (found,) = calls(program, two(3, 3).clone())
    assert found == expected


def test_an_op_that_no_function_sends_is_called_itself():
    with torch.no_grad():
        ((name, call),) = calls(lambda t: torch.ops.aten._to_copy(t, dtype=torch.float64), two(2))
    assert (name, call) == ("aten._to_copy.default", "")


def test_nested_wrappers_are_sent_ops():
    inner = ScaleTensor(torch.ones(2), torch.tensor(2.0))
    program = subtrace_kit.trace(lambda t: t * 2)(TwoTensor(inner, inner.clone()))
    for _, bound in program.bound_symbols[0].walk():
        if bound.symbol.kind is Kind.ATEN and bound.on_wrapper:
            assert getattr(quickest_call(bound), "__name__", "") == ""


class Loud(torch.Tensor):
    """A plain tensor of another class, which sees the functions it is given to."""

    seen: list = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def test_where_classes_change_ops_are_called_themselves():
    def program(x):
        return (x.as_subclass(Loud) * 2).as_subclass(torch.Tensor)

    f = subtrace_kit.jit(program)
    assert f(torch.ones(2)).tolist() == f(torch.ones(2)).tolist() == [2, 2]


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_results_are_the_same_in_every_mode(mode):
    def program(t):
        return torch.nn.functional.softmax((t @ t.t()).view(-1)[1:] * 0.5, 0).to(torch.float64)

    with mode():
        x = two(3, 3)
        expected, found = program(x), subtrace_kit.jit(program)(x)
    assert torch.equal(expected.a, found.a)
    assert found.a.stride() == expected.a.stride()
    assert found.is_inference() == expected.is_inference()
