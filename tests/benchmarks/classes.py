"""Two small wrapper classes, with handlers as short as users write them."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

aten = torch.ops.aten


class Pair(torch.Tensor):
    """Two tensors; every op is run on both."""

    a: torch.Tensor
    b: torch.Tensor

    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> Pair:
        made = torch.Tensor._make_wrapper_subclass(cls, a.shape, strides=a.stride(), dtype=a.dtype, device=a.device)
        made.a, made.b = a, b
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Pair({self.a!r}, {self.b!r})"  # that of Tensor asks for data, which no tracer has

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], metadata: None, size: Any, stride: Any) -> Pair:
        return Pair(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        on_a = func(*(x.a if isinstance(x, cls) else x for x in args), **kwargs)
        on_b = func(*(x.b if isinstance(x, cls) else x for x in args), **kwargs)
        return pytree.tree_map(cls, on_a, on_b)


class Scaled(torch.Tensor):
    """Data and a factor: a product with a number touches only the factor, other ops only the data."""

    data_: torch.Tensor
    scale_: torch.Tensor

    @staticmethod
    def __new__(cls, data: torch.Tensor, scale: torch.Tensor) -> Scaled:
        made = torch.Tensor._make_wrapper_subclass(
            cls, data.shape, strides=data.stride(), dtype=data.dtype, device=data.device
        )
        made.data_, made.scale_ = data, scale
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Scaled({self.data_!r}, {self.scale_!r})"  # that of Tensor asks for data, which no tracer has

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["data_", "scale_"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], metadata: None, size: Any, stride: Any) -> Scaled:
        return Scaled(inner["data_"], inner["scale_"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        x = args[0]
        if func is aten.mul.Tensor:
            return cls(x.data_, x.scale_ * args[1])
        if func in (aten.neg.default, aten.abs.default):  # true for the positive factors used here
            return cls(func(x.data_), x.scale_)
        return NotImplemented


def inner_tensors(value: Any) -> tuple[torch.Tensor, ...]:
    """The tensors inside a wrapper; of a tuple, its items."""
    if isinstance(value, (Pair, Scaled)):
        return tuple(getattr(value, name) for name in value.__tensor_flatten__()[0])
    return tuple(value)
