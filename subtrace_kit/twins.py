"""Stand-ins for arguments that autograd would take into another graph, with no way back."""

from __future__ import annotations

from typing import Any

import torch

from .errors import TraceError
from .guards import sharing
from .intercept import flatten_tree, is_wrapper_type, unflatten_tree
from .source import Source

__all__ = ["NeedsTwins", "changes_graph", "leaf_ancestors", "with_twins"]


class NeedsTwins(TraceError):
    """The program changes the autograd graph behind a tensor from outside."""


def needs_twins(tensor: torch.Tensor, source: Source | None) -> NeedsTwins:
    """What is said if no stand-in can be made: for a captured tensor, or one that shares memory with another."""
    return NeedsTwins(
        f"the program changes the graph behind a {type(tensor).__name__} from outside, which torch cannot undo",
        source=source,
        cause="a write with a gradient into a tensor that is a view or the result of an op, detach_ or retain_grad",
        way_out="pass the tensor as an argument of its own; pass a clone() of a view, or write under torch.no_grad()",
    )


def changes_graph(tensor: torch.Tensor) -> bool:
    """Whether a write that autograd follows changes what torch cannot give back."""
    if tensor.is_inference():
        return False
    return not tensor.is_leaf or (tensor._is_view() and not tensor.requires_grad)


class _Twin(torch.autograd.Function):
    """The same memory in another tensor, whose gradient goes to the first."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return _copy(tensor)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


def _copy(tensor: Any) -> torch.Tensor:
    """Another tensor object on the same memory, or on the same inner tensors; not a view."""
    if is_wrapper_type(type(tensor)):
        names, metadata = tensor.__tensor_flatten__()
        inner = {name: getattr(tensor, name) for name in names}
        made = type(tensor).__tensor_unflatten__(inner, metadata, tensor.shape, tensor.stride())
        vars(made).update(vars(tensor))
        return made
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())


def with_twins(args: tuple, kwargs: dict, error: NeedsTwins) -> tuple[tuple, dict]:
    """The arguments with stand-ins for those whose graph must stay.

    Args:
        args: Positional arguments.
        kwargs: Keyword arguments.
        error: What to raise where that cannot be done.
    """
    leaves, spec = flatten_tree((args, kwargs))
    needed = {id(t): t for t in leaves if isinstance(t, torch.Tensor) and changes_graph(t)}
    tensors = list({id(t): t for t in leaves if isinstance(t, torch.Tensor)}.values())
    memory = sharing(tensors)
    if not needed or len(set(memory)) < len(memory) or any(t.is_conj() or t.is_neg() for t in needed.values()):
        raise error
    twins = {key: _copy(t) if t.is_leaf else _Twin.apply(t) for key, t in needed.items()}
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
