"""Three programs that make_fx answers with the data of the recorded run."""

import pytest
import torch
from same import trace_and_lower
from torch.fx.experimental.proxy_tensor import make_fx

from subtrace_kit.zoo import TwoTensor


def returned(x):
    return TwoTensor(x, x + 1)


def attribute(t):
    return t.a * 2


def mixed(t, x):
    return (t + TwoTensor(x, x)).a


def plain(seed):
    torch.manual_seed(seed)
    return (torch.randn(3),)


def wrapped(seed):
    torch.manual_seed(seed)
    return (TwoTensor(torch.randn(3), torch.randn(3)),)


def both(seed):
    return (*wrapped(seed), *plain(seed + 10))


@pytest.mark.parametrize(("fn", "make"), [(returned, plain), (attribute, wrapped), (mixed, both)])
def test_right_on_fresh_inputs(fn, make):
    trace_and_lower(fn, make)


@pytest.mark.parametrize(("fn", "make"), [(returned, plain), (attribute, wrapped), (mixed, both)])
def test_make_fx_is_stale_or_fails_there(fn, make):
    def answer(value):
        return value.a if isinstance(value, TwoTensor) else value

    try:
        graph = make_fx(fn)(*make(0))
        found = answer(graph(*make(1)))
    except Exception:
        return
    assert not torch.equal(found, answer(fn(*make(1))))
