"""What every test gets: one thread, the same random numbers each run, and examples that are the same each run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings

from subtrace_kit import _dot

# No deadline: the first example pays for imports. No database: a run depends on nothing but the code.
settings.register_profile("subtrace_kit", deadline=None, derandomize=True, database=None)
settings.load_profile("subtrace_kit")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    """Small tensors are quicker on one thread, and sums come out the same on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def pure(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The engine that gives the same picture everywhere."""
    monkeypatch.setenv(_dot.VARIABLE, "pure")
    _dot.engine.cache_clear()
    yield
    _dot.engine.cache_clear()
