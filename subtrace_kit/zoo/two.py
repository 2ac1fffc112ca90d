"""TwoTensor: the smallest wrapper that does all that a wrapper has to do."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from .common import aten, check_pair, deepcopy_wrapper, follow, lazy_bits, no_rule, written


class TwoTensor(torch.Tensor):
    """Two tensors of one shape; every op is done on both.

    The outer tensor owns no memory: it looks like its halves, and `__torch_dispatch__` says what an op
    on it means. A plain tensor in an op meets both halves.

    Args:
        a: First half, any shape and dtype.
        b: Second half, like `a` but in memory of its own.

    Raises:
        ValueError: The halves differ in shape, strides, offset, dtype or device.

    Example:
        >>> TwoTensor(torch.ones(2), torch.zeros(2)) + 1
        TwoTensor(a=tensor([2., 2.]), b=tensor([1., 1.]))

    Source: https://docs.pytorch.org/docs/stable/notes/extending.html; torch's tests have one of this name.
    """

    a: torch.Tensor
    b: torch.Tensor

    def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> TwoTensor:
        check_pair(cls, a, b)
        # A trap: this makes a new leaf. Even if `a` requires grad, gradients end in the outer tensor
        # and never reach `a`. `to_two` is the way that keeps the graph.
        grad = a.requires_grad or b.requires_grad
        where = a.shape, a.stride(), a.storage_offset()
        with torch.inference_mode(a.is_inference()):  # It is what its halves are, or views of it fail.
            return torch.Tensor._make_wrapper_subclass(cls, *where, dtype=a.dtype, device=a.device, requires_grad=grad)

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a = a
        self.b = b

    # No __torch_function__: torch switches it off where a class defines __torch_dispatch__, so that plain
    # results are not turned into TwoTensors without halves.
    __deepcopy__ = deepcopy_wrapper

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}(a={self.a!r}, b={self.b!r})"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["a", "b"], None

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, torch.Tensor], metadata: None, outer_size: Any, outer_stride: Any
    ) -> TwoTensor:
        return cls(inner["a"], inner["b"])  # The outer size and stride are those of the halves.

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        # Ops that come whole, like reshape under inference_mode, do not say whether they share memory.
        if (out := func.decompose(*args, **kwargs)) is not NotImplemented:
            return out
        if not all(isinstance(tensor, TwoTensor) for tensor in written(func, args, kwargs)):
            raise no_rule(cls, f"{func} into a plain tensor, which cannot hold both results")
        with lazy_bits():
            out_a = func(*_halves("a", args), **_halves("a", kwargs))
            out_b = func(*_halves("b", args), **_halves("b", kwargs))
        for tensor in written(func, args, kwargs):
            follow(func, tensor, tensor.a)
        out = pytree.tree_map(lambda x, y: _pair(cls, func, x, y), out_a, out_b)
        # In-place ops return their very argument; views share the outer memory as the inner ones do.
        return return_and_correct_aliasing(func, args, kwargs, out)


def _halves(name: str, tree: Any) -> Any:
    return pytree.tree_map_only(TwoTensor, lambda tensor: getattr(tensor, name), tree)


def _pair(cls: type[TwoTensor], func: Any, x: Any, y: Any) -> Any:
    """Both results as one: two tensors are paired, two Python values must agree."""
    if isinstance(x, torch.Tensor):
        return cls(x, y)
    if func is aten.equal.default:
        return x and y
    if x == y or (x != x and y != y):  # The second: both are NaN.
        return x
    raise RuntimeError(f"{cls.__name__}: {func} gives {x} for the first half and {y} for the second")


class _ToTwo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> TwoTensor:
        # Copies: autograd would not see a write through the wrapper into memory of `a`.
        return TwoTensor(a.clone(), b.clone())

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # The gradient of a TwoTensor need not be one. A plain one counts for both halves, as in any op.
        return from_two(grad) if isinstance(grad, TwoTensor) else (grad, grad)


class _FromTwo(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: TwoTensor) -> tuple[torch.Tensor, torch.Tensor]:
        return tensor.a.clone(), tensor.b.clone()

    @staticmethod
    def backward(ctx: Any, a: torch.Tensor, b: torch.Tensor) -> TwoTensor:
        # `a` and `b` can be one tensor (after a + b), and gradients are added to in place: without the
        # copies of to_two the next one would be added twice.
        return to_two(a.contiguous(), b.contiguous())


def to_two(a: torch.Tensor, b: torch.Tensor) -> TwoTensor:
    """A TwoTensor of copies of `a` and `b` (alike, as for the class) that hands gradients on to them.

    Example:
        >>> a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
        >>> sum(from_two(to_two(a, b) * 3)).sum().backward()
        >>> a.grad
        tensor([3., 3.])
    """
    return _ToTwo.apply(a, b)


def from_two(tensor: TwoTensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Copies of both halves, plain, that hand gradients on to `tensor`.

    Example:
        >>> t = TwoTensor(torch.ones(2), torch.zeros(2)).requires_grad_()
        >>> from_two(t)[0].sum().backward()
        >>> t.grad
        TwoTensor(a=tensor([1., 1.]), b=tensor([0., 0.]))
    """
    return _FromTwo.apply(tensor)
