"""Numbers that come out of tensors, and what a class does with them out of sight."""

import pytest
import torch
from compare import assert_same_as_eager
from kinds import Slotted, aten

import subtrace_kit
from subtrace_kit import TraceError
from subtrace_kit.zoo import TwoTensor


class Scaled(Slotted):
    """Multiplies by a number in its metadata alone."""

    __slots__ = ("factor",)

    @staticmethod
    def __new__(cls, body, factor=1.0):
        made = Slotted.__new__(cls, body)
        made.factor = factor
        return made

    def __tensor_flatten__(self):
        return ["body"], {"factor": self.factor}

    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        return cls(inner["body"], metadata["factor"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is aten.mul.Tensor:
            return cls(args[0].body.clone(), args[0].factor * args[1])
        if func is aten.sin.default:
            return (args[0].body * args[0].factor).sin()
        return super().__torch_dispatch__(func, types, args, kwargs)


def scaled(seed):
    torch.manual_seed(seed)
    return torch.rand(3), Scaled(torch.randn(2), 2.0)


def test_a_number_that_ends_in_metadata_is_that_of_the_run():
    _, low = assert_same_as_eager(lambda x, t: (t * x.sum().item()).sin(), scaled)
    assert [c.reason for c in low.ledger] == ["its class takes a number from data"]


def test_metadata_with_a_number_that_the_program_reads_are_guarded():
    def program(x, t):
        u = t * x.sum().item()
        return Scaled(u.body + 1, u.factor).sin()

    trace = subtrace_kit.trace(program)(*scaled(0))
    with pytest.raises(TraceError, match="the data now give"):
        trace(*scaled(1))


def test_a_number_for_one_op_leaves_the_others_lowered():
    def program(x, t):
        return (t.cos() * 3).sin(), t + x.sum().item()

    _, low = assert_same_as_eager(program, scaled)
    assert [c.kept for c in low.ledger] == [False, False, True]


class Net(torch.nn.Module):
    """One layer whose parameters are wrappers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.weight = torch.nn.Parameter(TwoTensor(torch.randn(3, 4), torch.randn(3, 4)))
        self.bias = torch.nn.Parameter(TwoTensor(torch.randn(3), torch.randn(3)))

    def forward(self, x):
        return torch.tanh(torch.nn.functional.linear(x, self.weight, self.bias))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, 0.1),
    "adamw foreach": lambda p: torch.optim.AdamW(p, 0.1, foreach=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.1),
}


def trainer(name):
    """A step of a network of its own, run once so that gradients and state are there."""
    net = Net()
    optimizer = OPTIMIZERS[name](net.parameters())

    def step(x):
        optimizer.zero_grad(set_to_none=False)
        loss = net(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step(batch(0))
    return net, step


def batch(seed):
    torch.manual_seed(seed)
    return TwoTensor(torch.randn(2, 4), torch.randn(2, 4))


@pytest.mark.parametrize("how", ["trace", "lower"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step_with_wrapper_parameters_goes_on_as_in_eager(name, how):
    wanted, eager = trainer(name)
    found, step = trainer(name)
    run = subtrace_kit.trace(step)(batch(1))
    run = subtrace_kit.lower(run) if how == "lower" else run
    for seed in range(1, 6):
        ours, theirs = run(batch(seed)), eager(batch(seed))
        assert torch.equal(ours.a, theirs.a)
        for mine, other in zip(found.parameters(), wanted.parameters(), strict=True):
            assert torch.equal(mine.a, other.a)
            assert torch.equal(mine.grad.b, other.grad.b)


def test_a_step_recorded_without_gradients_is_refused_when_they_are_there():
    net = torch.nn.Linear(3, 2)

    def step(x):
        net.zero_grad()
        net(x).sum().backward()
        return x

    trace = subtrace_kit.trace(step)(torch.ones(1, 3))
    assert net.weight.grad is None
    trace(torch.ones(1, 3))
    with pytest.raises(TraceError, match=r"the gradient of net\.weight is there now; the program found None"):
        trace(torch.ones(1, 3))
