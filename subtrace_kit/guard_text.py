"""A generated check: conditions one after the other, and the objects that they need by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any

from .intercept import in_function_mode, no_torch_function, reads_directly

__all__ = ["Check", "GuardText"]

Check = Callable[[tuple, dict], "dict[str, Any] | None"]
"""A function of (args, kwargs): the captured values by name, or None for no."""

_FEW = 7  # up to so many, comparing each with each is quicker than a set

_FRAME = """
def fits(args, kwargs):
    off = no_torch_function() if {needed} else None  # no class's __torch_function__ in between
    try:
        if off is not None:
            off.__enter__()
{body}
    except Exception:  # means no
        return None
    finally:
        if off is not None:
            off.__exit__()
"""


class GuardText:
    """The lines of a check.

    Args:
        **space: Objects that the lines call by these names.
    """

    def __init__(self, **space: Any) -> None:
        self.space = space
        self.lines: list[str] = []
        self.classes: set[type] = set()
        """Of the tensors that the lines read."""
        self._names: dict[int, str] = {}
        self._count = 0

    def require(self, condition: str) -> None:
        """The answer is no where a condition does not hold."""
        self.lines.append(f"if not ({condition}): return")

    def require_all(self, conditions: list[str]) -> None:
        """The same of several, which may be none."""
        if conditions:
            self.require(" and ".join(conditions))

    def named(self, value: Any) -> str:
        """A name for an object that the code needs."""
        if (name := self._names.get(id(value))) is None:
            name = self._names[id(value)] = f"k{len(self.space)}"
            self.space[name] = value  # which keeps it, and so its id
        return name

    def variable(self, expression: str) -> str:
        """A new variable for the value of an expression."""
        name = self.fresh()
        self.lines.append(f"{name} = {expression}")
        return name

    def fresh(self) -> str:
        """The name of a new variable."""
        self._count += 1
        return f"v{self._count}"

    def pattern(self, names: list[str], places: tuple[int, ...], equal: str, key: str) -> tuple[list[str], list[str]]:
        """What the names stand for is equal where their places are, and nowhere else.

        Returns:
            The conditions that some are equal, and those that the others differ.
        """
        first: dict[int, str] = {}
        alike = []
        for name, place in zip(names, places, strict=True):
            if first.setdefault(place, name) is not name:
                alike.append(f"{name} {equal} {first[place]}")
        apart = list(first.values())
        if len(apart) <= _FEW:
            unequal = "is not" if equal == "is" else "!="
            return alike, [f"{one} {unequal} {other}" for one, other in combinations(apart, 2)]
        return alike, [f"len({{{', '.join(map(key.format, apart))}}}) == {len(apart)}"]

    def compiled(self, found: Mapping[str, str]) -> Check:
        """The lines as a function.

        Args:
            found: Captured values: the name in the trace -> the variable.
        """
        values = ", ".join(f"{name!r}: {variable}" for name, variable in found.items())
        body = "\n".join(f"        {line}" for line in [*self.lines, f"return {{{values}}}"])
        needed = "in_function_mode()" if all(map(reads_directly, self.classes)) else "True"
        switch = {"no_torch_function": no_torch_function, "in_function_mode": in_function_mode}
        space: dict[str, Any] = {**self.space, **switch}
        exec(compile(_FRAME.format(body=body, needed=needed), "<subtrace guard>", "exec"), space)
        fits: Check = space["fits"]
        return fits
