"""Stand-ins for arguments that autograd would take into another graph, with no way back."""

from __future__ import annotations

import collections
import operator
from typing import Any

import torch

from .errors import TraceError
from .guards import plain_leaves
from .intercept import base_of, build_wrapper, flat_parts, flatten_tree, is_view, is_wrapper_type, unflatten_tree
from .shown import a_kind
from .source import Source

__all__ = ["NeedsTwins", "changes_graph", "leaf_ancestors", "with_twins"]


class NeedsTwins(TraceError):
    """The program changes the autograd graph behind a tensor from outside."""


def needs_twins(tensor: torch.Tensor, source: Source | None) -> NeedsTwins:
    """What is said if no stand-in can be made: for a captured tensor, or one that shares memory with another."""
    return NeedsTwins(
        f"the program changes the graph behind {a_kind(tensor)} from outside, which torch cannot undo",
        source=source,
        cause="a write with a gradient into a tensor that is a view or the result of an op, detach_ or retain_grad",
        way_out="pass the tensor as an argument of its own; pass a clone() of a view, or write under torch.no_grad()",
    )


def changes_graph(tensor: torch.Tensor) -> bool:
    """Whether a write that autograd follows changes what torch cannot give back."""
    if tensor.is_inference():
        return False
    return not tensor.is_leaf or (is_view(tensor) and not tensor.requires_grad)


class _Twin(torch.autograd.Function):
    """The same memory in another tensor, whose gradient goes to the first."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, inner: dict[str, Any]) -> torch.Tensor:
        return _copy(tensor, inner)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad, None


def _copy(tensor: Any, inner: dict[str, Any]) -> torch.Tensor:
    """Another tensor object on the same memory, or on these inner tensors; not a view."""
    if is_wrapper_type(type(tensor)):
        _, metadata = flat_parts(tensor)
        made = build_wrapper(type(tensor), inner, metadata, tensor.shape, tensor.stride())
        for name, value in vars(tensor).items():
            setattr(made, name, inner.get(name, value))
        return made
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


def twin(tensor: Any, made: dict[int, Any]) -> Any:
    """A stand-in for a tensor whose graph, or that of a tensor inside it, must stay; else the tensor itself."""
    if id(tensor) not in made:
        inner = {}
        if is_wrapper_type(type(tensor)):
            inner = {name: twin(getattr(tensor, name), made) for name in flat_parts(tensor)[0]}
        made[id(tensor)] = _made_twin(tensor, inner)
    return made[id(tensor)]


def _made_twin(tensor: Any, inner: dict[str, Any]) -> Any:
    if not tensor.is_leaf:
        return _Twin.apply(tensor, inner)
    if changes_graph(tensor) or any(part is not getattr(tensor, name) for name, part in inner.items()):
        return _copy(tensor, inner).requires_grad_(tensor.requires_grad)
    return tensor


def with_twins(args: tuple, kwargs: dict, error: NeedsTwins) -> tuple[tuple, dict]:
    """The arguments with stand-ins for those whose graph must stay.

    Args:
        args: Positional arguments.
        kwargs: Keyword arguments.
        error: What to raise where that cannot be done.
    """
    leaves, spec = flatten_tree((args, kwargs))
    tensors = list({id(t): t for t in leaves if isinstance(t, torch.Tensor)}.values())
    every = {id(t): t for tensor in tensors for t in plain_leaves(tensor)}.values()
    families = collections.Counter(id(base_of(t)) for t in every)
    fragile = [t for t in every if changes_graph(t)]
    if any(families[id(base_of(t))] > 1 or t.is_conj() or t.is_neg() for t in fragile):
        raise error  # views of one tensor, whose graphs hang together
    twins: dict[int, Any] = {}
    made = [twin(tensor, twins) for tensor in tensors]
    if all(map(operator.is_, made, tensors)):
        raise error
    args, kwargs = unflatten_tree([twins.get(id(leaf), leaf) for leaf in leaves], spec)
    return args, kwargs


def leaf_ancestors(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves whose gradients a backward through these tensors would reach."""
    waiting = [t.grad_fn for t in tensors if t.grad_fn is not None]
    seen, found = set(waiting), []
    while waiting:
        node: Any = waiting.pop()
        if hasattr(node, "variable"):
            found.append(node.variable)
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                waiting.append(following)
    return found
