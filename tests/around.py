"""A program and what lies around it: three runs in a row, eager and both traces side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from same import assert_same, pictures

import subtrace_kit

Around = tuple[Callable[..., Any], Callable[[], Any], Callable[[], Any]]
"""A program, what is done after its first run, and what is looked at."""


def given(run: int) -> torch.Tensor:
    """The argument of one run."""
    return torch.tensor([1.0, 2.0]) + run


def nothing() -> None:
    """No change, and nothing to look at."""


def seen_in_runs(program: Callable[..., Any], change: Callable[[], Any], view: Callable[[], Any]) -> list[Any]:
    """Results and what lies around after each of three runs."""
    found = []
    for run in range(3):
        if run == 1:
            change()
        found.append([pictures(program(given(run))), pictures(view())])
    return found


def forms(make: Callable[[], Around]) -> Iterator[Around]:
    """The trace and the lowered trace, each with surroundings of its own that recording has left alone."""
    for form in (lambda trace: trace, subtrace_kit.lower):
        program, change, view = make()
        before = pictures(view())
        trace = subtrace_kit.trace(program)(given(0))
        assert_same(pictures(view()), before)
        yield form(trace), change, view


def assert_follows(make: Callable[[], Around]) -> None:
    """Both traces give what eager gives, run after run."""
    wanted = seen_in_runs(*make())
    for around in forms(make):
        assert_same(seen_in_runs(*around), wanted)


def refused_after_change(make: Callable[[], Around]) -> str:
    """What both traces say after the change; before it they give what eager gives."""
    told = []
    for trace, change, _ in forms(make):
        assert_same(pictures(trace(given(0))), pictures(make()[0](given(0))))
        change()
        with pytest.raises(subtrace_kit.TraceError) as caught:
            trace(given(1))
        told.append(str(caught.value).splitlines()[0])
    assert told[0] == told[1]
    return told[0]


def refused_at_once(make: Callable[[], Around]) -> str:
    """What trace() says of the program; all around is as it was."""
    program, _, view = make()
    before = pictures(view())
    with pytest.raises(subtrace_kit.TraceError) as caught:
        subtrace_kit.trace(program)(given(0))
    assert_same(pictures(view()), before)
    return str(caught.value).splitlines()[0]
