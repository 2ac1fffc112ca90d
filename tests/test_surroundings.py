"""What a program finds outside its arguments is found anew at each run, and a changed Python value is refused."""

import collections
import dataclasses
import functools
import types

import classes
import numpy as np
import pytest
import torch
from around import assert_follows, given, nothing, refused_after_change

import subtrace_kit
from subtrace_kit.zoo import TwoTensor

ones, fives = (lambda: torch.ones(2)), (lambda: torch.full((2,), 5.0))
WEIGHT, NUMBER = ones(), 2.0


@dataclasses.dataclass
class Config:
    w: torch.Tensor = None
    s: float = 2.0
    steps: int = 0
    shared = 1.0

    def method(self, x):
        return x * self.w

    @property
    def scale(self):
        return self.s


@dataclasses.dataclass(slots=True)
class Slotted:
    w: torch.Tensor
    s: float = 2.0


def times(x, config):
    return x * config.s


def times_global(x):
    return x * WEIGHT * NUMBER


# ------------------------------------------------------------------------------ tensors put elsewhere


def variable():
    w = ones()

    def change():
        nonlocal w
        w = fives()

    return lambda x: x * w, change


def helper_s_variable():
    inner, change = variable()
    return lambda x: inner(x) + 1, change


def item_of_list():
    held = [ones(), [ones()]]
    return lambda x: x * held[1][0], lambda: held[1].__setitem__(0, fives())


def item_of_dict():
    held = {"k": ones()}
    return lambda x: x * held["k"], lambda: held.update(k=fives())


def item_of_deque():
    held = collections.deque([ones()])
    return lambda x: x * held[0], lambda: held.__setitem__(0, fives())


def holder(held, program):
    return program(held), lambda: setattr(held, "w", fives())


def attribute_of_class():
    class Local:
        w = ones()

    return (lambda x: x * Local.w), lambda: setattr(Local, "w", fives())


def attribute_of_class_of_self():
    class Local:
        w = ones()

        def __call__(self, x):
            return x * self.w

    return Local(), lambda: setattr(Local, "w", fives())


def default():
    def program(x, w=WEIGHT):
        return x * w

    return program, lambda: setattr(program, "__defaults__", (fives(),))


def argument_of_partial():
    held = [ones()]
    return functools.partial(lambda w, x: x * w[0], held), lambda: held.__setitem__(0, fives())


def variable_of_hook():
    w, net = ones(), torch.nn.Identity()

    def change():
        nonlocal w
        w = fives()

    net.register_forward_hook(lambda module, args, out: out * w)
    return net, change


def variable_behind_decorator():
    program, change = variable()

    @functools.wraps(program)
    def outer(x):
        return program(x) + 1

    return outer, change


def inside_wrapper():
    held = TwoTensor(ones(), ones())
    return lambda x: (held * x).a, lambda: setattr(held, "a", fives())


def attribute_of_tensor():
    held = ones()
    held.w = ones()
    return holder(held, lambda held: lambda x: x * held * held.w)


def parameter():
    net = torch.nn.Linear(2, 2)
    torch.nn.init.ones_(net.weight), torch.nn.init.ones_(net.bias)
    return net, lambda: setattr(net, "weight", torch.nn.Parameter(torch.zeros(2, 2)))


MOVES = {
    f.__name__: f
    for f in (
        variable, helper_s_variable, item_of_list, item_of_dict, item_of_deque, attribute_of_class,
        attribute_of_class_of_self, default, argument_of_partial, variable_of_hook, variable_behind_decorator,
        inside_wrapper, attribute_of_tensor, parameter,
    )
}  # fmt: skip
MOVES |= {
    "attribute": lambda: holder(Config(ones()), lambda held: lambda x: x * held.w),
    "slot": lambda: holder(Slotted(ones()), lambda held: lambda x: x * held.w),
    "self": lambda: holder(Config(ones()), lambda held: held.method),
    "namespace": lambda: holder(types.SimpleNamespace(w=ones()), lambda held: lambda x: x * held.w),
    "python module": lambda: (lambda x: x * classes.OUTSIDE, lambda: setattr(classes, "OUTSIDE", fives())),
}  # fmt: skip


@pytest.mark.parametrize("make", MOVES.values(), ids=MOVES)
def test_a_tensor_that_was_replaced_is_used(make, monkeypatch):
    monkeypatch.setattr(classes, "OUTSIDE", ones(), raising=False)

    def fresh():
        classes.OUTSIDE = ones()
        return (*make(), nothing)

    assert_follows(fresh)


def test_a_global_tensor_and_a_global_number(monkeypatch):
    def fresh():
        monkeypatch.setitem(globals(), "WEIGHT", ones())
        monkeypatch.setitem(globals(), "NUMBER", 2.0)
        return times_global, lambda: monkeypatch.setitem(globals(), "WEIGHT", fives()), nothing

    assert_follows(fresh)
    refused = refused_after_change(
        lambda: (*fresh()[:1], lambda: monkeypatch.setitem(globals(), "NUMBER", 3.0), nothing)
    )
    assert refused == "NUMBER: 3.0 instead of 2.0"


# -------------------------------------------------------------------------------- values that changed


def config(program):
    held = Config(ones())
    return program(held), lambda: setattr(held, "s", 3.0)


def number():
    k = 2.0

    def change():
        nonlocal k
        k = 3.0

    return lambda x: x * k, change


def one_of_many():
    held = {"a": 2.0, "b": 3.0}
    return lambda x: x * sum(held.values()), lambda: held.update(a=5.0)


def keywords():
    held = {"negative_slope": 0.5}
    return lambda x: torch.nn.functional.leaky_relu(-x, **held), lambda: held.update(negative_slope=0.1)


def decorated():
    class Net(torch.nn.Module):
        _s = 2.0

        @torch.no_grad()
        def forward(self, x):
            return x * self._s

    net = Net()
    return net, lambda: setattr(Net, "_s", 3.0)


def hidden():
    net, _ = decorated()
    return net, lambda: setattr(net, "_s", 3.0)


def learning_rate():
    weight = torch.nn.Parameter(ones())
    optimizer = torch.optim.SGD([weight], lr=0.1)

    def step(x):
        weight.grad = None
        (x * weight).sum().backward()
        optimizer.step()

    return step, lambda: optimizer.param_groups[0].update(lr=0.5)


def array():
    held = np.ones(2)
    return lambda x: x * float(held[0]), lambda: held.__setitem__(0, 7)


def dynamic():
    held = types.SimpleNamespace(w0=2.0, w1=3.0)

    def program(x):
        return [x * getattr(held, f"w{i}") for i in range(2)]

    return program, lambda: setattr(held, "w1", 5.0)


def note_of_wrapper():
    held = TwoTensor(ones(), ones())
    held.note = 2.0
    return lambda x: (held * x).a * held.note, lambda: setattr(held, "note", 3.0)


VALUES = {
    "k: 3.0 instead of 2.0": number,
    "held.s: 3.0 instead of 2.0": lambda: config(lambda held: lambda x: x * held.s),
    "held.s: 3.0 instead of 2.0 in a helper": lambda: config(lambda held: lambda x: times(x, held)),
    "held.s: 3.0 instead of 2.0 in a property": lambda: config(lambda held: lambda x: x * held.scale),
    "held['a']: 5.0 instead of 2.0": one_of_many,
    "held['negative_slope']: 0.1 instead of 0.5": keywords,
    "eps: 0.5 instead of 1e-05": lambda: (norm := torch.nn.LayerNorm(2), lambda: setattr(norm, "eps", 0.5)),
    "Net._s: 3.0 instead of 2.0": decorated,
    "attributes of the program that hide those of its class: ('_s',) instead of ()": hidden,
    "optimizer.param_groups[0]['lr']: 0.5 instead of 0.1": learning_rate,
    "held: ('float64'": array,
    "held.w1: 5.0 instead of 3.0": dynamic,
    "held.note: 3.0 instead of 2.0": note_of_wrapper,
}


@pytest.mark.parametrize(("told", "make"), VALUES.items(), ids=VALUES)
def test_a_changed_value_that_the_code_reads_is_refused(told, make):
    assert refused_after_change(lambda: (*make(), nothing)).startswith(told.partition(" in a ")[0])


def test_a_changed_value_that_the_code_does_not_read_is_none():
    held = Config(ones())
    trace = subtrace_kit.trace(lambda x: x * held.w * held.s)(given(0))
    held.steps = 7
    assert torch.equal(trace(given(0)), given(0) * 2)
