"""Python values as source text, with the imports and named objects that the text needs."""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Iterable
from typing import Any

import torch

from .naming import Names, identifier
from .proxies import Proxy

__all__ = ["Literals"]

_PLAIN = (bool, int, str, bytes, type(None), type(Ellipsis))
_REPR = (torch.dtype, torch.layout, torch.memory_format)


class Literals:
    """Writes values; remembers what must be imported, and objects that text cannot say.

    Args:
        taken: Names that the text uses for other things.

    Attributes:
        imports: Import lines, in order.
        objects: Objects by the name that the text uses for them.
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.imports: dict[str, None] = {}
        self.objects: dict[str, Any] = {}
        self._names = Names(taken)
        self._known: dict[int, str] = {}
        self._imported: dict[tuple[str, str], str] = {}

    def text(self, value: Any) -> str:
        """Source text for a value; a proxy is its name."""
        if isinstance(value, Proxy):
            return value.name
        if type(value) in _PLAIN:
            return repr(value)
        if type(value) is float:
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        if isinstance(value, _REPR):
            return str(value)
        if type(value) in _WRITERS:
            return _WRITERS[type(value)](self, value)
        return self._other(value)

    def _other(self, value: Any) -> str:
        if isinstance(value, enum.Enum):
            return f"{self.text(type(value))}.{value.name}"
        if isinstance(value, type) or callable(value):
            if (name := self.importable(value)) is not None:
                return name
        elif hasattr(value, "_fields") and isinstance(value, tuple):
            return f"{self.text(type(value))}({self._items(value)})"
        own = getattr(value, "__name__", "") if callable(value) and not isinstance(value, type) else ""
        return self.named(value, identifier(own.strip("<>") or type(value).__name__.lower()))

    def importable(self, value: Any) -> str | None:
        """The name of a class or function that an import line can bring, or None."""
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if not module or not name.replace(".", "").isidentifier() or module == "__main__":
            return None
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if found is not value:
            return None
        if module == "builtins":
            return name
        if module.split(".")[0] == "torch":
            self.imports[f"import {module}"] = None
            return f"{module}.{name}"
        top, *rest = name.split(".")
        if (known := self._imported.get((module, top))) is None:
            known = self._imported[module, top] = self._names.new(top)
            self.imports[f"from {module} import {top}" + (f" as {known}" if known != top else "")] = None
        return ".".join([known, *rest])

    def named(self, value: Any, hint: str) -> str:
        """A name for an object that text cannot say; the same object keeps its name."""
        if (name := self._known.get(id(value))) is None:
            name = self._known[id(value)] = self._names.new(hint)
            self.objects[name] = value
        return name

    def fresh(self, hint: str) -> str:
        """A name that the text uses for nothing else."""
        return self._names.new(hint)

    def _items(self, values: Any) -> str:
        return ", ".join(self.text(value) for value in values)


def _tuple(literals: Literals, value: tuple) -> str:
    inner = literals._items(value)
    return f"({inner},)" if len(value) == 1 else f"({inner})"


def _dict(literals: Literals, value: dict) -> str:
    return "{" + ", ".join(f"{literals.text(k)}: {literals.text(v)}" for k, v in value.items()) + "}"


def _complex(literals: Literals, value: complex) -> str:
    return f"complex({literals.text(value.real)}, {literals.text(value.imag)})"


def _slice(literals: Literals, value: slice) -> str:
    return f"slice({literals._items((value.start, value.stop, value.step))})"


_WRITERS: dict[type, Any] = {
    tuple: _tuple,
    list: lambda literals, value: f"[{literals._items(value)}]",
    dict: _dict,
    slice: _slice,
    complex: _complex,
    set: lambda literals, value: f"{{{literals._items(sorted(value, key=repr))}}}" if value else "set()",
    frozenset: lambda literals, value: f"frozenset([{literals._items(sorted(value, key=repr))}])",
    torch.Size: lambda literals, value: f"torch.Size([{literals._items(value)}])",
    torch.device: lambda literals, value: f"torch.device({str(value)!r})",
}
