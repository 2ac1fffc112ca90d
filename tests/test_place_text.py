"""The generated check sees what changes at the places where a program finds things."""

import functools

import pytest
import torch
from kinds import Optional

import subtrace_kit
from subtrace_kit import TraceError
from subtrace_kit.quick_guard import quick_guard
from subtrace_kit.running import Runner

FACTOR = 2


def with_global(x):
    return x * FACTOR


def with_default(x, factor=2, *, other=3):
    return x * factor * other


def with_closure(factor):
    def program(x):
        return x * factor

    return program, program.__closure__[0]


class Half(torch.nn.Module):
    def forward(self, x):
        return x / 2


class Many(torch.nn.Module):
    """More parameters than are read one by one."""

    def __init__(self, n=9):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.full((2,), float(i)) for i in range(n))

    def forward(self, x):
        for weight in self.weights:
            x = x * weight
        return x


def both(program, args):
    """The generated check of a recorded program, and whether it says what the interpreted one says."""
    trace = subtrace_kit.lower(subtrace_kit.trace(program)(*args))
    quick, runner = quick_guard(trace), Runner(trace)

    def answer():
        try:
            slow = runner.check_slowly(args, {}) is not None
        except TraceError:
            slow = False
        found = quick(args, {})
        assert slow or found is None
        return found

    assert answer() is not None
    return answer


def test_a_global_variable():
    answer = both(with_global, (torch.ones(2),))
    globals()["FACTOR"] = 3
    try:
        assert answer() is None
    finally:
        globals()["FACTOR"] = 2
    assert answer() is not None


@pytest.mark.parametrize(
    ("where", "other"), [("__defaults__", (5,)), ("__defaults__", None), ("__kwdefaults__", {"other": 5})]
)
def test_defaults(where, other):
    answer, kept = both(with_default, (torch.ones(2),)), getattr(with_default, where)
    setattr(with_default, where, other)
    try:
        assert answer() is None
    finally:
        setattr(with_default, where, kept)
    assert answer() is not None


def test_a_variable_of_a_closure():
    program, cell = with_closure(2)
    answer = both(program, (torch.ones(2),))
    cell.cell_contents = 3
    assert answer() is None
    del cell.cell_contents
    assert answer() is None
    cell.cell_contents = 2
    assert answer() is not None


@pytest.mark.parametrize("name", ["__new__", "__tensor_flatten__", "__tensor_unflatten__"])
def test_what_a_class_keeps(name):
    kept = vars(Optional)[name]
    answer = both(lambda x: x + 1, (Optional(torch.ones(2)),))

    @functools.wraps(getattr(kept, "__func__", kept))
    def other(*args, **kwargs):
        return getattr(kept, "__func__", kept)(*args, **kwargs)

    setattr(Optional, name, other if name == "__tensor_flatten__" else type(kept)(other))
    try:
        assert answer() is None
    finally:
        setattr(Optional, name, kept)
    assert answer() is not None


def test_all_that_a_module_keeps_is_read_at_once():
    net = Many()
    answer = both(net, (torch.ones(2),))
    kept = net.weights._parameters
    for i in range(9):
        assert answer()[f"weights_{i}"] is net.weights[i]
    net.weights[3] = torch.nn.Parameter(torch.ones(2))
    assert answer()["weights_3"] is net.weights[3]
    for change in (_shorter, _longer, _other_order, _other_name, _without_one):
        net.weights._parameters = change(dict(kept))
        assert answer() is None, change
        net.weights._parameters = kept
        assert answer() is not None


def _shorter(kept):
    kept.popitem()
    return kept


def _longer(kept):
    return {**kept, "9": torch.nn.Parameter(torch.ones(2))}


def _other_order(kept):
    return dict(reversed(kept.items()))


def _other_name(kept):
    return {**{name: value for name, value in kept.items() if name != "8"}, "x": kept["8"]}


def _without_one(kept):
    return {**kept, "4": None}


def test_many_modules_are_read_at_once_too():
    net = torch.nn.Sequential(*(Half() for _ in range(9)))
    answer, first = both(net, (torch.ones(2),)), net[0]
    net[0] = Half()
    assert answer() is None
    net[0] = first
    net[8].eval()
    assert answer() is None
    net[8].train()
    assert answer() is not None
    net[8].register_forward_hook(lambda *_: None)
    assert answer() is None
