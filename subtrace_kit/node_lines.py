"""Which line of the forward an op of the backward belongs to."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from .intercept import current_node_number, node_number
from .values import Event

__all__ = ["NodeLines"]


class NodeLines:
    """Ties autograd nodes to the forward events that made them.

    Nodes are numbered as they are made, so those between two forward events belong to the later one.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._events: list[Event] = []

    def remember(self, event: Event, out: Any) -> None:
        """Note the nodes of an event's results."""
        for tensor in out if isinstance(out, (list, tuple)) else (out,):
            number = node_number(tensor)
            if number is not None and (not self._numbers or number > self._numbers[-1]):
                self._numbers.append(number)
                self._events.append(event)

    def credit(self, event: Event) -> None:
        """Put an event under the line of the forward event whose node runs, if one does."""
        number = current_node_number()
        if number is None:
            return
        place = bisect_left(self._numbers, number)
        if place < len(self._events):
            forward = self._events[place]
            event.source = forward.source
            event.module = f"backward of {forward.symbol.name}"
