"""ComplexTensor: complex numbers kept as two real tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from .common import LAYOUT, aten, check_pair, deepcopy_wrapper, lazy_bits, no_rule, overloads, take_apart


class ComplexTensor(torch.Tensor):
    """Complex numbers as a real and an imaginary tensor, for hardware that knows real ones only.

    Plain tensors and numbers, real or complex, may be mixed in; complex results stay in the class. An op
    without a rule is refused. `view_as_real`, and so `.real` and `.imag`, give copies, for no plain tensor
    is a view of two: to write to one part, write to `re` or `im`.

    Args:
        re: float32 or float64, any shape. The outer dtype is complex64 or complex128.
        im: Like `re`, in memory of its own.

    Raises:
        ValueError: The parts differ in shape, strides, offset, dtype or device, or have another dtype.

    Example:
        >>> z = ComplexTensor(torch.tensor([3.0]), torch.tensor([4.0]))
        >>> z * 1j
        ComplexTensor(re=tensor([-4.]), im=tensor([3.]))
        >>> z.abs()
        tensor([5.])

    Source: https://github.com/albanD/subclass_zoo has one too.
    """

    re: torch.Tensor
    im: torch.Tensor

    def __new__(cls, re: torch.Tensor, im: torch.Tensor) -> ComplexTensor:
        check_pair(cls, re, im)
        if re.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"{cls.__name__}: the parts must be float32 or float64, got {re.dtype}")
        # A trap: this makes a new leaf, whatever graph the parts belong to. `to_complex` keeps it.
        # Another: without a dtype it would be torch's default one, not that of the parts.
        grad = re.requires_grad or im.requires_grad
        where = re.shape, re.stride(), re.storage_offset()
        with torch.inference_mode(re.is_inference()):  # It is what its parts are, or views of it fail.
            return torch.Tensor._make_wrapper_subclass(
                cls, *where, dtype=re.dtype.to_complex(), device=re.device, requires_grad=grad
            )

    def __init__(self, re: torch.Tensor, im: torch.Tensor) -> None:
        self.re = re
        self.im = im

    __deepcopy__ = deepcopy_wrapper

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}(re={self.re!r}, im={self.im!r})"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["re", "im"], None

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, torch.Tensor], metadata: None, outer_size: Any, outer_stride: Any
    ) -> ComplexTensor:
        return cls(inner["re"], inner["im"])  # The outer size and stride are those of the parts.

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        rule = _RULES.get(func)
        with lazy_bits():
            return rule(func, *args, **kwargs) if rule else take_apart(cls, func, args, kwargs)


def _parts(x: Any) -> tuple[Any, Any]:
    """Real and imaginary part of an operand of any kind; zeros of its shape where it is real."""
    if isinstance(x, ComplexTensor):
        return x.re, x.im
    if isinstance(x, torch.Tensor) and not x.is_complex():
        return x, torch.zeros_like(x)
    return (x.real, x.imag) if isinstance(x, (torch.Tensor, complex)) else (x, 0)


def _plain(x: Any) -> Any:
    return torch.complex(x.re, x.im) if isinstance(x, ComplexTensor) else x


def _each(func: Any, z: ComplexTensor, *args: Any, **kwargs: Any) -> Any:
    """A view, a copy, or an op where one part does not see the other."""
    given = kwargs
    if dtype := kwargs.get("dtype"):
        if not dtype.is_complex:  # Nothing is dropped in silence: z.real says what is meant.
            raise no_rule(type(z), f"{func} to {dtype}")
        kwargs = {**kwargs, "dtype": dtype.to_real()}
    re, im = func(z.re, *args, **kwargs), func(z.im, *args, **kwargs)
    return return_and_correct_aliasing(func, (z, *args), given, pytree.tree_map(type(z), re, im))


def _conj(func: Any, z: ComplexTensor) -> ComplexTensor:
    # conj() is a view: a write to it must reach z. So the imaginary part is negated lazily too.
    out = type(z)(z.re.detach(), torch._neg_view(z.im))
    return return_and_correct_aliasing(func, (z,), {}, out)


def _join(func: Any, tensors: list[Any], dim: int = 0) -> ComplexTensor:
    re, im = zip(*map(_parts, tensors), strict=True)
    return ComplexTensor(func(re, dim), func(im, dim))


def _where(func: Any, condition: torch.Tensor, x: Any, y: Any) -> ComplexTensor:
    return ComplexTensor(*(func(condition, *pair) for pair in zip(_parts(x), _parts(y), strict=True)))


def _add(func: Any, x: Any, y: Any, alpha: Any = 1) -> ComplexTensor:
    (xr, xi), (yr, yi) = _parts(x), _parts(y if alpha == 1 else y * alpha)
    return ComplexTensor(xr + yr, xi + yi)


def _product(func: Any, x: Any, y: Any) -> ComplexTensor:
    """Any op that is linear in each of two operands: a product of numbers, or of matrices."""
    (xr, xi), (yr, yi) = _parts(x), _parts(y)
    return ComplexTensor(func(xr, yr) - func(xi, yi), func(xr, yi) + func(xi, yr))


def _matrix_product(func: Any, x: torch.Tensor, y: torch.Tensor) -> ComplexTensor:
    if x.dtype != y.dtype:  # Torch refuses it, and autograd would send a complex gradient to a real tensor.
        raise RuntimeError(f"ComplexTensor: {func} of {x.dtype} and {y.dtype}; make the dtypes the same")
    return _product(func, x, y)


def _div(func: Any, x: Any, y: Any) -> ComplexTensor:
    if isinstance(y, complex):
        return x * (1 / y)
    if isinstance(y, torch.Tensor) and y.is_complex():
        return x * _reciprocal(func, y)
    return ComplexTensor(x.re / y, x.im / y)


def _reciprocal(func: Any, z: torch.Tensor) -> ComplexTensor:
    re, im = _parts(z)
    size = torch.hypot(re, im)  # Divide by it twice: its square could overflow.
    return ComplexTensor(re / size / size, -im / size / size)


def _pow(func: Any, z: ComplexTensor, exponent: Any) -> ComplexTensor:
    if isinstance(exponent, complex) or exponent != int(exponent):
        raise no_rule(type(z), f"{func} with exponent {exponent}")
    return _power(z, int(exponent)) if exponent >= 0 else _power(_reciprocal(func, z), -int(exponent))


def _power(z: ComplexTensor, exponent: int) -> Any:
    if exponent < 2:
        return z.clone() if exponent else ComplexTensor(torch.ones_like(z.re), torch.zeros_like(z.im))
    root = _power(z, exponent // 2)
    return root * root * z if exponent % 2 else root * root


def _exp(func: Any, z: ComplexTensor) -> ComplexTensor:
    size = z.re.exp()
    return ComplexTensor(size * z.im.cos(), size * z.im.sin())


def _sgn(func: Any, z: ComplexTensor) -> ComplexTensor:
    size = torch.hypot(z.re, z.im)
    size = torch.where(size == 0, 1, size)
    return ComplexTensor(z.re / size, z.im / size)


def _eq(func: Any, x: Any, y: Any) -> torch.Tensor:
    (xr, xi), (yr, yi) = _parts(x), _parts(y)
    return (xr == yr) & (xi == yi)


def _write(func: Any, target: Any, source: Any, *rest: Any) -> Any:
    if not isinstance(target, ComplexTensor):
        return func(target, _plain(source), *rest)
    re, im = _parts(source)
    func(target.re, re, *rest)
    func(target.im, im, *rest)
    return target


def _in_place(func: Any, target: Any, other: Any, **kwargs: Any) -> Any:
    if not isinstance(target, ComplexTensor):
        return func(target, _plain(other), **kwargs)  # Into a plain tensor: torch's own arithmetic.
    return target.copy_(_NOT_IN_PLACE[func](target, other, **kwargs))


_EACH = LAYOUT + overloads(
    "clone _to_copy neg neg_ zero_ sum sum.dim_IntList mean mean.dim zeros_like empty_like new_zeros"
    " new_empty_strided select_backward slice_backward diagonal_backward"
)
_NOT_IN_PLACE = dict(
    zip(
        overloads("add_.Tensor sub_.Tensor mul_.Tensor div_.Tensor"),
        overloads("add.Tensor sub.Tensor mul.Tensor div.Tensor"),
        strict=True,
    )
)
_RULES: dict[Any, Any] = {
    **dict.fromkeys(_EACH, _each),
    **dict.fromkeys(_NOT_IN_PLACE, _in_place),
    **dict.fromkeys(overloads("mul.Tensor mul.Scalar"), _product),
    **dict.fromkeys(overloads("div.Tensor div.Scalar"), _div),
    **dict.fromkeys(overloads("mm bmm mv dot matmul"), _matrix_product),
    **dict.fromkeys(overloads("cat stack"), _join),
    **dict.fromkeys(overloads("eq.Tensor eq.Scalar"), _eq),
    **dict.fromkeys(overloads("copy_ fill_.Scalar fill_.Tensor"), _write),
    aten._conj.default: _conj,
    aten._conj_physical.default: lambda _, z: ComplexTensor(z.re.clone(), -z.im),
    aten.add.Tensor: _add,
    aten.sub.Tensor: lambda _, x, y, alpha=1: _add(_, x, -y, alpha),
    aten.rsub.Scalar: lambda _, x, y, alpha=1: _add(_, y, -x, alpha),
    aten.addmm.default: lambda _, bias, x, y, beta=1, alpha=1: bias * beta + x @ y * alpha,
    aten.reciprocal.default: _reciprocal,
    aten.pow.Tensor_Scalar: _pow,
    aten.exp.default: _exp,
    aten.ones_like.default: lambda _, z, **kwargs: torch.zeros_like(z, **kwargs) + 1,
    aten.sgn.default: _sgn,
    aten.where.self: _where,
    aten.abs.default: lambda _, z: torch.hypot(z.re, z.im),
    aten.angle.default: lambda _, z: torch.atan2(z.im, z.re),
    aten.view_as_real.default: lambda _, z: torch.stack([z.re, z.im], dim=-1),
}


class _ToComplex(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> ComplexTensor:
        return ComplexTensor(x.real.clone(), x.imag.clone())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return from_complex(grad) if isinstance(grad, ComplexTensor) else grad


class _FromComplex(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: ComplexTensor) -> torch.Tensor:
        return torch.complex(z.re, z.im)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        # Torch's gradient of a complex tensor is d/d(re) + 1j * d/d(im): it splits as the tensor does.
        return to_complex(grad)


def to_complex(x: torch.Tensor) -> ComplexTensor:
    """A ComplexTensor of copies of the parts of `x`, complex64 or complex128; hands gradients on to `x`.

    Example:
        >>> to_complex(torch.tensor([1 + 2j]))
        ComplexTensor(re=tensor([1.]), im=tensor([2.]))
    """
    if not x.is_complex():
        raise ValueError(f"to_complex: expected a complex tensor, got {x.dtype}")
    return _ToComplex.apply(x)


def from_complex(z: ComplexTensor) -> torch.Tensor:
    """A plain complex tensor of value `z` that hands gradients on to `z`.

    Example:
        >>> from_complex(ComplexTensor(torch.tensor([1.0]), torch.tensor([2.0])))
        tensor([1.+2.j])
    """
    return _FromComplex.apply(z)
