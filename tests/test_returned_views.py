"""Results of a lowered trace are views where eager's are, so that later writes with a gradient reach their base."""

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import subtrace_kit

BASE = TwoTensor(torch.ones(4), torch.ones(4))


def two():
    return TwoTensor(torch.arange(4.0), torch.ones(4))


def view(x):
    return x.view(2, 2)


def view_of_a_view(x):
    return x.view(2, 2).t()


def captured(x):
    return BASE[1:] + 0, BASE[1:]


def of_a_result(x):
    y = x * 2
    return y, y.view(2, 2)


def share_a_base(x):
    y = x * 2
    return y.view(2, 2), y[:2]


def copied(x):
    return x.view(2, 2).clone()


def detached(x):
    return x.detach()


def views(value, x):
    leaves = value if isinstance(value, tuple) else (value,)
    return [(leaf._is_view(), leaf._base is x, leaf._base is BASE) for leaf in leaves]


@pytest.mark.parametrize("program", [view, view_of_a_view, captured, of_a_result, share_a_base, copied, detached])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_a_result_is_the_view_that_eager_gives(program, mode):
    with mode():
        low = subtrace_kit.lower(subtrace_kit.trace(program)(two()))
        x, y = two(), two()
        expected, found = program(x), low(y)
    assert views(found, y) == views(expected, x)


@pytest.mark.parametrize("program", [view, view_of_a_view])
def test_a_later_write_with_a_gradient_reaches_the_base(program):
    low = subtrace_kit.lower(subtrace_kit.trace(program)(two()))
    grads = []
    for run in (program, low):
        x, w = two(), TwoTensor(torch.full((2, 2), 3.0), torch.full((2, 2), 5.0)).requires_grad_()
        run(x).mul_(w)
        x.sum().backward()
        grads.append((w.grad.a.tolist(), w.grad.b.tolist()))
    assert grads[0] == grads[1]


def test_two_results_with_one_base_know_each_other():
    low = subtrace_kit.lower(subtrace_kit.trace(share_a_base)(two()))
    first, second = low(two())
    first.mul_(torch.ones(2, 2, requires_grad=True))
    assert second.requires_grad


def test_a_view_that_is_not_returned_is_not_built():
    low = subtrace_kit.lower(subtrace_kit.trace(copied)(two()))
    assert [c.kept for c in low.ledger] == [False, True]
