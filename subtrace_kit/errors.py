"""The one error of the kit: what went wrong, where, why it usually does, and the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .source import Source
    from .trace import Trace

__all__ = ["TraceError"]


class TraceError(RuntimeError):
    """A program, class or input that the kit cannot trace, lower or run.

    Args:
        what: One sentence that says what happened; it names the op and the class where there are any.
        source: The user's line, or None where no user code is involved.
        handler: The line in the wrapper class, where that is another one.
        cause: The usual cause.
        way_out: What the user can do.

    Attributes:
        trace: The trace up to the failing op (a `Trace`), or None when nothing was being recorded.

    Example:
        >>> error = TraceError("aten.mm has no rule", cause="a missing rule", way_out="add one")
        >>> print(error)
        aten.mm has no rule
          usual cause: a missing rule
          way out: add one
    """

    inside = "in the class"  # where the handler's line is

    def __init__(
        self,
        what: str,
        *,
        source: Source | None = None,
        handler: Source | None = None,
        cause: str = "",
        way_out: str = "",
    ) -> None:
        self.what, self.source, self.handler = what, source, handler
        self.cause, self.way_out = cause, way_out
        self.trace: Trace | None = None
        super().__init__(what)

    def __str__(self) -> str:
        lines = [self.what]
        if self.source is not None:
            lines.append(f"  at {self.source.describe()}")
        if self.handler is not None and self.handler != self.source:
            lines.append(f"  {self.inside} at {self.handler.describe()}")
        if self.cause:
            lines.append(f"  usual cause: {self.cause}")
        if self.way_out:
            lines.append(f"  way out: {self.way_out}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return RuntimeError, (str(self),)
