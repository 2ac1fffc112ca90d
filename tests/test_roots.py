"""Where a search starts, and which names the code of a program mentions."""

import dataclasses
import enum
import functools
import logging
import random

import numpy as np
import pytest
import torch

from subtrace_kit.roots import (
    Place,
    function_roots,
    functions_in,
    is_closed,
    is_simple,
    is_user_class,
    names_in,
    names_of_code,
    roots,
    slots_of,
    steps_of_code,
    unset_variables,
)
from subtrace_kit.zoo import TwoTensor

SCALE = 2.0


class Color(enum.Enum):
    RED = 1


class Layer:
    """It reads `width` in a property, and only sets `steps`."""

    def __init__(self):
        self.steps = 0

    @property
    def twice(self):
        return self.width * 2

    @torch.no_grad()
    def wrapped(self, x):
        return x * self.inside

    def __repr__(self):
        return self.shown


def paths(found):
    return [place.path for place, *_ in found]


def test_a_place_is_looked_at_anew():
    held = {"k": [torch.ones(1), torch.zeros(1)]}
    place = Place("held", lambda: held).item("k").item(1)
    assert place.path == "held['k'][1]"
    assert place() is held["k"][1]
    held["k"] = [None, 3]
    assert place() == 3


def test_a_place_tells_the_names_that_lead_there():
    place = Place("net", lambda: None).attribute("cfg").item("k").attribute("eps")
    assert place.path == "net.cfg['k'].eps"
    assert place.names == {"cfg", "eps"}
    assert Place("", lambda: None).attribute("fc").path == "fc"
    assert Place("d", lambda: None).item(1.5).path == "d[...]"


@pytest.mark.parametrize(
    "value", [1, 1.5, True, "a", b"a", None, 2j, torch.float16, torch.Size([2]), (1, ("a",)), range(3), Color.RED,
              np.float32(2), frozenset({1})], ids=repr
)  # fmt: skip
def test_simple_values(value):
    assert is_simple(value)


@pytest.mark.parametrize(
    "value", [[1], {}, torch.ones(1), (1, [2]), Layer(), print, Layer], ids=lambda v: type(v).__name__
)
def test_other_values_are_not_simple(value):
    assert not is_simple(value)


def test_what_is_not_looked_into():
    assert all(map(is_closed, [torch, Layer, print, torch.nn.functional.relu, logging.getLogger(), torch.ops.aten.add]))
    assert not any(
        map(is_closed, [Layer(), [1], torch.nn.Linear(1, 1), paths, functools.partial(print), random.Random()])
    )


def test_classes_of_the_user():
    assert is_user_class(Layer)
    assert not any(map(is_user_class, [int, torch.nn.Linear, TwoTensor, logging.Logger]))


def test_a_function_is_a_root():
    assert paths(roots(paths)) == ["paths"]
    assert [place() for place, *_ in roots(paths)] == [paths]


def test_a_module_a_method_and_a_partial_are_roots():
    net, layer = torch.nn.Linear(1, 1), Layer()
    assert [(place.path, place()) for place, *_ in roots(net)] == [("", net)]
    assert next((place.path, place()) for place, *_ in roots(net.forward)) == ("", net)
    assert [place() for place, *_ in roots(layer.wrapped)] == [layer, layer.wrapped.__func__]
    assert paths(roots(functools.partial(paths, 1, a=2))) == ["args", "keywords", "paths"]


def test_closure_defaults_and_globals_of_a_function():
    held = 1

    def program(x, w=2, *, k=3):
        return x * w * k * held * SCALE

    found = {place.path: (place(), binding) for place, _, binding in function_roots(program)}
    assert {path: value for path, (value, _) in found.items()} == {"held": 1, "w": 2, "k": 3, "SCALE": 2.0}
    assert found["held"][1][1:] == ("attribute", "cell_contents")
    assert found["SCALE"][1] == (globals(), "item", "SCALE")
    assert found["w"][1] is None


def test_globals_of_functions_inside():
    def program():
        return lambda x: x * SCALE

    assert paths(function_roots(program)) == ["SCALE"]


def test_variables_that_have_no_value_yet():
    def program(x):
        global NOT_YET
        nonlocal later
        NOT_YET = later = x

    assert [(name, how) for name, _, how, _ in unset_variables(program)] == [
        ("later", "attribute"),
        ("NOT_YET", "item"),
    ]
    later = 1
    assert [name for name, *_ in unset_variables(program)] == ["NOT_YET"]


def test_a_name_that_is_only_set_is_not_read():
    def program(self):
        self.steps = self.width
        self.count += 1
        return getattr(self, "eps"), ("a", "b")  # noqa: B009

    names = names_of_code(program.__code__)
    assert {"width", "count", "eps", "a", "b"} <= names
    assert "steps" not in names
    assert {"STORE_ATTR steps", "STORE_ATTR count"} <= steps_of_code(program.__code__)


def test_an_except_is_seen_and_a_with_is_none():
    def catches():
        try:
            return SCALE
        except NameError:
            return None

    def opens():
        with torch.no_grad():
            return SCALE

    assert "except" in steps_of_code(catches.__code__)
    assert "except" not in steps_of_code(opens.__code__)


def test_names_in_properties_and_decorated_methods():
    assert {"width", "inside"} <= names_in(Layer)
    assert not {"steps", "shown"} & names_in(Layer)


def test_functions_behind_decorators():
    def plain():
        pass

    cached, kept = functools.lru_cache(plain), functools.cached_property(plain)
    for item in (plain, staticmethod(plain), classmethod(plain), property(plain), cached, kept):
        assert plain in functions_in(item)
    assert list(functions_in(3)) == []


def test_slots_of_a_class_and_its_bases():
    @dataclasses.dataclass(slots=True)
    class Base:
        a: int

    @dataclasses.dataclass(slots=True)
    class Sub(Base):
        b: int

    assert sorted(slots_of(Sub)) == ["a", "b"]
    assert slots_of(int) == slots_of(Layer) == []
