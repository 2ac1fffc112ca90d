"""ScaleTensor: a tensor that remembers a factor, until an op asks for the numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from .common import LAYOUT, aten, deepcopy_wrapper, lazy_bits, no_rule, written


class ScaleTensor(torch.Tensor):
    """A tensor times a number: value = raw * scale.

    Layout ops, copies and multiplication by a Python number stay in the class. Any other op is done on
    the values and gives a plain tensor; an in-place one writes them back.

    Args:
        raw: Floating point, any shape.
        scale: Floating point, 0-dim, on the device of `raw`. Finite and not zero: writes divide by it.

    Raises:
        ValueError: `scale` has dimensions, or a dtype or device does not fit.

    Example:
        >>> s = ScaleTensor(torch.tensor([1.0, 2.0]), torch.tensor(10.0))
        >>> s * 2
        ScaleTensor(raw=tensor([1., 2.]), scale=tensor(20.))
        >>> s + 1
        tensor([11., 21.])

    Source: https://docs.pytorch.org/docs/stable/notes/extending.html
    """

    raw: torch.Tensor
    scale: torch.Tensor

    def __new__(cls, raw: torch.Tensor, scale: torch.Tensor) -> ScaleTensor:
        if scale.dim() != 0:
            raise ValueError(f"{cls.__name__}: scale must be 0-dim, got shape {tuple(scale.shape)}")
        if not (raw.is_floating_point() and scale.is_floating_point()):
            raise ValueError(f"{cls.__name__}: needs floating point, got {raw.dtype}, {scale.dtype}")
        if raw.device != scale.device:
            raise ValueError(f"{cls.__name__}: raw is on {raw.device}, scale on {scale.device}")
        # A trap: this makes a new leaf, whatever graph `raw` belongs to. `to_scale` keeps the graph.
        grad = raw.requires_grad or scale.requires_grad
        where = raw.shape, raw.stride(), raw.storage_offset()
        with torch.inference_mode(raw.is_inference()):  # It is what raw is, or views of it fail.
            return torch.Tensor._make_wrapper_subclass(
                cls, *where, dtype=raw.dtype, device=raw.device, requires_grad=grad
            )

    def __init__(self, raw: torch.Tensor, scale: torch.Tensor) -> None:
        self.raw = raw
        self.scale = scale

    __deepcopy__ = deepcopy_wrapper

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}(raw={self.raw!r}, scale={self.scale!r})"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["raw", "scale"], None

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, torch.Tensor], metadata: None, outer_size: Any, outer_stride: Any
    ) -> ScaleTensor:
        return cls(inner["raw"], inner["scale"])  # The outer size and stride are those of raw.

    def dequantize(self) -> torch.Tensor:
        """The values, plain and in new memory. `from_scale` is the way that gradients come back."""
        return (self.raw * self.scale).to(self.dtype)  # Two 0-dim tensors would promote to the wider dtype.

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        with lazy_bits():
            return _RULES.get(func, _on_values)(func, *args, **(kwargs or {}))


def _layout(func: Any, tensor: ScaleTensor, *args: Any, **kwargs: Any) -> Any:
    # Views share the scale's memory as well. detach(): if the very object were shared and required grad,
    # then so would every view, even that which detach() itself returns.
    raw = func(tensor.raw, *args, **kwargs)
    out = pytree.tree_map(lambda part: type(tensor)(part, tensor.scale.detach()), raw)
    return return_and_correct_aliasing(func, (tensor, *args), kwargs, out)


def _clone(func: Any, tensor: ScaleTensor, **kwargs: Any) -> ScaleTensor:
    return type(tensor)(func(tensor.raw, **kwargs), tensor.scale.clone())


def _to_copy(func: Any, tensor: ScaleTensor, **kwargs: Any) -> torch.Tensor:
    if not (kwargs.get("dtype") or tensor.dtype).is_floating_point:
        return func(tensor.dequantize(), **kwargs)  # 0.5 * 2 is the integer 1, but 0.5 alone becomes 0.
    raw = func(tensor.raw, **kwargs)
    return type(tensor)(raw, tensor.scale.to(raw.device, copy=True))


def _mul(func: Any, x: Any, y: Any) -> torch.Tensor:
    if isinstance(x, ScaleTensor) and isinstance(y, (int, float)):
        if not y or not math.isfinite(y):  # A scale of 0 or inf could not be divided by.
            return type(x)(func(x.raw, y), x.scale.clone())
        return type(x)(x.raw.clone(), x.scale * y)  # A clone: a new tensor shares nothing with the old.
    return _on_values(func, x, y)


def _on_values(func: Any, *args: Any, **kwargs: Any) -> Any:
    """The default: multiply out, then do what plain PyTorch does."""
    if func._schema.is_mutable:
        return _in_place(func, args, kwargs)
    # Under inference_mode ops like reshape come whole; taken apart, their layout ops keep the class.
    if (out := func.decompose(*args, **kwargs)) is not NotImplemented:
        return out
    if func.is_view:  # Multiplied out, it would share no memory with its input.
        raise no_rule(ScaleTensor, func)
    return func(*_values(args), **_values(kwargs))


def _in_place(func: Any, args: Any, kwargs: Any) -> Any:
    if torch.Tag.inplace_view in func.tags:
        raise no_rule(ScaleTensor, func)
    plain_args, plain_kwargs = _values(args), _values(kwargs)
    out = func(*plain_args, **plain_kwargs)
    results = written(func, plain_args, plain_kwargs)
    for target, value in zip(written(func, args, kwargs), results, strict=True):
        if isinstance(target, ScaleTensor):  # Its scale stays: views share it and keep their values.
            if value.shape != target.shape:  # `out=` of another size.
                raise no_rule(ScaleTensor, f"{func} that resizes {tuple(target.shape)} to {tuple(value.shape)}")
            target.raw.copy_(value / target.scale)
    return return_and_correct_aliasing(func, args, kwargs, out)


def _values(tree: Any) -> Any:
    return pytree.tree_map_only(ScaleTensor, ScaleTensor.dequantize, tree)


_RULES: dict[Any, Any] = {
    **dict.fromkeys(LAYOUT, _layout),
    aten.clone.default: _clone,
    aten._to_copy.default: _to_copy,
    aten.mul.Tensor: _mul,
    aten.mul.Scalar: _mul,
}


class _ToScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: torch.Tensor) -> ScaleTensor:
        return ScaleTensor((x / scale).to(x.dtype), scale.clone())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        # `x` is plain, so its gradient is made plain.
        return (from_scale(grad) if isinstance(grad, ScaleTensor) else grad), None


class _FromScale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: ScaleTensor) -> torch.Tensor:
        return tensor.dequantize()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad  # Plain: the gradient of a wrapper need not be a wrapper.


def to_scale(x: torch.Tensor, scale: torch.Tensor) -> ScaleTensor:
    """A ScaleTensor of value `x` that hands gradients on to `x`; the 0-dim `scale` gets none.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> (to_scale(x, torch.tensor(4.0)) * 3).sum().backward()
        >>> x.grad
        tensor([3., 3.])
    """
    return _ToScale.apply(x, scale)


def from_scale(tensor: ScaleTensor) -> torch.Tensor:
    """The values, plain, handing gradients on to `tensor`.

    Example:
        >>> s = ScaleTensor(torch.ones(2), torch.tensor(3.0)).requires_grad_()
        >>> from_scale(s).sum().backward()
        >>> s.grad
        tensor([1., 1.])
    """
    return _FromScale.apply(tensor)
