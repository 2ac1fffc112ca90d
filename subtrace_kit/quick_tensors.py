"""Whether tensors are of the recorded kind: asked one by one until it holds, then in one call to torch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .intercept import tensor_check

__all__ = ["TensorFacts"]


class TensorFacts:
    """Whether tensors are of the recorded kind.

    Args:
        facts: The question in Python.
        free: Whether flags may be any, which torch's own check does not know.

    Attributes:
        checks: The same question in one call to torch; a check that says no until there are tensors to make it from.
    """

    def __init__(self, facts: Callable[..., bool], free: bool) -> None:
        self.facts, self.checks = facts, [_never]
        self.left = 0 if free else 3  # a parameter in place of a tensor needs another check: not for ever

    def __call__(self, *tensors: torch.Tensor) -> bool:
        """Answer, and make the quick check from tensors that were right."""
        if not self.facts(*tensors):
            return False
        if self.left:
            self.left -= 1
            self.checks[0] = tensor_check(tensors) or _never
        return True


def _never(*tensors: torch.Tensor) -> bool:
    return False
