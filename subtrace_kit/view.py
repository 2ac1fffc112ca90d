"""The view model: a trace as frozen rows, from which text, pictures and the explorer are drawn."""

from __future__ import annotations

import dataclasses
import re
import reprlib
from collections.abc import Iterable
from functools import cache
from typing import Any

from .proxies import Proxy, SubclassTensorProxy
from .rows import Row, Value, View
from .symbols import BoundSymbol, Kind, proxies_in, type_text
from .trace import Construction, Trace

__all__ = ["Row", "Value", "View", "inner_names", "stem", "view"]


def view(trace: Trace) -> View:
    """A trace as frozen rows, whole.

    Args:
        trace: A trace of any pass.

    Returns:
        Its view; `section` and `fold` of `fold.py` make smaller ones of it.

    Example:
        >>> [(row.depth, row.symbol, row.name) for row in view(t).walk()]  # doctest: +SKIP
        [(1, 'torch.mul', 't0'), (2, 'aten.mul.Tensor', 't0')]
    """
    reader = _Reader({entry.proxy.name: entry for entry in trace.ledger})
    last = len(trace.bound_symbols) - 1
    rows = tuple(
        reader.row(bound, (i,), bool(trace.failure) and i == last) for i, bound in enumerate(trace.bound_symbols)
    )
    shown = {value.name for row in rows for r in row.walk() if r.construction for value in r.outputs}
    return View(
        trace.name,
        trace.provenance[-1] if trace.provenance else "",
        tuple(map(reader.value, trace.inputs)),
        tuple(dataclasses.replace(reader.value(c.proxy), path=c.path) for c in trace.captures),
        reader.values(trace.results),
        rows,
        _elided([entry for entry in trace.ledger if not entry.kept and entry.proxy.name not in shown]),
        trace.failure,
    )


class _Reader:
    """Makes rows of bound symbols and values of proxies, each proxy read once."""

    def __init__(self, ledger: dict[str, Construction]) -> None:
        self.ledger = ledger
        self.known: dict[int, tuple[Proxy, Value]] = {}  # The proxy is kept so that its id stays its own.

    def value(self, proxy: Proxy) -> Value:
        if (found := self.known.get(id(proxy))) is None:
            found = self.known[id(proxy)] = proxy, _value(proxy)
        return found[1]

    def values(self, proxies: Iterable[Proxy]) -> tuple[Value, ...]:
        proxies = tuple(proxies)
        if len(proxies) < 2:
            return tuple(map(self.value, proxies))
        return tuple({proxy.name: self.value(proxy) for proxy in proxies}.values())

    def row(self, bound: BoundSymbol, position: tuple[int, ...], failing: bool) -> Row:
        last = len(bound.subsymbols) - 1
        children = tuple(self.row(b, (*position, i), failing and i == last) for i, b in enumerate(bound.subsymbols))
        taken: list[Proxy] = []
        given: list[Proxy] = []
        _collect((bound.args, bound.kwargs), taken)
        _collect(bound.output, given)
        arguments, outputs = self.values(taken), self.values(given)
        construction, reason = self.construction(bound)
        return Row(
            id="_".join(["op", *map(str, position)]),
            depth=len(position),
            symbol=bound.symbol.name,
            call=_call(bound),
            kind=bound.symbol.kind,
            inputs=_reads(arguments, children),
            outputs=outputs,
            writes=_writes(bound, arguments, outputs, children),
            wrapper=any(value.cls for value in (*arguments, *outputs)),
            source=bound.source,
            module=bound.module,
            construction=construction,
            reason=reason,
            failing=failing,
            children=children,
            handler=bound.handler,
            seen=bound.seen,
        )

    def construction(self, bound: BoundSymbol) -> tuple[str, str]:
        if bound.symbol.kind is not Kind.CONSTRUCTOR:
            return "", ""
        entry = next((self.ledger[p.name] for p in bound.outputs if p.name in self.ledger), None)
        if entry is None:
            return "kept", ""
        return "kept" if entry.kept else "elided", entry.reason


def _value(proxy: Proxy) -> Value:
    if not isinstance(proxy, SubclassTensorProxy):
        kind = type_text(proxy)
        return Value(proxy.name, kind, kind)
    kind = type_text(proxy)
    short = kind[: kind.index(" {", len(proxy.cls.__name__))]
    inner = tuple((".".join(path), p.name, type_text(p)) for path, p in proxy.leaves())
    metadata = "" if proxy.metadata is None else _repr(proxy.metadata)
    return Value(proxy.name, kind, short, proxy.cls.__name__, inner, metadata=metadata)


def _collect(tree: Any, found: list[Proxy]) -> None:
    """What `proxies_in` yields, in a list: a long trace has many."""
    if isinstance(tree, Proxy):
        found.append(tree)
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            _collect(item, found)
    elif isinstance(tree, (dict, slice)):
        found += proxies_in(tree)


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


def inner_names(values: Iterable[Value]) -> set[str]:
    """Names of the plain tensors inside values."""
    return {name for value in values for _, name, _ in value.inner}


def _reads(arguments: tuple[Value, ...], children: tuple[Row, ...]) -> tuple[str, ...]:
    """The arguments, and what is read inside but neither made there nor part of an argument."""
    mine = dict.fromkeys(value.name for value in arguments)
    if not children:
        return tuple(mine)
    made = _made(children) | inner_names(arguments)
    made |= {name for child in children for name in inner_names(child.outputs)}
    return tuple(mine | dict.fromkeys(n for child in children for n in child.inputs if n not in made))


def _made(children: tuple[Row, ...]) -> set[str]:
    """Names that operations make: their results that are not arguments of theirs."""
    return {v.name for child in children for v in child.outputs if v.name not in child.inputs}


def _writes(
    bound: BoundSymbol,
    arguments: tuple[Value, ...],
    outputs: tuple[Value, ...],
    children: tuple[Row, ...],
) -> tuple[str, ...]:
    """Names written here or inside, but not made inside."""
    names = [p.name for p in proxies_in(bound.kwargs.get("out"))]
    if _is_in_place(bound.symbol.name):
        known = {value.name for value in arguments}
        names += [v.name for v in outputs if v.name in known] or [p.name for p in proxies_in(bound.args[:1])]
    if not any(child.writes for child in children):
        return tuple(dict.fromkeys(names))
    made = _made(children)
    inside = (name for child in children for name in child.writes if name not in made)
    return tuple(dict.fromkeys([*names, *inside]))


_OPERATORS = "add|sub|mul|div|truediv|floordiv|mod|pow|and|or|xor|lshift|rshift"
_DUNDERS = re.compile(rf"__(set\w*|del\w*|i({_OPERATORS}))__$")


def stem(symbol: str) -> str:
    """The part of a symbol's name that says what it does: `mul_` of `aten.mul_.Tensor`."""
    parts = symbol.split(".")
    return parts[1] if parts[0] == "aten" and len(parts) > 1 else parts[-1]


@cache
def _is_in_place(symbol: str) -> bool:
    """Whether the name says so: `torch.Tensor.mul_`, `aten.mul_.Tensor`, `setattr`."""
    name = stem(symbol)
    plain = name.endswith("_") and not name.endswith("__")
    return plain or name in ("setattr", "delattr") or bool(_DUNDERS.match(name))


def _elided(entries: list[Construction]) -> tuple[tuple[str, tuple[str, ...], str], ...]:
    groups: dict[tuple[str, str], list[str]] = {}
    for entry in entries:
        groups.setdefault((entry.proxy.cls.__name__, entry.reason), []).append(entry.proxy.name)
    return tuple((cls, tuple(names), reason) for (cls, reason), names in groups.items())
