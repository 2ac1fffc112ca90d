"""What a bound symbol and all inside it reads, writes and looks like, by names: no texts are made."""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import cache

from .proxies import NumberProxy, Proxy, SubclassTensorProxy, TensorProxy
from .symbols import BoundSymbol, Kind, proxies_in

__all__ = [
    "Touched",
    "arguments_of",
    "constructed",
    "count",
    "inner_of",
    "likeness",
    "mentions",
    "modules",
    "stem",
    "touched",
]

Touched = tuple[dict[str, None], tuple[str, ...]]
"""The names that an operation reads, those read only inside it last, and those it writes."""

_NOTHING: tuple[str, ...] = ()


def arguments_of(bound: BoundSymbol) -> list[Proxy]:
    """The proxies among the arguments, in order; a constructor keeps among its keywords what torch was given."""
    return proxies_in(bound.args) if bound.symbol.kind is Kind.CONSTRUCTOR else bound.arguments


def inner_of(proxy: Proxy) -> list[str]:
    """Names of the plain tensors inside a value."""
    return [part.name for _, part in proxy.leaves()] if isinstance(proxy, SubclassTensorProxy) else []


def touched(bound: BoundSymbol) -> Touched:
    """What an operation reads and writes: its arguments, and what is read or written inside but made outside.

    Args:
        bound: A bound symbol.

    Returns:
        Names. Neither what is made inside nor what is part of an argument is among those read.
    """
    taken = arguments_of(bound)
    reads = {proxy.name: None for proxy in taken}
    writes = _own_writes(bound, taken, reads)
    if not bound.subsymbols:
        return reads, writes
    inside = [(sub, *touched(sub)) for sub in bound.subsymbols]
    made, parts = _made(inside)
    for proxy in taken:
        parts.update(inner_of(proxy))
    for _, names, _ in inside:
        for name in names:
            if name not in made and name not in parts:
                reads[name] = None
    found = [name for _, _, names in inside for name in names if name not in made]
    return reads, tuple(dict.fromkeys([*writes, *found])) if found else writes


def _made(inside: list[tuple[BoundSymbol, dict[str, None], tuple[str, ...]]]) -> tuple[set[str], set[str]]:
    """Names that operations make, results that are not arguments of theirs, and what these values hold."""
    made, parts = set(), set()
    for sub, reads, _ in inside:
        for proxy in sub.outputs:
            if proxy.name not in reads:
                made.add(proxy.name)
            if isinstance(proxy, SubclassTensorProxy):
                parts.update(inner_of(proxy))
    return made, parts


def _own_writes(bound: BoundSymbol, taken: list[Proxy], reads: dict[str, None]) -> tuple[str, ...]:
    """Names that an operation itself writes, by its name and its `out`."""
    in_place = is_in_place(bound.symbol.name)
    if not in_place and "out" not in bound.kwargs:
        return _NOTHING
    names = [proxy.name for proxy in proxies_in(bound.kwargs.get("out"))]
    if in_place:
        given = [proxy.name for proxy in bound.outputs if proxy.name in reads]
        names += given or [proxy.name for proxy in proxies_in(bound.args[:1])]
    return tuple(dict.fromkeys(names))


_OPERATORS = "add|sub|mul|div|truediv|floordiv|mod|pow|and|or|xor|lshift|rshift"
_DUNDERS = re.compile(rf"__(set\w*|del\w*|i({_OPERATORS}))__$")


def stem(symbol: str) -> str:
    """The part of a symbol's name that says what it does: `mul_` of `aten.mul_.Tensor`."""
    parts = symbol.split(".")
    return parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[-1]


@cache
def is_in_place(symbol: str) -> bool:
    """Whether the name says so: `torch.Tensor.mul_`, `aten.mul_.Tensor`, `setattr`."""
    name = stem(symbol)
    plain = name.endswith("_") and not name.endswith("__")
    return plain or name in ("setattr", "delattr") or bool(_DUNDERS.match(name))


def mentions(bound: BoundSymbol, name: str) -> bool:
    """Whether a name occurs in a bound symbol or inside it, also as that of a tensor inside a value."""
    for proxy in (*arguments_of(bound), *bound.outputs):
        if proxy.name == name or (isinstance(proxy, SubclassTensorProxy) and name in inner_of(proxy)):
            return True
    return any(mentions(sub, name) for sub in bound.subsymbols)


def modules(bound: BoundSymbol, found: dict[str, None]) -> None:
    """Add the paths of the modules in which a bound symbol and those inside it ran."""
    found[bound.module] = None
    for sub in bound.subsymbols:
        modules(sub, found)


def count(bound: BoundSymbol) -> int:
    """How many operations a bound symbol and all inside it are."""
    found = 1
    for sub in bound.subsymbols:
        found += count(sub) if sub.subsymbols else 1
    return found


def constructed(bound: BoundSymbol) -> set[str]:
    """The names of the objects that constructors build, here and inside."""
    inside = {name for sub in bound.subsymbols for name in constructed(sub)}
    return inside | {p.name for p in bound.outputs} if bound.symbol.kind is Kind.CONSTRUCTOR else inside


def likeness(bound: BoundSymbol) -> Hashable:
    """What is equal for operations that do the same, on the same lines, to values of the same kinds."""
    source = bound.source
    kinds = tuple([_kind(proxy) for proxy in bound.outputs])
    inside = tuple([likeness(sub) for sub in bound.subsymbols]) if bound.subsymbols else ()
    return bound.symbol.name, kinds, source.line if source else 0, source.file if source else "", inside


def _kind(proxy: Proxy) -> Hashable:
    if isinstance(proxy, SubclassTensorProxy):
        inside = tuple([_kind(part) for _, part in proxy.inner])
        return proxy.cls, proxy.dtype, proxy.shape, proxy.device, inside
    if isinstance(proxy, TensorProxy):
        return proxy.dtype, proxy.shape, proxy.device
    return proxy.python_type if isinstance(proxy, NumberProxy) else type(proxy)
