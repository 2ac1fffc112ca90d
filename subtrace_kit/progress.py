"""A progress bar for what takes longer than two seconds: recording, lowering, writing out, compiling."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sized
from typing import Any, TypeVar
from weakref import WeakSet

__all__ = ["DELAY", "Stage", "counted", "restart", "tick"]

DELAY = 2.0
"""Seconds after which a stage shows its bar."""

T = TypeVar("T")
_here = threading.local()


class Stage:
    """A stage of work, as a context manager. Its bar is made when it is late, and goes when the work is done.

    Until then it counts and looks at the clock, no more: tqdm is not even imported. What goes wrong with the bar
    (a closed stderr) ends the bar and not the work.

    Args:
        name: What the bar says.

    Example:
        >>> with Stage("recording") as stage:
        ...     stage.tick()
        >>> stage.count
        1

    Source: https://tqdm.github.io/docs/tqdm/
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.total: int | None = None  # unknown
        self.bar: Any = None
        self.hopeless = False
        self.file = sys.stderr  # that of the start: the program that is recorded may have another one
        self.begin = time.perf_counter()

    def __enter__(self) -> Stage:
        self.outer = getattr(_here, "stage", None)
        _here.stage = self
        return self

    def __exit__(self, *error: object) -> None:
        _here.stage = self.outer
        self.hopeless = True
        self.safely(lambda: self.bar.close() if self.bar is not None else None)
        self.bar = None

    def tick(self) -> None:
        """One op is done."""
        self.count += 1
        if self.bar is not None:
            self.safely(self.bar.update)
        elif not self.hopeless and time.perf_counter() - self.begin > DELAY:
            self.safely(self.show)

    def restart(self, total: int | None) -> None:
        """Count from zero again: the next round of the same stage."""
        if total == 0:
            return
        self.count, self.total = 0, total
        if self.bar is not None:
            self.bar.total = total
            self.safely(self.bar.reset)

    def show(self) -> None:
        """Make the bar; none where nobody looks, as in a log file."""
        kind, notebook = bar_class()
        if notebook or (self.file is not None and self.file.isatty()):
            look: dict[str, Any] = {"leave": False, "file": self.file, "dynamic_ncols": True, "unit": " ops"}
            look["position"] = others() + len(kind._instances)
            self.bar = kind(desc=self.name, initial=self.count, total=self.total, **look)
            self.bar.initial = 0  # counted before there was a bar, and to be part of the rate
            self.bar.start_t -= time.perf_counter() - self.begin
        else:
            self.hopeless = True

    def safely(self, step: Callable[[], Any]) -> None:
        """Do something with the bar; where that fails, do without."""
        try:
            step()
        except Exception:
            self.hopeless = True
            if self.bar is not None:
                self.bar.disable, self.bar = True, None  # else it tries once more when it is thrown away


def tick() -> None:
    """One op of the stage that this thread is in is done."""
    if (stage := getattr(_here, "stage", None)) is not None:
        stage.tick()


def restart(total: int | None) -> None:
    """The stage that this thread is in goes over its ops once more.

    Args:
        total: How many there are, if that is known.
    """
    if (stage := getattr(_here, "stage", None)) is not None:
        stage.restart(total)


def counted(items: Iterable[T]) -> Iterable[T]:
    """The same items, each an op of the stage that this thread is in.

    Args:
        items: What a loop goes over.
    """
    stage: Stage | None = getattr(_here, "stage", None)
    return items if stage is None else _counted(items, stage)


def _counted(items: Iterable[T], stage: Stage) -> Iterable[T]:
    stage.restart(len(items) if isinstance(items, Sized) else None)
    for item in items:
        yield item
        stage.tick()


@functools.cache
def bar_class() -> tuple[Any, bool]:
    """The class of the bars, and whether it draws in a notebook."""
    from tqdm.asyncio import tqdm as terminal
    from tqdm.auto import tqdm

    # No thread that watches the bar, and nothing shared with bars of the program that is recorded.
    own = {"monitor_interval": 0, "_lock": threading.RLock(), "_instances": WeakSet()}
    return type("Bar", (tqdm,), own), tqdm is not terminal


def others() -> int:
    """How many bars of other code stand above."""
    from tqdm.std import tqdm

    return len(tqdm._instances)
