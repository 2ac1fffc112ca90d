"""Activation checkpointing, and the memory that a backward needs."""

from unittest.mock import Mock

import pytest
import torch
from compare import assert_same_as_eager, parts
from torch.utils import checkpoint as module
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import subtrace_kit
from subtrace_kit import TraceError
from subtrace_kit.zoo import TwoTensor, from_two, to_two

WEIGHT = torch.nn.Parameter(torch.linspace(0.5, 1.5, 4))
CALLS = Mock()


def plain(seed):
    torch.manual_seed(seed)
    return (torch.randn(3, 4).requires_grad_(),)


def two(seed):
    torch.manual_seed(seed)
    return (TwoTensor(torch.randn(3, 4), torch.randn(3, 4)).requires_grad_(),)


def block(x):
    return (x * 2).sin().exp() * x


def drops(x):
    return torch.nn.functional.dropout(x, 0.5) * x.sin()


def twice(x):
    y = checkpoint(block, x, use_reentrant=False)
    return checkpoint(block, y, use_reentrant=False) + 1


PROGRAMS = {
    "once": lambda x: checkpoint(block, x, use_reentrant=False) + 1,
    "twice": twice,
    "reentrant": lambda x: checkpoint(block, x, use_reentrant=True) + 1,
    "with a lambda": lambda x: checkpoint(lambda y: block(y) * 3, x, use_reentrant=False),
    "by another name": lambda x: module.checkpoint(block, x, use_reentrant=False).cos(),
    "random draws": lambda x: checkpoint(drops, x, use_reentrant=False) + 1,
    "without grad mode": torch.no_grad()(lambda x: checkpoint(block, x, use_reentrant=False) + 1),
    "nested": lambda x: checkpoint(twice, x, use_reentrant=False),
}


@pytest.mark.parametrize("make", [plain, two])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_gradients_are_eager_s(name, make):
    assert_same_as_eager(PROGRAMS[name], make, text=name != "with a lambda")


def test_a_parameter_of_the_checkpointed_function_is_live():
    def program(x):
        return checkpoint(lambda y: (y * WEIGHT).sin(), x, use_reentrant=False)

    trace = subtrace_kit.trace(program)(*plain(0))
    low = subtrace_kit.lower(trace)
    (x,) = plain(1)
    before = WEIGHT.detach().clone()
    with torch.no_grad():
        WEIGHT.mul_(3)
    try:
        assert torch.equal(trace(x), program(x))
        assert torch.equal(low(x), program(x))
    finally:
        with torch.no_grad():
            WEIGHT.copy_(before)


def test_a_checkpointed_module_in_a_sequence():
    stack = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    assert_same_as_eager(lambda x: checkpoint_sequential(stack, 2, x, use_reentrant=False), plain, text=False)


def test_a_function_that_holds_a_tensor_of_the_program_is_refused():
    def program(x):
        y = x * 2
        return checkpoint(lambda z: z + y, x, use_reentrant=False)

    with pytest.raises(TraceError, match="closes over a tensor of the program"):
        subtrace_kit.trace(program)(*plain(0))


def test_the_backward_inside_a_program_computes_anew():
    def program(x):
        y = checkpoint(block, x, use_reentrant=False)
        y.sum().backward()
        return x.grad * 2

    assert_same_as_eager(program, plain)


def test_the_function_is_called_once_a_run_and_once_a_backward():
    def counted(x):
        CALLS()
        return x.sin()

    trace = subtrace_kit.trace(lambda x: checkpoint(counted, x, use_reentrant=False))(*two(0))
    for run in (trace, subtrace_kit.lower(trace)):
        before = CALLS.call_count
        out = run(*two(1))
        assert CALLS.call_count == before + 1
        out.sum().backward()
        assert CALLS.call_count == before + 2


# ---------------------------------------------------------------------------------------- saved memory


def saved_bytes(run, args):
    """How many bytes a backward keeps, each memory counted once, those of the arguments not."""
    kept = {}

    def pack(tensor):
        for part in parts([tensor]):
            if not hasattr(part, "__tensor_flatten__"):
                kept[part.untyped_storage()._cdata] = part.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = run(*args)
    given = {t.untyped_storage()._cdata for t in parts(args) if not hasattr(t, "__tensor_flatten__")}
    assert out is not None
    return sum(storage.nbytes() for key, storage in kept.items() if key not in given)


MEMORY = {
    "pointwise": lambda x: (x * 2).sin().exp() * x,
    "matmul": lambda x: torch.tanh(x @ x.t()) @ x,
    "softmax": lambda x: torch.nn.functional.softmax(x * 3, -1).sum(),
    "views": lambda x: (x.t()[1:] * x.t()[:-1]).exp(),
    "in place": lambda x: (x * 1).mul_(2).sin_() * x,
    "a Function": lambda x: from_two(x * 2)[0] if isinstance(x, TwoTensor) else to_two(x, (x * 2).detach()) * 2,
    "checkpoint": twice,
}


@pytest.mark.parametrize("make", [plain, two])
@pytest.mark.parametrize("name", MEMORY)
def test_no_more_is_saved_for_the_backward_than_in_eager(name, make):
    program = MEMORY[name]
    trace = subtrace_kit.trace(program)(*make(0))
    wanted = saved_bytes(program, make(1))
    assert saved_bytes(trace, make(1)) == wanted
    assert saved_bytes(subtrace_kit.lower(trace), make(1)) == wanted
    if name == "checkpoint":
        assert wanted < saved_bytes(lambda x: block(block(x)) + 1, make(1))
