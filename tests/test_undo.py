"""What a run does to all that is not copied is compared, and given back."""

import random

import pytest
import torch
from verified import two, wrong

import subtrace_kit
from subtrace_kit import verify
from subtrace_kit.outside import Outside
from subtrace_kit.undo import given_back


class Net(torch.nn.Module):
    """A module that keeps tensors and numbers."""

    def __init__(self, act):
        super().__init__()
        self.weight, self.count, self.act = torch.nn.Parameter(torch.ones(3)), 0, act
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        self.act(self)
        return x * self.weight


def replace_buffer(net):
    net.mean = net.mean + 1


def replace_data(net):
    net.weight.data = net.weight.data + 1


def add_attribute(net):
    net.last = net.weight * 2


def count_up(net):
    net.count += 1


def add_hook(net):
    net.weight.register_hook(lambda grad: grad * 2)


def write_buffer(net):
    net.mean.add_(1)


def thaw(net):
    net.mean.requires_grad_()


@pytest.mark.parametrize(
    "act",
    [replace_buffer, replace_data, add_attribute, count_up, add_hook, write_buffer, thaw],
    ids=lambda f: f.__name__,
)
def test_a_module_is_left_as_it_was(act):
    net = Net(lambda net: None)
    trace = subtrace_kit.trace(net)(torch.ones(3))
    before, tensors = dict(vars(net)), [net.weight, net.mean]
    net.act = before["act"] = act
    verify(trace.replace(program=net), torch.ones(3))
    assert vars(net) == before
    assert net.weight is tensors[0]
    assert net.mean is tensors[1]
    assert torch.equal(net.weight, torch.ones(3))
    assert torch.equal(net.mean, torch.zeros(3))
    assert not net.weight._backward_hooks
    assert not net.mean.requires_grad
    assert net.weight.grad is None
    assert net.weight._version == net.mean._version == 0


def eager_that(act):
    """verify's report on a trace of `x * 2` whose program does more than that."""

    def program(x):
        act()
        return x * 2

    trace = subtrace_kit.trace(lambda x: x * 2)(torch.ones(2))
    return verify(trace.replace(program=program), torch.ones(2))


SEEN, NUMBER = {"n": 0}, 0


def count_global():
    global NUMBER
    NUMBER += 1


def test_variables_and_containers_are_compared_and_left_as_they_were():
    number, names, pair = 0, ["a"], {1}

    def count():
        nonlocal number
        number += 1

    def told(act):
        return eager_that(act).row("Python state").differences

    assert told(count) == ("act.number: only in eager: 1",)
    assert told(count_global) == ("act.NUMBER: only in eager: 1",)
    assert told(lambda: SEEN.update(n=1)) == ("act.SEEN['n']: only in eager: 1",)
    assert told(lambda: names.append("b")) == ("act.names[1]: only in eager: b",)
    assert told(lambda: pair.add(2)) != ()
    assert told(lambda: None) == ()
    assert (number, NUMBER, SEEN, names, pair) == (0, 0, {"n": 0}, ["a"], {1})


def test_settings_of_torch():
    report = eager_that(lambda: torch.set_grad_enabled(False))
    assert report.row("Python state").differences == ("torch grad mode: only in eager: False",)
    assert torch.is_grad_enabled()
    eager_that(lambda: torch.set_default_dtype(torch.float64))
    assert torch.get_default_dtype() is torch.float32


def test_random_numbers_of_every_source():
    generator = torch.Generator().manual_seed(3)
    states = generator.get_state(), random.getstate(), torch.get_rng_state()

    def rows(act):
        return [text.split(":")[0] for text in eager_that(act).row("random state").differences]

    assert rows(lambda: torch.rand(1, generator=generator)) == ["generator 0"]
    assert rows(random.random) == ["python"]
    assert rows(lambda: torch.rand(1)) == ["cpu"]
    assert torch.equal(generator.get_state(), states[0])
    assert random.getstate() == states[1]
    assert torch.equal(torch.get_rng_state(), states[2])


def test_a_generator_among_the_arguments():
    generator = torch.Generator().manual_seed(3)
    trace = subtrace_kit.trace(lambda x, g: x + torch.rand(2, generator=g))(torch.ones(2), generator)
    state = generator.get_state()
    assert verify(trace, torch.ones(2), generator).ok
    assert torch.equal(generator.get_state(), state)


def test_state_of_an_optimizer():
    lin = torch.nn.Linear(3, 2)
    opt = torch.optim.SGD(lin.parameters(), lr=0.1, momentum=0.9)

    def step(x):
        lin(x).sum().backward()
        opt.step()
        opt.zero_grad()

    step(torch.ones(4, 3))
    trace = subtrace_kit.trace(step)(torch.ones(4, 3))
    kept = {id(p): s["momentum_buffer"].clone() for p, s in opt.state.items()}
    assert verify(trace, torch.ones(4, 3)).ok
    assert all(torch.equal(s["momentum_buffer"], kept[id(p)]) for p, s in opt.state.items())
    idle = subtrace_kit.trace(lambda x: None)(torch.ones(4, 3))
    assert wrong(idle.replace(program=step), torch.ones(4, 3))[0] == "captured"


def test_captured_sparse_tensors():
    held = torch.eye(3).to_sparse()
    trace = subtrace_kit.trace(lambda x: x * 2)(torch.ones(2))
    assert wrong(trace.replace(program=lambda x: (held.mul_(2), x * 2)[1])) == ["captured"]
    assert torch.equal(held.to_dense(), torch.eye(3))


def test_captured_wrappers():
    held = two(2, grad=True)
    a, version = held.a.clone(), held._version
    trace = subtrace_kit.trace(lambda x: x * held)(two(2))
    assert verify(trace).ok
    assert held.grad is None
    with torch.no_grad():
        assert verify(subtrace_kit.trace(lambda x: (held.mul_(2), x * 2)[1])(two(2))).ok
    assert torch.equal(held.a, a)
    assert held._version == version


def test_arguments_that_are_captured_too():
    held = torch.ones(3)
    trace = subtrace_kit.trace(lambda x: (x.mul_(2), held + 1))(held[1:])
    assert verify(trace, held[1:]).ok
    assert torch.equal(held, torch.ones(3))


def test_everything_is_given_back_when_a_run_fails():
    def program(x):
        SEEN["n"] += 1
        torch.rand(1)
        raise ValueError("no")

    state = torch.get_rng_state()
    trace = subtrace_kit.trace(lambda x: x * 2)(torch.ones(2)).replace(program=program)
    assert verify(trace, torch.ones(2)).row("run").differences == (
        "the trace gives a result where eager raises ValueError: no",
    )
    assert SEEN == {"n": 0}
    assert torch.equal(torch.get_rng_state(), state)


def test_a_tensor_that_cannot_be_given_back_is_told():
    base, leaf = torch.ones(4), torch.ones(2, requires_grad=True)
    held = base[:2]
    outside = Outside(lambda: None)
    with (
        pytest.raises(subtrace_kit.TraceError, match="cannot be given back"),
        given_back([("held", held)], outside, []),
    ):
        held.mul_(leaf)
