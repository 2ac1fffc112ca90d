"""LoggingTensor: a tensor that says which ops reach it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

from .common import deepcopy_wrapper, follow, lazy_bits, written


class LoggingTensor(torch.Tensor):
    """A tensor around another; each op that reaches it is told to `emit`, then done on the inner tensor.

    Any op passes, and every tensor that it gives is a LoggingTensor. The log is no part of the tensor: lines
    kept as metadata would make each op see another kind of tensor, and a list among the attributes would have
    to be shared by all results. A trace asks the class again at each run, so each run logs, as recording
    does; a lowered trace does without the class and logs nothing.

    Args:
        elem: Any strided tensor. (Every tensor has an `inner` already, a product.)

    Attributes:
        emit: Of the class: what takes a line, before the op is run. `print` at first; see `logged`.

    Example:
        >>> (LoggingTensor(torch.ones(2, 3)) * 2).t().elem.shape
        aten.mul.Tensor(float32[2, 3], 2)
        aten.t.default(float32[2, 3])
        torch.Size([3, 2])

    Source: https://github.com/albanD/subclass_zoo has one too; so have the tests of torch.
    """

    elem: torch.Tensor
    emit: ClassVar[Callable[[str], object]] = print

    def __new__(cls, elem: torch.Tensor) -> LoggingTensor:
        # A trap: this makes a new leaf, whatever graph `elem` belongs to. `to_log` keeps the graph.
        where = elem.shape, elem.stride(), elem.storage_offset()
        dtype, device, grad = elem.dtype, elem.device, elem.requires_grad
        with torch.inference_mode(elem.is_inference()):  # It is what elem is, or views of it fail.
            return torch.Tensor._make_wrapper_subclass(cls, *where, dtype=dtype, device=device, requires_grad=grad)

    def __init__(self, elem: torch.Tensor) -> None:
        self.elem = elem

    __deepcopy__ = deepcopy_wrapper

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{type(self).__name__}({self.elem!r})"

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["elem"], None

    @classmethod
    def __tensor_unflatten__(
        cls, inner: dict[str, torch.Tensor], metadata: None, outer_size: Any, outer_stride: Any
    ) -> LoggingTensor:
        return cls(inner["elem"])  # The outer size and stride are those of elem.

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        # Ops that come whole, like reshape under inference_mode, do not say whether they share memory.
        if (out := func.decompose(*args, **kwargs)) is not NotImplemented:
            return out
        cls.emit(_line(func, args, kwargs))  # First, so that an op that fails is the last one in the log.
        with lazy_bits():
            out = func(*_inner(args), **_inner(kwargs))
        for tensor in written(func, args, kwargs):
            if isinstance(tensor, LoggingTensor):
                follow(func, tensor, tensor.elem)
        # In-place ops return their very argument, also a plain one; views share the outer memory too.
        return return_and_correct_aliasing(func, args, kwargs, pytree.tree_map_only(torch.Tensor, cls, out))


def _inner(tree: Any) -> Any:
    return pytree.tree_map_only(LoggingTensor, lambda tensor: tensor.elem, tree)


def _line(func: Any, args: Any, kwargs: Any) -> str:
    args, kwargs = pytree.tree_map_only(torch.Tensor, _Short, (args, kwargs))
    return f"{func}({', '.join([*map(repr, args), *(f'{name}={value!r}' for name, value in kwargs.items())])})"


class _Short:
    """A tensor in a line: dtype and shape. Its values may be many, and a trace must not depend on them."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.text = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"

    def __repr__(self) -> str:
        return self.text


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    """Collect the lines in a list instead of printing them, in all threads.

    Example:
        >>> with logged() as lines:
        ...     x = LoggingTensor(torch.ones(2)).add_(1)
        >>> lines
        ['aten.add_.Tensor(float32[2], 1)']
    """
    lines: list[str] = []
    before = LoggingTensor.emit
    LoggingTensor.emit = lines.append
    try:
        yield lines
    finally:
        LoggingTensor.emit = before


class _ToLog(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> LoggingTensor:
        return LoggingTensor(x.clone())  # A copy: autograd would not see a write through the wrapper.

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return from_log(grad) if isinstance(grad, LoggingTensor) else grad


class _FromLog(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: LoggingTensor) -> torch.Tensor:
        return tensor.elem.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> LoggingTensor:
        return to_log(grad)  # A plain gradient would do; this one shows what runs in the backward.


def to_log(x: torch.Tensor) -> LoggingTensor:
    """A LoggingTensor around a copy of `x` that hands gradients on to it.

    Example:
        >>> x = torch.ones(2, requires_grad=True)
        >>> from_log(to_log(x) * 3).sum().backward()
        aten.mul.Tensor(float32[2], 3)
        aten.mul.Tensor(float32[2], 3)
        >>> x.grad
        tensor([3., 3.])
    """
    return _ToLog.apply(x)


def from_log(tensor: LoggingTensor) -> torch.Tensor:
    """A copy of the inner tensor, plain, that hands gradients on to `tensor`.

    Example:
        >>> from_log(LoggingTensor(torch.ones(2)))
        tensor([1., 1.])
    """
    return _FromLog.apply(tensor)
