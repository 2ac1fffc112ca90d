"""Rules for what `__torch_dispatch__` gives back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..comparison import alike, inside
from ..copies import Copies
from ..intercept import flatten_tree, storage_id
from ..shown import instead, shown
from .example import Example, apart, shared_parts, values_of
from .ops import BACK, NEW, VIEWS, WRITES, Failed, Op, attempt, listed, possible
from .rule import PARTS, Fault, NotTried, Rule, failed, rule, told

__all__ = ["DISPATCH"]

_BUGS = (AttributeError, LookupError, NameError, AssertionError, RecursionError, ValueError, UnboundLocalError)
_ALIASING = "see return_and_correct_aliasing in torch/utils/_python_dispatch.py"


def _tried(example: Example, ops: tuple[Op, ...]) -> Iterator[tuple[Op, Any, Any]]:
    """The ops that plain tensors have, each with its example and what it gave."""
    for op in ops:
        if not isinstance(possible(op, example), Failed):
            x = example.new()
            yield op, x, attempt(op.call, x)


@rule("refusals", "What the class cannot do it refuses: NotImplemented, NotImplementedError or TypeError.")
def refuses(example: Example) -> Iterator[Fault | str]:
    able, refused = 0, []
    for op, _, made in _tried(example, NEW + VIEWS):
        if not isinstance(made, Failed):
            able += 1
            if any(item is None or item is NotImplemented for item in _leaves(made)):
                way_out = "return NotImplemented itself for what it does not know"
                yield told(example.cls, f"{op.text} gives {shown(made)}", way_out)
            continue
        if not isinstance(made.error, _BUGS):
            refused.append(op.text)
        else:
            yield failed(op.text, made.error, "return NotImplemented for ops and arguments that it does not know")
    yield f"{able} ops work" + (f"; refused: {listed(refused)}" if refused else "")


def _leaves(value: Any) -> list[Any]:
    return list(flatten_tree(value)[0])


@rule("shapes", "Results have the shape, dtype and device that plain tensors would have.")
def shapes(example: Example) -> Iterator[Fault | str]:
    strided: list[str] = []
    for op, x, made in _tried(example, NEW + VIEWS):
        if isinstance(made, Failed):
            continue
        for found, plain in zip(_leaves(made), _leaves(possible(op, example)), strict=False):
            if not isinstance(found, torch.Tensor) or not isinstance(plain, torch.Tensor):
                continue
            for fact, (has, wanted) in apart(found, plain, "shape", "dtype").items():
                text = f"{op.text} has {fact} {instead(has, wanted)}"
                yield told(example.cls, text, "pass the result's own shape and dtype to _make_wrapper_subclass")
            if found.device != x.device:
                text = f"{op.text} is on {instead(found.device, x.device)}"
                yield told(example.cls, text, "keep results on the device of the arguments")
            if op in VIEWS and type(found) is type(x) and apart(found, plain, "strides"):
                strided.append(op.text)
    if strided:
        yield f"strides other than those of a plain tensor: {listed(strided)}; see strides of _make_wrapper_subclass"


@rule("arguments", "An op that is no in-place op leaves its arguments as they are.", *PARTS)
def arguments(example: Example) -> Iterator[Fault | str]:
    for op, x, made in _tried(example, NEW + VIEWS):
        if not isinstance(made, Failed) and not alike(inside(x), inside(example.new())):
            yield told(example.cls, f"{op.text} changed x", "write into new tensors, not into those of the arguments")


def _write(x: Any) -> str | None:
    """Write into an object in place; the op that did, where one changed it."""
    for op in WRITES:
        before = inside(Copies().value(x.detach()))
        if not isinstance(attempt(op.call, x), Failed) and not alike(inside(x), before):
            return op.text
    return None


@rule("in-place", "An in-place op changes the very object and returns it, or is refused.", *PARTS)
def in_place(example: Example) -> Iterator[Fault | str]:
    worked, other = [], []
    for op in WRITES:
        with torch.no_grad():
            x = example.new()
            made = attempt(op.call, x)
            if isinstance(made, Failed) or (changes := _changes_values(op, example)) is None:
                continue
        worked.append(op.text)
        if changes and alike(inside(x), inside(example.new())):
            way_out = "write into the inner tensors or swap them, or raise NotImplementedError"
            yield told(example.cls, f"{op.text} changes nothing, and does not fail", way_out)
        elif made is not x:
            yield told(example.cls, f"{op.text} returns another object", "return the argument itself from in-place ops")
        elif not _as_out_of_place(op, x, example):
            other.append(op.text)
    if not worked:
        raise NotTried("none works, or tells what it should give: " + listed([op.text for op in WRITES]))
    yield f"tried: {listed(worked)}"
    if other:
        yield f"other values than those of the op that is not in place: {listed(other)}"


def _as_out_of_place(op: Op, written: Any, example: Example) -> bool:
    """Whether a write gave what its out-of-place form gives, where that can be compared."""
    with torch.no_grad():
        new = attempt(op.new or op.call, example.new())
    if type(new) is not type(written) or new.dtype != written.dtype:
        return True
    return alike(values_of(new), values_of(written))


def _changes_values(op: Op, example: Example) -> bool | None:
    """Whether a write must change what an object holds; None where its out-of-place form does not tell."""
    x = example.new()
    new, same = attempt(op.new or op.call, x), attempt(lambda x: x + 0, x)
    if type(new) is type(x) and new.dtype == x.dtype:
        return not alike(inside(new), inside(x))
    if type(new) is type(same) is torch.Tensor and new.dtype == same.dtype == x.dtype:  # ops fall back on plain values
        return not alike(new, same)
    return None


@rule(
    "memory",
    "A result that is no view has memory of its own: a write into it leaves the arguments as they are.",
    *PARTS,
    "detach",
)
def memory(example: Example) -> Iterator[Fault | str]:
    written = 0
    with torch.no_grad():
        for op, x, made in _tried(example, NEW):
            if made is x and ".to(" not in op.text:
                yield told(example.cls, f"{op.text} returns x itself", "return a new object")
            if type(made) is not type(x) or made is x:
                continue
            before = inside(Copies().value(x.detach()))
            if write := _write(made):
                written += 1
                if not alike(inside(x), before):
                    text = f"after y = {op.text}, {write.replace('x', 'y', 1)} changes x too"
                    yield told(example.cls, text, "clone the inner tensors that the op leaves as they are")
    if not written:
        raise NotTried("no result can be written into")


@rule("views", "A view shares memory: a write on either side reaches the other.", *PARTS, "detach")
def views(example: Example) -> Iterator[Fault | str]:
    written, unlinked = 0, []
    with torch.no_grad():
        for op, x, view in _tried(example, VIEWS):
            if type(view) is not type(x):
                continue
            if _claims_its_own(view, x):
                unlinked.append(op.text)
            base = inside(Copies().value(x))
            apart_from_x = "" if any(shared_parts(view, x)) else ", which shares no memory with x"
            if write := _write(view):
                written += 1
                if alike(inside(x), base):
                    text = f"after y = {op.text}{apart_from_x}, {write.replace('x', 'y', 1)} does not change x"
                    yield told(example.cls, text, f"make the view of the inner tensors; {_ALIASING}")
                    continue
            x = example.new()
            view = attempt(op.call, x)
            if (write := _write(x)) and not alike(values_of(view), values_of(op.call(x))):
                text = f"after y = {op.text}, {write} does not change y"
                yield told(example.cls, text, f"write into the inner tensors instead of swapping them; {_ALIASING}")
    if not written:
        raise NotTried("no view can be written into")
    if unlinked:
        yield f"torch sees no sharing in {listed(unlinked)}: {_ALIASING}"


def _claims_its_own(view: Any, x: Any) -> bool:
    """Whether the outer tensor of a view claims another storage than that of x."""
    if view.layout is not torch.strided or x.layout is not torch.strided:
        return False
    return storage_id(view.untyped_storage()) != storage_id(x.untyped_storage())


@rule("way back", "A change of shape and the way back from it give an equal object.", *PARTS)
def way_back(example: Example) -> Iterator[Fault | str]:
    worked = []
    with torch.no_grad():
        for op, x, made in _tried(example, BACK):
            if type(made) is type(x):
                worked.append(op.text)
                if not alike(inside(made), inside(x)):
                    text = f"{op.text} holds other values or metadata than x"
                    yield told(example.cls, text, "give each result the metadata of x, fitted to its shape")
    if not worked:
        raise NotTried("no change of shape gives an object of the class")
    yield f"tried: {listed(worked)}"


DISPATCH: tuple[Rule, ...] = (refuses, shapes, arguments, in_place, memory, views, way_back)
