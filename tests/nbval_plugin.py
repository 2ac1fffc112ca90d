"""A pytest plugin for `make nbval`: which outputs are not compared, and how its kernels are reached.

Pictures and tables come from a layout engine that may be another one here; the text beside them is compared.
It is a plugin (`-p tests.nbval_plugin`) because a conftest.py is seen only by the tests below its own folder.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import nbval.kernel
import pytest
from jupyter_client.manager import KernelManager

NOT_COMPARED = ("image/svg+xml", "text/html")


class SocketKernelManager(KernelManager):
    """A manager whose kernel listens on files of its own.

    With ports, two workers that start a kernel at the same moment can be given the same free one, and a kernel dies.
    """

    def __init__(self, **options: Any) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="nbval-")
        super().__init__(transport="ipc", ip=str(Path(self._folder.name) / "kernel"), **options)


def pytest_configure() -> None:
    nbval.kernel.KernelManager = SocketKernelManager


def pytest_collectstart(collector: pytest.Collector) -> None:
    if hasattr(collector, "skip_compare"):
        collector.skip_compare += NOT_COMPARED
