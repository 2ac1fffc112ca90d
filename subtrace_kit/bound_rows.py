"""Rows of bound symbols and values of proxies: what they say is worked out when it is looked at."""

from __future__ import annotations

import dataclasses
import re
import reprlib
from collections.abc import Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any, ClassVar

from .proxies import Proxy, SubclassTensorProxy
from .rows import Row, Value
from .seen import Seen
from .source import Source
from .symbols import BoundSymbol, Kind, type_text
from .touched import arguments_of, count, inner_of, likeness, mentions, modules, touched
from .trace import Construction

__all__ = ["Reader"]


class Reader:
    """Makes rows of bound symbols and values of proxies, each proxy read once.

    Args:
        ledger: What became of each construction, by the name of its result.
    """

    def __init__(self, ledger: Mapping[str, Construction]) -> None:
        self.ledger = ledger
        self.known: dict[int, Value] = {}  # Each value keeps its proxy, so that its id stays its own.

    def value(self, proxy: Proxy) -> Value:
        """The value of a proxy."""
        if (found := self.known.get(id(proxy))) is None:
            found = self.known[id(proxy)] = _ProxyValue._of(proxy=proxy)
        return found

    def values(self, proxies: Iterable[Proxy]) -> tuple[Value, ...]:
        """The values of proxies, one for each name."""
        return tuple({proxy.name: self.value(proxy) for proxy in proxies}.values())

    def row(self, bound: BoundSymbol, key: str, depth: int, failing: bool) -> Row:
        """The row of a bound symbol."""
        made: Row = _BoundRow._of(reader=self, bound=bound, id=key, depth=depth, failing=failing)
        return made

    def fate(self, bound: BoundSymbol) -> tuple[str, str]:
        """Whether the object of a constructor is kept or elided, and why."""
        if bound.symbol.kind is not Kind.CONSTRUCTOR:
            return "", ""
        entry = next((self.ledger[p.name] for p in bound.outputs if p.name in self.ledger), None)
        if entry is None:
            return "kept", ""
        return "kept" if entry.kept else "elided", entry.reason


class _LookedUp:
    """Stands for an object of a dataclass, whose fields are worked out when they are looked at."""

    _kind: ClassVar[Any]

    def __new__(cls, /, *fields: Any, **named: Any) -> Any:
        return cls._kind(*fields, **named)  # What `dataclasses.replace` makes of it says all itself.

    @classmethod
    def _of(cls, **kept: Any) -> Any:
        made = object.__new__(cls)
        for name, value in kept.items():
            object.__setattr__(made, name, value)
        return made

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        names = [field.name for field in dataclasses.fields(self._kind)]
        return isinstance(other, self._kind) and all(getattr(self, name) == getattr(other, name) for name in names)

    def __hash__(self) -> int:
        return int(self._kind.__hash__(self))


class _ProxyValue(_LookedUp, Value):
    """A value whose texts are made when they are looked at."""

    __qualname__ = "Value"  # as it prints
    _kind = Value
    proxy: Proxy

    @property
    def name(self) -> str:
        return self.proxy.name

    @property
    def cls(self) -> str:
        return self.proxy.cls.__name__ if isinstance(self.proxy, SubclassTensorProxy) else ""

    @cached_property
    def type(self) -> str:
        return type_text(self.proxy)

    @cached_property
    def short(self) -> str:
        return self.type[: self.type.index(" {", len(self.cls))] if self.cls else self.type

    @cached_property
    def inner(self) -> tuple[tuple[str, str, str], ...]:
        if not isinstance(self.proxy, SubclassTensorProxy):
            return ()
        return tuple((".".join(path), p.name, type_text(p)) for path, p in self.proxy.leaves())

    @cached_property
    def metadata(self) -> str:
        metadata = getattr(self.proxy, "metadata", None)
        return "" if metadata is None else _repr(metadata)

    @cached_property
    def names(self) -> list[str]:
        return [self.name, *inner_of(self.proxy)]


class _BoundRow(_LookedUp, Row):
    """A row that keeps its bound symbol, and looks into it when it is looked at itself."""

    __qualname__ = "Row"  # as it prints
    _kind = Row
    reader: Reader
    bound: BoundSymbol

    @property
    def symbol(self) -> str:
        return self.bound.symbol.name

    @property
    def kind(self) -> Kind:
        return self.bound.symbol.kind

    @property
    def source(self) -> Source | None:
        return self.bound.source

    @property
    def module(self) -> str:
        return self.bound.module

    @property
    def handler(self) -> Source | None:
        return self.bound.handler

    @property
    def seen(self) -> tuple[Seen, ...]:
        return self.bound.seen

    @cached_property
    def children(self) -> tuple[Row, ...]:
        last = len(self.bound.subsymbols) - 1
        return tuple(
            [
                self.reader.row(bound, f"{self.id}_{i}", self.depth + 1, self.failing and i == last)
                for i, bound in enumerate(self.bound.subsymbols)
            ]
        )

    @cached_property
    def call(self) -> str:
        return _call(self.bound)

    @cached_property
    def outputs(self) -> tuple[Value, ...]:
        return self.reader.values(self.bound.outputs)

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        reads, writes = touched(self.bound)
        object.__setattr__(self, "writes", writes)
        return tuple(reads)

    @cached_property
    def writes(self) -> tuple[str, ...]:
        return touched(self.bound)[1]

    @cached_property
    def wrapper(self) -> bool:
        taking_part = (*arguments_of(self.bound), *self.bound.outputs)
        return any(isinstance(proxy, SubclassTensorProxy) for proxy in taking_part)

    @cached_property
    def construction(self) -> str:
        return self.reader.fate(self.bound)[0]

    @cached_property
    def reason(self) -> str:
        return self.reader.fate(self.bound)[1]

    @property
    def count(self) -> int:
        return count(self.bound)

    def mentions(self, name: str) -> bool:
        return mentions(self.bound, name)

    def add_modules(self, found: dict[str, None]) -> None:
        modules(self.bound, found)

    @property
    def likeness(self) -> Hashable:
        return likeness(self.bound), self.construction, self.failing


# --------------------------------------------------------------------------------------------- texts

_PLAIN = frozenset({int, float, bool, type(None)})


def _repr(value: Any) -> str:
    """A short repr without addresses, also where the user's own repr fails."""
    if type(value) in _PLAIN:
        return repr(value)
    try:
        return re.sub(r" at 0x[0-9a-fA-F]+", "", reprlib.repr(value))
    except Exception:
        return f"<{type(value).__name__}>"


def _call(bound: BoundSymbol) -> str:
    """`torch.mul(x, 2)`: values by name, other arguments as short reprs; of a constructor the inner tensors."""
    if bound.symbol.kind is Kind.CONSTRUCTOR and isinstance(bound.output, SubclassTensorProxy):
        inner = ", ".join(f"{attribute}={proxy.name}" for attribute, proxy in bound.output.inner)
        return f"{bound.symbol.name}({inner})"
    items = [_argument(value) for value in bound.args]
    items += [f"{key}={_argument(value)}" for key, value in bound.kwargs.items()]
    return f"{bound.symbol.name}({', '.join(items)})"


def _argument(value: Any) -> str:
    if isinstance(value, Proxy):
        return value.name
    if isinstance(value, (list, tuple)):
        items = [_argument(item) for item in value[:9]] + (["..."] if len(value) > 9 else [])
        return f"[{', '.join(items)}]"
    return _repr(value)
