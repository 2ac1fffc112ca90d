"""Remember what a program overwrites while it is recorded, and give it back."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from .intercept import set_version, unwatched
from .ops import OpInfo
from .wrapper_state import State, read_state, refill, same_contents, write_state

__all__ = ["Snapshot"]


class Snapshot:
    """Undo for one recorded run: tensor data, Python state of wrappers, gradients, random state."""

    def __init__(self) -> None:
        self._data: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._geometry: dict[int, tuple[torch.Tensor, torch.UntypedStorage, tuple[Any, ...]]] = {}
        self._outside: set[int] = set()  # memory of inputs and captured tensors
        self._objects: dict[int, tuple[Any, State, tuple[Any, ...]]] = {}
        self._generators: dict[int, tuple[torch.Generator, torch.Tensor]] = {}
        self._grads: dict[int, tuple[torch.Tensor, torch.Tensor | None, bool, bool]] = {}
        self.left: list[torch.Tensor] = []  # what could not be given back
        self._handles: list[Any] = []
        self._containers: list[tuple[Any, Any]] = []
        self._random = torch.get_rng_state()
        cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._cuda_random = torch.cuda.get_rng_state_all() if cuda else None

    def watch_object(self, obj: Any) -> None:
        """Remember the Python attributes and the outer geometry of a wrapper that was there before."""
        if id(obj) not in self._objects:
            with unwatched():
                self._objects[id(obj)] = (obj, read_state(obj), _geometry(obj))

    def watch_generator(self, generator: torch.Generator) -> None:
        """Remember the state of a random generator that the program draws from."""
        if id(generator) not in self._generators:
            self._generators[id(generator)] = (generator, generator.get_state())

    def watch_leaf(self, tensor: torch.Tensor) -> None:
        """Remember the gradient and the flag of a tensor that was there before the program."""
        if id(tensor) not in self._grads:
            with unwatched():
                grad = tensor.grad if tensor.is_leaf else None
                self._grads[id(tensor)] = (tensor, grad, tensor.requires_grad, tensor.is_leaf)

    def watch_containers(self, tree: Any) -> None:
        """Remember the contents of the lists, dicts and sets among the arguments."""
        if isinstance(tree, (list, dict, set)):
            self._containers.append((tree, tree.copy()))
        if isinstance(tree, (list, tuple, dict)):
            for item in tree.values() if isinstance(tree, dict) else tree:
                self.watch_containers(item)

    def changed_container(self) -> Any | None:
        """A list, dict or set among the arguments that the program has changed, or None."""
        return next((now for now, copy in self._containers if not same_contents(now, copy)), None)

    def watch_handle(self, handle: Any) -> None:
        """A hook that the program registered: removed again."""
        self._handles.append(handle)

    def watch_memory(self, tensor: torch.Tensor) -> None:
        """A plain tensor that was there before the program: its memory is given back if written."""
        with unwatched():
            if tensor.layout is torch.strided and not tensor.is_meta:
                self._outside.add(tensor.untyped_storage()._cdata)

    def before_write(self, args: tuple, kwargs: dict, info: OpInfo) -> None:
        """Remember the data of the plain tensors that an op is about to write."""
        written = [args[i] for i in info.writes if i < len(args)]
        written += [kwargs[name] for name in info.writes_by_name if name in kwargs]
        for item in written:
            for tensor in item if isinstance(item, (list, tuple)) else (item,):
                if isinstance(tensor, torch.Tensor):
                    self.remember(tensor)

    def remember(self, tensor: torch.Tensor) -> None:
        """Copy the memory that a tensor from outside lies in, once, and its geometry."""
        with unwatched():
            if tensor.layout is not torch.strided or tensor.is_meta:
                return
            storage = tensor.untyped_storage()
            if storage._cdata not in self._outside:
                return
            self._geometry.setdefault(id(tensor), (tensor, storage, _geometry(tensor)))
            if storage._cdata not in self._data:
                self._data[storage._cdata] = (storage, storage.clone())

    def restore(self) -> None:
        """Give everything back; the way it was is all that stays."""
        with unwatched(), torch.no_grad(), contextlib.ExitStack() as stack:
            stack.callback(self._restore_random)
            for handle in self._handles:
                handle.remove()
            for storage, data in self._data.values():
                if storage.nbytes() != data.nbytes():
                    storage.resize_(data.nbytes())
                storage.copy_(data)
            for tensor, storage, (size, stride, offset, version) in self._geometry.values():
                moved = tensor.untyped_storage()._cdata != storage._cdata
                if moved or _geometry(tensor)[:3] != (size, stride, offset):
                    tensor.set_(storage, offset, size, stride)
                set_version(tensor, version)
            for obj, state, (size, stride, offset, version) in self._objects.values():
                write_state(obj, state)
                if _geometry(obj)[:3] != (size, stride, offset):
                    obj.as_strided_(size, stride, offset)
                set_version(obj, version)
            for tensor, grad, flag, leaf in self._grads.values():
                if leaf and not tensor.is_leaf:
                    try:
                        tensor.detach_()  # a write through a view had put it into a graph
                    except RuntimeError:  # torch has no way back for a view
                        self.left.append(tensor)
                if leaf and tensor.is_leaf:
                    if tensor.grad is not grad:
                        tensor.grad = grad
                    if tensor.requires_grad != flag:
                        tensor.requires_grad_(flag)
                if leaf and tensor.requires_grad != flag:
                    self.left.append(tensor)
            for container, copy in self._containers:
                refill(container, copy)

    def _restore_random(self) -> None:
        torch.set_rng_state(self._random)
        for generator, state in self._generators.values():
            generator.set_state(state)
        if self._cuda_random is not None:
            torch.cuda.set_rng_state_all(self._cuda_random)


def _geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Sizes, strides, offset and version of a tensor."""
    version = None if tensor.is_inference() else tensor._version
    return tensor.size(), tensor.stride(), tensor.storage_offset(), version
