"""The quickest callable that sends an op: torch's own function for it, where that sends the very same.

An overload that is called by its name looks up its schema at each call; a function of torch has been compiled
for its arguments. Which op a function sends is not in its name: it is tried once, on tensors without data.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .intercept import OpOverload, direct_call, sent_alone
from .ops import op_info
from .proxies import NumberProxy, Proxy, SubclassTensorProxy, TensorProxy
from .symbols import BoundSymbol, map_tree

__all__ = ["quickest_call"]

_BUILTIN = (types.BuiltinFunctionType, type(torch.Tensor.add))
_SPACES = (torch, torch._C._nn, torch.Tensor)
_found: dict[tuple[Any, ...], Callable[..., Any]] = {}


def quickest_call(bound: BoundSymbol) -> Callable[..., Any]:
    """What to call in place of an ATen overload, with the same arguments.

    Args:
        bound: An ATen op.

    Returns:
        A function or method of torch that sends this op and nothing else, or the overload itself.

    Example:
        >>> import subtrace_kit
        >>> from subtrace_kit.zoo import TwoTensor
        >>> t = subtrace_kit.trace(lambda t: (-t).a)(TwoTensor(torch.ones(2), torch.ones(2)))
        >>> quickest_call(subtrace_kit.lower(t).bound_symbols[1]).__name__
        'neg'
    """
    op = bound.symbol.fn
    if not _is_plain(bound):
        return direct_call(op)
    key = (op, *(_kind(leaf) for leaf in _leaves((bound.args, bound.kwargs))))
    if (known := _found.get(key)) is None:
        known = _found[key] = next(_candidates(bound), direct_call(op))
    return known


def _is_plain(bound: BoundSymbol) -> bool:
    """Whether it takes plain tensors: others may answer a function in another way than an op."""
    arguments = bound.arguments
    tensors = [p for p in arguments if isinstance(p, TensorProxy)]
    strided = all(len(p.stride) == len(p.shape) for p in tensors)
    alone = not any(isinstance(p, SubclassTensorProxy) for p in (*arguments, *bound.outputs))
    return bool(tensors) and alone and strided and not op_info(bound.symbol.fn).takes_storage


def _candidates(bound: BoundSymbol) -> Iterator[Callable[..., Any]]:
    op: OpOverload = bound.symbol.fn
    args = map_tree(_without_data, bound.args)
    kwargs = {name: map_tree(_without_data, value) for name, value in bound.kwargs.items()}
    name = op._schema.name.partition("::")[2]
    for space in _SPACES if op.namespace == "aten" else ():
        function = getattr(space, name, None)
        if isinstance(function, _BUILTIN) and sent_alone(function, op, args, kwargs):
            yield function


def _leaves(value: Any) -> Iterator[Any]:
    """The parts of arguments, and how they are nested."""
    if isinstance(value, (list, tuple)):
        yield type(value), len(value)
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _leaves(item)
    else:
        yield value


def _kind(leaf: Any) -> Any:
    """What decides which op a function sends."""
    if isinstance(leaf, TensorProxy):
        return leaf.dtype, len(leaf.shape), leaf.device.type
    if isinstance(leaf, NumberProxy):
        return leaf.python_type
    return leaf if isinstance(leaf, (str, bool, type(None), tuple)) else type(leaf)


def _without_data(value: Any) -> Any:
    if isinstance(value, TensorProxy):
        return torch.empty_strided(value.shape, value.stride, dtype=value.dtype, device="meta")
    if isinstance(value, Proxy):
        return getattr(value, "value", None)
    return value
