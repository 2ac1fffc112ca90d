"""What a program changes outside and a trace cannot change again is refused, and given back."""

import collections
import random
import types

import numpy as np
import pytest
import torch
from around import given, nothing, refused_at_once

import subtrace_kit
from subtrace_kit.owners import MISSING, Owner, Owners, map_changed, refill, same_contents

COUNT = 0


def on(held, act, view=None):
    """What is said of a program that acts on something outside."""

    def program(x):
        act(held)
        return x * 2

    return refused_at_once(lambda: (program, nothing, view or (lambda: repr(held))))


def raise_count(held):
    global COUNT
    COUNT += 1


def add(held):
    held.n += 1


def test_counters():
    assert on({"n": 0}, lambda d: d.update(n=1)) == "the program changes item['n'] of held to an int"
    assert on([0], lambda d: d.append(1)) == "the program changes item of held to a list"
    assert on(types.SimpleNamespace(n=0), add) == "the program changes attribute 'n' of held to an int"
    assert "of COUNT" in on(None, raise_count, lambda: COUNT)
    assert COUNT == 0


def test_a_counter_of_a_class():
    class Local:
        n = 0

    def program(x):
        Local.n += 1
        return x * Local.n

    told = refused_at_once(lambda: (program, nothing, lambda: Local.n))
    assert told == "the program changes attribute 'n' of Local.n to an int"


def test_a_counter_of_a_module_and_of_a_function():
    net = torch.nn.Identity()
    net.n = 0
    net.register_forward_hook(lambda module, args, out: add(module))
    assert refused_at_once(lambda: (net, nothing, lambda: net.n)) == (
        "the program changes attribute 'n' of the module to an int"
    )

    def program(x):
        program.n += 1
        return x

    program.n = 0
    assert "attribute 'n' of program" in refused_at_once(lambda: (program, nothing, lambda: program.n))


def test_a_variable():
    count = 0

    def program(x):
        nonlocal count
        count += 1
        return x * count

    assert "of count to an int" in refused_at_once(lambda: (program, nothing, lambda: count))


def test_sets_and_deques():
    assert on({1}, lambda held: held.add(2)) == "the program changes item of held to a set"
    queue = collections.deque([torch.ones(2)], maxlen=1)
    kept = queue[0]
    assert on(queue, lambda held: held.append(torch.zeros(2)), lambda: len(queue)).endswith("to a deque")
    assert queue[0] is kept


def state_of(held):
    return repr(held.getstate() if isinstance(held, random.Random) else held.__reduce__())


@pytest.mark.parametrize(
    "held",
    [random.Random(0), np.random.default_rng(0), np.random.RandomState(0)],
    ids=["python", "numpy", "numpy before"],
)
def test_random_generators(held):
    before = state_of(held)
    told = on(held, lambda held: held.uniform(0, 1), lambda: state_of(held))
    assert told == "the program draws from held, which is in another state afterwards"
    assert state_of(held) == before


def test_a_buffer_that_the_program_registers():
    class Net(torch.nn.Module):
        def forward(self, x):
            self.register_buffer("mean", x * 2)
            return self.mean

    net = Net()
    told = refused_at_once(lambda: (net, nothing, lambda: list(vars(net)["_buffers"])))
    assert told == "the program changes attribute 'mean' of the module to a NewlyRegistered"


def test_a_hook_that_the_program_leaves_at_a_module():
    net = torch.nn.Identity()
    assert "_forward_hook" in on(net, lambda net: net.register_forward_hook(nothing), lambda: len(net._forward_hooks))
    assert not net._forward_hooks


def test_a_hook_that_the_program_takes_away_again():
    net = torch.nn.Identity()

    def program(x):
        handle = net.register_forward_hook(lambda module, args, out: out * 3)
        out = net(x)
        handle.remove()
        return out

    trace = subtrace_kit.trace(program)(given(0))
    assert torch.equal(trace(given(1)), given(1) * 3)
    assert not net._forward_hooks


def test_one_new_list_in_two_places():
    held = types.SimpleNamespace(a=None, b=None)

    def share(held):
        held.a = held.b = [torch.ones(2)]

    assert on(held, share).endswith("to a SharedContainer")
    held.a = [torch.ones(2)]
    assert on(held, lambda held: setattr(held, "b", held.a)).endswith("to a SharedContainer")


def test_all_is_given_back_when_the_program_fails():
    held, kept = {"k": torch.ones(2), "n": [1]}, None

    def program(x):
        nonlocal kept
        held["k"], kept = x, x
        held["n"].append(2)
        raise ValueError("no")

    before = held["k"]
    with pytest.raises(subtrace_kit.TraceError, match="no"):
        subtrace_kit.trace(program)(given(0))
    assert held["k"] is before
    assert held["n"] == [1]
    assert kept is None


# ----------------------------------------------------------------------------------------- the parts


def told(owners):
    return [(c.owner.path, c.how, c.key, c.value) for c in owners.changes()]


def test_changes_are_told_and_given_back():
    owners, held, items = Owners(), {"a": 1, "b": 2}, [1]
    owners.watch(Owner("held", lambda: held), held)
    owners.watch_argument("x", [items])
    assert told(owners) == []
    held["a"], held["c"] = 3, 4
    del held["b"]
    items.append(2)
    in_dict = [("held", "item", "b", MISSING), ("held", "item", "a", 3), ("held", "item", "c", 4)]
    assert told(owners) == [*in_dict, ("x[0]", "items", None, items)]
    owners.restore()
    assert list(held.items()) == [("a", 1), ("b", 2)]
    assert items == [1]


def test_same_contents_asks_no_tensor():
    one, other = torch.ones(2), torch.ones(2)
    assert same_contents([one], [one])
    assert not same_contents([one], [other])
    assert not same_contents({"a": one}, {"a": other})
    held = [one]
    refill(held, [other])
    assert held[0] is other


def test_values_of_which_a_trace_can_make_new_ones():
    assert map_changed([1], abs) is MISSING
    assert map_changed({"a": (None, [])}, abs) == {"a": (None, [])}
    assert torch.equal(map_changed([-torch.ones(1)], abs)[0], torch.ones(1))
