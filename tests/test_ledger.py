"""The ledger names what requires the gradient; a lowered trace names the values from data that it guards."""

import torch

import subtrace_kit
from subtrace_kit.zoo import TwoTensor

X = torch.ones(2)


def two():
    return TwoTensor(torch.ones(2), torch.ones(2))


def grad():
    return torch.ones(2, requires_grad=True)


def reasons(program, *args):
    return [c.reason for c in subtrace_kit.lower(subtrace_kit.trace(program)(*args)).ledger]


def test_the_ledger_names_what_requires_the_gradient():
    w = two().requires_grad_()
    assert reasons(lambda x: (w * x).sin().a, X)[0] == "autograd follows it, since w requires a gradient"
    assert reasons(lambda t, x: (t * x).a, two(), grad()) == ["autograd follows it, since x requires a gradient"]


def test_the_ledger_tells_of_a_leaf_that_is_cut_off():
    assert reasons(lambda x, y: (TwoTensor(x, y) * 2).a, grad(), X)[0] == (
        "a new leaf, as its constructor cuts it off from x; torch.Tensor.mul takes the object, since it requires"
        " a gradient"
    )


def test_the_ledger_tells_what_a_backward_builds():
    def program(t):
        (t * 2).sum().backward()
        return t.grad.a

    assert "torch.Tensor.backward builds it" in reasons(program, two().requires_grad_())


def test_a_lowered_trace_names_the_values_that_it_guards():
    low = subtrace_kit.lower(subtrace_kit.trace(lambda x: x[x > 0] * int(x.sum()))(X))
    assert low.provenance[-1] == "guards values from data: getitem.shape, int_1 must be as recorded"
    assert "guards" not in str(subtrace_kit.lower(subtrace_kit.trace(torch.sin)(X)))


def test_a_wrapper_that_nothing_uses_and_a_trace_that_is_not_lowered():
    def program(x):
        TwoTensor(x, x)
        return x * 2

    assert reasons(program, X) == ["nothing uses it"]
    assert "not lowered yet" in repr(subtrace_kit.trace(program)(X).ledger)
    assert repr(subtrace_kit.lower(subtrace_kit.trace(torch.sin)(X)).ledger) == "the trace builds no wrapper"
