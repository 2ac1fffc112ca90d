"""The ops that a class is tried with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .example import Example

__all__ = ["BACK", "NEW", "VIEWS", "WRITES", "Failed", "Op", "attempt", "listed", "possible"]


@dataclass(frozen=True)
class Op:
    """An op on one object.

    Args:
        text: How it is written.
        call: The op.
        new: For a write, the op that gives the same as a new tensor.
    """

    text: str
    call: Callable[[Any], Any]
    new: Callable[[Any], Any] | None = None


NEW = (
    Op("x * 2", lambda x: x * 2),
    Op("x + 1", lambda x: x + 1),
    Op("x + x", lambda x: x + x),
    Op("x - x", lambda x: x - x),
    Op("x * x", lambda x: x * x),
    Op("-x", lambda x: -x),
    Op("x.abs()", lambda x: x.abs()),
    Op("x.exp()", lambda x: x.exp()),
    Op("x.relu()", lambda x: x.relu()),
    Op("x.clone()", lambda x: x.clone()),
    Op("x.sum()", lambda x: x.sum()),
    Op("x.mean(-1)", lambda x: x.mean(-1)),
    Op("x.sum(0, keepdim=True)", lambda x: x.sum(0, keepdim=True)),
    Op("torch.ones(x.shape) * x", lambda x: torch.ones(x.shape, dtype=x.dtype, device=x.device) * x),
    Op("x.softmax(-1)", lambda x: x.softmax(-1)),
    Op("x.sort()", lambda x: x.sort()),
    Op("x.cumsum(0)", lambda x: x.cumsum(0)),
    Op("x == x", lambda x: x == x),
    Op("x @ x.t()", lambda x: x @ x.t()),
    Op("torch.cat([x, x])", lambda x: torch.cat([x, x])),
    Op("torch.stack([x, x])", lambda x: torch.stack([x, x])),
    Op("torch.where(x > 0, x, x)", lambda x: torch.where(x > 0, x, x)),
    Op("torch.zeros_like(x)", lambda x: torch.zeros_like(x)),
    Op("torch.empty_like(x)", lambda x: torch.empty_like(x)),
    Op("x.new_zeros(2)", lambda x: x.new_zeros(2)),
    Op("x.to(torch.float64)", lambda x: x.to(torch.float64)),
)

VIEWS = (
    Op("x.detach()", lambda x: x.detach()),
    Op("x.view_as(x)", lambda x: x.view_as(x)),
    Op("x.view(-1)", lambda x: x.view(-1)),
    Op("x.t()", lambda x: x.t()),
    Op("x.transpose(0, 1)", lambda x: x.transpose(0, 1)),
    Op("x.unsqueeze(0)", lambda x: x.unsqueeze(0)),
    Op("x[0]", lambda x: x[0]),
    Op("x[..., :2]", lambda x: x[..., :2]),
    Op("x.split(1)[0]", lambda x: x.split(1)[0]),
)

BACK = (
    Op("x.t().t()", lambda x: x.t().t()),
    Op("x.transpose(0, 1).transpose(0, 1)", lambda x: x.transpose(0, 1).transpose(0, 1)),
    Op("x.unsqueeze(0).squeeze(0)", lambda x: x.unsqueeze(0).squeeze(0)),
    Op("x.view(-1).view(x.shape)", lambda x: x.view(-1).view(x.shape)),
    Op("x.view_as(x)", lambda x: x.view_as(x)),
    Op("x[:]", lambda x: x[:]),
)

WRITES = (
    Op("x.add_(1)", lambda x: x.add_(1), lambda x: x + 1),
    Op("x.mul_(2)", lambda x: x.mul_(2), lambda x: x * 2),
    Op("x.neg_()", lambda x: x.neg_(), lambda x: -x),
    Op("x.zero_()", lambda x: x.zero_(), lambda x: torch.zeros_like(x)),
    Op("x.copy_(x + 1)", lambda x: x.copy_(x + 1), lambda x: x + 1),
)


_LISTED = 6


def listed(ops: list[str]) -> str:
    """Ops as a report names them: the first ones, and how many more."""
    more = [f"{len(ops) - _LISTED} more"] if len(ops) > _LISTED else []
    return ", ".join(ops[:_LISTED] + more)


@dataclass(frozen=True)
class Failed:
    """What an op raised."""

    error: Exception


def attempt(call: Callable[[Any], Any], x: Any) -> Any:
    """What an op gives, or a Failed."""
    try:
        return call(x)
    except Exception as error:
        return Failed(error)


def possible(op: Op, example: Example) -> Any:
    """What the op gives for a plain tensor of the same kind, or a Failed."""
    return attempt(op.call, example.plain())
