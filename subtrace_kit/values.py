"""What a recorder writes down while a program runs: mutable, light, and gone when the trace is made."""

from __future__ import annotations

from typing import Any

import torch

from .source import Source
from .symbols import Context, Symbol

__all__ = ["Event", "Value", "describe", "values_in"]


class Value:
    """One state of one object: a tensor, a wrapper, or a number taken out of a tensor.

    An object whose shape, inner tensors or metadata change gets a new Value with the same root.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: Any
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    ref: Any  # a weak reference to the object
    lazy: tuple[bool, bool] = (False, False)
    # Defaults stand in the class: most values change few of them, and there are many values.
    name: str = ""
    cls: type | None = None
    inner: tuple[tuple[str, Value], ...] = ()
    metadata: Any = None
    owners: tuple[tuple[Value, str], ...] = ()  # the wrappers it can be read from
    born: Event | None = None  # the top-level event after which it can be read; None: at the start
    outside: bool = False  # there before the program: an input, a captured tensor, or inside one
    number: Any = None
    order: int = 0  # how many wrappers were built before it was first seen
    proxy: Any = None

    def __init__(self, hint: str, root: Value | None = None) -> None:
        self.hint = hint
        self.root = self if root is None else root


class Event:
    """One operation as it happened."""

    out: Any = None
    subs: list[Event] | tuple[()] = ()
    context: Context | None = None
    module: str = ""
    checked: bool = False  # whether the shape of its result depends on data
    order: int = 0  # for constructors: which construction of the recording it is
    handled: bool = False  # whether a class handles it in __torch_function__
    unrolls: bool = False  # whether lowering looks inside it: it takes wrappers, or a mode is on
    doubtful: bool = False  # whether it failed for the data, not for the kind of its arguments
    writes: bool = False  # whether it has an effect besides its outputs
    seen: tuple[tuple[Value, Any], ...] = ()  # what its results were, see `seen.py`

    def __init__(self, symbol: Symbol, args: Any, kwargs: Any, source: Source | None) -> None:
        self.symbol = symbol
        self.args = args
        self.kwargs = kwargs
        self.source = source


def describe(value: Value, tensor: torch.Tensor) -> Value:
    """Write a tensor's shape, strides, dtype, device and flag into a value."""
    value.shape = tuple(tensor.shape)
    try:
        value.stride = tensor.stride()
        value.offset = tensor.storage_offset()
    except RuntimeError:  # layouts without strides
        value.stride, value.offset = (), 0
    value.dtype = tensor.dtype
    value.device = tensor.device
    value.requires_grad = tensor.requires_grad
    return value


def values_in(tree: Any) -> list[Value]:
    """The values in nested lists, tuples, dicts and slices."""
    if type(tree) is Value:
        return [tree]
    if isinstance(tree, (list, tuple)):
        return [value for item in tree for value in values_in(item)]
    if isinstance(tree, dict):
        return [value for item in tree.values() for value in values_in(item)]
    return [v for v in (tree.start, tree.stop, tree.step) if isinstance(v, Value)] if isinstance(tree, slice) else []
