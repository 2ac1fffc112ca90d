"""What a program finds outside may become another thing: a function, a class, a module, more or fewer items."""

import pytest
import torch
from around import given, nothing, refused_after_change

import subtrace_kit


class First:
    def run(self, x):
        return x * 2


class Second:
    def run(self, x):
        return x * 3


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.ones(2))
        self.b, self.act, self.parts = self.a, torch.sin, torch.nn.Sequential(torch.nn.Identity())

    def forward(self, x):
        return self.helper(self.act(self.parts(x * self.a * self.b)))

    def helper(self, x):
        return x + 1


def on_net(change):
    def make():
        net = Net()
        return net, lambda: change(net), nothing

    return make


CHANGES = {
    "captured tensor a: no longer the one that is also at b": lambda net: setattr(
        net, "b", torch.nn.Parameter(torch.zeros(2))
    ),
    "captured tensor a: dtype float64 instead of float32": lambda net: net.double(),
    "captured a is no longer there": lambda net: delattr(net, "a"),
    "module parts.0: another module": lambda net: net.parts.__setitem__(0, torch.nn.Tanh()),
    "module parts: another module": lambda net: setattr(net, "parts", torch.nn.Tanh()),
    "parameters, buffers and modules of parts": lambda net: net.parts.append(torch.nn.Tanh()),
    "module Net: other hooks": lambda net: net.register_forward_hook(lambda module, args, out: out * 3),
    "module parts.0: other hooks": lambda net: net.parts[0].register_forward_pre_hook(lambda module, args: None),
    "module parts: training is False": lambda net: net.parts.eval(),
    "act: <built-in method cos": lambda net: setattr(net, "act", torch.cos),
    "attributes of the program that hide": lambda net: setattr(net, "helper", lambda x: x),
}


@pytest.mark.parametrize(("told", "change"), CHANGES.items(), ids=CHANGES)
def test_a_module_that_became_another_is_refused(told, change):
    assert refused_after_change(on_net(change)).startswith(told)


def test_a_hook_of_all_modules_is_refused():
    trace, handles = subtrace_kit.trace(Net())(given(0)), []
    handles.append(torch.nn.modules.module.register_module_forward_hook(lambda module, args, out: out * 3))
    try:
        with pytest.raises(subtrace_kit.TraceError, match="hooks of all modules"):
            trace(given(0))
    finally:
        handles[0].remove()
    assert torch.equal(trace(given(0)), given(0).sin() + 1)


def variable(first, second, program):
    """A program on a variable that becomes another thing."""

    def make():
        held = first() if isinstance(first, type) else first

        def change():
            nonlocal held
            held = second() if isinstance(second, type) else second

        return (lambda x: program(held, x)), change, nothing

    return make


def test_another_function_is_refused():
    assert refused_after_change(variable(torch.sin, torch.cos, lambda f, x: f(x))).startswith("held: <built-in")


def test_an_object_of_another_class_is_refused():
    told = refused_after_change(variable(First, Second, lambda held, x: held.run(x)))
    assert told.startswith("class of held: ")


def test_more_items_are_refused():
    def product(held, x):
        for w in held:
            x = x * w
        return x

    ones = torch.ones(2)
    assert refused_after_change(variable((ones,), (ones, ones), product)) == "length of held: 2 instead of 1"
    assert refused_after_change(variable([2.0], [2.0, 3.0], product)) == "length of held: 2 instead of 1"
    told = refused_after_change(variable({"a": 2.0}, {"a": 2.0, "b": 1.0}, lambda held, x: x * sum(held.values())))
    assert told == "keys of held: ('a', 'b') instead of ('a',)"


def test_another_method_is_refused(monkeypatch):
    monkeypatch.setattr(First, "run", First.run)
    trace = subtrace_kit.trace(lambda x: First().run(x))(given(0))
    monkeypatch.setattr(First, "run", Second.run)
    with pytest.raises(subtrace_kit.TraceError, match=r"First\.run: <function Second\.run"):
        trace(given(0))


@pytest.mark.parametrize(("first", "second"), [({"a"}, {"b"}), (range(2), range(3)), ("a", "b"), (None, "a")])
def test_another_value_is_refused(first, second):
    def program(held, x):
        return x * 2 if held == first else x

    assert "instead of" in refused_after_change(variable(first, second, program))


NUMBER = 2.0


def times_global(x):
    return x * NUMBER


def test_a_module_and_a_function_among_the_arguments(monkeypatch):
    net = torch.nn.LayerNorm(2)
    trace = subtrace_kit.trace(lambda x, net, f: f(net(x)))(given(0), net, times_global)
    assert torch.equal(trace(given(1), net, times_global), times_global(net(given(1))))
    net.eps = 0.5
    with pytest.raises(subtrace_kit.TraceError, match=r"net\.eps: 0\.5 instead of 1e-05"):
        trace(given(1), net, times_global)
    net.eps = 1e-5
    monkeypatch.setitem(globals(), "NUMBER", 3.0)
    with pytest.raises(subtrace_kit.TraceError, match=r"NUMBER: 3\.0 instead of 2\.0"):
        trace(given(1), net, times_global)
