"""Timers, and medians of interleaved rounds."""

from __future__ import annotations

import gc
import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import repeat
from time import perf_counter
from typing import Any, TypeVar

__all__ = ["SLICE", "Timer", "first", "medians", "timer"]

Timer = Callable[[int], float]
"""Runs something so many times; gives the seconds that it took."""

SLICE = 0.004
"""Seconds for one thing in one round."""

Key = TypeVar("Key")


def timer(call: Callable[..., Any], *args: Any) -> Timer:
    """A timer of a call."""

    def run(n: int) -> float:
        begin = perf_counter()
        for _ in repeat(None, n):
            call(*args)
        return perf_counter() - begin

    return run


def first(call: Callable[..., Any], *args: Any) -> float:
    """Microseconds of one call, without a warm-up."""
    return timer(call, *args)(1) * 1e6


def medians(timers: Mapping[Key, Timer], rounds: int) -> dict[Key, float]:
    """Microseconds of each, once: the median over rounds in each of which all have their turn.

    So what slows the machine down for a while slows all of them, and their ratios stay. The order differs from
    round to round, so that none always has the same one before it.
    """
    counts = {key: _count(run) for key, run in timers.items()}
    found: dict[Key, list[float]] = {key: [] for key in timers}
    order = random.Random(0)
    with _without_collector():
        for _ in range(rounds):
            for key in order.sample(list(timers), len(timers)):
                timers[key](1)  # what ran before it has filled the caches of the processor
                found[key].append(timers[key](counts[key]) / counts[key] * 1e6)
            gc.collect()
    return {key: statistics.median(times) for key, times in found.items()}


def _count(run: Timer) -> int:
    """How often something fits into a slice of a round."""
    run(5)
    return max(3, int(SLICE / max(run(2) / 2, 1e-7)))


@contextmanager
def _without_collector() -> Iterator[None]:
    """The collector waits for the end of a round, and looks only at what is new."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
