"""Numbers that were taken out of tensors and remember it.

A float from `.item()` is handed to the program as a float that records arithmetic, so that later
ops use the number of their own run. A comparison would freeze one side of a branch: it is refused.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from .intercept import current_listener

if TYPE_CHECKING:
    from .recorder import Recorder
    from .values import Value

__all__ = ["TracedNumber", "traced"]


class TracedNumber:
    """A number with a memory of its value in the trace."""

    recorder: Recorder
    value: Value

    def _live(self) -> bool:
        """Whether the recording that made it still goes on; afterwards it is a plain number."""
        return current_listener() is self.recorder and not self.recorder.paused


class TracedFloat(float, TracedNumber):
    """A float from a tensor."""

    def __hash__(self) -> int:
        return float.__hash__(self)


class TracedBool(int, TracedNumber):
    """A bool from a tensor (`torch.equal`); bool itself cannot be subclassed."""

    def __repr__(self) -> str:
        return repr(int(self) != 0)

    def __hash__(self) -> int:
        return int.__hash__(self)


def traced(recorder: Recorder, number: Any, value: Value) -> Any:
    """Give a float or bool its memory."""
    made: Any = TracedBool(number) if isinstance(number, bool) else TracedFloat(number)
    made.recorder, made.value = recorder, value
    return made


def _arithmetic(name: str, reflected: bool) -> Any:
    compute = getattr(operator, name)

    def method(self: Any, *others: Any) -> Any:
        if not all(isinstance(other, (int, float)) for other in others):
            return NotImplemented
        args = (*others, self) if reflected else (self, *others)
        result = compute(*(float(a) if isinstance(a, float) else a for a in args))
        return self.recorder.number_op(name, args, result) if self._live() else result

    return method


def _refused(name: str, base: type) -> Any:
    def method(self: Any, *others: Any) -> Any:
        if self._live():
            raise self.recorder.branch_on_number()
        return getattr(base, name)(self, *others)

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(TracedFloat, f"__{_name}__", _arithmetic(_name, False))
    setattr(TracedFloat, f"__r{_name}__", _arithmetic(_name, True))
for _name in ("neg", "pos", "abs"):
    setattr(TracedFloat, f"__{_name}__", _arithmetic(_name, False))
for _name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__", "__bool__"):
    setattr(TracedFloat, _name, _refused(_name, float))
    setattr(TracedBool, _name, _refused(_name, int))
for _name in ("__int__", "__round__", "__trunc__", "__floor__", "__ceil__"):
    setattr(TracedFloat, _name, _refused(_name, float))
