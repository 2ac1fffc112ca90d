"""QuantTensor: int8 weights with a scale per slice, for matrix products."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from .common import aten, deepcopy_wrapper, lazy_bits, no_rule, overloads, take_apart


class QuantTensor(torch.Tensor):
    """int8 numbers, one scale for each slice of an axis: value = q * scale.

    To the outside it has the dtype of the scale. Products with it are computed on the values; views
    along the slices, copies and `copy_` stay in the class; any other op is refused, for rounding in
    silence after each op is not what one wants of weights.

    Args:
        q: int8, at least one dimension.
        scale: Floating point; size 1 in each dimension of `q` but `axis`, so that it broadcasts.
        axis: The dimension whose slices have a scale each.
        whole: False where others use the same scales for more of the same slices, as after a cut by
            column of what is scaled by row. Then `copy_` does not change them.

    Raises:
        ValueError: A dtype, the axis, the shape of `scale`, or a device does not fit.

    Example:
        >>> w = QuantTensor(torch.tensor([[1, 2], [3, 4]], dtype=torch.int8), torch.tensor([[1.0], [0.5]]), 0)
        >>> torch.ones(1, 2) @ w
        tensor([[2.5000, 4.0000]])

    Source: https://github.com/pytorch/ao has such classes; https://arxiv.org/abs/1712.05877 the arithmetic.
    """

    q: torch.Tensor
    scale: torch.Tensor
    axis: int
    whole: bool

    def __new__(cls, q: torch.Tensor, scale: torch.Tensor, axis: int, whole: bool = True) -> QuantTensor:
        _check(cls, q, scale, axis)
        # The dtype is that of the values, though the memory is int8. And no requires_grad: int8 cannot be
        # trained. `to_quant` makes one that hands gradients on.
        where = q.shape, q.stride(), q.storage_offset()
        with torch.inference_mode(q.is_inference()):  # It is what q is, or views of it fail.
            return torch.Tensor._make_wrapper_subclass(cls, *where, dtype=scale.dtype, device=q.device)

    def __init__(self, q: torch.Tensor, scale: torch.Tensor, axis: int, whole: bool = True) -> None:
        self.q = q
        self.scale = scale
        self.axis = axis % q.dim()
        self.whole = whole

    __deepcopy__ = deepcopy_wrapper

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}(q={self.q!r}, scale={self.scale!r}, axis={self.axis})"

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, Any]]:
        return ["q", "scale"], {"axis": self.axis, "whole": self.whole}

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, torch.Tensor], metadata: dict[str, Any], outer_size: Any, outer_stride: Any
    ) -> QuantTensor:
        return cls(inner["q"], inner["scale"], **metadata)  # The outer size and stride are those of q.

    @classmethod
    def from_float(cls, x: torch.Tensor, axis: int = 0) -> QuantTensor:
        """Round finite numbers to int8, the largest magnitude of each slice to 127.

        The result has the shape and dtype of `x` and is off by half a scale at most. `to_quant` is the
        way that gradients come back. ValueError if `x` is not floating point or has no such axis.

        Example:
            >>> QuantTensor.from_float(torch.tensor([[1.0, -2.0]])).dequantize()
            tensor([[ 1.0079, -2.0000]])
        """
        if not x.is_floating_point() or not -x.dim() <= axis < x.dim():
            raise ValueError(f"{cls.__name__}: no axis {axis} in {x.dtype} of shape {tuple(x.shape)}")
        x = x.detach()
        others = [dim for dim in range(x.dim()) if dim != axis % x.dim()]
        largest = x.abs().amax(others, keepdim=True) if others else x.abs()
        scale = (largest / 127).clamp(min=torch.finfo(x.dtype).tiny)  # For a slice of zeros: not 0 / 0.
        return cls(_round(x / scale), scale, axis)

    def dequantize(self) -> torch.Tensor:
        """The values, plain and in new memory. `from_quant` is the way that gradients come back."""
        return self.q.to(self.scale.dtype) * self.scale

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        rule = _RULES.get(func)
        with lazy_bits():
            return rule(func, *args, **kwargs) if rule else take_apart(cls, func, args, kwargs)


def _check(cls: type, q: torch.Tensor, scale: torch.Tensor, axis: int) -> None:
    if q.dtype != torch.int8 or not scale.is_floating_point():
        raise ValueError(f"{cls.__name__}: needs int8 and floating point, got {q.dtype}, {scale.dtype}")
    if not -q.dim() <= axis < q.dim():
        raise ValueError(f"{cls.__name__}: no axis {axis} in shape {tuple(q.shape)}")
    want = tuple(n if dim == axis % q.dim() else 1 for dim, n in enumerate(q.shape))
    if tuple(scale.shape) != want:
        raise ValueError(f"{cls.__name__}: scale must have shape {want}, got {tuple(scale.shape)}")
    if q.device != scale.device:
        raise ValueError(f"{cls.__name__}: q is on {q.device}, scale on {scale.device}")


def _round(x: torch.Tensor) -> torch.Tensor:
    return x.round().clamp(-127, 127).to(torch.int8)


def _value(x: Any) -> Any:
    return x.dequantize() if isinstance(x, QuantTensor) else x


def _on_values(func: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    return func(*map(_value, args), **{name: _value(x) for name, x in kwargs.items()})


def _alias(func: Any, t: QuantTensor) -> QuantTensor:
    out = type(t)(func(t.q), func(t.scale), t.axis, t.whole)
    return return_and_correct_aliasing(func, (t,), {}, out)


def _transpose(func: Any, t: QuantTensor, *dims: int) -> QuantTensor:
    # Both inner tensors turn, and the metadata with them. t() is transpose(0, -1).
    x, y = (dim % t.dim() for dim in dims or (0, -1))
    out = type(t)(func(t.q, *dims), func(t.scale, *dims), {x: y, y: x}.get(t.axis, t.axis), t.whole)
    return return_and_correct_aliasing(func, (t, *dims), {}, out)


def _slice(func: Any, t: QuantTensor, dim: int = 0, *where: Any) -> Any:
    return _cut(func, t, dim, (dim, *where))


def _split(func: Any, t: QuantTensor, sizes: Any, dim: int = 0) -> Any:
    return _cut(func, t, dim, (sizes, dim))


def _cut(func: Any, t: QuantTensor, dim: int, args: tuple[Any, ...]) -> Any:
    """A cut between slices cuts the scales too; after a cut through slices the parts share them."""
    between = dim % t.dim() == t.axis
    q = func(t.q, *args)
    scale = func(t.scale, *args) if between else pytree.tree_map(lambda _: t.scale.detach(), q)
    out = pytree.tree_map(lambda q, scale: type(t)(q, scale, t.axis, t.whole and between), q, scale)
    return return_and_correct_aliasing(func, (t, *args), {}, out)


def _clone(func: Any, t: QuantTensor, **kwargs: Any) -> QuantTensor:
    return type(t)(func(t.q, **kwargs), t.scale.clone(), t.axis)


def _to_copy(func: Any, t: QuantTensor, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    if not (dtype or t.dtype).is_floating_point:
        raise no_rule(type(t), f"{func} to {dtype}")
    q = func(t.q, **kwargs)  # A new dtype is for the scale: q stays int8.
    return type(t)(q, t.scale.to(q.device, dtype or t.dtype, copy=True), t.axis)


def _copy_(func: Any, target: Any, source: Any, non_blocking: bool = False) -> Any:
    if not isinstance(target, QuantTensor):
        return func(target, source.dequantize(), non_blocking)
    if not target.whole:  # Values outside of it use its scales too, so they stay.
        target.q.copy_(_round(_value(source) / target.scale))
        return target
    if not (isinstance(source, QuantTensor) and (source.axis, source.shape) == (target.axis, target.shape)):
        values = _value(source).to(target.device, target.dtype).expand(target.shape)
        source = type(target).from_float(values, target.axis)
    target.q.copy_(source.q, non_blocking)
    target.scale.copy_(source.scale, non_blocking)
    return target


_RULES: dict[Any, Any] = {
    **dict.fromkeys(overloads("addmm bmm linear matmul mm mv"), _on_values),
    **dict.fromkeys(overloads("alias detach"), _alias),
    **dict.fromkeys(overloads("t transpose.int"), _transpose),
    **dict.fromkeys(overloads("split.Tensor split_with_sizes"), _split),
    aten.slice.Tensor: _slice,
    aten.clone.default: _clone,
    aten._to_copy.default: _to_copy,
    aten.copy_.default: _copy_,
}


class _ToQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, axis: int) -> QuantTensor:
        return QuantTensor.from_float(x, axis)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        # Rounding has slope 0 almost everywhere, which teaches nothing. "Straight through" takes the
        # slope of the staircase seen from afar, 1.
        return grad, None


class _FromQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: QuantTensor) -> torch.Tensor:
        return tensor.dequantize()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


def to_quant(x: torch.Tensor, axis: int = 0) -> QuantTensor:
    """`QuantTensor.from_float(x, axis)`, handing gradients on to `x` as if nothing had been rounded.

    Example:
        >>> w = torch.ones(1, 2, requires_grad=True)
        >>> torch.nn.functional.linear(torch.ones(3, 2), to_quant(w)).sum().backward()
        >>> w.grad
        tensor([[3., 3.]])

    Source: https://arxiv.org/abs/1308.3432
    """
    return _ToQuant.apply(x, axis)


def from_quant(tensor: QuantTensor) -> torch.Tensor:
    """The values, plain, handing gradients on to `tensor`.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> (from_quant(to_quant(x)) * 2).sum().backward()
        >>> x.grad
        tensor([2., 2.])
    """
    return _FromQuant.apply(tensor)
