"""What a first call costs: the stages of the kit, and the first call of each variant."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

import torch

import subtrace_kit
from subtrace_kit.running import runner
from subtrace_kit.trace import Trace

from .programs import SUBJECTS, chain
from .tables import Figure
from .timing import first
from .variants import made

__all__ = ["first_calls", "scale", "stages"]


def first_calls(n: int, variants: Iterable[str], rounds: int = 3) -> list[Figure]:
    """The first call of each variant, of a program that is new each time; and that of eager.

    Compilers start from nothing: no cache of graphs is read.
    """
    found: dict[str, list[float]] = {}
    with torch._inductor.config.patch(force_disable_caches=True):
        for _ in range(rounds):
            for variant in variants:
                if variant != "floor":
                    found.setdefault(variant, []).append(_first_call(n, variant))
    us = {variant: statistics.median(times) for variant, times in found.items()}
    return [Figure("first calls", "Pair", n, variant, time) for variant, time in us.items()]


def _first_call(n: int, variant: str) -> float:
    torch._dynamo.reset()
    fn, x = chain(n), SUBJECTS["Pair"].make()
    return first(lambda: made(variant, fn)(x))


def stages(n: int) -> dict[str, float]:
    """Microseconds of each stage of the kit for a new program: trace, lower, the code, the first and second run, print.

    Raises:
        AssertionError: The lowered trace gives another result than the program.
    """
    fn, x = chain(n), SUBJECTS["Pair"].make()
    us: dict[str, float] = {}
    traced = _stage(us, "trace", lambda: subtrace_kit.trace(fn)(x))
    lowered: Trace = _stage(us, "lower", lambda: subtrace_kit.lower(traced))
    _stage(us, "code", lambda: runner(lowered))
    got = _stage(us, "first run", lambda: lowered(x))
    _stage(us, "run", lambda: lowered(x))
    _stage(us, "print", lambda: str(lowered))
    wanted = fn(x)
    assert torch.equal(got.a, wanted.a)
    assert torch.equal(got.b, wanted.b)
    return us


def _stage(us: dict[str, float], name: str, call: Callable[[], Any]) -> Any:
    result: list[Any] = []
    us[name] = first(lambda: result.append(call()))
    return result[0]


def scale(sizes: Iterable[int], rounds: int = 3) -> list[Figure]:
    """The stages for programs of some sizes, in microseconds for each op: alike where the work grows in a line."""
    sizes = tuple(sizes)
    found: dict[tuple[int, str], list[float]] = {}
    for _ in range(rounds):
        for n in sizes:
            for name, us in stages(n).items():
                found.setdefault((n, name), []).append(us / n)
    return [Figure("scale", "Pair", n, name, statistics.median(us)) for (n, name), us in found.items()]
