"""What the handlers of classes keep and read: a trace as written calls them again, a lowered one does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .errors import TraceError
from .owners import MISSING, Change, Owner, Owners
from .roots import CELL, functions_in, is_simple
from .surroundings import Surroundings
from .trace import Constant

__all__ = ["HandlerState", "changed_by_handler", "is_log", "shown"]


class HandlerState:
    """The Python state that the classes of a program find outside their arguments.

    Args:
        program: What the program finds: what it reads and writes itself is its own affair.
    """

    def __init__(self, program: Surroundings) -> None:
        self.found = Surroundings(None, handlers=program.called_again)
        self.owners = Owners()
        for place, obj in self.found.owners:
            if id(obj) not in program.seen:
                self.owners.watch(Owner(place.path, place), obj)
        for place, *binding in self.found.bindings:
            self.owners.watch_binding(place.path, *binding)
        constants = self.found.constants
        # A handler that another one wraps, to count its calls, is still the same handler.
        self.read = [(place, value) for place, value in constants if not any(functions_in(value))]

    def writes(self) -> tuple[Change, ...]:
        """What has changed since."""
        return tuple(self.owners.changes())

    def constants(self, writes: tuple[Change, ...]) -> Iterator[Constant]:
        """What a lowered trace depends on; what the handlers write themselves is another matter."""
        written = {shown(change) for change in writes}
        for place, value in self.read:
            if not any(path in (place.path, place.path.rpartition(" ")[2]) for path in written):
                yield Constant(place.path, value, place, by_class=True)


def shown(change: Change) -> str:
    """The path of what has changed."""
    path = change.owner.path
    known = path == change.key or path.endswith(f".{change.key}") or change.key == CELL
    return path if known or change.how != "attribute" else f"{path}.{change.key}"


def is_log(change: Change) -> bool:
    """Whether a change is a counter that counts or a list that grows: nothing that a result depends on."""
    value: Any = change.value
    if change.how == "items" and isinstance(value, list):
        return True
    return value is not MISSING and isinstance(value, int) and not isinstance(value, bool) and is_simple(value)


def changed_by_handler(change: Change) -> TraceError:
    """The error for a handler that keeps something between its calls."""
    return TraceError(
        f"a handler writes {shown(change)}, so the trace cannot be lowered",
        cause="a cache or a state that a class keeps between calls: a lowered trace no longer calls the class",
        way_out="run `t` itself instead of lower(t): it calls the class; or fill the cache before the recording",
    )
