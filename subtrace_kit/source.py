"""Where an operation stands in the user's code."""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

__all__ = [
    "Source", "building_line", "definition", "innermost", "is_internal", "located", "nearest_line", "source_of",
    "user_lines",
]  # fmt: skip

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
        """Full path (`cell` in a notebook), line and text, as an error message shows them."""
        where = self.place if _is_cell(self.file) else f"{self.file}:{self.line}"
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
    global _latest
    code, step, source = _latest
    if source is None or code is not frame.f_code or step != frame.f_lasti:
        code = frame.f_code
        key = (code.co_filename, frame.f_lineno, code.co_name)
        if (source := _sources.get(key)) is None:
            source = _sources[key] = Source(*key)
        _latest = code, frame.f_lasti, source
    return source


_latest: tuple[CodeType | None, int, Source | None] = (None, 0, None)
"""Where the last frame stood. Python counts a line from the start of its function, and many ops stand at one."""


def definition(code: CodeType | None, name: str = "") -> Source | None:
    """The `def` line of a function; its code begins at the first decorator."""
    if code is None:
        return None
    lines = range(code.co_firstlineno, code.co_firstlineno + _DECORATORS)
    defined = (n for n in lines if linecache.getline(code.co_filename, n).lstrip().startswith(("def ", "async def ")))
    first = code.co_firstlineno if code.co_name == "<lambda>" else next(defined, code.co_firstlineno)
    return Source(code.co_filename, first, name or code.co_name)


_DECORATORS = 20
"""Lines of decorators that are looked through."""


def user_lines(error: BaseException) -> list[Source]:
    """The lines of user code in the traceback of an error, outermost first."""
    found = []
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if not is_internal(code.co_filename):
            found.append(Source(code.co_filename, step.tb_lineno, code.co_name))
        step = step.tb_next
    return found


def innermost(error: BaseException) -> Source | None:
    """The innermost line of user code in the traceback of an error."""
    lines = user_lines(error)
    return lines[-1] if lines else None


_BUILDING = frozenset({"__new__", "__init__", "__tensor_unflatten__"})
_PRINTING = frozenset({"__repr__", "__str__", "__format__"})


def nearest_line() -> Source | None:
    """The nearest line of user code, seen from the callers of the recorder's methods."""
    frame: Any = sys._getframe(3)
    while frame is not None and (_internal.get(file := frame.f_code.co_filename) or is_internal(file)):
        frame = frame.f_back
    return None if frame is None else source_of(frame)


def building_line() -> Source | None:
    """The nearest line of user code outside constructors: the one that asked for the object."""
    frame: Any = sys._getframe(2)
    while frame is not None and (
        _internal.get(file := frame.f_code.co_filename) or frame.f_code.co_name in _BUILDING or is_internal(file)
    ):
        frame = frame.f_back
    return None if frame is None else source_of(frame)


def located(root: CodeType) -> tuple[Source | None, bool]:
    """The nearest line of user code, and whether it runs to print a tensor.

    Args:
        root: The code that called the program: frames above it are not the program's.
    """
    frame: Any = sys._getframe(2)
    source, printing = None, False
    while frame is not None and (code := frame.f_code) is not root:
        if not (_internal.get(code.co_filename) or is_internal(code.co_filename)):
            if source is None:
                source = source_of(frame)
            printing = printing or code.co_name in _PRINTING
        frame = frame.f_back
    return source, printing
