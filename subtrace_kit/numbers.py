"""Python numbers that come out of tensors while a program is recorded."""

from __future__ import annotations

from typing import Any

from .symbols import Kind
from .traced_number import TracedNumber
from .values import Event, Value

__all__ = ["INSIDE", "Numbers", "constants", "guard_number", "moved", "perturbed", "perturbed_text"]


class Numbers:
    """The numbers of one recording, in the order they were read.

    A guarded number is compared with the recorded one at each run; the others are computed anew.
    """

    def __init__(self) -> None:
        self.read: list[Value] = []
        self.exact = False  # whether the program looks at the very class of its numbers

    def new(self, number: Any, hint: str, *, guarded: bool) -> Value:
        """A value for a Python number, or for another Python value that came from data."""
        value = Value(hint)
        value.number = (number, guarded)
        return value

    def guard_all(self) -> None:
        """Refuse runs in which any of these numbers is another."""
        for value in self.read:
            value.number = (value.number[0], True)

    def read_by(self, event: Event, number: Any) -> Value:
        """The value of a number that an op took out; an op on a wrapper shares that of its inner op."""
        last = self.read[-1] if self.read else None
        if last is not None and event.subs and event.subs[-1].out is last and _alike(last.number[0], number):
            return last
        self.read.append(self.new(number, event.symbol.name, guarded=True))
        return self.read[-1]

    def behind(self, result: float, perturb: bool) -> Value | None:
        """The number that a float among the results is: a plain one was handed out last, if it is equal."""
        for value in reversed(self.read):
            number, guarded = value.number
            if not guarded and isinstance(number, float) and _alike(perturbed(number) if perturb else number, result):
                return value
        return None

    def take(self, event: Event, out: Any) -> bool:
        """Tie the Python result of a function that read data to its number.

        Returns:
            Whether the program may hold it as a number with a memory: floats and bools that the
            function handed on as they were read. All others are guarded.
        """
        last = self.read[-1] if self.read else None
        if last is None or not _among(last, event) or not _alike(last.number[0], out):
            event.out = self.new(out, event.symbol.name, guarded=True)
            return False
        event.out = last
        if isinstance(out, (bool, float)) and not self.exact:
            last.number = (out, False)
            return True
        return False


def constants(events: list[Event], known: frozenset[int], *results: Any) -> list[Any]:
    """The operations of the top level, their Python constants and the results, in a form that compares.

    Tensors and numbers from data count as places, not as values: an object from outside as itself, all
    others in the order in which they come. An object that text cannot tell from another counts by its class.

    Args:
        events: The operations.
        known: The ids of the tensors from outside.
        *results: The results, in any structure.
    """
    places = _Places(known)
    found = [
        (event.symbol.name, *map(places.of, (event.args, event.kwargs, event.out, _metadata(event))))
        for event in events
    ]
    return [*found, *map(places.of, results)]


def _metadata(event: Event) -> Any:
    """The metadata of a wrapper that the program builds; they may hold numbers from data."""
    return event.out.metadata if event.symbol.kind is Kind.CONSTRUCTOR else None


class _Places:
    """Gives values numbers that are the same in every run that does the same."""

    def __init__(self, known: frozenset[int]) -> None:
        self.known = known
        self.numbers: dict[int, int] = {}

    def of(self, value: Any) -> Any:
        """A form of a value that compares."""
        if isinstance(value, Value):
            root = value.root
            if root.outside and id(root.ref()) in self.known:
                return ("outside", id(root.ref()))
            return self.numbers.setdefault(id(root), len(self.numbers))
        if isinstance(value, (list, tuple)):
            return [self.of(item) for item in value]
        if isinstance(value, dict):
            return [(self.of(key), self.of(item)) for key, item in value.items()]
        if isinstance(value, slice):
            return self.of((value.start, value.stop, value.step))
        if isinstance(value, (set, frozenset)):
            return sorted(map(repr, map(self.of, value)))
        return repr(value) if isinstance(value, (bool, int, float, complex, str, bytes)) else type(value).__name__


def perturbed(number: Any) -> Any:
    """Another number, to see what depends on it."""
    return not number if isinstance(number, bool) else number * 1.0625 + 0.03125


INSIDE = ("up", "down")
"""The two ways to change what handlers take out of tensors."""


def moved(number: Any, way: str) -> Any:
    """A number far above or below, beyond most bounds that code compares it with."""
    if isinstance(number, bool):
        return not number
    return number * 1000 + 1017 if way == "up" else number / 1000 - 1017


def perturbed_text(text: str) -> str:
    """Another text of the same form: each digit is another one."""
    return text.translate(_OTHER_DIGITS)


_OTHER_DIGITS = str.maketrans("0123456789", "1234567890")


def guard_number(item: Any) -> None:
    """A number in metadata is out of sight: runs that find another value must be refused."""
    if isinstance(item, TracedNumber):
        item.value.number = (item.value.number[0], True)


def _alike(one: Any, other: Any) -> bool:
    """Equality under which nan equals nan."""
    return isinstance(other, (bool, int, float)) and (one == other or (one != one and other != other))


def _among(number: Value, event: Event) -> bool:
    """Whether a number was read by an event or by one of those inside it."""
    return event.out is number or any(_among(number, inner) for inner in event.subs)
