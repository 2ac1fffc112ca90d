"""Where an operation stands in the user's code."""

from __future__ import annotations

import linecache
import os
import sysconfig
from dataclasses import dataclass
from types import FrameType

import torch

__all__ = ["Source", "is_internal", "source_of"]

_TORCH = os.path.dirname(torch.__file__) + os.sep
_KIT = os.path.dirname(__file__) + os.sep
_STDLIB = sysconfig.get_path("stdlib") + os.sep
_ZOO = os.path.join(_KIT, "zoo") + os.sep


@dataclass(frozen=True, slots=True)
class Source:
    """A line of user code.

    Args:
        file: Path as the interpreter gives it.
        line: Line number, from 1.
        function: Name of the enclosing function.

    Example:
        >>> Source("model.py", 12, "forward").place
        'model.py:12'
    """

    file: str
    line: int
    function: str = ""

    @property
    def place(self) -> str:
        """`file:line` with the file's last part only, which is the same on every machine."""
        name = os.path.basename(self.file)
        # A notebook cell is compiled from a temporary file whose name is a hash of its text.
        return f"{'cell' if _is_cell(self.file) else name}:{self.line}"

    @property
    def text(self) -> str:
        """The line itself, stripped; empty where the source cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def describe(self) -> str:
        """Full path, line and text, as an error message shows them."""
        where = f"{self.file}:{self.line}"
        function = f" in {self.function}" if self.function else ""
        return f"{where}{function}" + (f": {self.text}" if self.text else "")


def _is_cell(file: str) -> bool:
    return "ipykernel_" in file or file.startswith("<ipython-input")


_internal: dict[str, bool] = {}
_sources: dict[tuple[str, int, str], Source] = {}


def is_internal(file: str) -> bool:
    """True for files of torch, of the kit, of Python itself, and for generated code: no user wrote them."""
    if (known := _internal.get(file)) is None:
        known = _internal[file] = _is_internal_file(file)
    return known


def _is_internal_file(file: str) -> bool:
    if file.startswith(_ZOO):
        return False
    if file.startswith(_STDLIB) and "site-packages" not in file:
        return True
    return file.startswith((_TORCH, _KIT, "<subtrace", "<string>", "<frozen", "<eval_with_key>"))


def source_of(frame: FrameType) -> Source:
    """The line a frame stands at; the same object for the same line."""
    code = frame.f_code
    key = (code.co_filename, frame.f_lineno, code.co_name)
    if (source := _sources.get(key)) is None:
        source = _sources[key] = Source(*key)
    return source
