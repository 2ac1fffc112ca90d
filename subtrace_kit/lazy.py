"""Attributes that are worked out when they are first looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["lazy"]

if TYPE_CHECKING:
    from functools import cached_property as lazy
else:

    class lazy:
        """`functools.cached_property` without its lock, which takes longer than most of what is kept here.

        Args:
            compute: Gives the value for an object.
        """

        def __init__(self, compute: Any) -> None:
            self.compute, self.name, self.__doc__ = compute, compute.__name__, compute.__doc__

        def __get__(self, owner: Any, cls: Any = None) -> Any:
            if owner is None:
                return self
            value = self.compute(owner)
            object.__setattr__(owner, self.name, value)  # Through `__dict__` it would take more memory.
            return value
