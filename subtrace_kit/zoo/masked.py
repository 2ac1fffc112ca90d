"""MaskedTensor: a tensor of which some elements are not specified."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from . import common
from .common import LAYOUT, aten, no_rule, overloads


class MaskedTensor(torch.Tensor):
    """A tensor and a mask, True where the element is specified. What stands elsewhere never matters.

    A pointwise result, also that of `where`, is specified where all operands are; plain ones are everywhere. An
    op in place leaves the mask, so its operands must be specified wherever the target is (RuntimeError); `copy_`
    alone writes it. Reductions skip what is not specified, matrix products take it as zero; both are plain. Views,
    copies and softmax stay in the class; any other op is refused. What a gradient does not specify is zero.

    Args:
        raw: Any shape and dtype. (Every tensor has a `data` already, so this is not called that.)
        mask: bool, otherwise like `raw`, in memory of its own.

    Raises:
        ValueError: `mask` is not bool, or the two differ in shape, strides, offset or device.

    Example:
        >>> x = MaskedTensor(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([True, True, False]))
        >>> (x * 10).sum(), x.mean(), x.amax(), x @ x
        (tensor(30.), tensor(1.5000), tensor(2.), tensor(5.))

    Source: https://docs.pytorch.org/docs/stable/masked.html
    """

    raw: torch.Tensor
    mask: torch.Tensor

    def __new__(cls, raw: torch.Tensor, mask: torch.Tensor) -> MaskedTensor:
        if mask.dtype != torch.bool:
            raise ValueError(f"{cls.__name__}: mask must be bool, got {mask.dtype}")
        common.check_pair(cls, raw, mask, dtypes=False)
        # A trap: this makes a new leaf, whatever graph `raw` belongs to. `to_masked` keeps the graph.
        where = raw.shape, raw.stride(), raw.storage_offset()
        dtype, device, grad = raw.dtype, raw.device, raw.requires_grad
        with torch.inference_mode(raw.is_inference()):  # It is what raw is, or views of it fail.
            return torch.Tensor._make_wrapper_subclass(cls, *where, dtype=dtype, device=device, requires_grad=grad)

    def __init__(self, raw: torch.Tensor, mask: torch.Tensor) -> None:
        self.raw = raw
        self.mask = mask

    __deepcopy__ = common.deepcopy_wrapper

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
        # Autograd, above __torch_dispatch__, hands the gradient of a sum to every element, and adds gradients
        # with whatever masks they have. Up here an op is replaced by one of which the gradient is right.
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():  # super() would put plain results into the class.
            if rule := _FUNCTIONS.get(func):
                return rule(func, *args, **kwargs)
            if func in _WRITES and not isinstance(args[0], MaskedTensor):
                raise no_rule(cls, f"{func.__name__} into a plain tensor; from_masked says what to write for the rest")
            if common.is_pointwise(func):
                args, kwargs = _with_one_mask(func, args, kwargs)
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        rule = _RULES.get(func, _pointwise if torch.Tag.pointwise in func.tags else None)
        with common.lazy_bits():
            return rule(func, *args, **(kwargs or {})) if rule else common.take_apart(cls, func, args, kwargs or {})


def _raw(tree: Any) -> Any:
    return pytree.tree_map_only(MaskedTensor, lambda tensor: tensor.raw, tree)


def _each(func: Any, tensor: MaskedTensor, *args: Any, **kwargs: Any) -> Any:
    out = pytree.tree_map(type(tensor), *(func(part, *args, **kwargs) for part in (tensor.raw, tensor.mask)))
    return return_and_correct_aliasing(func, (tensor, *args), kwargs, out)


def _masked(*trees: Any) -> list[MaskedTensor]:
    return [leaf for leaf in pytree.tree_leaves(trees) if isinstance(leaf, MaskedTensor)]


def _with_one_mask(func: Any, args: Any, kwargs: Any) -> Any:
    """The arguments of a pointwise op, masked operands cut to what all of them, or the target, specify."""
    first, *others = masked = _masked(args, kwargs)
    if all(x.mask is first.mask for x in others):
        return args, kwargs
    target = first if common.op_name(func).endswith("_") else None
    mask = first.mask if target is not None else functools.reduce(torch.logical_and, [x.mask for x in masked])

    def cut(x: Any) -> Any:
        if x is target:
            return x
        # A 0-dim operand does not widen the dtype of the result; expanded it would.
        x = x if x.dim() else x.to(torch.result_type(x, max(masked, key=torch.Tensor.dim)))
        return to_masked(x.expand(mask.shape), mask)

    return pytree.tree_map_only(MaskedTensor, cut, (args, kwargs))


def _pointwise(func: Any, *args: Any, **kwargs: Any) -> Any:
    first, *others = _masked(args, kwargs)
    common.check_target(func, args, kwargs, first, "mask")
    for other in others:
        if other.mask is not first.mask:
            # Not an `if` on the values: that would wait for a GPU, and no trace could follow both ways.
            torch._assert_async((other.mask == first.mask).all(), f"{type(first).__name__}: masks differ in {func}")
    out = func(*_raw(args), **_raw(kwargs))
    if func._schema.is_mutable:
        return return_and_correct_aliasing(func, args, kwargs, out)
    return pytree.tree_map(lambda raw: _new(type(first), raw, first.mask), out)


def _new(cls: type[MaskedTensor], raw: torch.Tensor, mask: torch.Tensor) -> MaskedTensor:
    # A copy of the mask, laid out as `raw` is: a new tensor shares nothing with the old.
    return cls(raw, torch.empty_like(raw, dtype=torch.bool).copy_(mask))


def _copy_(func: Any, target: Any, source: Any, *rest: Any) -> Any:
    if not isinstance(target, MaskedTensor):  # Only autograd comes here so, with a gradient.
        return func(target, from_masked(source), *rest)
    func(target.raw, _raw(source), *rest)
    if isinstance(source, MaskedTensor):
        func(target.mask, source.mask, *rest)
    return target


def _as_zero(func: Any, *args: Any, **kwargs: Any) -> Any:
    """What is not specified is zero: in a product, and in the gradient of a broadcast or a cut."""
    args, kwargs = pytree.tree_map_only(MaskedTensor, from_masked, (args, kwargs))
    return func(*args, **kwargs)


def _of_gradients(func: Any, *args: Any, **kwargs: Any) -> Any:
    for tensor in _masked(args):
        common.check_no_gradient(func, tensor)
    return _as_zero(func, *args, **kwargs)


def _reduce(fill: float, func: Any, input: MaskedTensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    if abs(fill) == torch.inf and not input.is_floating_point():
        fill = getattr(torch.iinfo(input.dtype), "max" if fill > 0 else "min")
    return func(from_masked(input, fill), *args, **kwargs)


def _mean(func: Any, input: MaskedTensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return from_masked(input).sum(*args, **kwargs) / input.mask.sum(*args, **kwargs)  # Of nothing: NaN, as in torch.


def _softmax(func: Any, input: MaskedTensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return to_masked(func(from_masked(input, -torch.inf), *args, **kwargs), input.mask)


_NEUTRAL = {"sum": 0, "prod": 1, "all": True, "any": False, "amax": -torch.inf, "amin": torch.inf}
_WRITES = torch.Tensor.copy_, torch.Tensor.__setitem__
_FUNCTIONS: dict[Any, Any] = {
    **{func: functools.partial(_reduce, x) for name, x in _NEUTRAL.items() for func in common.functions(name)},
    **dict.fromkeys(common.functions("mean"), _mean),
    **dict.fromkeys(common.functions("softmax"), _softmax),
    **dict.fromkeys(common.functions("matmul mm mv bmm dot linear addmm einsum"), _as_zero),
}
_GRADIENTS = "sum.dim_IntList select_backward slice_backward diagonal_backward mm mv bmm dot addmm"
_RULES: dict[Any, Any] = {
    **dict.fromkeys([*LAYOUT, *overloads("squeeze_ squeeze_.dim t_ transpose_ unsqueeze_")], _each),
    **dict.fromkeys(overloads("_to_copy zeros_like ones_like zero_ fill_.Scalar fill_.Tensor"), _pointwise),
    **dict.fromkeys(overloads(_GRADIENTS), _of_gradients),
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
        return _new(MaskedTensor, _raw(x).clone(), mask)

    backward = staticmethod(_gradient)


class _FromMasked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: MaskedTensor, fill: float) -> torch.Tensor:
        ctx.save_for_backward(tensor.mask.clone())  # A copy: `copy_` may write the mask before the backward.
        return tensor.raw.masked_fill(~tensor.mask, fill)

    backward = staticmethod(_gradient)


def to_masked(x: torch.Tensor, mask: torch.Tensor) -> MaskedTensor:
    """A MaskedTensor of copies of `x`, masked or not, and `mask`, bool, broadcast to it; hands gradients on to `x`.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> (to_masked(x, torch.tensor([True, False])) * 3).sum().backward()
        >>> x.grad
        tensor([3., 0.])
    """
    return _ToMasked.apply(x, x.mask & mask if isinstance(x, MaskedTensor) else mask)


def from_masked(tensor: MaskedTensor, fill: float = 0) -> torch.Tensor:
    """The elements, plain, with `fill` for those not specified, handing gradients on to `tensor`.

    Example:
        >>> from_masked(MaskedTensor(torch.ones(2), torch.tensor([True, False])), fill=-1)
        tensor([ 1., -1.])
    """
    return _FromMasked.apply(tensor, fill)
