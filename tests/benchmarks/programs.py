"""Programs of n ops in a row, and the same arithmetic written by hand on the inner tensors."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from .classes import Pair, Scaled

__all__ = ["SUBJECTS", "Net", "Subject", "chain", "floor", "function", "pair"]

OPS = (("x * 1.001", "torch.mul({0}, 1.001)"), ("-x", "torch.neg({0})"), ("x.abs()", "torch.abs({0})"))
"""What the user writes, and what stands for it on one inner tensor."""

_numbers = count()


def function(name: str, parameters: str, body: Iterable[str]) -> Callable[..., Any]:
    """A function of its own code object, whose source can be read, as that of a file can."""
    source = "\n".join([f"def {name}({parameters}):", *(f"    {line}" for line in body), ""])
    file = f"<benchmark {name} {next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    space: dict[str, Any] = {"torch": torch}
    exec(compile(source, file, "exec"), space)
    made: Callable[..., Any] = space[name]
    return made


def chain(n: int) -> Callable[..., Any]:
    """The program of a user: n ops in a row on one wrapper."""
    return function("chain", "x", [*(f"x = {OPS[i % 3][0]}" for i in range(n)), "return x"])


def floor(n: int, touched: tuple[str, ...]) -> Callable[..., Any]:
    """The same on the inner tensors, by hand.

    Args:
        n: How many ops the program has.
        touched: For each op in turn, the inner tensors that it is run on: "ab", "a" or "b".
    """
    steps = ((v, OPS[i % 3][1]) for i in range(n) for v in touched[i % 3])
    return function("floor", "a, b", [*(f"{v} = {op.format(v)}" for v, op in steps), "return a, b"])


@dataclass(frozen=True)
class Subject:
    """A wrapper class that the programs are run on.

    Args:
        name: Its name in tables.
        make: A new wrapper.
        touched: For mul, neg and abs in turn, the inner tensors that they touch.
    """

    name: str
    make: Callable[[], torch.Tensor]
    touched: tuple[str, str, str]


def pair(requires_grad: bool = False) -> torch.Tensor:
    """A Pair of 16 by 16 tensors."""
    return Pair(torch.rand(16, 16), torch.rand(16, 16)).requires_grad_(requires_grad)


def _scaled() -> torch.Tensor:
    return Scaled(torch.rand(16, 16), torch.tensor(1.5))


SUBJECTS = {
    "Pair": Subject("Pair", pair, ("ab", "ab", "ab")),
    "Scaled": Subject("Scaled", _scaled, ("b", "a", "a")),
}


class Net(torch.nn.Module):
    """A module that multiplies by each of its parameters."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.factors = torch.nn.ParameterList(torch.ones(16, 16) for _ in range(n))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for factor in self.factors:
            x = x * factor
        return x
