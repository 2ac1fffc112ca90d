"""What a program can reach without its arguments is found, looked at and given back."""

import functools
import logging

import pytest
import torch

import subtrace_kit
from subtrace_kit.outside import Outside

LOG = logging.getLogger("a logger of this test")
VALUES = {"k": [1, 2]}
sum_of = torch.ones(2)  # The name of an attribute in `reads_attribute`.


class Counter:
    """It counts its calls."""

    def __init__(self):
        self.n, self.parts = 0, {"w": torch.ones(2)}

    def __call__(self, x):
        self.n += 1
        return x

    def method(self, x):
        return self(x)


def reads_attribute(x):
    return x.sum_of


def reads_global(x):
    return VALUES["k"]


def calls_another(x):
    return reads_global(x)


def found(program):
    """The paths of the tensors that are reached."""
    return [path for path, _ in Outside(program).tensors]


def test_tensors_in_closures_globals_modules_and_objects():
    held = [torch.ones(1), (torch.ones(1), {"a": torch.ones(1)})]
    assert found(lambda x: held) == ["held[0]", "held[1]", "held[1]['a']"]
    assert found(lambda x: sum_of) == ["sum_of"]
    assert found(reads_attribute) == []
    assert found(torch.nn.Linear(2, 2)) == ["_parameters['weight']", "_parameters['bias']"]
    counter = Counter()
    assert found(counter) == found(counter.method) == ["parts['w']"]
    assert len(found(functools.partial(lambda w, x: x, torch.ones(2)))) == 1


def test_modules_at_any_depth():
    net = torch.nn.Identity()
    for _ in range(40):
        net = torch.nn.Sequential(net)
    net.get_submodule(".".join("0" * 40)).weight = torch.nn.Parameter(torch.ones(1))
    assert len(found(net)) == 1


def test_circles_and_what_is_not_the_user_s():
    circle = []
    circle.append(circle)
    outside = Outside(lambda x: (circle, LOG, subtrace_kit, torch))
    assert {keeper.path for keeper in outside.keepers} == {"", "circle"}


def test_long_lists_are_not_remembered():
    long, short = [0] * 20_000, [0]
    outside = Outside(lambda x: (long, short))
    long[0] = short[0] = 1
    assert outside.changes() == [("short[0]", 1)]


@pytest.mark.parametrize("program", [reads_global, calls_another, lambda x: VALUES])
def test_changes_are_seen_and_given_back(program):
    outside = Outside(program)
    assert outside.changes() == []
    kept = VALUES["k"]
    kept.append(3)
    VALUES["new"] = 1
    assert [path.rpartition("VALUES")[2] for path, _ in outside.changes()] == ["['new']", "['k'][2]"]
    outside.give_back()
    assert VALUES == {"k": [1, 2]}
    assert VALUES["k"] is kept
    assert outside.changes() == []


def test_an_object_is_given_its_attributes_back():
    counter = Counter()
    outside = Outside(counter)
    counter(1)
    counter.more = 1
    del counter.parts
    assert outside.changes() == [("n", 1), ("parts", None), ("more", 1)]
    outside.give_back()
    assert list(vars(counter)) == ["n", "parts"]
    assert counter.n == 0


def test_tensors_as_keys():
    one, other = torch.ones(2), torch.ones(2)
    kept = {one: 1}
    outside = Outside(lambda x: kept)
    kept[other] = kept.pop(one)
    outside.give_back()
    assert one in kept
    assert len(kept) == 1
