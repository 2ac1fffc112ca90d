"""Values in messages: no repr of a tensor is called, and nothing raises."""

import functools
import types

import classes
import pytest
import torch

import subtrace_kit
from subtrace_kit.shown import a_kind, article, beside, instead, key_text, message, shown
from subtrace_kit.source import Source


class NoRepr(classes.Base):
    def __repr__(self):
        raise AssertionError("the repr of a tensor was called")


class Bad:
    def __repr__(self):
        raise ValueError


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return repr(self.held)


def tensor():
    return NoRepr(torch.ones(2, 3))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (tensor, "NoRepr f32[2, 3]"),
        (lambda: [tensor(), (1,), {}], "[NoRepr f32[2, 3], (1,), {}]"),
        (lambda: {"w": (tensor(), "a")}, "{'w': (NoRepr f32[2, 3], 'a')}"),
        (lambda: {1}, "{1}"),
        (lambda: Slotted(tensor()), "<Slotted that holds tensors>"),
        (lambda: types.SimpleNamespace(w=[tensor()]), "<SimpleNamespace that holds tensors>"),
        (lambda: functools.partial(print, tensor()), "<partial that holds tensors>"),
        (lambda: tensor().__tensor_flatten__, "<method Base.__tensor_flatten__>"),
        (Bad, "<Bad>"),
        (lambda: "a" * 400, "'" + "a" * 299 + "..."),
        (lambda: [[[[[[1]]]]]], "[[[[[...]]]]]"),
        (lambda: list(range(30)), f"[{', '.join(map(str, range(20)))}, ...]"),
        (lambda: torch.float32, "torch.float32"),
    ],
)
def test_shown(make, text):
    assert shown(make()) == text


def test_a_list_that_holds_itself():
    items = []
    items.append(items)
    assert shown(items) == "[[[[[...]]]]]"


def test_two_values_that_read_the_same():
    assert instead(1, 2) == "1 instead of 2"
    assert beside("nan", "nan") == "nan instead of nan, another one that reads the same"


def test_an_error_with_a_tensor_for_its_text():
    assert message(ValueError(tensor())) == "NoRepr f32[2, 3]"
    assert message(ValueError("no")) == "no"
    assert key_text("k") == "'k'"
    assert key_text(tensor()) == "NoRepr f32[2, 3]"


def test_jit_traces_anew_where_a_tensor_cannot_be_printed():
    held = types.SimpleNamespace(ref=None)
    f = subtrace_kit.jit(lambda x: x * (2 if held.ref is None else 3))
    assert f(torch.ones(1)) == 2
    held.ref = tensor()
    assert f(torch.ones(1)) == 3
    held.ref = Bad()
    assert f(torch.ones(1)) == 3


def test_a_line_of_a_notebook_cell():
    assert Source("/tmp/ipykernel_123/456.py", 3, "f").describe() == "cell:3 in f"
    assert Source("/tmp/model.py", 3, "f").describe() == "/tmp/model.py:3 in f"


def test_articles():
    assert [article(name) for name in ("int", "Tensor", "Owner", "")] == ["an int", "a Tensor", "an Owner", "a "]
    assert a_kind([]) == "a list"
