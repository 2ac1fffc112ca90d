"""In an ordinary run only the smallest benchmarks run, once each, so that they do not rot and cost no time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parent
LARGE = 1
"""Ops above which a benchmark waits for --benchmark-enable."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes time, unless benchmarks are asked for."""
    if config.getoption("benchmark_enable"):
        return
    left_out = [item for item in items if FOLDER in item.path.parents and _takes_time(item)]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def _takes_time(item: Any) -> bool:
    given = item.callspec.params if hasattr(item, "callspec") else {}
    compiles = "inductor" in given.get("variant", "") or given.get("check") == "torch.compile"
    return compiles or given.get("n", 0) > LARGE


@pytest.fixture(autouse=True)
def _compiled_anew() -> Iterator[None]:
    """torch.compile counts how often it has compiled, over all tests."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
