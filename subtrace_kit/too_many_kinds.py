"""The refusal of a jitted function that has met too many kinds of input: what differed, and what to do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .equality import same_value
from .errors import TraceError
from .guards import Guard
from .intercept import flatten_tree
from .roots import is_simple
from .shown import holds_tensor

__all__ = ["too_many_kinds"]


def too_many_kinds(
    name: str, limit: int, guards: Sequence[Guard], differences: Sequence[str], args: tuple, kwargs: dict
) -> TraceError:
    """The error for one kind of input too many.

    Args:
        name: The program's name.
        limit: How many kinds there may be.
        guards: The latest kinds, the newest first.
        differences: What was new in the latest calls, this one first.
        args: The positional arguments of this call.
        kwargs: Its keyword arguments.
    """
    cause, way_out = next(_objects(guards, args, kwargs), (_CAUSE, _WAY_OUT))
    return TraceError(
        f"jit({name}) takes {limit} kinds of input, and this call is of one more. New in the latest calls: "
        + "; ".join(differences),
        cause=cause,
        way_out=f"{way_out}; {name}.explain() lists all kinds; jit(..., limit={2 * limit}) takes more",
    )


_CAUSE = "an argument, or a number from data, that is another Python number or shape at each call"
_WAY_OUT = "pass such numbers as tensors, pad to a few shapes, or keep what changes out of the arguments"


def _objects(guards: Sequence[Guard], args: tuple, kwargs: dict) -> Iterator[tuple[str, str]]:
    """The cause and the way out for each argument that is an object which equals none of those before."""
    leaves = flatten_tree((args, kwargs))[0]
    for index, leaf in enumerate(leaves):
        before = [guard.arguments[index] for guard in guards if len(guard.arguments) == len(leaves)]
        path = before[0].path if before else ""
        if _is_object(leaf) and not any(same_value(leaf, argument.value) for argument in before):
            yield _told(path, leaf)


def _is_object(leaf: Any) -> bool:
    return not isinstance(leaf, (torch.Tensor, type)) and not is_simple(leaf) and not callable(leaf)


def _told(path: str, leaf: Any) -> tuple[str, str]:
    cls = type(leaf).__name__
    if not holds_tensor(leaf):
        return (
            f"argument {path} is a {cls}, an object that equals none of the earlier ones: what it holds is constant",
            f"pass the same {cls} again, or one that is equal (`==`)",
        )
    register = f"torch.utils._pytree.register_pytree_node({cls}, flatten, unflatten)"
    if dataclasses.is_dataclass(leaf):
        register = f"torch.utils._pytree.register_dataclass({cls})"
    return (
        f"argument {path} is a {cls} that holds tensors and is no registered container: each new object counts as"
        " another Python value",
        f"call {register} once, or pass the tensors in a dict, list or tuple",
    )
