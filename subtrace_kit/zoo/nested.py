"""RaggedTensor: rows of different length, one after the other in one tensor."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from .common import (
    aten,
    check_no_gradient,
    check_target,
    deepcopy_wrapper,
    functions,
    lazy_bits,
    no_rule,
    overloads,
    take_apart,
)


class RaggedTensor(torch.Tensor):
    """n rows of different length: row i is packed[offsets[i] : offsets[i + 1]].

    To the outside it has the size that it would have padded, [n, longest, ...]; a plain operand broadcasts to
    that, and what meets the padding is dropped. Pointwise ops, also in place, cuts along the dimensions after the
    second, and products of the last one with a plain vector or matrix (`x @ w`, `linear`) stay in the class and
    share the offsets, which no op writes; any other op is refused. A gradient, also that of a plain operand, may
    be a RaggedTensor.

    Args:
        packed: Any dtype, shape [total, ...].
        offsets: int64, shape [n + 1], rising from 0 to total; not checked, for that would wait for a GPU.
        longest: Length of the longest row, a number, for the size of a tensor has to be one.

    Raises:
        ValueError: A shape, a dtype or a device does not fit.

    Example:
        >>> x = to_ragged([torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4.0])])
        >>> x.shape, (x * 10).row_sums()
        (torch.Size([2, 3]), tensor([60., 40.]))

    Source: https://docs.pytorch.org/docs/stable/nested.html
    """

    packed: torch.Tensor
    offsets: torch.Tensor
    longest: int

    def __new__(cls, packed: torch.Tensor, offsets: torch.Tensor, longest: int) -> RaggedTensor:
        fits = packed.dim() > 0 and offsets.dim() == 1 and len(offsets) > 0 and offsets.dtype == torch.int64
        if not fits or packed.device != offsets.device:
            found = f"{tuple(packed.shape)} and {offsets.dtype} {tuple(offsets.shape)}"
            raise ValueError(f"{cls.__name__}: needs [total, ...] and int64 [n + 1] on one device, got {found}")
        # A trap: this makes a new leaf, whatever graph `packed` belongs to. `to_ragged` keeps the graph.
        size, stride = (len(offsets) - 1, longest, *packed.shape[1:]), (longest * packed.stride(0), *packed.stride())
        where, like, grad = packed.storage_offset(), (packed.dtype, packed.layout, packed.device), packed.requires_grad
        with torch.inference_mode(packed.is_inference()):  # It is what packed is, or views of it fail.
            return torch.Tensor._make_wrapper_subclass(cls, size, stride, where, None, *like, requires_grad=grad)

    def __init__(self, packed: torch.Tensor, offsets: torch.Tensor, longest: int) -> None:
        self.packed = packed
        self.offsets = offsets
        self.longest = longest

    __deepcopy__ = deepcopy_wrapper

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}(packed={self.packed!r}, offsets={self.offsets!r}, longest={self.longest})"

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, int]]:
        return ["packed", "offsets"], {"longest": self.longest}

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, torch.Tensor], metadata: dict[str, int], outer_size: Any, outer_stride: Any
    ) -> RaggedTensor:
        return cls(inner["packed"], inner["offsets"], **metadata)

    def rows(self) -> list[torch.Tensor]:
        """Copies of the rows, plain, handing gradients on. It reads the offsets, so it cannot be traced."""
        return list(from_ragged(self).split(self.offsets.diff().tolist()))

    def row_sums(self) -> torch.Tensor:
        """The sum of each row, [n, ...], plain, handing gradients on, to no padding as those of `sum` would."""
        packed, (rows, _) = from_ragged(self), _places(self.offsets, len(self.packed))
        return packed.new_zeros((self.shape[0], *packed.shape[1:])).index_add(0, rows, packed)

    def to_padded(self, fill: float = 0) -> torch.Tensor:
        """The rows, plain, with `fill` after each up to the longest, handing gradients on."""
        packed = from_ragged(self)
        return packed.new_full(self.shape, fill).index_put(_places(self.offsets, len(packed)), packed)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # Before autograd takes a product apart, into views that there are not of rows of different length.
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():  # super() would put plain results into the class.
            if func in _PRODUCTS and _by_row(*args, **kwargs):
                return _product(func, *args, **kwargs)
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        rule = _RULES.get(func, _pointwise if torch.Tag.pointwise in func.tags else None)
        with lazy_bits():
            return rule(func, *args, **(kwargs or {})) if rule else take_apart(cls, func, args, kwargs or {})


def _places(offsets: torch.Tensor, total: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Row and column of each packed element, found without a size that depends on data."""
    index = torch.arange(total, device=offsets.device)
    rows = torch.searchsorted(offsets, index, right=True) - 1
    return rows, index - offsets[rows]


def _operand(func: Any, x: Any, t: RaggedTensor) -> torch.Tensor:
    """What of an operand meets the packed elements of `t`."""
    ragged = isinstance(x, RaggedTensor)
    if x.dim() > t.dim() or (ragged and x.dim() < t.dim()):
        raise no_rule(type(t), f"{func} of {t.dim()} and {x.dim()} dimensions")
    if ragged and x.offsets is not t.offsets:
        # Not an `if` on the offsets: that would wait for a GPU, and no trace could follow both ways.
        torch._assert_async((x.offsets == t.offsets).all(), f"{type(t).__name__}: rows differ in {func}")
    if ragged or x.dim() <= t.dim() - 2:  # The second: the same for all elements of all rows.
        return x.packed if ragged else x
    padded = x.expand(*t.shape[:2], *x.shape[x.dim() - t.dim() + 2 :])
    return padded[_places(t.offsets, len(t.packed))]


def _pointwise(func: Any, *args: Any, **kwargs: Any) -> Any:
    t = next(leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, RaggedTensor))
    check_target(func, args, kwargs, t, "offsets")
    inner_args, inner_kwargs = pytree.tree_map_only(torch.Tensor, lambda x: _operand(func, x, t), (args, kwargs))
    out = func(*inner_args, **inner_kwargs)
    if func._schema.is_mutable:
        return return_and_correct_aliasing(func, args, kwargs, out)
    return pytree.tree_map(lambda packed: type(t)(packed, t.offsets.to(packed.device), t.longest), out)


def _by_row(input: torch.Tensor, *args: Any, **kwargs: Any) -> bool:
    """Whether a product is that of the last dimension, not of the rows, with what is the same for all rows."""
    others = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    plain = not any(isinstance(x, RaggedTensor) or x.dim() > 2 for x in others)
    return isinstance(input, RaggedTensor) and input.dim() > 2 and plain


def _product(func: Any, input: RaggedTensor, *args: Any, **kwargs: Any) -> RaggedTensor:
    return _ToRagged.apply(func(from_ragged(input), *args, **kwargs), input.offsets, input.longest)


def _cut(func: Any, t: RaggedTensor, *args: Any) -> RaggedTensor:
    """A view along a dimension that is the same in all rows, or of all."""
    inner = [args[0] % t.dim() - 1, *args[1:]] if args else []
    if inner and inner[0] < 1:
        raise no_rule(type(t), f"{func} along dimension {inner[0] + 1}")
    out = type(t)(func(t.packed, *inner), t.offsets, t.longest)
    return return_and_correct_aliasing(func, (t, *args), {}, out)


def _cut_backward(func: Any, grad: RaggedTensor, sizes: Any, dim: int, *args: Any) -> RaggedTensor:
    packed = func(grad.packed, [len(grad.packed), *sizes[2:]], dim % len(sizes) - 1, *args)
    return type(grad)(packed, grad.offsets, grad.longest)


def _empty(func: Any, t: RaggedTensor, size: Any, stride: Any, **kwargs: Any) -> RaggedTensor:
    """What autograd puts the gradients of a tensor and of its written view together in."""
    if tuple(size[:2]) != tuple(t.shape[:2]):
        raise no_rule(type(t), f"{func} with other rows")
    return type(t)(func(t.packed, [len(t.packed), *size[2:]], stride[1:], **kwargs), t.offsets, t.longest)


def _sum(func: Any, t: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """The gradient of a broadcast."""
    check_no_gradient(func, t, "; row_sums() has one")
    return func(t.detach().to_padded(), *args, **kwargs)


_PRODUCTS = set(functions("matmul linear"))
_RULES: dict[Any, Any] = {
    **dict.fromkeys(overloads("alias detach slice.Tensor select.int"), _cut),
    **dict.fromkeys(overloads("slice_backward select_backward"), _cut_backward),
    **dict.fromkeys(overloads("_to_copy zeros_like ones_like copy_ zero_ fill_.Scalar fill_.Tensor"), _pointwise),
    aten.new_empty_strided.default: _empty,
    aten.sum.dim_IntList: _sum,
}


class _ToRagged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: torch.Tensor, offsets: torch.Tensor, longest: int) -> RaggedTensor:
        ctx.save_for_backward(offsets)
        ctx.total = len(packed)
        return RaggedTensor(packed.clone(), offsets, longest)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (offsets,) = ctx.saved_tensors  # A plain gradient is as large as the rows would be padded.
        return from_ragged(grad) if isinstance(grad, RaggedTensor) else grad[_places(offsets, ctx.total)], None, None


class _FromRagged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: RaggedTensor) -> torch.Tensor:
        ctx.save_for_backward(tensor.offsets)
        ctx.longest = tensor.longest
        return tensor.packed.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return _ToRagged.apply(grad, *ctx.saved_tensors, ctx.longest)


def to_ragged(rows: list[torch.Tensor]) -> RaggedTensor:
    """A RaggedTensor of copies of `rows`, at least one, which hands gradients on to them.

    Example:
        >>> x, y = torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)
        >>> (to_ragged([x, y]) * torch.tensor([[2.0], [3.0]])).row_sums().sum().backward()
        >>> x.grad, y.grad
        (tensor([2., 2.]), tensor([3.]))
    """
    lengths = [len(row) for row in rows]
    offsets = torch.tensor([0, *lengths], device=rows[0].device).cumsum(0)
    return _ToRagged.apply(torch.cat(rows), offsets, max(lengths))


def from_ragged(tensor: RaggedTensor) -> torch.Tensor:
    """A copy of the packed elements, plain, row after row, handing gradients on to `tensor`.

    Example:
        >>> from_ragged(to_ragged([torch.ones(2), torch.zeros(1)]))
        tensor([1., 1., 0.])
    """
    return _FromRagged.apply(tensor)
