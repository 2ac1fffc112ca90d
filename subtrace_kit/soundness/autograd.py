"""Rules for gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from ..shown import instead
from .example import Example, apart
from .ops import NEW, Failed, Op, attempt, listed
from .rule import Fault, NotTried, Rule, failed, rule, told

__all__ = ["AUTOGRAD"]


def _leaf(example: Example) -> Any:
    x = example.new()
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise NotTried(f"autograd does not follow {x.dtype}")
    made = attempt(lambda x: x.detach().requires_grad_(), x)
    if isinstance(made, Failed) or not isinstance(made, example.cls):
        raise NotTried("x.detach().requires_grad_() does not work")
    return made


def _followed(example: Example) -> Iterator[tuple[Op, Any, Any]]:
    """The ops that a plain leaf gives a followed result for, each with its leaf and result."""
    for op in NEW:
        plain = attempt(op.call, example.plain().requires_grad_())
        if isinstance(plain, torch.Tensor) and plain.requires_grad:
            x = _leaf(example)
            made = attempt(op.call, x)
            if isinstance(made, torch.Tensor):
                yield op, x, made


@rule("autograd", "Autograd follows the outer object: the result of an op on a leaf requires grad.")
def follows(example: Example) -> Iterator[Fault | str]:
    _leaf(example)
    for op, _, made in _followed(example):
        if not made.requires_grad:
            way_out = "build objects in __torch_dispatch__ or in an autograd.Function, below autograd"
            yield told(example.cls, f"{op.text} does not require grad", way_out)


@rule("gradients", "A backward reaches the leaf, with a gradient of its shape and dtype.")
def gradients(example: Example) -> Iterator[Fault | str]:
    _leaf(example)
    worked, refused, broken = 0, [], 0
    for op, x, made in _followed(example):
        if not made.requires_grad:
            continue
        if isinstance(done := attempt(_backward, made), Failed):
            if isinstance(done.error, (NotImplementedError, TypeError)):
                refused.append(op.text)  # an op of the backward that the class does not have
            else:
                broken += 1
                yield failed(f"the backward of {op.text}", done.error, "handle what the backward sends to the class")
            continue
        worked += 1
        if x.grad is None:
            yield told(example.cls, f"the backward of {op.text} gives x no gradient", "keep results in the graph")
            continue
        for fact, (has, wanted) in apart(x.grad, x, "shape", "dtype").items():
            text = f"the gradient of {op.text} has {fact} {instead(has, wanted)}"
            yield told(example.cls, text, "give results their own outer shape and dtype")
    if not (worked or refused or broken):
        raise NotTried("no result of an op requires grad")
    yield f"{worked} ops" + (f"; the class refuses the backward of {listed(refused)}" if refused else "")


def _backward(made: Any) -> None:
    total = attempt(lambda made: made.sum(), made)
    if isinstance(total, Failed) or total.dtype.is_complex or total.dim():  # no sum to start from: plain gradients
        made.backward(torch.ones(made.shape, dtype=made.dtype, device=made.device))
    else:
        total.backward()


AUTOGRAD: tuple[Rule, ...] = (follows, gradients)
