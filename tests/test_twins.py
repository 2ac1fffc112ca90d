"""Arguments that autograd would take into another graph are as they were after tracing; runs do what eager does."""

import pytest
import torch
from same import assert_same, pictures

import subtrace_kit
from subtrace_kit.twins import changes_graph, leaf_ancestors
from subtrace_kit.zoo import TwoTensor


def leaf(seed=0):
    torch.manual_seed(seed)
    return torch.randn(3, requires_grad=True)


def non_leaf(seed=0):
    base = leaf(seed)
    return base, base * 2


def view(seed=0):
    base = leaf(seed).detach()
    return base, base[:]


def view_of_non_leaf(seed=0):
    base = leaf(seed)
    return base, (base * 2)[1:].view(2)


def wrapper(seed=0):
    base = TwoTensor(leaf(seed).detach(), leaf(seed + 1).detach()).requires_grad_()
    return base, base * 2


def wrapper_around_views(seed=0):
    base = leaf(seed).detach()
    return base, TwoTensor(base[:], leaf(seed + 1).detach()[:])


MAKERS = {f.__name__: f for f in (non_leaf, view, view_of_non_leaf, wrapper, wrapper_around_views)}


def weight(x):
    return torch.arange(1.0, x.numel() + 1).view(x.shape).requires_grad_()


def write(x, w):
    x.mul_(w)
    return x.sin()


def write_through_view(x, w):
    x[1:].mul_(w[1:])
    return x * 2


def write_twice(x, w):
    x.add_(w)
    y = x * 2
    x.mul_(w)
    return y + x


def backward_inside(x, w):
    y = (x * w).sin()
    y.sum().backward(retain_graph=True)
    return y.detach()


def backward_once(x, w):
    y = (x * w).sin()
    y.sum().backward()
    return y.detach()


def detach(x, w):
    y = x + w
    x.detach_()
    return y + x


def retain(x, w):
    y = x * w
    y.retain_grad()
    y.sum().backward(retain_graph=True)
    return y.grad * 2


def program_of(act):
    """Several tensors come back, so that their graphs can be compared."""
    return lambda x, w: (act(x, w), x)


def facts(tensor):
    return tensor.grad_fn, tensor._version, tensor.requires_grad, tensor.is_leaf, tensor.retains_grad


def run(program, make, seed):
    """Results, the argument afterwards and the gradients of what lies behind it."""
    base, x = make(seed)
    w = weight(x)
    out = program(x, w)
    for tensor in [t for t in out if t.requires_grad]:
        tensor.sum().backward(retain_graph=True)
    return [pictures([out, x, w]), pictures([base.grad if base.is_leaf else None, w.grad]), facts(x)[2:4], out[1] is x]


@pytest.mark.parametrize("act", [write, write_through_view, write_twice, backward_inside])
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_tracing_leaves_the_argument_and_runs_are_eager_s(make, act):
    base, x = make()
    w = weight(x)
    before, seen = facts(x), pictures([base, x, w])
    trace = subtrace_kit.trace(program_of(act))(x, w)
    assert facts(x) == before
    assert_same(pictures([base, x, w]), seen)
    assert base.grad is None
    assert w.grad is None
    wanted = [run(program_of(act), make, seed) for seed in (1, 2, 3)]
    for form in (trace, subtrace_kit.lower(trace)):
        assert_same([run(form, make, seed) for seed in (1, 2, 3)], wanted)


@pytest.mark.parametrize("act", [detach, retain])
@pytest.mark.parametrize("make", [non_leaf, wrapper])
def test_detach_and_retain_grad(make, act):
    base, x = make()
    w = weight(x)
    before = facts(x)
    trace = subtrace_kit.trace(program_of(act))(x, w)
    assert facts(x) == before
    assert base.grad is None
    wanted = run(program_of(act), make, 1)
    for form in (trace, subtrace_kit.lower(trace)):
        assert_same(run(form, make, 1), wanted)


def test_retain_grad_of_an_argument():
    def program(x, w):
        x.retain_grad()
        (x * w).sum().backward(retain_graph=True)
        return x.grad * 2, x

    _, x = non_leaf()
    before = facts(x)
    trace = subtrace_kit.trace(program)(x, weight(x))
    assert facts(x) == before
    _, x = non_leaf(1)
    assert torch.equal(trace(x, weight(x))[0], weight(x).detach() * 2)


def test_the_graph_outside_can_still_run():
    base, x = non_leaf()
    subtrace_kit.trace(backward_once)(x, weight(x))
    x.sum().backward()
    assert torch.equal(base.grad, torch.full((3,), 2.0))


def test_gradients_that_were_there_stay():
    base, x = non_leaf()
    w = weight(x)
    base.grad, w.grad = torch.ones(3), torch.zeros(3)
    kept = base.grad, w.grad
    trace = subtrace_kit.trace(backward_once)(x, w)
    assert base.grad is kept[0]
    assert w.grad is kept[1]
    assert torch.equal(base.grad, torch.ones(3))
    assert torch.equal(w.grad, torch.zeros(3))
    trace(x, w)
    assert torch.equal(w.grad, (x * x.mul(w).cos()).detach())


def test_a_leaf_needs_no_stand_in():
    x = torch.ones(3)
    trace = subtrace_kit.trace(write)(x, weight(x))
    assert facts(x) == (None, 0, False, True, False)
    assert torch.equal(trace(torch.ones(3), weight(x)), torch.arange(1.0, 4).sin())


def test_two_arguments_of_one_graph():
    base = leaf()

    def program(x, y):
        x.mul_(y)
        return x + y

    x, y = base * 2, base * 3
    subtrace_kit.trace(program)(x, y)
    (x + y).sum().backward()
    assert torch.equal(base.grad, torch.full((3,), 5.0))


def test_two_views_of_one_tensor_are_refused():
    base = torch.zeros(4)
    w = torch.ones(2, requires_grad=True)
    x, y = base[:2], base[1:3]
    with pytest.raises(subtrace_kit.TraceError, match="changes the graph behind a Tensor"):
        subtrace_kit.trace(lambda x, y: (x.mul_(w), y * 2))(x, y)
    assert not base.requires_grad
    assert facts(x) == facts(y) == (None, 0, False, True, False)


def test_a_captured_non_leaf_is_refused():
    _, held = non_leaf()
    before, value = facts(held), held.detach().clone()
    with pytest.raises(subtrace_kit.TraceError, match="pass the tensor as an argument"):
        subtrace_kit.trace(lambda w: held.mul_(w))(torch.ones(3, requires_grad=True))
    assert facts(held) == before
    assert torch.equal(held, value)


def test_an_argument_that_is_also_closed_over_is_told_at_each_run():
    held = torch.ones(3)
    trace = subtrace_kit.trace(lambda x: (x.mul_(2), x + held))(held)
    assert torch.equal(held, torch.ones(3))
    assert torch.equal(trace(held)[1], torch.full((3,), 4.0))
    with pytest.raises(subtrace_kit.TraceError, match="no longer the same tensor as held"):
        trace(torch.ones(3))


def test_which_tensors_have_a_graph_to_keep():
    base, x = non_leaf()
    assert changes_graph(x)
    assert changes_graph(torch.ones(3)[:])
    assert not changes_graph(base)
    assert not changes_graph(torch.ones(3))
    with torch.inference_mode():
        assert not changes_graph(torch.ones(3)[:])


def test_leaves_behind_a_tensor():
    one, other = leaf(), leaf(1)
    assert {id(t) for t in leaf_ancestors([one * other + one])} == {id(one), id(other)}
    assert leaf_ancestors([one]) == []
