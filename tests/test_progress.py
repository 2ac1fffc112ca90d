"""The progress bar: late, honest, gone at the end, and never in the way."""

from __future__ import annotations

import io
import random
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tqdm.std import tqdm

import subtrace_kit
from subtrace_kit import progress
from subtrace_kit.progress import Stage, counted
from subtrace_kit.zoo import TwoTensor


class Terminal(io.StringIO):
    """A stderr that somebody looks at."""

    def isatty(self) -> bool:
        return True


class Broken(Terminal):
    """A stderr whose other end has gone."""

    def write(self, text: str) -> int:
        raise OSError(5, "gone")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal, and every stage is late at once."""
    found = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=found))  # pytest sets sys.stderr anew for each test
    monkeypatch.setattr(progress, "DELAY", -1.0)
    return found


def program(x: Any) -> Any:
    for _ in range(20):
        x = -x
    return x


def two() -> TwoTensor:
    return TwoTensor(torch.ones(2), torch.ones(2))


def test_each_stage_shows_its_name_and_counts(terminal: Terminal) -> None:
    t = subtrace_kit.trace(program)(two())
    assert "recording: 1 ops" in terminal.getvalue()
    low = subtrace_kit.lower(t)
    assert "lowering:" in terminal.getvalue()
    assert "writing down:" in terminal.getvalue()
    str(low)
    assert "writing out:" in terminal.getvalue()
    low(two())
    assert "compiling:" in terminal.getvalue()


def test_the_bar_is_gone_at_the_end(terminal: Terminal) -> None:
    subtrace_kit.trace(program)(two())
    assert terminal.getvalue().endswith("\r")
    assert terminal.getvalue().rpartition("\r")[0].rpartition("\r")[2].strip() == ""
    assert not progress.bar_class()[0]._instances


def test_the_bar_is_gone_after_an_error(terminal: Terminal) -> None:
    def fails(x: Any) -> Any:
        x = -x
        raise ValueError("no")

    with pytest.raises(subtrace_kit.TraceError):
        subtrace_kit.trace(fails)(two())
    assert not progress.bar_class()[0]._instances
    assert counted([1]) == [1]  # no stage is left


def test_what_is_short_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", found := Terminal())
    monkeypatch.setattr(progress, "bar_class", lambda: pytest.fail("tqdm was asked"))
    t = subtrace_kit.trace(program)(two())
    subtrace_kit.lower(t)(two())
    assert str(t)
    assert found.getvalue() == ""


@pytest.mark.parametrize("file", [None, Broken(), io.StringIO()], ids=["none", "broken", "a file"])
def test_nothing_breaks_without_a_terminal(file: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", file)
    monkeypatch.setattr(progress, "DELAY", -1.0)
    t = subtrace_kit.trace(program)(two())
    assert torch.equal(subtrace_kit.lower(t)(two()).a, program(two()).a)
    assert not isinstance(file, io.StringIO) or file.getvalue() == ""


def test_a_closed_stderr_ends_the_bar_alone(terminal: Terminal) -> None:
    with Stage("recording") as stage:
        stage.tick()
        stage.bar.mininterval = 0
        terminal.close()
        stage.tick()
    assert stage.count == 2


def test_what_is_recorded_is_the_same(terminal: Terminal) -> None:
    def draws(x: Any) -> Any:
        return program(x) + torch.rand(2)

    threads, state = threading.active_count(), random.getstate()
    torch.manual_seed(1)
    with_bar = str(subtrace_kit.trace(draws)(two()))
    assert (threading.active_count(), random.getstate()) == (threads, state)
    assert terminal.getvalue()
    terminal.isatty = lambda: False  # type: ignore[method-assign]
    assert str(subtrace_kit.trace(draws)(two())) == with_bar


def test_a_program_may_have_its_own_stderr(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    own = io.StringIO()

    def program(x: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", own)
            for _ in range(3):
                x = -x
        return x

    subtrace_kit.trace(program)(torch.ones(2))
    assert own.getvalue() == ""


def test_it_stands_below_the_bars_of_others(terminal: Terminal) -> None:
    others = io.StringIO()
    for _ in tqdm(range(2), file=others):
        subtrace_kit.trace(program)(two())
    assert "\nrecording: 1 ops" in terminal.getvalue().replace("\r", "")


def bars(x: Any) -> Any:
    for _ in tqdm(range(3), file=io.StringIO()):
        x = -x
    return x


def test_a_program_may_have_its_own_bar(terminal: Terminal) -> None:
    bars(torch.ones(2))  # which makes what all bars share
    before = set(tqdm._instances), tqdm.monitor
    assert len(subtrace_kit.trace(bars)(torch.ones(2)).bound_symbols) == 3
    assert (set(tqdm._instances), tqdm.monitor) == before


def test_counted_counts_the_stage_of_this_thread() -> None:
    with Stage("outer") as outer:
        outer.tick()
        with Stage("inner") as inner:
            assert list(counted("abc")) == ["a", "b", "c"]
        assert (inner.count, inner.total, outer.count) == (3, 3, 1)


def test_the_bar_goes_to_a_notebook_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []

    class Bar:
        start_t = 0.0
        _instances = ()

        def __init__(self, **options: Any) -> None:
            made.append(options)

        def close(self) -> None:
            made.clear()

    monkeypatch.setattr(progress, "bar_class", lambda: (Bar, True))
    monkeypatch.setattr(progress, "DELAY", -1.0)
    with Stage("recording") as stage:
        stage.tick()
        assert made[0]["desc"] == "recording"
    assert not made
