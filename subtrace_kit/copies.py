"""Copies of arguments that share memory and objects as the originals do."""

from __future__ import annotations

from typing import Any

import torch

from .errors import TraceError
from .intercept import (
    base_of,
    build_wrapper,
    flat_parts,
    flatten_tree,
    is_view,
    is_wrapper_type,
    memory_of,
    no_torch_function,
    storage_id,
    unflatten_tree,
)
from .shown import a_kind, message
from .trace import Trace
from .wrapper_state import State, read_state, write_state

__all__ = ["Copies", "Given", "copy_arguments", "is_ragged"]

Given = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments."""


def copy_arguments(trace: Trace, given: Given, keep: list[Any]) -> Given:
    """Copies of arguments that a trace takes for the originals.

    Args:
        trace: Its guard checks the copies.
        given: The arguments.
        keep: Tensors that are not copied: an argument that is one of them, or a view of it, stays so.

    Returns:
        Positional and keyword arguments.

    Raises:
        TraceError: A class cannot be built anew, or a copy is not of the recorded kind.
    """
    leaves, spec = flatten_tree(given)
    copies = Copies(keep)
    args, kwargs = unflatten_tree([copies.value(leaf) for leaf in leaves], spec)
    try:
        trace.guard.check(args, kwargs)
    except TraceError as error:
        raise TraceError(f"the arguments cannot be copied truly: {error.what}", cause=error.cause) from error
    return args, kwargs


class Copies:
    """Copies of tensors, each object and each memory copied once.

    Args:
        keep: Tensors that stand for themselves, with the memory that they lie in.
    """

    def __init__(self, keep: list[Any] | None = None) -> None:
        self.made: dict[int, Any] = {id(tensor): tensor for tensor in keep or ()}
        self.storages: dict[int, tuple[Any, Any]] = {}  # each with its original, which keeps the key in use
        for tensor in keep or ():
            if not is_wrapper_type(type(tensor)) and tensor.layout is torch.strided:
                storage = tensor.untyped_storage()
                self.storages[storage_id(storage)] = storage, storage

    def value(self, value: Any) -> Any:
        """A copy of a value: of tensors, and of lists, tuples, sets and dicts that hold them."""
        if isinstance(value, torch.Tensor):
            return self.made[id(value)] if id(value) in self.made else self.tensor(value)
        if type(value) in (list, tuple, set):
            return type(value)(map(self.value, value))
        return {key: self.value(item) for key, item in value.items()} if type(value) is dict else value

    def tensor(self, tensor: Any) -> Any:
        """A copy of a tensor with its attributes, its gradient and its part in autograd."""
        with torch.inference_mode(tensor.is_inference()), torch.enable_grad():
            made = self.wrapper(tensor) if is_wrapper_type(type(tensor)) else self.plain(tensor)
            made.requires_grad_(tensor.requires_grad and tensor.is_leaf)
            if not tensor.is_leaf:
                made = _Follow.apply(torch.ones((), requires_grad=True), [made])
                made.retain_grad()
            elif tensor.grad is not None:
                made.grad = self.value(tensor.grad)
        self.made[id(tensor)] = made
        self.attributes(tensor, made)
        return made

    def attributes(self, tensor: Any, made: Any) -> None:
        """Give a copy the Python attributes; ragged sizes belong to the copy's own offsets."""
        own, state = read_state(made).attributes, read_state(tensor).attributes.items()
        write_state(made, State({k: own[k] if k in own and is_ragged(v) else self.value(v) for k, v in state}))

    def wrapper(self, tensor: Any) -> Any:
        """A wrapper built anew, as its class does, of copies."""
        names, metadata = flat_parts(tensor)
        inner = {name: self.value(getattr(tensor, name)) for name in names}
        try:
            made = build_wrapper(type(tensor), inner, self.value(metadata), tensor.size(), tensor.stride())
        except Exception as error:
            raise TraceError(
                f"{a_kind(tensor)} cannot be copied: {type(error).__name__}: {message(error)}",
                cause="its __tensor_unflatten__ does not take what its __tensor_flatten__ gives",
                way_out="mend __tensor_unflatten__",
            ) from error
        if type(made) is not type(tensor) and issubclass(type(tensor), type(made)):
            made.__class__ = type(tensor)  # An inherited unflatten that names its own class.
        return made

    def plain(self, tensor: torch.Tensor) -> torch.Tensor:
        """A plain tensor, on a copy of its whole memory."""
        with no_torch_function():
            if tensor.layout is not torch.strided:
                return tensor.detach().clone()
            made = self.on_memory(tensor)
            made = made.conj() if tensor.is_conj() else made
            made = made._neg_view() if tensor.is_neg() else made
            if isinstance(tensor, torch.nn.Parameter):
                return torch.nn.Parameter(made, requires_grad=False)
            return made if type(tensor) is torch.Tensor else made.as_subclass(type(tensor))

    def on_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor at the same place in a copy of the memory: a view where the original is one."""
        place = tensor.size(), tensor.stride(), tensor.storage_offset()
        view = tensor.is_leaf and is_view(tensor)
        if view and _fits(tensor, base_of(tensor)):
            base = self.value(base_of(tensor))
        else:
            base = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            base.set_(self.memory(tensor.untyped_storage()), place[2], *place[:2])
        with torch.no_grad():
            return torch.as_strided(base, *place) if view else base

    def memory(self, storage: Any) -> Any:
        """A copy of a memory, made once."""
        if storage_id(storage) not in self.storages:
            self.storages[storage_id(storage)] = storage, storage.clone()
        return self.storages[storage_id(storage)][1]


def _fits(tensor: torch.Tensor, base: Any) -> bool:
    """Whether as_strided can make a tensor of its base."""
    kinds = [(t.dtype, t.is_conj(), t.is_neg(), memory_of(t)) for t in (tensor, base)]
    return kinds[0] == kinds[1] and not tensor.is_conj() and not tensor.is_neg() and type(tensor) is torch.Tensor


def is_ragged(value: Any) -> bool:
    """Whether a value holds symbolic sizes, which belong to the offsets of one object."""
    return any(isinstance(size, torch.SymInt) for size in flatten_tree(value)[0])


class _Follow(torch.autograd.Function):
    """Makes a tensor one that autograd follows and that is no leaf, without touching it."""

    @staticmethod
    def forward(ctx: Any, source: torch.Tensor, box: list[Any]) -> Any:
        return box[0]

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple[None, None]:
        return None, None
