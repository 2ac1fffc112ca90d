"""Symbols and bound symbols: operations, and operations with their arguments."""

from __future__ import annotations

import enum
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from .proxies import NumberProxy, Proxy, SubclassTensorProxy, TensorProxy
from .source import Source

__all__ = ["BoundSymbol", "Context", "Kind", "Symbol", "constructor_symbol", "dtype_text", "proxies_in"]


class Kind(enum.Enum):
    """What a symbol stands for."""

    FUNCTION = "function"  # a torch function or method, as the user wrote it
    ATEN = "aten"  # an ATen overload, as it reaches a class
    CONSTRUCTOR = "constructor"  # one wrapper class, built from its inner tensors
    APPLY = "apply"  # autograd.Function.apply
    PRIM = "prim"  # an operation of the kit: attribute reads and writes, checks


@dataclass(frozen=True)
class Symbol:
    """An operation.

    Args:
        name: How it is shown, for instance `torch.mul`, `aten.mul.Tensor` or `ScaleTensor`.
        kind: What it stands for.
        fn: What it calls: the torch function, the overload, the class, or the prim's code.
    """

    name: str
    kind: Kind
    fn: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Context:
    """The global state under which an operation of the user's program ran.

    Args:
        grad: Whether grad mode was on.
        inference: Whether inference mode was on.
        autocast: Pairs (device type, dtype, cache enabled) of the autocast regions that were on.
        modes: Dispatch modes that the program itself had entered, outermost first.
        handler: Whether it ran inside a wrapper's handler, where autograd and autocast are off.
    """

    grad: bool = True
    inference: bool = False
    autocast: tuple[tuple[str, torch.dtype, bool], ...] = ()
    modes: tuple[Any, ...] = ()
    handler: bool = False


@dataclass(frozen=True)
class BoundSymbol:
    """A symbol with its arguments and outputs.

    Args:
        symbol: The operation.
        args: Positional arguments: proxies, Python values, and lists, tuples, dicts or slices of them.
        kwargs: Keyword arguments, likewise.
        output: A proxy, a Python value, or a list, tuple or dict of them.
        subsymbols: The operations it is made of, in order.
        source: The user's line (for an operation inside a class, the line of the class).
        module: Path of the nn.Module it ran in, empty outside.
        context: The global state it ran under, where that can differ: at the top level.
        checked: Whether the shape of its result depends on data, so that each run checks it.
        replayed: In a lowered trace: autograd follows this operation, so it runs on wrapper objects,
            and its `steps` answer in place of the class's handler.
        at_class: In a lowered trace: it stays with its class, which takes a number from data.
        effect: Whether a replayed operation does more than give results: its plain ops are not listed.
        handler: In a lowered trace: the line of the class that ran it (`source` is the user's).
        seen: What its results were while the program was recorded, where that was asked for.
    """

    symbol: Symbol
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    output: Any = None
    subsymbols: tuple[BoundSymbol, ...] = ()
    source: Source | None = None
    module: str = ""
    context: Context | None = None
    checked: bool = False
    replayed: bool = False
    at_class: bool = False
    effect: bool = False
    handler: Source | None = None
    seen: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    def replace(self, **changes: Any) -> BoundSymbol:
        """The same bound symbol with other fields."""
        return BoundSymbol(**{**vars(self), **changes})

    @property
    def arguments(self) -> list[Proxy]:
        """The proxies among the arguments, in order."""
        found: list[Proxy] = []
        _collect(self.args, found)
        if self.kwargs:
            _collect(self.kwargs, found)
        return found

    @property
    def outputs(self) -> list[Proxy]:
        """The proxies among the outputs, in order."""
        return proxies_in(self.output)

    @property
    def results(self) -> list[Proxy]:
        """The outputs that are new: not among the arguments (an in-place op returns its argument)."""
        new = {proxy.name: proxy for proxy in self.outputs}
        for proxy in self.arguments if new else ():
            new.pop(proxy.name, None)
        return list(new.values())

    def walk(self, depth: int = 0) -> Iterator[tuple[int, BoundSymbol]]:
        """Yield (depth, bound symbol) for this one and all it is made of, outermost first."""
        yield depth, self
        for inner in self.subsymbols:
            yield from inner.walk(depth + 1)

    @property
    def has_wrapper(self) -> bool:
        """Whether a wrapper value takes part here or in anything it is made of."""
        return self.on_wrapper or any(inner.has_wrapper for inner in self.subsymbols)

    @property
    def on_wrapper(self) -> bool:
        """Whether a wrapper value is among the arguments or the outputs."""
        return any(isinstance(proxy, SubclassTensorProxy) for proxy in self.arguments + self.outputs)

    @property
    def is_step(self) -> bool:
        """Whether it is an op that reaches a class."""
        return self.symbol.kind is Kind.ATEN and self.on_wrapper

    @property
    def steps(self) -> list[BoundSymbol]:
        """The ops directly inside that reach a class."""
        return [inner for inner in self.subsymbols if inner.is_step]


def proxies_in(value: Any) -> list[Proxy]:
    """The proxies in nested lists, tuples, dicts and slices, in order."""
    if isinstance(value, Proxy):
        return [value]
    found: list[Proxy] = []
    if isinstance(value, _TREES):
        _collect(value, found)
    return found


_TREES = (tuple, list, dict, slice)


def _collect(tree: Any, found: list[Proxy]) -> None:
    if isinstance(tree, dict):
        tree = tree.values()
    elif isinstance(tree, slice):
        tree = tree.start, tree.stop, tree.step
    for item in tree:
        if isinstance(item, Proxy):
            found.append(item)
        elif isinstance(item, _TREES):
            _collect(item, found)


def map_tree(fn: Callable[[Any], Any], value: Any) -> Any:
    """Apply `fn` to every leaf of nested lists, tuples, named tuples, dicts and slices."""
    if isinstance(value, (list, tuple)):
        items = [map_tree(fn, item) for item in value]
        kind = type(value)
        if kind is list or kind is tuple:
            return kind(items)
        if isinstance(value, torch.Size):
            return fn(value)
        return kind(*items) if hasattr(value, "_fields") else kind(items)
    if isinstance(value, dict):
        return {key: map_tree(fn, item) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*(map_tree(fn, part) for part in (value.start, value.stop, value.step)))
    return fn(value)


_constructors: weakref.WeakKeyDictionary[type, Symbol] = weakref.WeakKeyDictionary()


def constructor_symbol(cls: type) -> Symbol:
    """The constructor of one wrapper class as a symbol, made when the class is first seen.

    Args:
        cls: A wrapper subclass of torch.Tensor.

    Returns:
        A symbol named after the class: "this class with these inner tensors and this metadata".

    Example:
        >>> class Pair(torch.Tensor): ...
        >>> constructor_symbol(Pair).name
        'Pair'
    """
    if (symbol := _constructors.get(cls)) is None:
        symbol = _constructors[cls] = Symbol(cls.__name__, Kind.CONSTRUCTOR, cls)
    return symbol


DEFAULT_CONTEXT = Context()


def type_text(proxy: Proxy, *, device: bool = True) -> str:
    """A value's type as the printed trace shows it.

    Args:
        proxy: The value.
        device: Whether a device other than the CPU is named.

    Example:
        >>> type_text(TensorProxy("x", (4, 4), (4, 1), torch.float32, torch.device("cpu")))
        'f32[4, 4]'
    """
    if isinstance(proxy, NumberProxy):
        return proxy.python_type.__name__
    if not isinstance(proxy, TensorProxy):
        return type(proxy).__name__
    where = f" {proxy.device}" if device and proxy.device.type != "cpu" else ""
    plain = f"{dtype_text(proxy.dtype)}[{', '.join(map(str, proxy.shape))}]{where}"
    if not isinstance(proxy, SubclassTensorProxy):
        return plain
    inner = ", ".join(f"{name}: {type_text(p, device=device)}" for name, p in proxy.inner)
    return f"{proxy.cls.__name__} {plain} {{{inner}}}"


_SHORT = {"float": "f", "bfloat": "bf", "complex": "c", "int": "i", "uint": "u"}


def dtype_text(dtype: torch.dtype) -> str:
    """float32 -> f32, int8 -> i8, float8_e4m3fn -> f8_e4m3fn."""
    name = str(dtype).removeprefix("torch.")
    letters = name.rstrip("0123456789") if "_" not in name else name.split("_")[0].rstrip("0123456789")
    return _SHORT[letters] + name[len(letters) :] if letters in _SHORT else name
