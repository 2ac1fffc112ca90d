"""The ops that reach wrapper classes during a run, in order."""

from __future__ import annotations

from typing import Any

from .intercept import Modes, OpOverload, is_wrapper_type
from .ops import op_info
from .outcome import Facts

__all__ = ["SentOps"]


class SentOps:
    """Notes each op on a wrapper, at any depth, and lets the class answer.

    Questions about sizes, device and the like are left out: a trace fits one kind and need not ask again.
    """

    def __init__(self) -> None:
        listener: Any = self
        self.modes, self.passing = Modes(listener), None
        self.sent: dict[str, Facts] = {}

    def dispatch(self, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        """Note an op, and call it again from within, where NotImplemented hands it to the class."""
        if self.passing is func:
            self.passing = None
            return NotImplemented
        classes = [cls.__name__ for cls in types if is_wrapper_type(cls)]
        if not classes:
            return func(*args, **kwargs)
        if not _is_question(func):
            self.sent[f"op {len(self.sent)}"] = {"op": f"{func} to {', '.join(classes)}"}
        self.passing = func
        try:
            return self.modes.call_inside(func, args, kwargs)
        finally:
            self.passing = None


def _is_question(func: Any) -> bool:
    if not isinstance(func, OpOverload) or op_info(func).reads or op_info(func).mutable:
        return False
    return not any("Tensor" in str(result.type) for result in func._schema.returns)
