"""What a program puts into objects, lists, dicts and variables outside: tensors are put there by each run."""

import dataclasses
import types

import pytest
import torch
from around import assert_follows, given, nothing, refused_after_change

import subtrace_kit

zeros = lambda: torch.zeros(2)  # noqa: E731
TOTAL, COUNT = None, 0


@dataclasses.dataclass(slots=True)
class Slotted:
    w: torch.Tensor


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.seen, self.count = torch.ones(2), 0

    def forward(self, x):
        self.mean = self.mean * 0.5 + x
        self.seen = (x * 3).detach()
        return self.mean * self.seen


# ------------------------------------------------------------------------------------ tensors put there


def cache():
    held = {"k": zeros(), "v": torch.ones(2)}

    def program(x):
        held["k"] = held["k"] + x
        held["v"] = torch.cat([held["v"][1:], x[:1]])
        return held["k"] * held["v"]

    return program, held.copy


def new_key():
    held = {}

    def program(x):
        held["k"] = x * 2
        return held["k"] + x

    return program, held.copy


def key_put_in_again():
    held = {"a": zeros(), "b": torch.ones(2)}

    def program(x):
        held["a"] = held.pop("a") + x
        held["b"] = held.pop("b") * x
        return x

    return program, lambda: [list(held), *held.values()]


def item_of_list():
    held = [zeros(), [torch.ones(2)]]

    def program(x):
        held[0], held[1][0] = held[1][0] * 2, held[0] + x
        return held[0] * 2

    return program, lambda: held


def list_that_shifts():
    held = [zeros(), torch.ones(2)]

    def program(x):
        held.append(x * 2)
        return held.pop(0) + held[0]

    return program, lambda: held


def module():
    net = Net()
    return net, lambda: [net.state_dict(), net.seen]


def attribute():
    held = types.SimpleNamespace(a=zeros(), b=torch.ones(2))

    def program(x):
        held.a, held.b = held.b, x
        return held.a * 2

    return program, lambda: vars(held).copy()


def slot():
    held = Slotted(zeros())

    def program(x):
        held.w = held.w + x
        return held.w * 2

    return program, lambda: held.w


def attribute_of_class():
    class Local:
        w = zeros()

    def program(x):
        Local.w = Local.w + x
        return Local.w * 2

    return program, lambda: Local.w


def attribute_of_tensor():
    held = torch.ones(2)
    held.w = zeros()

    def program(x):
        held.w = held.w + x
        return held * held.w

    return program, lambda: held.w


def variable():
    w = zeros()

    def program(x):
        nonlocal w
        w = w + x
        return w * 2

    return program, lambda: w


def list_of_results():
    held = types.SimpleNamespace(last=None)

    def program(x):
        held.last = (x * 2, [x + 1, None], {"k": x})
        return x

    return program, lambda: vars(held).copy()


def deleted():
    held = types.SimpleNamespace(w=zeros())

    def program(x):
        old = held.w
        del held.w
        held.w = old + x
        return old

    return program, lambda: held.w


WRITES = {f.__name__: f for f in (
    cache, new_key, key_put_in_again, item_of_list, list_that_shifts, module, attribute, slot, attribute_of_class,
    attribute_of_tensor, variable, list_of_results, deleted,
)}  # fmt: skip


@pytest.mark.parametrize("make", WRITES.values(), ids=WRITES)
def test_tensors_are_put_there_by_each_run(make):
    def around():
        program, view = make()
        return program, nothing, view

    assert_follows(around)


def sum_up(x):
    global TOTAL
    TOTAL = x * 2 if TOTAL is None else TOTAL + x
    return TOTAL * 2


def test_a_global_variable(monkeypatch):
    def around():
        monkeypatch.setitem(globals(), "TOTAL", zeros())
        return sum_up, nothing, lambda: TOTAL

    assert_follows(around)


def test_the_very_tensor_is_put_there():
    held = {}

    def program(x):
        held["in"] = x
        held["out"] = out = x * 2
        return out

    trace, x = subtrace_kit.trace(program)(given(0)), given(1)
    for form in (trace, subtrace_kit.lower(trace)):
        out = form(x)
        assert held["in"] is x
        assert held["out"] is out


# --------------------------------------------------------------------------- what a first run prepares


def first_run(program):
    def make():
        held = {}
        return (lambda x: program(held, x)), nothing, held.copy

    return make


def fills(held, x):
    if "k" not in held:
        held["k"] = x * 2
    return held["k"] + x


def finds(held, x):
    return held.setdefault("k", x * 2) + x


def catches(held, x):
    try:
        old = held["k"]
    except KeyError:
        old = x * 100
    held["k"] = x
    return old + x


@pytest.mark.parametrize("program", [fills, finds, catches])
def test_what_only_the_first_run_does_is_refused_at_the_second(program):
    make = first_run(program)

    def with_run():
        run, _, view = make()
        return run, lambda: run(given(0)), view

    assert refused_after_change(with_run) == "keys of held: ('k',) instead of ()"


def test_a_list_that_grows_is_refused_at_the_second_run():
    held = []
    trace = subtrace_kit.trace(lambda x: held.append(x * 2))(given(0))
    trace(given(0))
    with pytest.raises(subtrace_kit.TraceError, match="length of held: 1 instead of 0"):
        trace(given(0))
    assert len(held) == 1
    assert torch.equal(held[0], given(0) * 2)
