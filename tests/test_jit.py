"""jit: modules, and jitted functions inside recorded programs."""

import pytest
import torch

import subtrace_kit


def test_a_jitted_module_has_the_attributes_of_the_module():
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
    jitted = subtrace_kit.jit(module)
    optimizer = torch.optim.SGD(jitted.parameters(), 0.1)
    jitted.eval()
    x = torch.ones(1, 2)
    assert torch.equal(jitted(x), module(x))
    jitted(x).sum().backward()
    optimizer.step()
    assert torch.equal(jitted(x), module(x))
    assert len(jitted.traces) == 1
    with pytest.raises(AttributeError, match="no attribute 'parameters'"):
        subtrace_kit.jit(lambda x: x).parameters()


def test_a_jitted_function_inside_a_recorded_program_is_the_function():
    inner = subtrace_kit.jit(lambda x: x * 2)
    t = subtrace_kit.trace(lambda x: inner(x) + 1)(torch.ones(2))
    assert [bound.symbol.name for bound in t.bound_symbols] == ["torch.Tensor.mul", "torch.Tensor.add"]
    assert t(torch.full((2,), 3.0)).tolist() == [7.0, 7.0]
    assert inner.traces == []


class Short(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        return x + k

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_verify_says_where_gradients_were_not_compared():
    x = torch.ones(2, requires_grad=True)
    report = subtrace_kit.verify(subtrace_kit.trace(lambda x: Short.apply(x, 1) * 2)(x), x)
    assert report.row("gradients").verdict == "not compared"
    assert "not compared" in report.title
    with pytest.raises(KeyError, match="no row 'grads'"):
        report.row("grads")
