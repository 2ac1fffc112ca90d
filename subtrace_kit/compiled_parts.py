"""A lowered trace with the parts compiled that a backend takes."""

from __future__ import annotations

from typing import Any

from .backends import Backend
from .trace import Trace

__all__ = ["with_compiled_parts"]


def with_compiled_parts(trace: Trace, backend: Backend, options: dict[str, Any]) -> tuple[Trace, tuple[Any, ...]]:
    """The trace as it is: there is no backend that compiles."""
    return trace, ()
