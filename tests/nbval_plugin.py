"""A pytest plugin for `make nbval`: which outputs of a notebook are not compared.

Pictures and tables come from a layout engine that may be another one here; the text beside them is compared.
It is a plugin (`-p tests.nbval_plugin`) because a conftest.py is seen only by the tests below its own folder.
"""

from __future__ import annotations

import pytest

NOT_COMPARED = ("image/svg+xml", "text/html")


def pytest_collectstart(collector: pytest.Collector) -> None:
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += NOT_COMPARED
