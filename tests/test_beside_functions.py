"""Gradients of ops that the program's own dispatch modes change, and of ops that no torch function sends."""

import pytest
import torch
from compare import assert_same_as_eager
from torch.utils._python_dispatch import TorchDispatchMode

import subtrace_kit
from subtrace_kit.zoo import TwoTensor


class Triple(TorchDispatchMode):
    """Below autograd: what it does is not differentiated."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 3 if func is torch.ops.aten.mul.Tensor else out


class OneMore(Triple):
    """Does something for wrappers only."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out + 1 if isinstance(out, TwoTensor) and func is torch.ops.aten.mul.Tensor else out


def under_a_mode(x):
    y = x.sin()
    with Triple():
        z = y * 2
        with torch.no_grad():
            w = z * 2
        return z + w


def under_a_mode_for_wrappers(x):
    with OneMore():
        return (x * 2).cos()


def under_two_modes(x):
    with Triple(), OneMore():
        return x * 2


def beside_functions(x):
    with torch._C.DisableTorchFunction():
        y = (x * 2).sin()
        with torch.no_grad():
            w = y * 3
    return y * w, w


def written_beside_functions(x):
    y = x * 1
    view = y[0]
    with torch._C.DisableTorchFunction():
        view.mul_(3)
    return y.sin()


PROGRAMS = (
    under_a_mode,
    under_a_mode_for_wrappers,
    under_two_modes,
    beside_functions,
    written_beside_functions,
)


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradients_are_eager_s(program, wrap):
    def make(seed):
        torch.manual_seed(seed)
        x = torch.randn(3, 4)
        return ((TwoTensor(x, x + 1) if wrap else x).requires_grad_(),)

    _, low = assert_same_as_eager(program, make, text=False)
    subtrace_kit.verify(low, *make(3), raises=True)


@pytest.mark.parametrize("wrap", [False, True])
def test_a_mode_over_ops_that_no_function_sends_is_refused(wrap):
    def program(x):
        with Triple(), torch._C.DisableTorchFunction():
            return x * 2

    x = torch.ones(3)
    x = (TwoTensor(x, x) if wrap else x).requires_grad_()
    with pytest.raises(subtrace_kit.TraceError, match="handles an op with a gradient") as caught:
        subtrace_kit.trace(program)(x)
    assert caught.value.source.function == "__torch_dispatch__"
    trace = subtrace_kit.trace(program)(x.detach())
    assert subtrace_kit.verify(trace, x.detach()).ok
