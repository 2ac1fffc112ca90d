"""Which operations of a lowered trace only compute: those that a compiler may have in its own way."""

from __future__ import annotations

from typing import Any

import torch

from . import ops
from .intercept import FakeTensorMode, memory_of
from .proxies import SubclassTensorProxy, TensorProxy
from .symbols import BoundSymbol, Kind, map_tree, proxies_in
from .to_fx import PLAIN_VALUES, inexpressible, leaf_ops

__all__ = ["Leaf", "Leaves"]

_DEVICES = ("cpu", "cuda")
_REACHES_AROUND = (torch.ops.aten.as_strided.default, torch.ops.aten._reshape_alias.default)
"""Ops that take strides and offsets of the memory itself, which a compiler lays out in its own way."""


class Leaf:
    """One op of a part.

    Args:
        bound: The op.
        is_view: Whether a result shares memory with an argument.
    """

    def __init__(self, bound: BoundSymbol, is_view: bool) -> None:
        self.bound, self.is_view = bound, is_view


class Leaves:
    """Looks at operations one by one, on fake tensors of the recorded kind."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode()
        self.fakes: dict[str, torch.Tensor] = {}

    def of(self, bound: BoundSymbol) -> list[Leaf] | str:
        """The ops that an operation is made of, or why it is not to be compiled."""
        if (why := inexpressible(bound)) is not None:
            return why[0]
        if any(isinstance(p, TensorProxy) and p.requires_grad for p in bound.outputs):
            return "autograd follows it"
        if any(isinstance(p, SubclassTensorProxy) for p in (*bound.arguments, *bound.outputs)):
            return "works on wrapper objects"
        found: list[Leaf] = []
        for leaf in leaf_ops(bound):
            told = _why_not(leaf) or self.run(leaf)
            if isinstance(told, str):
                return told
            if leaf.results:  # else it has given its argument back
                found.append(Leaf(leaf.replace(source=leaf.source or bound.source), told))
        return found

    def run(self, leaf: BoundSymbol) -> bool | str:
        """Whether an op gives a view; a text where it gives something else than recorded."""
        args, kwargs = map_tree(self.fake, leaf.args), map_tree(self.fake, leaf.kwargs)
        given = {memory_of(self.fake(p)) for p in leaf.arguments}
        try:
            with self.mode, torch.no_grad():
                out = leaf.symbol.fn(*args, **kwargs)
        except Exception as error:
            return f"torch cannot tell its result without data ({type(error).__name__})"
        results = out if isinstance(out, (list, tuple)) else [out]
        proxies = leaf.output if isinstance(leaf.output, (list, tuple)) else [leaf.output]
        if len(results) != len(proxies) or not all(map(_agrees, results, proxies)):
            return "torch tells another result without data"
        for result, proxy in zip(results, proxies, strict=True):
            self.fakes[proxy.name] = result
        return any(memory_of(result) in given for result in results)

    def fake(self, value: Any) -> Any:
        """A fake tensor in place of a proxy."""
        if not isinstance(value, TensorProxy):
            return value
        if (known := self.fakes.get(value.name)) is None:
            with self.mode:
                known = torch.empty_strided(value.shape, value.stride, dtype=value.dtype, device=value.device)
            self.fakes[value.name] = known
        return known


def _why_not(leaf: BoundSymbol) -> str:
    """What keeps an op from being compiled; empty where nothing does."""
    if leaf.symbol.kind is not Kind.ATEN:
        return "computes with a Python number from data"
    info = ops.op_info(leaf.symbol.fn)
    if info.mutable:
        return "writes into a tensor"
    if info.random:
        return "draws random numbers"
    if info.reads or info.dynamic or info.check:
        return "depends on data for more than its values"
    if not leaf.results and leaf.symbol.fn.namespace != "aten":
        return "does something to its argument"
    if leaf.symbol.fn in _REACHES_AROUND:
        return "reaches into memory by strides"
    values = [*leaf.arguments, *proxies_in(leaf.output)]
    if not all(isinstance(value, TensorProxy) for value in values):
        return "computes with a Python number from data"
    if not all(_is_common(value) for value in values if isinstance(value, TensorProxy)):
        return "has a dtype, a layout or a device that is left to eager"
    return "" if _plain_constants((leaf.args, leaf.kwargs)) else "takes an object"


def _is_common(proxy: TensorProxy) -> bool:
    """Whether a compiler is known to treat tensors of this kind as eager does."""
    sizes = all(type(size) is int for size in (*proxy.shape, *proxy.stride))
    usual = not (proxy.dtype.is_complex or "qint" in str(proxy.dtype) or any(proxy.lazy))
    return sizes and usual and len(proxy.stride) == len(proxy.shape) and proxy.device.type in _DEVICES


def _plain_constants(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_plain_constants, value))
    if isinstance(value, dict):
        return all(map(_plain_constants, value.values()))
    return value is None or isinstance(value, (*PLAIN_VALUES, TensorProxy))


def _agrees(fake: Any, proxy: Any) -> bool:
    """Whether a fake result is of the recorded kind."""
    if not isinstance(fake, torch.Tensor) or not isinstance(proxy, TensorProxy):
        return False
    return agrees(fake, proxy)


def agrees(tensor: torch.Tensor, proxy: TensorProxy) -> bool:
    """Whether a tensor has the shape, strides, dtype and device of a proxy."""
    return (
        tuple(tensor.shape) == proxy.shape
        and tensor.stride() == tuple(proxy.stride)
        and tensor.dtype is proxy.dtype
        and tensor.device == proxy.device
    )
