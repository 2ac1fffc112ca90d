"""Rules for what torch and Python do with any tensor object: detach, clone, Parameter, copies, files."""

from __future__ import annotations

import copy
import io
import sys
from collections.abc import Iterator
from typing import Any

import torch

from ..comparison import alike, inside
from ..shown import a_kind
from .example import Example, shared_parts, values_of
from .rule import PARTS, Fault, NotTried, Rule, failed, rule, told

__all__ = ["OBJECTS"]

_ALIASING = "unwrap, run the op on the inner tensors, and wrap what it gives"


def _of_class(example: Example, what: str, made: Any) -> Iterator[Fault | str]:
    if type(made) is not type(example.first):
        yield told(example.cls, f"{what} gives {a_kind(made)}", "wrap the result")


@rule("detach", "x.detach() is a new object of the class on the same memory, which does not require grad.", *PARTS)
def detaches(example: Example) -> Iterator[Fault | str]:
    x = example.new()
    try:
        made = x.detach()
    except Exception as error:
        yield failed("x.detach()", error, "handle aten.detach.default: Parameter, autograd and .data call it")
        return
    yield from _of_class(example, "x.detach()", made)
    if type(made) is not type(x):
        return
    if made is x:
        yield told(example.cls, "x.detach() returns x itself", _ALIASING)
    if made.requires_grad:
        yield told(example.cls, "x.detach() requires grad", "do not pass requires_grad on")
    if False in shared_parts(made, x):
        yield told(example.cls, "x.detach() shares no memory with x: writes through x.data are lost", _ALIASING)
    if not alike(inside(made), inside(x)):
        yield told(example.cls, "x.detach() holds other values or metadata than x", _ALIASING)


@rule("clone", "x.clone() is an equal object of the class on memory of its own.", *PARTS)
def clones(example: Example) -> Iterator[Fault | str]:
    yield from _copied(
        example, "x.clone()", lambda x: x.clone(), "handle aten.clone.default: deepcopy and autograd call it"
    )


@rule("deepcopy", "copy.deepcopy(x) is an equal object of the class on memory of its own.", *PARTS)
def deepcopies(example: Example) -> Iterator[Fault | str]:
    yield from _copied(example, "copy.deepcopy(x)", copy.deepcopy, "handle aten.clone.default")


def _copied(example: Example, what: str, call: Any, way_out: str) -> Iterator[Fault | str]:
    x = example.new()
    try:
        made = call(x.detach() if x.requires_grad and not x.is_leaf else x)
    except Exception as error:
        yield failed(what, error, way_out)
        return
    yield from _of_class(example, what, made)
    if type(made) is not type(x):
        return
    shared = shared_parts(made, x)  # one part may be shared: what no op writes, such as offsets
    if shared and all(shared):
        yield told(example.cls, f"{what} shares memory with x", "clone every inner tensor")
    if not alike(values_of(made), values_of(x)):
        yield told(example.cls, f"{what} holds other values or metadata than x", "clone every inner tensor")


@rule("Parameter", "torch.nn.Parameter(x) is a Parameter of the class on the same memory.", *PARTS, "detach")
def parameters(example: Example) -> Iterator[Fault | str]:
    x = example.new()
    follows = x.dtype.is_floating_point or x.dtype.is_complex
    try:
        made = torch.nn.Parameter(x.detach(), requires_grad=follows)
        inside(made)
        parts = inside(made.detach()), inside(x.detach())
    except Exception as error:
        yield failed("torch.nn.Parameter(x)", error, "handle aten.detach.default; keep what flatten names")
        return
    if not isinstance(made, example.cls) or not isinstance(made, torch.nn.Parameter):
        yield told(example.cls, f"torch.nn.Parameter(x) gives {a_kind(made)}", "let detach return the class")
    elif not alike(*parts):
        yield told(example.cls, "torch.nn.Parameter(x) holds other values or metadata than x", _ALIASING)


@rule("files", "torch.save and torch.load give an equal object of the class.", *PARTS, "detach")
def files(example: Example) -> Iterator[Fault | str]:
    cls, x = example.cls, example.new().detach()
    if getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is not cls:
        raise NotTried(f"{cls.__qualname__} is no name of a module, so that no file can refer to it")
    file = io.BytesIO()
    try:
        torch.save(x, file)
        file.seek(0)
        made = torch.load(file, weights_only=False)
    except Exception as error:
        yield failed("saving x or loading it", error, "keep attributes that pickle takes")
        return
    yield from _of_class(example, "torch.load", made)
    if type(made) is type(x) and not alike(inside(made), inside(x)):
        yield told(cls, "torch.load gives other values or metadata", "keep all in attributes", "__tensor_flatten__")


OBJECTS: tuple[Rule, ...] = (detaches, clones, deepcopies, parameters, files)
