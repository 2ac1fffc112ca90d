"""A rule for wrapper subclasses, and what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from textwrap import shorten

from ..errors import TraceError
from ..protocol import rule_source
from ..shown import message
from ..source import Source, innermost
from .example import Example, NotTried

__all__ = ["PARTS", "Fault", "Look", "NotTried", "Rule", "failed", "first_line", "rule", "told"]


_LENGTH = 200

PARTS = ("flatten", "metadata")
"""The rules without which objects cannot be compared."""


@dataclass(frozen=True)
class Fault:
    """One way in which a class breaks a rule.

    Args:
        text: What was seen.
        source: The line in the class.
        way_out: What mends it.
    """

    text: str
    source: Source | None = None
    way_out: str = ""

    @property
    def lines(self) -> list[str]:
        """The fault as a report shows it."""
        where = [f"at {_line(self.source)}"] if self.source else []
        return [*self.text.splitlines(), *where, *([f"way out: {self.way_out}"] if self.way_out else [])]


def _line(source: Source) -> str:
    if source.text.startswith(("def ", "async def ")):
        return f"{source.place}, {source.function}"
    return f"{source.place}: {source.text}" if source.text else source.place


Look = Callable[[Example], Iterator["Fault | str"]]
"""Looks at an example; gives faults, and texts that say what was tried."""


@dataclass(frozen=True)
class Rule:
    """Something that holds for a sound class.

    Args:
        name: A word or two.
        says: The rule, as a sentence.
        look: Finds what breaks it.
        needs: The rules without which it says nothing; they come before it.
    """

    name: str
    says: str
    look: Look
    needs: tuple[str, ...] = ()


def rule(name: str, says: str, *needs: str) -> Callable[[Look], Rule]:
    """Make a rule of a function that finds what breaks it."""
    return lambda look: Rule(name, says, look, needs)


def failed(what: str, error: Exception, way_out: str = "") -> Fault:
    """The fault that something raises, at the innermost line of the class."""
    if isinstance(error, TraceError):
        return Fault(error.what, error.handler or innermost(error), way_out or error.way_out)
    text = f"{type(error).__name__}: {first_line(error)}".removesuffix(": ")
    return Fault(f"{what} fails with {text}", innermost(error), way_out)


def first_line(error: Exception) -> str:
    """What an error says, at most some words."""
    first = (message(error).splitlines() or [""])[0]
    return shorten(first.removesuffix(":"), _LENGTH, placeholder=" ...")


def told(cls: type, text: str, way_out: str, member: str = "__torch_dispatch__") -> Fault:
    """The fault of a method of a class."""
    return Fault(text, rule_source(cls, member), way_out)
