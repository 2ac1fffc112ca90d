"""The ways to run one program. Each is checked against eager before it is timed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import subtrace_kit

from .classes import inner_tensors
from .programs import SUBJECTS, chain, floor, pair

__all__ = ["INDUCTOR", "VARIANTS", "Run", "Step", "calls", "expect_equal", "has_compiler", "made", "steps"]

VARIANTS = ("floor", "eager", "aot_eager", "jit")
INDUCTOR = ("inductor", "jit inductor")
"""Variants that need a C++ compiler."""

_MAKERS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "eager": lambda fn: fn,
    "aot_eager": lambda fn: torch.compile(fn, backend="aot_eager", fullgraph=True),
    "jit": subtrace_kit.jit,
    "inductor": lambda fn: torch.compile(fn, fullgraph=True),
    "jit inductor": lambda fn: subtrace_kit.jit(fn, backend="inductor"),
}


def has_compiler() -> bool:
    """Whether there is a C++ compiler, which inductor needs on a CPU."""
    return any(map(shutil.which, ("g++", "clang++")))


def made(variant: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """A program as one of the variants; not yet called."""
    return _MAKERS[variant](fn)


@dataclass(frozen=True)
class Run:
    """A call to be timed: `run.call(*run.args)`."""

    call: Callable[..., Any]
    args: tuple[Any, ...]


def calls(subject: str, n: int, variant: str) -> Run:
    """A call without gradients, whose result is eager's.

    Raises:
        AssertionError: It is not.
    """
    x = SUBJECTS[subject].make()
    if variant == "floor":
        run = Run(floor(n, SUBJECTS[subject].touched), inner_tensors(x))
    else:
        run = Run(made(variant, chain(n)), (x,))
    wanted = chain(n)(x)
    for _ in range(2):  # the first call compiles, the second runs what was compiled
        got = run.call(*run.args)
        assert variant == "floor" or type(got) is type(wanted), f"{variant} gives a {type(got).__name__}"
        expect_equal(variant, inner_tensors(got), inner_tensors(wanted))
    return run


class Step:
    """Forward and backward of a program, for gradients of leaves.

    Args:
        call: The program.
        leaves: Its arguments.
        gradients: The gradients of its results.
    """

    def __init__(self, call: Callable[..., Any], leaves: tuple[Any, ...], gradients: tuple[Any, ...]) -> None:
        self.call, self.leaves, self.gradients = call, leaves, gradients

    def __call__(self) -> None:
        """One step; the gradients are dropped."""
        self.backward()
        for leaf in self.leaves:
            leaf.grad = None

    def backward(self) -> None:
        """One step; the gradients stay in the leaves."""
        result = self.call(*self.leaves)
        torch.autograd.backward(result if isinstance(result, tuple) else (result,), self.gradients)


def steps(n: int, variant: str) -> Step:
    """A step on a Pair, whose gradients are eager's.

    Raises:
        AssertionError: They are not.
    """
    x, gradient = pair(requires_grad=True), pair()
    step = Step(made("eager" if variant == "floor" else variant, chain(n)), (x,), (gradient,))
    if variant == "floor":
        leaves = tuple(t.clone().requires_grad_() for t in inner_tensors(x))
        step = Step(floor(n, SUBJECTS["Pair"].touched), leaves, inner_tensors(gradient))
    wanted = _gradients(Step(chain(n), (x,), (gradient,)))
    for _ in range(2):
        expect_equal(variant, _gradients(step), wanted)
    return step


def _gradients(step: Step) -> tuple[torch.Tensor, ...]:
    """The gradients that a step leaves, taken away from the leaves."""
    step.backward()
    found = tuple(leaf.grad for leaf in step.leaves)
    for leaf in step.leaves:
        leaf.grad = None
    return found if len(found) > 1 else inner_tensors(found[0])


def expect_equal(variant: str, got: tuple[torch.Tensor, ...], wanted: tuple[torch.Tensor, ...]) -> None:
    """Refuse results that are not eager's; inductor may round otherwise."""
    rtol = 1e-5 if variant in INDUCTOR else 0
    torch.testing.assert_close(got, wanted, rtol=rtol, atol=0, msg=lambda m: f"{variant} differs from eager: {m}")
