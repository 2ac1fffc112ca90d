"""Options that were given a value they do not take, answered with what they take."""

from __future__ import annotations

import numbers
import os
from collections.abc import Collection
from typing import Any

from .errors import TraceError
from .shown import shown

__all__ = ["expect_level", "expect_one_of", "expect_path", "expect_place"]


def expect_level(value: Any, call: str, option: str, *, least: int = 1) -> None:
    """Make sure that a level was given, or None for all.

    Args:
        value: What was given.
        call: The function that has the option.
        option: Its name.
        least: The lowest level that it takes.

    Raises:
        TraceError: It is none.

    Example:
        >>> expect_level(0, "draw", "depth")
        Traceback (most recent call last):
        subtrace_kit.errors.TraceError: draw(depth=0) is not possible
          usual cause: depth is counted from 1, which is what the user wrote
          way out: give a whole number from 1 on, or None for all levels
    """
    if value is None or (_is_whole(value) and value >= least):
        return
    first = "from 1, which is what the user wrote" if least == 1 else f"from {least}, which is the modules"
    way_out = f"give a whole number from {least} on, or None for all levels"
    raise _wrong(call, option, value, f"{option} is counted {first}", way_out)


def expect_place(value: Any, call: str, option: str) -> None:
    """Make sure that a place was given as in a slice: a whole number, or None.

    Raises:
        TraceError: It is none.
    """
    if value is not None and not _is_whole(value):
        way_out = "give a whole number, counted as in a slice, or None"
        raise _wrong(call, option, value, f"{option} is the place of an operation of level 1", way_out)


def expect_one_of(value: Any, call: str, option: str, known: Collection[str]) -> None:
    """Make sure that one of several words was given.

    Raises:
        TraceError: It is none of them.
    """
    if not isinstance(value, str) or value not in known:
        raise _wrong(call, option, value, f"{option} takes one of a few words", f"give one of {', '.join(known)}")


def expect_path(value: Any, call: str) -> None:
    """Make sure that a path was given.

    Raises:
        TraceError: It is none.
    """
    if not isinstance(value, (str, os.PathLike)):
        raise TraceError(
            f"{call}() saves at a path, not at {shown(value)}",
            cause="the trace comes first, then the path",
            way_out=f'subtrace_kit.{call}(t, "trace.html")',
        )


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _wrong(call: str, option: str, value: Any, cause: str, way_out: str) -> TraceError:
    return TraceError(f"{call}({option}={shown(value)}) is not possible", cause=cause, way_out=way_out)
