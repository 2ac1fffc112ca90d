"""What gradients are, without the gradients."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .guards import tensor_fields
from .intercept import flat_parts, is_wrapper_type
from .proxies import TensorProxy, proxy_kind

__all__ = ["Kinds", "kinds_of", "same_kinds"]

Kinds = tuple[TensorProxy | None, ...]
"""What gradients are, one for each result that autograd follows: None where none arrives."""


def kinds_of(gradients: Sequence[torch.Tensor | None]) -> Kinds:
    """The kinds of gradients that have arrived."""
    return tuple(None if g is None else _kind(g, "grad_out") for g in gradients)


def _kind(tensor: torch.Tensor, name: str) -> TensorProxy:
    fields = {**tensor_fields(tensor), "requires_grad": False}
    if not is_wrapper_type(type(tensor)):
        return TensorProxy(name, **fields)
    names, metadata = flat_parts(tensor)
    inner = tuple((part, _kind(getattr(tensor, part), f"{name}_{part}")) for part in names)
    cls = type(tensor)
    return proxy_kind(cls)(name, **fields, cls=cls, inner=inner, metadata=metadata)


def same_kinds(one: Kinds, other: Kinds) -> bool:
    """Whether two are alike; metadata that cannot be compared are not."""
    try:
        return bool(one == other)
    except Exception:
        return False
