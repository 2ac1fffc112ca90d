"""Fake tensors in place of the arguments: shapes only, no memory, any device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .intercept import FakeTensorMode, flatten_tree, is_wrapper_type, unflatten_tree

__all__ = ["fails_without_data", "on_fake_tensors"]


def fails_without_data(op: Any, args: tuple, kwargs: dict) -> bool:
    """Whether an op fails on tensors of the same kind without data too: then the data are not to blame.

    Args:
        op: A torch function or an ATen overload.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """
    leaves, spec = flatten_tree((args, kwargs))
    if any(isinstance(leaf, torch.Tensor) and is_wrapper_type(type(leaf)) for leaf in leaves):
        return True  # what reaches the data is asked by itself
    args, kwargs = unflatten_tree([_without_data(leaf) for leaf in leaves], spec)
    try:
        op(*args, **kwargs)
    except NotImplementedError:
        return False
    except Exception:
        return True
    return False


def _without_data(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided:
        return torch.device("meta") if isinstance(leaf, torch.device) else leaf
    return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")


@contextlib.contextmanager
def on_fake_tensors(arguments: Any) -> Iterator[Any]:
    """Give the same arguments on fake tensors, inside the mode that runs them.

    Args:
        arguments: Any pytree. Tensors in it, wrappers too, are replaced; one object stays one object.

    Yields:
        The pytree on fake tensors. Captured tensors may stay real.

    Source: https://docs.pytorch.org/docs/stable/torch.compiler_fake_tensor.html
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    leaves, spec = flatten_tree(arguments)
    fakes = [mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    with mode:
        yield unflatten_tree(fakes, spec)
