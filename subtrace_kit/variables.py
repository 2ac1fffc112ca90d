"""The variables of a function, as they are now: with functools.partial, where a place starts."""

from __future__ import annotations

import types
from typing import Any

__all__ = ["contents_of", "default_of", "keyword_default_of", "variable_of"]


def variable_of(space: dict[str, Any], name: str) -> Any:
    """A global variable."""
    return space[name]


def contents_of(cell: types.CellType) -> Any:
    """A variable of a closure.

    Raises:
        LookupError: It was deleted.
    """
    try:
        return cell.cell_contents
    except ValueError as error:
        raise LookupError("the variable was deleted") from error


def default_of(function: types.FunctionType, index: int) -> Any:
    """The default of a positional parameter."""
    return (function.__defaults__ or ())[index]


def keyword_default_of(function: types.FunctionType, name: str) -> Any:
    """The default of a keyword parameter."""
    return (function.__kwdefaults__ or {})[name]
