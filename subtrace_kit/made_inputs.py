"""Arguments of the kind a trace was recorded with, made up: for looking at a backward, for trials."""

from __future__ import annotations

from typing import Any

import torch

from .errors import TraceError
from .guards import Guard
from .intercept import build_wrapper, unflatten_tree
from .proxies import SubclassTensorProxy, TensorProxy
from .shown import message

__all__ = ["like", "make_arguments"]


def make_arguments(guard: Guard) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments that a guard accepts: same structure, classes and shapes, other values.

    Args:
        guard: The kind.

    Returns:
        Positional and keyword arguments. Floats are drawn from a normal distribution, integers are 0
        or 1; arguments that were one object are one object again.

    Raises:
        TraceError: A class cannot be built from made-up inner tensors.
    """
    made: dict[str, torch.Tensor] = {}
    with torch.random.fork_rng(devices=[]):
        leaves = [a.value if a.proxy is None else like(a.proxy, made) for a in guard.arguments]
    args, kwargs = unflatten_tree(leaves, guard.spec)
    return args, kwargs


def like(proxy: TensorProxy, made: dict[str, torch.Tensor] | None = None) -> torch.Tensor:
    """A tensor of a proxy's kind, wrappers built from made-up inner tensors.

    Args:
        proxy: The kind.
        made: Tensors made so far by name; used again, and added to.
    """
    made = {} if made is None else made
    if proxy.name not in made:
        made[proxy.name] = _wrapper(proxy, made) if isinstance(proxy, SubclassTensorProxy) else _plain(proxy)
        made[proxy.name].requires_grad_(proxy.requires_grad)
    return made[proxy.name]


def _plain(proxy: TensorProxy) -> torch.Tensor:
    tensor = torch.empty_strided(proxy.shape, proxy.stride, dtype=proxy.dtype, device=proxy.device)
    if proxy.dtype.is_floating_point or proxy.dtype.is_complex:
        values = torch.randn(proxy.shape)
    else:
        values = torch.randint(0, 2, proxy.shape)
    made = tensor.copy_(values) if 0 not in proxy.stride else tensor.fill_(1)  # expanded: many places are one
    made = made.conj() if proxy.lazy[0] else made
    return made._neg_view() if proxy.lazy[1] else made


def _wrapper(proxy: SubclassTensorProxy, made: dict[str, torch.Tensor]) -> torch.Tensor:
    inner = {name: like(part, made) for name, part in proxy.inner}
    try:
        return build_wrapper(proxy.cls, inner, proxy.metadata, torch.Size(proxy.shape), proxy.stride)
    except Exception as error:
        raise TraceError(
            f"a {proxy.cls.__name__} cannot be made up: {type(error).__name__}: {message(error)}",
            cause="its inner tensors must hold certain values",
            way_out="give the arguments yourself",
        ) from error
