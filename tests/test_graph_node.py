"""jit with gradients: one node of autograd's graph that runs plain ops on inner tensors."""

import gc
import itertools
import weakref

import pytest
import torch
from same import assert_same, picture

import subtrace_kit
from subtrace_kit.joint import split_joint
from subtrace_kit.zoo import ScaleTensor, TwoTensor


def pair(seed=0, *shape, leaf=True):
    generator = torch.Generator().manual_seed(seed)
    made = TwoTensor(*(torch.randn(shape or (3, 4), generator=generator) for _ in range(2)))
    return made.requires_grad_() if leaf else made


def results_and_gradients(fn, make, backward, calls=4):
    found = []
    for call in range(calls):
        torch.manual_seed(call)
        inputs = make(call)
        out = fn(*inputs)
        leaves = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
        backward([t for t in leaves if t.requires_grad])
        found.append([*leaves, *(t.grad for t in inputs)])
    return found


def assert_like_eager(fn, make, backward, node=True):
    jitted = subtrace_kit.jit(fn)
    wanted = results_and_gradients(fn, make, backward)
    for one, other in zip(results_and_gradients(jitted, make, backward), wanted, strict=True):
        for tensor, eager in zip(one, other, strict=True):
            assert_same(picture(tensor), picture(eager))
    assert ("gradients: one node" in str(jitted.explain())) is node, jitted.explain()
    return jitted


def summed(outs):
    sum(out.sum() for out in outs).backward()


def twice(outs):
    outs[0].sum().backward(retain_graph=True)
    outs[0].sum().backward()


def only_the_first(outs):
    outs[0].mean().backward()


def mixed(outs):
    torch.autograd.backward(outs, [torch.ones(out.shape) for out in outs])


PROGRAMS = {
    "chain": lambda x, y: (x * 1.001).abs().relu(),
    "two inputs": lambda x, y: (x * y).sin() @ y.t(),
    "several results": lambda x, y: {"a": x.exp(), "b": (x + y).tanh(), "n": 3, "no": x.detach() + 1},
    "an input that gets none": lambda x, y: x * 2,
    "dropout": lambda x, y: torch.nn.functional.dropout(x * y, 0.5),
    "softmax": lambda x, y: torch.softmax(x * y, -1).log(),
    "without gradients on the way": lambda x, y: x * no_gradients(y),
    "a write into a temporary": lambda x, y: (x * y).relu_() * 2,
    "shared": lambda x, y: x * x * x + y,
    "a list": lambda x, y: [x.sum(), y.sum()],
}


def no_gradients(y):
    with torch.no_grad():
        return y * 2


@pytest.mark.parametrize("backward", [summed, twice, only_the_first])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_gradients_are_those_of_eager(name, backward):
    assert_like_eager(PROGRAMS[name], lambda call: (pair(2 * call), pair(2 * call + 1)), backward)


def test_classes_whose_inner_tensors_take_different_ways():
    def make(call):
        generator = torch.Generator().manual_seed(call)
        return (ScaleTensor(torch.randn(3, 3, generator=generator), torch.tensor(1.5)).requires_grad_(),)

    assert_like_eager(lambda x: (-(x * 2)) * 3, make, summed)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(pair(3, 4, 4, leaf=False))
        self.bias = torch.nn.Parameter(torch.randn(4))

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight, self.bias).relu()


def test_parameters_of_a_module_get_their_gradients_and_are_looked_up_anew():
    nets = Net(), Net()
    jitted = subtrace_kit.jit(nets[1])
    for call in range(5):
        x = torch.randn(2, 4)
        for net, fn in zip(nets, (nets[0], jitted), strict=True):
            fn(x).sum().backward()
            with torch.no_grad():
                net.weight.add_(net.weight.grad, alpha=-0.1)
        for p, other in zip(nets[1].parameters(), nets[0].parameters(), strict=True):
            assert_same(picture(p.grad), picture(other.grad))
        for net in nets if call % 2 else ():
            net.zero_grad()
    assert "one node" in str(jitted.explain())


def test_a_gradient_of_another_class_than_the_result():
    def plain(outs):
        torch.autograd.backward(outs, [torch.full(outs[0].shape, 2.0)])

    def scaled(outs):
        torch.autograd.backward(outs, [TwoTensor(torch.ones(4, 3).t(), torch.ones(4, 3).t())])

    jitted = assert_like_eager(PROGRAMS["chain"], lambda call: (pair(call), pair(call)), plain)
    for _ in range(2):
        one, other = (
            results_and_gradients(f, lambda c: (pair(c), pair(c)), scaled) for f in (jitted, PROGRAMS["chain"])
        )
        for found, wanted in zip(one, other, strict=True):
            assert_same(picture(found[1]), picture(wanted[1]))
    assert "2 backwards" in str(jitted.explain())


def test_dropout_draws_what_eager_draws_when_the_program_runs_again_in_the_backward():
    kinds = itertools.cycle([summed, summed, only_the_first, mixed])
    assert_like_eager(PROGRAMS["dropout"], lambda call: (pair(call), pair(call + 9)), lambda o: next(kinds)(o))


def test_double_backward():
    def penalty(fn, x):
        y = fn(x, x)
        (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        gradient.sin().sum().backward()
        return x.grad

    fn = PROGRAMS["two inputs"]
    jitted = subtrace_kit.jit(fn)
    for call in range(4):
        assert_same(picture(penalty(jitted, pair(call, 3, 3))), picture(penalty(fn, pair(call, 3, 3))))


def warmed(fn, *inputs):
    jitted = subtrace_kit.jit(fn)
    for _ in range(3):
        jitted(*inputs).sum().backward()
    assert "one node" in str(jitted.explain())
    return jitted


def test_an_input_that_was_written_before_the_backward_is_an_error_as_in_eager():
    jitted = warmed(lambda x: x.sin(), pair())
    x = pair()
    y = jitted(x)
    with torch.no_grad():
        x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_result_that_was_written_before_the_backward_is_an_error_as_in_eager():
    jitted = warmed(lambda x: x.exp(), pair())
    y = jitted(pair())
    alias = y.detach()
    loss = y.sum()
    del y
    alias.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_an_input_that_the_backward_does_not_need_may_be_written():
    jitted = warmed(lambda x: x * 2, pair())
    x = pair()
    y = jitted(x)
    with torch.no_grad():
        x.add_(1)
    y.sum().backward()
    assert torch.equal(x.grad.a, torch.full((3, 4), 2.0))


def test_a_new_kind_of_gradient_after_a_write_is_refused():
    jitted = warmed(lambda x: x * 2, pair())
    x = pair()
    y = jitted(x)
    with torch.no_grad():
        x.a.add_(1)
    with pytest.raises(subtrace_kit.TraceError, match="runs the program again, and an input was written since"):
        y.backward(torch.ones(3, 4))


def test_hooks_of_an_input_run_once():
    seen = []
    jitted = warmed(lambda x: x * 2, pair())
    for gradient in (None, torch.ones(3, 4)):
        x = pair()
        x.register_hook(lambda g: seen.append(type(g)))
        y = jitted(x)
        y.sum().backward() if gradient is None else y.backward(gradient)
    assert seen == [TwoTensor, torch.Tensor]


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x: (x * 2).view(-1)[0:0], "one node"),
        (lambda x: (x * 2, x.view(-1)), "a result is an argument, or shares memory"),
        (lambda x: (x * 2).requires_grad_(), "does more than compute"),
    ],
)
def test_what_one_node_cannot_stand_for_runs_through_eagers_own_graph(fn, why):
    jitted = subtrace_kit.jit(fn)
    for _ in range(3):
        jitted(pair())
    assert why in str(jitted.explain())


def test_nothing_is_left_once_the_result_is_gone():
    jitted = warmed(lambda x: x.exp().sin(), pair())
    x = pair()
    y = jitted(x)
    gone = [weakref.ref(y), weakref.ref(x)]
    gc.disable()
    try:
        del x, y
        assert [ref() for ref in gone] == [None, None]
    finally:
        gc.enable()


def test_forward_and_backward_as_text():
    def program(x):
        return x.exp() * 2

    x = pair()
    split = split_joint(subtrace_kit.trace(program)(x), (x,), {}, [])
    assert [b.symbol.name for b in split.forward.bound_symbols] == [
        "getattr", "getattr", "aten.exp.default", "aten.exp.default", "aten.detach.default", "aten.detach.default",
        "aten.mul.Tensor", "aten.mul.Tensor", "TwoTensor",
    ]  # fmt: skip
    assert [b.symbol.name for b in split.backwards[0].trace.bound_symbols if "aten" in b.symbol.name] == [
        "aten.mul.Tensor", "aten.mul.Tensor", "aten.detach.default", "aten.detach.default",
        "aten.mul.Tensor", "aten.mul.Tensor",
    ]  # fmt: skip


def test_halves_are_traces_to_look_at():
    jitted = warmed(lambda x: x.sin(), pair())
    ((forward, (backward,)),) = jitted.halves
    assert "aten.sin.default" in str(forward)
    assert "aten.cos.default" in str(backward)
    assert subtrace_kit.jit(lambda x: x.sin()).halves == []


def test_an_input_that_no_gradient_has_reached_so_far():
    def one_after_the_other():
        turns = itertools.cycle([only_the_first] * 3 + [lambda outs: outs[1].sum().backward()])
        return lambda outs: next(turns)(outs)

    def fn(x, y):
        return x * 2, x + y

    assert_like_eager(fn, lambda call: (pair(call), pair(call + 9)), one_after_the_other())


@pytest.mark.parametrize("make", [lambda x: x.view(-1), lambda x: x * 2])
def test_an_argument_that_is_computed_from_another_one(make):
    def step(fn, seed):
        x = pair(seed)
        fn(x, make(x)).sum().backward()
        return x.grad

    def fn(x, y):
        return y * 0.5

    jitted = subtrace_kit.jit(fn)
    for seed in range(4):
        assert_same(picture(step(jitted, seed)), picture(step(fn, seed)))
    assert "one node" in str(jitted.explain())


def test_a_captured_tensor_that_was_computed_under_autograd():
    x = pair()
    held = [x * 2]
    jitted = subtrace_kit.jit(lambda y: y * held[0])
    for _ in range(3):
        jitted(x).sum().backward(retain_graph=True)
    other = pair()
    (other * (other * 2)).sum().backward()
    assert torch.allclose(x.grad.a, 3 * other.grad.a)
    assert "a captured tensor was computed under autograd" in str(jitted.explain())


def test_a_result_whose_inner_tensor_autograd_follows():
    weight = torch.randn(3, 3, requires_grad=True)

    def fn(x):
        return x * 2, ScaleTensor(1 - weight, torch.tensor(0.5))

    jitted = subtrace_kit.jit(fn)
    for _ in range(3):
        outs = jitted(pair())
        assert (outs[1].raw.requires_grad, outs[1].raw.is_leaf) == (True, False)
    assert "a tensor inside scaletensor requires a gradient" in str(jitted.explain())


def test_an_argument_that_cannot_be_detached():
    class Stays(TwoTensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.detach.default:
                raise ValueError("it stays")
            return super().__torch_dispatch__(func, types, args, kwargs)

    jitted = subtrace_kit.jit(lambda x: x * 2)
    x = Stays(torch.ones(2), torch.ones(2)).requires_grad_()
    for _ in range(3):
        jitted(x * 2)
    assert "an argument cannot be detached: it stays" in str(jitted.explain())


def test_a_backend_compiles_both_halves():
    parts = []
    subtrace_kit.register_backend("kept", lambda part: parts.append(part) or subtrace_kit.to_fx(part))
    jitted = subtrace_kit.jit(lambda x: x.sin() * 2, backend="kept")
    for seed in range(4):
        x, y = pair(seed), pair(seed)
        jitted(x).sum().backward()
        (y.sin() * 2).sum().backward()
        assert_same(picture(x.grad), picture(y.grad))
    notes = jitted.explain().entries[0].notes
    assert notes[-2:] == ("forward: kept runs 4 ops in 1 part", "backward: kept runs 6 ops in 1 part")


def test_a_result_that_is_a_new_leaf():
    jitted = subtrace_kit.jit(lambda x: (x * 2, torch.zeros(2, requires_grad=True)))
    for _ in range(3):
        _, leaf = jitted(pair())
        assert (leaf.requires_grad, leaf.is_leaf) == (True, True)
    assert "zeros, a result, is a leaf of the graph" in str(jitted.explain())


def test_formulas_that_autograd_changes_while_it_is_watched():
    def fn(x, w):
        return x.prod(), w + x

    jitted = subtrace_kit.jit(fn)
    w = pair(1, 2, 3, leaf=False)
    for seed in range(4):
        x, y = (torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)).requires_grad_() for _ in range(2))
        summed(jitted(x, w))
        summed(fn(y, w))
        assert_same(picture(x.grad), picture(y.grad))


def test_gradients_of_one_kind_are_taken_as_the_recorded_ones():
    def program(x):
        return x * 2, x.sin()

    def gradients(fn, x, given):
        return picture(torch.autograd.grad(fn(x), (x,), given)[0])

    frozen, wanting = pair(1, leaf=False), pair(2)
    kinds = [(frozen, frozen), (frozen, wanting), (wanting, pair(3, leaf=False)), (frozen, None), (None, frozen)]
    jitted, x = subtrace_kit.jit(program), pair()
    for _ in range(3):
        for given in kinds:
            there = [i for i, g in enumerate(given) if g is not None]
            chosen = lambda fn, there=there: lambda x: [fn(x)[i] for i in there]  # noqa: E731
            kept = [given[i] for i in there]
            assert_same(gradients(chosen(jitted), x, kept), gradients(chosen(program), x, kept))
    (halves,) = jitted.halves
    assert 1 <= len(halves[1]) <= 3
