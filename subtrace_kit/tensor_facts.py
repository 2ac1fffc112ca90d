"""What code can ask of a tensor that its proxy does not say: compared at each run where the program asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from .intercept import FakeTensor, is_view, is_wrapper_type

__all__ = ["Ask", "asked", "gradient_kind", "kind_of"]

Ask = Callable[[Any], Any]


def gradient_kind(tensor: Any) -> Any:
    """None for a tensor without a gradient, else the class, shape, strides and dtype of the gradient."""
    return kind_of(tensor.grad if tensor.is_leaf or tensor.retains_grad else None)


def kind_of(gradient: torch.Tensor | None) -> Any:
    """The class, shape, strides and dtype of a gradient."""
    return None if gradient is None else (type(gradient), gradient.shape, _strides(gradient), gradient.dtype)


def asked(tensor: torch.Tensor, names: frozenset[str]) -> Iterator[tuple[str, Ask]]:
    """The facts of a tensor that code which mentions these names may depend on.

    Args:
        tensor: A tensor of any class.
        names: The names that the code mentions.

    Returns:
        What each fact is called, and how to ask for it.
    """
    known = (torch.Tensor, torch.nn.Parameter)
    if type(tensor) is FakeTensor:
        return
    if not is_wrapper_type(type(tensor)) and (type(tensor) not in known or names & _CLASS_NAMES):
        yield "class", type
    if tensor.is_quantized:
        yield "quantizer", _quantizer
    if tensor.layout is torch.sparse_coo:
        yield "entries", _entries
    for told, ask, mentions in _BY_NAME:
        if names & mentions:
            yield told, ask


_CLASS_NAMES = frozenset({"isinstance", "type", "__class__", "issubclass"})


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    return tensor.stride() if tensor.layout is torch.strided else ()


def _quantizer(tensor: torch.Tensor) -> Any:
    kind = tensor.qscheme()
    if kind is torch.per_tensor_affine:
        return kind, tensor.q_scale(), tensor.q_zero_point()
    return kind, tuple(tensor.q_per_channel_scales().tolist()), tuple(tensor.q_per_channel_zero_points().tolist())


def _entries(tensor: torch.Tensor) -> Any:
    return tensor.is_coalesced(), tensor._nnz()


def _attribute_names(tensor: Any) -> tuple[str, ...]:
    return tuple(sorted(name for name in vars(tensor) if not name.startswith("_sym_")))


def _storage_bytes(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def _address(tensor: torch.Tensor) -> int:
    return 0 if is_wrapper_type(type(tensor)) else tensor.data_ptr()


def _node(tensor: torch.Tensor) -> str:
    return type(tensor.grad_fn).__name__


_BY_NAME: tuple[tuple[str, Ask, frozenset[str]], ...] = (
    ("identity", id, frozenset({"calls id"})),
    ("address", _address, frozenset({"calls data_ptr"})),
    ("storage offset", torch.Tensor.storage_offset, frozenset({"storage_offset"})),
    ("bytes of storage", _storage_bytes, frozenset({"untyped_storage", "storage", "nbytes"})),
    ("is a view", is_view, frozenset({"_is_view", "_base"})),
    ("grad_fn", _node, frozenset({"grad_fn"})),
    ("is inference", torch.Tensor.is_inference, frozenset({"is_inference"})),
    ("attributes", _attribute_names, frozenset({"hasattr", "getattr", "vars", "__dict__"})),
)
