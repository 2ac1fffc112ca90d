"""Fake tensors in place of the arguments: shapes only, no memory, any device."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .intercept import FakeTensorMode, flatten_tree, unflatten_tree

__all__ = ["fails_on_fakes", "on_fake_tensors"]


def fails_on_fakes(op: Any, args: tuple, kwargs: dict) -> bool:
    """Whether an op fails on fake tensors of the same kind too: then its data are not to blame.

    Args:
        op: An ATen overload.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
    """
    try:
        with on_fake_tensors((args, kwargs)) as (fake_args, fake_kwargs):
            op(*fake_args, **fake_kwargs)
    except NotImplementedError:
        return False
    except Exception:
        return True
    return False


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
