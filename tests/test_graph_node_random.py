"""Random differentiable programs, called again and again with backwards of other kinds: jit beside eager."""

import random

import pytest
import torch
from same import assert_same, pictures
from torch.utils import _pytree as pytree

import subtrace_kit
from subtrace_kit.zoo import TwoTensor

PROGRAMS = 40
CALLS = 7

ONE = [
    "{v} * 1.5", "-{v}", "{v}.abs()", "{v}.sin()", "({v} + 1).relu_()", "({v} * 2).mul_(3)", "{v}.detach() * {v}",
    "torch.softmax({v}, -1)", "torch.nn.functional.layer_norm({v}, (4,))", "torch.nn.functional.dropout({v}, 0.3)",
    "{v}.sum(0, keepdim=True) + {v}", "torch.cat([{v}, {v}], 0)[:4]", "{v}.view(16).view(4, 4)", "{v}.t().contiguous()",
    "torch.where({v} > 0, {v}, {v} * 0.1)", "{v}.split(2)[0].repeat(2, 1)", "{v}.to(torch.float64).to(torch.float32)",
    "without_gradients({v}) + {v}", "Half.apply({v})",
]  # fmt: skip
TWO = [
    "{v} + {w}", "{v} * {w}", "{v} @ {w}", "torch.nn.functional.linear({v}, {w})", "torch.maximum({v}, {w})",
    "torch.addmm({v}, {w}, {v})", "torch.stack([{v}, {w}]).sum(0)",
]  # fmt: skip


def without_gradients(x):
    with torch.no_grad():
        return x.sin()


class Half(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 0.5

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 0.5 + 0 * x


def program_of(draw):
    """A random program of x and y."""
    lines, values = [], ["x", "y"]
    for number in range(draw.randint(1, 6)):
        v, w = draw.choice(values), draw.choice(values)
        lines.append(f"    v{number} = {draw.choice(ONE if draw.random() < 0.6 else TWO).format(v=v, w=w)}")
        values.append(f"v{number}")
    last, other = values[-1], draw.choice(values[2:])
    out = draw.choice([last, last, f"({last}, {other}.sum())", f"{{'a': {last}, 'b': {other} * 2, 'n': 3}}"])
    space = {"torch": torch, "Half": Half, "without_gradients": without_gradients}
    exec("\n".join(["def program(x, y):", *lines, f"    return {out}"]), space)
    return space["program"]


def total(outs, x):
    sum(out.sum() for out in outs).backward()


def first_alone(outs, x):
    outs[0].mean().backward()


def twice(outs, x):
    outs[-1].sum().backward(retain_graph=True)
    outs[-1].mean().backward()


def plain_gradients(outs, x):
    torch.autograd.backward(outs, [torch.ones(out.shape) for out in outs])


def double(outs, x):
    (gradient,) = torch.autograd.grad(outs[0].sum(), x, create_graph=True, allow_unused=True)
    if gradient is not None and gradient.requires_grad:
        gradient.sin().sum().backward()


def written(outs, x):
    with torch.no_grad():
        x.add_(1)
    total(outs, x)


BACKWARDS = (total, total, first_alone, twice, plain_gradients, double, written)


def run(fn, seed, backward, kind, flag):
    """All that a caller can see of a step, and the error it ends with."""
    generator = torch.Generator().manual_seed(seed)
    x, y, *rest = (torch.randn(4, 4, generator=generator) for _ in range(4))
    x = TwoTensor(x, rest[0]).requires_grad_()
    y = (TwoTensor(y, rest[1]) if kind == "wrapper" else y).requires_grad_(flag)
    torch.manual_seed(seed)
    found, failure = None, None
    try:
        found = fn(x, y)
        outs = [t for t in pytree.tree_leaves(found) if isinstance(t, torch.Tensor) and t.requires_grad]
        if outs:
            backward(outs, x)
    except (RuntimeError, NotImplementedError) as error:
        failure = error
    return pictures([found, x.grad, y.grad, torch.rand(1)]), failure


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_results_gradients_and_errors_are_those_of_eager(seed):
    draw = random.Random(seed)
    fn, kind, flag = program_of(draw), draw.choice(["wrapper", "plain"]), draw.random() < 0.7
    jitted = subtrace_kit.jit(fn)
    for call in range(CALLS):
        backward = draw.choice(BACKWARDS)
        wanted, failure = run(fn, seed + call, backward, kind, flag)
        if isinstance(failure, NotImplementedError):
            return  # the class has no rule for an op of the backward: jit says so at once
        found, jit_failure = run(jitted, seed + call, backward, kind, flag)
        if backward is written and isinstance(jit_failure, subtrace_kit.TraceError):
            assert "an input was written since" in str(jit_failure)
            continue
        assert (jit_failure is None) is (failure is None), (failure, jit_failure)
        if failure is None:
            assert_same(found, wanted)
