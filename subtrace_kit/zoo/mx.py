"""MXTensor: 8-bit floats in blocks of 32 that share a power of two, the OCP microscaling format MXFP8."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing

from .common import aten, deepcopy_wrapper, lazy_bits, no_rule, overloads, take_apart

BLOCK = 32
"""Elements that share a scale."""

LARGEST, TOP_EXPONENT, BIAS = 448.0, 8, 127
"""The largest E4M3 number, its exponent, and what E8M0 adds to an exponent."""


class MXTensor(torch.Tensor):
    """E4M3 elements, and for each block of 32 along one axis the exponent of its scale: value = element * 2**(e - 127).

    Products with it are computed on the values; views that keep blocks whole, copies and `copy_` stay in the
    class; any other op is refused.

    Args:
        elements: float8_e4m3fn, at least one dimension.
        exponents: uint8, 1 to 254; as `elements`, with one for each 32 in dimension `axis` (the last block
            may be shorter).
        axis: The dimension that the blocks lie along.
        dtype: What it is to the outside: a floating point dtype.

    Raises:
        ValueError: A dtype, the axis, the shape of `exponents`, or a device does not fit.

    Example:
        >>> w = MXTensor.from_float(torch.tensor([[1.0, 3.0], [0.0, 500.0]]))
        >>> w.dequantize().tolist(), w.exponents.tolist()
        ([[1.0, 3.0], [0.0, 448.0]], [[120], [127]])

    Source: https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf
    """

    elements: torch.Tensor
    exponents: torch.Tensor
    axis: int

    def __new__(cls, elements: torch.Tensor, exponents: torch.Tensor, axis: int, dtype: torch.dtype) -> MXTensor:
        _check(cls, elements, exponents, axis, dtype)
        where = elements.shape, elements.stride(), elements.storage_offset()
        with torch.inference_mode(elements.is_inference()):
            return torch.Tensor._make_wrapper_subclass(cls, *where, dtype=dtype, device=elements.device)

    def __init__(self, elements: torch.Tensor, exponents: torch.Tensor, axis: int, dtype: torch.dtype) -> None:
        self.elements = elements
        self.exponents = exponents
        self.axis = axis % elements.dim()

    __deepcopy__ = deepcopy_wrapper

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}({self.dequantize()!r}, axis={self.axis})"

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, Any]]:
        return ["elements", "exponents"], {"axis": self.axis, "dtype": self.dtype}

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, torch.Tensor], metadata: dict[str, Any], outer_size: Any, outer_stride: Any
    ) -> MXTensor:
        return cls(inner["elements"], inner["exponents"], **metadata)

    @classmethod
    def from_float(cls, x: torch.Tensor, axis: int = -1) -> MXTensor:
        """Round finite numbers: the exponent of a block is that of its largest magnitude, less 8.

        What is over 448 scales after that is cut to it, as the format prescribes. ValueError if `x` is not
        floating point or has no such axis.

        Example:
            >>> MXTensor.from_float(torch.tensor([1.0, 1.06])).dequantize()
            tensor([1., 1.])
        """
        if not x.is_floating_point() or not -x.dim() <= axis < x.dim():
            raise ValueError(f"{cls.__name__}: no axis {axis} in {x.dtype} of shape {tuple(x.shape)}")
        values = x.detach().float()
        largest = torch.stack([part.abs().amax(axis) for part in values.split(BLOCK, axis)], axis)
        exponents = (torch.frexp(largest).exponent - 1 - TOP_EXPONENT + BIAS).clamp(1, 254).to(torch.uint8)
        scaled = values / _spread(exponents, axis, x.shape[axis])
        return cls(scaled.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), exponents, axis, x.dtype)

    def dequantize(self) -> torch.Tensor:
        """The values, plain and in new memory. `from_mx` is the way that gradients come back."""
        scale = _spread(self.exponents, self.axis, self.shape[self.axis])
        return (self.elements.float() * scale).to(self.dtype)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        rule = _RULES.get(func)
        with lazy_bits():
            return rule(func, *args, **kwargs) if rule else take_apart(cls, func, args, kwargs)


def _check(cls: type, elements: torch.Tensor, exponents: torch.Tensor, axis: int, dtype: torch.dtype) -> None:
    if (elements.dtype, exponents.dtype) != (torch.float8_e4m3fn, torch.uint8) or not dtype.is_floating_point:
        found = f"{elements.dtype}, {exponents.dtype}, {dtype}"
        raise ValueError(f"{cls.__name__}: needs float8_e4m3fn, uint8 and a floating point dtype, got {found}")
    if not -elements.dim() <= axis < elements.dim():
        raise ValueError(f"{cls.__name__}: no axis {axis} in shape {tuple(elements.shape)}")
    want = tuple(-(-n // BLOCK) if dim == axis % elements.dim() else n for dim, n in enumerate(elements.shape))
    if tuple(exponents.shape) != want:
        raise ValueError(f"{cls.__name__}: exponents must have shape {want}, got {tuple(exponents.shape)}")
    if elements.device != exponents.device:
        raise ValueError(f"{cls.__name__}: elements are on {elements.device}, exponents on {exponents.device}")


def _spread(exponents: torch.Tensor, axis: int, length: int) -> torch.Tensor:
    """The scale of each element. An exponent in E8M0 is that of a float32: its bits need only be moved."""
    scale = (exponents.int() << 23).view(torch.float32)
    return scale.repeat_interleave(BLOCK, axis).narrow(axis, 0, length)


def _value(x: Any) -> Any:
    return x.dequantize() if isinstance(x, MXTensor) else x


def _on_values(func: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    return func(*map(_value, args), **{name: _value(x) for name, x in kwargs.items()})


def _alias(func: Any, t: MXTensor) -> MXTensor:
    out = type(t)(func(t.elements), func(t.exponents), t.axis, t.dtype)
    return return_and_correct_aliasing(func, (t,), {}, out)


def _transpose(func: Any, t: MXTensor, *dims: int) -> MXTensor:
    # The blocks turn with the tensor. t() is transpose(0, -1).
    x, y = (dim % t.dim() for dim in dims or (0, -1))
    out = type(t)(func(t.elements, *dims), func(t.exponents, *dims), {x: y, y: x}.get(t.axis, t.axis), t.dtype)
    return return_and_correct_aliasing(func, (t, *dims), {}, out)


def _slice(func: Any, t: MXTensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> MXTensor:
    first, last, step = slice(start, end, step).indices(t.shape[dim])
    elements, exponents = func(t.elements, dim, start, end, step), None
    if dim % t.dim() != t.axis:
        exponents = func(t.exponents, dim, start, end, step)
    elif step == 1 and first % BLOCK == 0 and (last % BLOCK == 0 or last == t.shape[dim]):
        exponents = func(t.exponents, dim, first // BLOCK, -(-last // BLOCK), 1)
    if exponents is None:
        raise no_rule(type(t), f"{func} that cuts a block of {BLOCK}")
    out = type(t)(elements, exponents, t.axis, t.dtype)
    return return_and_correct_aliasing(func, (t, dim, start, end, step), {}, out)


def _clone(func: Any, t: MXTensor, **kwargs: Any) -> MXTensor:
    return type(t)(func(t.elements, **kwargs), t.exponents.clone(), t.axis, t.dtype)


def _to_copy(func: Any, t: MXTensor, dtype: torch.dtype | None = None, **kwargs: Any) -> MXTensor:
    if not (dtype or t.dtype).is_floating_point:
        raise no_rule(type(t), f"{func} to {dtype}")
    elements = func(t.elements, **kwargs)  # A new dtype is for the outside: the elements stay what they are.
    return type(t)(elements, t.exponents.to(elements.device, copy=True), t.axis, dtype or t.dtype)


def _copy_(func: Any, target: Any, source: Any, non_blocking: bool = False) -> Any:
    if not isinstance(target, MXTensor):
        return func(target, source.dequantize(), non_blocking)
    if not (isinstance(source, MXTensor) and (source.axis, source.shape) == (target.axis, target.shape)):
        values = _value(source).to(target.device, target.dtype).expand(target.shape)
        source = type(target).from_float(values, target.axis)
    target.elements.copy_(source.elements, non_blocking)
    target.exponents.copy_(source.exponents, non_blocking)
    return target


_RULES: dict[Any, Any] = {
    **dict.fromkeys(overloads("addmm bmm linear matmul mm mv"), _on_values),
    **dict.fromkeys(overloads("alias detach"), _alias),
    **dict.fromkeys(overloads("t transpose.int"), _transpose),
    aten.slice.Tensor: _slice,
    aten.clone.default: _clone,
    aten._to_copy.default: _to_copy,
    aten.copy_.default: _copy_,
}


class _ToMX(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, axis: int) -> MXTensor:
        return MXTensor.from_float(x, axis)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None  # Straight through: as if nothing had been rounded.


class _FromMX(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: MXTensor) -> torch.Tensor:
        return tensor.dequantize()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


def to_mx(x: torch.Tensor, axis: int = -1) -> MXTensor:
    """`MXTensor.from_float(x, axis)`, handing gradients on to `x` as if nothing had been rounded.

    Example:
        >>> w = torch.ones(1, 2, requires_grad=True)
        >>> torch.nn.functional.linear(torch.ones(3, 2), to_mx(w)).sum().backward()
        >>> w.grad
        tensor([[3., 3.]])

    Source: https://arxiv.org/abs/1308.3432
    """
    return _ToMX.apply(x, axis)


def from_mx(tensor: MXTensor) -> torch.Tensor:
    """The values, plain, handing gradients on to `tensor`.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> (from_mx(to_mx(x)) * 2).sum().backward()
        >>> x.grad
        tensor([2., 2.])
    """
    return _FromMX.apply(tensor)
