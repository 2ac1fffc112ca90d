"""MaskedTensor: a tensor of which some elements are not specified."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from .common import LAYOUT, aten, check_pair, deepcopy_wrapper, lazy_bits, no_rule, overloads, take_apart, written


class MaskedTensor(torch.Tensor):
    """A tensor and a mask, True where the element is specified. What stands elsewhere never matters.

    Pointwise ops, also in place, keep the mask: the masks of the operands must match (RuntimeError), a plain
    operand has none. `sum`, `mean` and `amax` are over the specified elements and plain. Layout ops and
    copies stay in the class; any other op is refused. A gradient, also that of a plain operand, may be a
    MaskedTensor; what it does not specify is zero.

    Args:
        raw: Any shape and dtype. (Every tensor has a `data` already, so this is not called that.)
        mask: bool, otherwise like `raw`, in memory of its own.

    Raises:
        ValueError: `mask` is not bool, or the two differ in shape, strides, offset or device.

    Example:
        >>> x = MaskedTensor(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([True, True, False]))
        >>> (x * 10).sum(), x.mean(), x.amax()
        (tensor(30.), tensor(1.5000), tensor(2.))

    Source: https://docs.pytorch.org/docs/stable/masked.html
    """

    raw: torch.Tensor
    mask: torch.Tensor

    def __new__(cls, raw: torch.Tensor, mask: torch.Tensor) -> MaskedTensor:
        if mask.dtype != torch.bool:
            raise ValueError(f"{cls.__name__}: mask must be bool, got {mask.dtype}")
        check_pair(cls, raw, mask, dtypes=False)
        # A trap: this makes a new leaf, whatever graph `raw` belongs to. `to_masked` keeps the graph.
        where = raw.shape, raw.stride(), raw.storage_offset()
        dtype, device, grad = raw.dtype, raw.device, raw.requires_grad
        with torch.inference_mode(raw.is_inference()):  # It is what raw is, or views of it fail.
            return torch.Tensor._make_wrapper_subclass(cls, *where, dtype=dtype, device=device, requires_grad=grad)

    def __init__(self, raw: torch.Tensor, mask: torch.Tensor) -> None:
        self.raw = raw
        self.mask = mask

    __deepcopy__ = deepcopy_wrapper

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}(raw={self.raw!r}, mask={self.mask!r})"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["raw", "mask"], None

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, torch.Tensor], metadata: None, outer_size: Any, outer_stride: Any
    ) -> MaskedTensor:
        return cls(inner["raw"], inner["mask"])  # The outer size and stride are those of raw.

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Autograd, above __torch_dispatch__, hands the gradient of a sum to every element, and divides that of
        # a mean by the number of all. Up here a reduction is replaced by one of which the gradient is right.
        rule = _REDUCTIONS.get(func, func)
        with torch._C.DisableTorchFunctionSubclass():  # super() would put plain results into the class.
            return rule(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        rule = _RULES.get(func, _pointwise if torch.Tag.pointwise in func.tags else None)
        with lazy_bits():
            return rule(func, *args, **(kwargs or {})) if rule else take_apart(cls, func, args, kwargs or {})


def _raw(tree: Any) -> Any:
    return pytree.tree_map_only(MaskedTensor, lambda tensor: tensor.raw, tree)


def _each(func: Any, tensor: MaskedTensor, *args: Any, **kwargs: Any) -> Any:
    out = pytree.tree_map(type(tensor), *(func(part, *args, **kwargs) for part in (tensor.raw, tensor.mask)))
    return return_and_correct_aliasing(func, (tensor, *args), kwargs, out)


def _pointwise(func: Any, *args: Any, **kwargs: Any) -> Any:
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, MaskedTensor)]
    if any(target is not tensors[0] for target in written(func, args, kwargs)):
        raise no_rule(type(tensors[0]), f"{func} into another tensor, which would not take the mask")
    mask, *others = (tensor.mask for tensor in tensors)
    for other in others:
        if other is not mask:
            # Not an `if` on the values: that would wait for a GPU, and no trace could follow both ways.
            torch._assert_async((other == mask).all(), f"{type(tensors[0]).__name__}: masks differ in {func}")
    out = func(*_raw(args), **_raw(kwargs))
    if func._schema.is_mutable:
        return return_and_correct_aliasing(func, args, kwargs, out)
    return pytree.tree_map(lambda raw: _new(type(tensors[0]), raw, mask), out)


def _new(cls: type[MaskedTensor], raw: torch.Tensor, mask: torch.Tensor) -> MaskedTensor:
    # A copy of the mask, laid out as `raw` is: a new tensor shares nothing with the old.
    return cls(raw, torch.empty_like(raw, dtype=torch.bool).copy_(mask))


def _copy_(func: Any, target: Any, source: Any, *rest: Any) -> Any:
    if not isinstance(target, MaskedTensor):
        raise no_rule(MaskedTensor, f"{func} into a plain tensor; from_masked says what to write for the rest")
    func(target.raw, _raw(source), *rest)
    if isinstance(source, MaskedTensor):
        func(target.mask, source.mask, *rest)
    return target


def _of_gradients(func: Any, tensor: MaskedTensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The gradient of a broadcast or a cut: what is not specified is zero, as it is outside of the cut."""
    if tensor.requires_grad and torch.is_grad_enabled():  # Then autograd would differentiate it its own way.
        raise no_rule(type(tensor), f"{func} with a gradient")
    return func(torch.where(tensor.mask, tensor.raw, 0), *args, **kwargs)


def _sum(x: MaskedTensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return from_masked(x).sum(*args, **kwargs)


def _mean(x: MaskedTensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return _sum(x, *args, **kwargs) / x.mask.sum(*args, **kwargs)  # Of nothing: NaN, as in torch.


def _amax(x: MaskedTensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    least = -torch.inf if x.is_floating_point() else torch.iinfo(x.dtype).min
    return from_masked(x, least).amax(*args, **kwargs)


_REDUCTIONS: dict[Any, Any] = {
    getattr(space, name): rule
    for space in (torch, torch.Tensor)
    for name, rule in {"sum": _sum, "mean": _mean, "amax": _amax}.items()
}
_RULES: dict[Any, Any] = {
    **dict.fromkeys(LAYOUT, _each),
    **dict.fromkeys(overloads("_to_copy zeros_like ones_like zero_ fill_.Scalar fill_.Tensor"), _pointwise),
    **dict.fromkeys(overloads("sum.dim_IntList select_backward slice_backward diagonal_backward"), _of_gradients),
    aten.new_empty_strided.default: lambda f, x, *args, **kw: _new(type(x), f(x.raw, *args, **kw), x.mask.new_ones(())),
    aten.copy_.default: _copy_,
}


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    """Both ways: plain, for that meets any mask, and zero where an element is not specified."""
    (mask,) = ctx.saved_tensors
    grad = from_masked(grad) if isinstance(grad, MaskedTensor) else grad
    return torch.where(mask, grad, 0), None


class _ToMasked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, mask: torch.Tensor) -> MaskedTensor:
        # Copies: autograd would not see a write through the wrapper into memory of `x`.
        ctx.save_for_backward(mask)
        return _new(MaskedTensor, x.clone(), mask)

    backward = staticmethod(_gradient)


class _FromMasked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: MaskedTensor, fill: float) -> torch.Tensor:
        ctx.save_for_backward(tensor.mask)
        return torch.where(tensor.mask, tensor.raw, fill)

    backward = staticmethod(_gradient)


def to_masked(x: torch.Tensor, mask: torch.Tensor) -> MaskedTensor:
    """A MaskedTensor of copies of `x` and `mask`, bool, that broadcasts to `x`; hands gradients on to `x`.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> (to_masked(x, torch.tensor([True, False])) * 3).sum().backward()
        >>> x.grad
        tensor([3., 0.])
    """
    return _ToMasked.apply(x, mask)


def from_masked(tensor: MaskedTensor, fill: float = 0) -> torch.Tensor:
    """The elements, plain, with `fill` for those not specified, handing gradients on to `tensor`.

    Example:
        >>> from_masked(MaskedTensor(torch.ones(2), torch.tensor([True, False])), fill=-1)
        tensor([ 1., -1.])
    """
    return _FromMasked.apply(tensor, fill)
