"""Functions, hooks, gradients inside programs and grad modes: results and gradients are eager's."""

import pytest
import torch
from compare import assert_same_as_eager
from kinds import Optional, SetInInit, Slotted
from torch.autograd import Function

from subtrace_kit.zoo import TwoTensor


class TwoOutputs(Function):
    """The second output has no gradient."""

    @staticmethod
    def forward(ctx, x):
        sign = x.detach().sign()
        ctx.mark_non_differentiable(sign)
        ctx.save_for_backward(x)
        return x * 2, sign

    @staticmethod
    def backward(ctx, grad, _):
        (x,) = ctx.saved_tensors
        return grad * 2 + x * 0


class NotMaterialized(Function):
    """Gets None for the gradient of an output that is not used."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        found = [grad * k for grad, k in ((first, 2), (second, 3)) if grad is not None]
        return sum(found[1:], found[0])


class WithSetup(Function):
    """Context set up apart from the forward; saves its output."""

    @staticmethod
    def forward(x, factor):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        return grad * ctx.factor + out * 0, None


class AsksNeeds(Function):
    """Computes only the gradients that are needed."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad * w if ctx.needs_input_grad[0] else None, grad * x if ctx.needs_input_grad[1] else None


class OnceOnly(Function):
    """Cannot be differentiated twice."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos()


class SameObject(Function):
    """Hands its input on."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


class View(Function):
    """Returns a view of its input."""

    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, grad):
        return grad.view(3, 4)


def hooks_on_intermediates(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    z = y.sin()
    z.register_hook(lambda grad: grad + 1)
    return z


def gradient_of_an_intermediate(x):
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad * 1, x.grad


def double_backward(x):
    (grad,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return (grad * grad).sum(), grad


def double_backward_through_a_function(x):
    y = AsksNeeds.apply(x, x * 2)
    (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return grad.sum(), y


def two_backwards_accumulate(x):
    (x * 2).sum().backward()
    (x * x).sum().backward()
    return x.grad


def backward_with_inputs(x):
    (x * 2).sum().backward(inputs=[x])
    return x.grad


def unused_inputs(x):
    other = torch.ones(3, 4, requires_grad=True)
    return torch.autograd.grad((x * 2).sum(), [x, other], allow_unused=True)


def new_leaves(x):
    y = x.detach()
    y.requires_grad_()
    (grad,) = torch.autograd.grad((y * 2).sum(), y)
    return grad, x * 2


def a_leaf_made_inside(x):
    weight = torch.full((3, 4), 2.0, requires_grad=True)
    (x * weight).sum().backward()
    return weight.grad, x.grad


def descent(x):
    weight = x
    for _ in range(2):
        (grad,) = torch.autograd.grad((weight * weight).sum(), weight)
        weight = (weight - 0.1 * grad).detach().requires_grad_()
    return weight


def grad_modes(x):
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = x * 3
    return y, z


def inference(x):
    with torch.inference_mode():
        y = (x * 2).sin()
    return y, x * 2


def autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x.t()
        with torch.autocast("cpu", enabled=False):
            z = x @ x.t()
    return y, z


PROGRAMS = {
    "two outputs": TwoOutputs.apply,
    "not materialized": lambda x: NotMaterialized.apply(x)[0] * 1,
    "setup context": lambda x: WithSetup.apply(x, 3),
    "needs": lambda x: AsksNeeds.apply(x, x.detach()),
    "once differentiable": lambda x: OnceOnly.apply(x),
    "the same object": lambda x: SameObject.apply(x),
    "the same object, used": lambda x: SameObject.apply(x) * 2,
    "a view": lambda x: View.apply(x) * 2,
    "decorated": torch.no_grad()(lambda x: x * 2),
}
PROGRAMS |= {
    f.__name__: f
    for f in (
        hooks_on_intermediates,
        gradient_of_an_intermediate,
        double_backward,
        double_backward_through_a_function,
        two_backwards_accumulate,
        backward_with_inputs,
        unused_inputs,
        new_leaves,
        a_leaf_made_inside,
        descent,
        grad_modes,
        inference,
        autocast,
    )
}
PROGRAMS["two outputs"] = lambda x: TwoOutputs.apply(x)
MAKERS = {
    "plain": lambda x: x,
    "two": lambda x: TwoTensor(x, x + 1),
    "optional": lambda x: Optional(x, x * 2),
    "nested": lambda x: SetInInit(Slotted(x), Slotted(x - 1)),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_eager_s(name, kind):
    def make(seed):
        torch.manual_seed(seed)
        return (MAKERS[kind](torch.randn(3, 4)).requires_grad_(),)

    assert_same_as_eager(PROGRAMS[name], make, text=False)
