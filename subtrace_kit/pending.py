"""A wrapper object whose constructor has been called, and that nothing has used yet."""

from __future__ import annotations

from typing import Any

from .source import Source
from .values import Event, Value, values_in

__all__ = ["Pending"]


class Pending:
    """A wrapper object between `_make_wrapper_subclass` and its first use."""

    __slots__ = ("args", "kwargs", "obj", "order", "requires_grad", "scope", "source", "start")

    def __init__(self, obj: Any, scope: list[Event], args: tuple, kwargs: dict, source: Source | None) -> None:
        self.obj, self.scope, self.source = obj, scope, source
        self.args, self.kwargs = args, kwargs
        self.requires_grad = obj.requires_grad
        self.start = len(scope)
        self.order = 0

    def insert_after(self, event: Event, more: list[Event]) -> None:
        """Put events right behind one."""
        if more:
            place = next(i for i, other in enumerate(self.scope) if other is event) + 1
            self.scope[place:place] = more

    def insert(self, event: Event) -> None:
        """Put the constructor where the object was built, or after the last of its inner tensors."""
        event.order = self.order
        parts = {part.root for _, part in event.out.inner}
        place = self.start
        for index in range(self.start, len(self.scope)):
            other = self.scope[index]
            if (0 < other.order < self.order) or _makes(other, parts):
                place = index + 1
        self.scope.insert(place, event)


def _makes(event: Event, parts: set[Value]) -> bool:
    """Whether an event makes one of some values; an op that only writes into it hands it on."""
    made = {value.root for value in values_in(event.out)} & parts
    return bool(made and made - {value.root for value in values_in((event.args, event.kwargs))})
