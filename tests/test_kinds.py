"""Classes written in each of the usual ways, under the programs that tell them apart."""

import pytest
import torch
from compare import assert_same_as_eager
from kinds import (
    AsksItself,
    BothHandlers,
    Draws,
    Factory,
    KeywordOnly,
    Optional,
    Packed,
    Rebinds,
    SetInInit,
    Slotted,
)

MAKERS = {
    "keyword-only constructor": lambda x: KeywordOnly(data=x, unit="m"),
    "attributes set in __init__": lambda x: SetInInit(x, x + 1),
    "factory": Factory.wrap,
    "optional inner tensor missing": Optional,
    "optional inner tensor there": lambda x: Optional(x, x * 3),
    "slots": Slotted,
    "sizes and device dispatched": AsksItself,
    "functions and ops handled": BothHandlers,
    "packed": lambda x: Packed.pack(x.abs() * 5),
    "in-place op rebinds": Rebinds,
    "random draws": Draws,
}


def arithmetic(t):
    return (t * 2).sin() + t


def views(t):
    return t.t(), t[0], t.view(-1)


def write(t):
    t.mul_(2)
    return t.add_(1), t


def function(t):
    return torch.nn.functional.relu(t * 2)


def slices(t):
    return t[:, 1:].neg(), t.sum(0)


def inputs(wrap):
    def make(seed):
        torch.manual_seed(seed)
        return (wrap(torch.randn(2, 4)),)

    return make


@pytest.mark.parametrize("program", [arithmetic, views, write, function, slices])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_wrapper_comes_in(kind, program):
    assert_same_as_eager(program, inputs(MAKERS[kind]))


@pytest.mark.parametrize("program", [arithmetic, views, write, function])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_wrapper_is_built_inside_and_returned(kind, program):
    def builds(x):
        t = MAKERS[kind](x * 2)
        return t, program(t)

    assert_same_as_eager(builds, inputs(torch.clone))


@pytest.mark.parametrize("kind", ["keyword-only constructor", "attributes set in __init__", "factory", "slots"])
def test_gradients_reach_wrapper_leaves(kind):
    def make(seed):
        torch.manual_seed(seed)
        return (MAKERS[kind](torch.randn(2, 4)).requires_grad_(),)

    assert_same_as_eager(lambda t: ((t * t).sin() + t, t.exp()), make)


@pytest.mark.parametrize("kind", ["keyword-only constructor", "attributes set in __init__", "factory", "slots"])
def test_wrappers_in_wrappers(kind):
    trace, low = assert_same_as_eager(
        lambda t: ((t + 1).t(), t.low * 2), inputs(lambda x: SetInInit(MAKERS[kind](x), MAKERS[kind](x - 1)))
    )
    assert {type(p.inner[0][1]).__name__ for p in trace.inputs} == {f"{trace.inputs[0].inner[0][1].cls.__name__}Proxy"}
    assert sum(c.kept for c in low.ledger) < len(low.ledger)


def test_two_classes_one_holding_the_other_and_a_plain_tensor():
    def make(seed):
        torch.manual_seed(seed)
        return Optional(Slotted(torch.randn(3)), torch.randn(3)), torch.randn(3)

    assert_same_as_eager(lambda t, x: (t * 2, t.body + x, t.extra), make)


def test_an_optional_inner_tensor_appears():
    def program(t, x):
        t.extra = x * 2
        return t * 3

    def make(seed):
        torch.manual_seed(seed)
        return Optional(torch.randn(3)), torch.randn(3)

    trace, _ = assert_same_as_eager(program, make)
    example = make(0)
    trace(*example)
    assert example[0].extra is not None


def test_an_optional_inner_tensor_goes():
    def program(t):
        t.extra = None
        return t * 3

    assert_same_as_eager(program, inputs(lambda x: Optional(x, x + 1)))


def test_metadata_changed_between_ops():
    def program(t):
        a = t * 2
        t.unit = "km"
        return a, t * 2

    trace, _ = assert_same_as_eager(program, inputs(MAKERS["keyword-only constructor"]))
    a, b = trace(KeywordOnly(data=torch.ones(2, 4), unit="m"))
    assert (a.unit, b.unit) == ("m", "km")


def test_a_subclass_instance_is_not_a_parent_instance():
    def program(t, u):
        return t + 1, u + 1

    def make(seed):
        torch.manual_seed(seed)
        return Slotted(torch.randn(2)), Rebinds(torch.randn(2))

    trace, _ = assert_same_as_eager(program, make)
    assert [p.cls for p in trace.inputs] == [Slotted, Rebinds]


def test_random_draws_of_a_handler_are_drawn_anew():
    trace, low = assert_same_as_eager(lambda t: t * 2, inputs(Draws))
    fresh = Draws(torch.zeros(2, 4))
    assert not torch.equal(trace(fresh).body, trace(fresh).body)
    assert not torch.equal(low(fresh).body, low(fresh).body)


def test_the_outer_shape_of_a_packed_tensor_is_kept():
    trace, _ = assert_same_as_eager(lambda t: (t.detach(), t + 1), inputs(MAKERS["packed"]))
    (packed,) = trace.inputs
    assert packed.shape == (2, 4)
    assert packed.inner[0][1].shape == (2, 2)
