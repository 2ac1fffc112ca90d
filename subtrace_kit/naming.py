"""Names for values: Python identifiers, unique in a trace, the same from run to run."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable
from functools import cache

from .helpers import HELPERS

__all__ = ["TEXT_BUILTINS", "TEXT_NAMES", "Names", "identifier"]

TEXT_NAMES = frozenset({"torch", "aten", "operator", "pickle", *HELPERS})
"""What the text of a trace imports or defines under these names."""

TEXT_BUILTINS = frozenset({"float", "complex", "slice", "set", "frozenset", "getattr"})
"""What it takes from Python."""

_RESERVED = {*keyword.kwlist, *dir(builtins), "self", *TEXT_NAMES}


def identifier(text: str) -> str:
    """A Python identifier that looks like `text`.

    Example:
        >>> identifier("aten.mul.Tensor"), identifier("fc1.weight"), identifier("0")
        ('aten_mul_Tensor', 'fc1_weight', '_0')
    """
    name = re.sub(r"\W", "_", text, flags=re.ASCII) or "_"
    return f"_{name}" if name[0].isdigit() else name


@cache
def base_name(symbol_name: str) -> str:
    """The short name of what an operation gives: `torch.Tensor.mul` and `aten.mul.Tensor` give `mul`."""
    parts = symbol_name.split(".")
    if parts[-1] in ("__get__", "apply", "default"):
        parts = parts[:-1]
    name = parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[-1]
    return identifier(name.strip("_") or "value").lower()


class Names:
    """Hands out names.

    Args:
        taken: Names that are used already.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken: set[str] = {*_RESERVED, *taken}
        self._next: dict[str, int] = {}

    def reserve(self, names: Iterable[str]) -> None:
        """Take names out of the stock."""
        self._taken.update(names)

    def new(self, hint: str) -> str:
        """A name that starts with `hint` and was not handed out before."""
        name, count = hint, self._next.get(hint, 0)
        while name in self._taken:
            count += 1
            name = f"{hint}_{count}"
        self._next[hint] = count
        self._taken.add(name)
        return name
