"""The ops that a program runs in the end, and what is more than its ops."""

import pytest
import torch

import subtrace_kit
from subtrace_kit import TraceError
from subtrace_kit.lowest import expect_pure, lowest, steps_of
from subtrace_kit.zoo import TwoTensor


def names(fn, *args, walk=lowest):
    t = subtrace_kit.trace(fn)(*args)
    return [op.symbol.name for outer in t.bound_symbols for op in walk(outer)]


def in_inference_mode(x):
    with torch.inference_mode():
        return x * 2


PAIR = TwoTensor(torch.ones(2), torch.ones(2))


def test_ops_on_wrappers_are_those_of_their_class():
    assert names(lambda x: x * 2, PAIR) == ["aten.mul.Tensor", "aten.mul.Tensor", "TwoTensor"]
    assert names(lambda x: torch.nn.functional.linear(x, x), torch.ones(2, 2)) == ["aten.t.default", "aten.mm.default"]


def test_steps_take_wrappers_for_values():
    assert names(lambda x: (x * 2).relu(), PAIR, walk=steps_of) == ["aten.mul.Tensor", "aten.relu.default"]


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda x: (x * 2).requires_grad_(), "requires_grad_ does more than compute"),
        (lambda x: x * (x.a.sum().item() + 1), "takes a number from data"),
        (lambda x: in_inference_mode(x), "in inference mode"),
    ],
)
def test_what_is_more_than_its_ops(fn, what):
    with pytest.raises(TraceError, match=what):
        names(fn, PAIR)


def test_writes_are_allowed_into_temporaries_alone():
    for fn, pure in ((lambda x: (x + 1).mul_(2), True), (lambda x: x.view(-1).mul_(2), False)):
        t = subtrace_kit.trace(fn)(torch.ones(2, 2))
        body = [op for outer in t.bound_symbols for op in lowest(outer)]
        if pure:
            expect_pure(body, {"x"})
        else:
            with pytest.raises(TraceError, match="writes something outside"):
                expect_pure(body, {"x"})
