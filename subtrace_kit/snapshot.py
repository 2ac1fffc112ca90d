"""Remember what a program overwrites while it is recorded, and give it back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from .intercept import memory_of, set_version, storage_id, unwatched
from .owners import Owners
from .tensor_facts import kind_of
from .twins import changes_graph
from .wrapper_state import State, read_state, write_state

__all__ = ["Snapshot", "random_state"]


def random_state() -> Callable[[], None]:
    """Remember the state of torch's own generators; what is returned gives it back."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    cpu = torch.get_rng_state()

    def give_back() -> None:
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)

    return give_back


class Snapshot:
    """Undo for one recorded run: tensor data, Python state of wrappers, gradients, random state."""

    def __init__(self) -> None:
        self._data: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        self._geometry: dict[int, tuple[torch.Tensor, torch.Tensor, tuple[Any, ...]]] = {}  # tensor, alias
        self._versions: list[tuple[torch.Tensor, int]] = []
        self._classes: list[tuple[Any, type]] = []
        self._outside: set[int] = set()  # memory of inputs and captured tensors
        self._objects: dict[int, tuple[Any, State, tuple[Any, ...]]] = {}
        self._generators: dict[int, tuple[torch.Generator, torch.Tensor]] = {}
        self._grads: dict[int, tuple[torch.Tensor, torch.Tensor | None, bool, bool]] = {}
        self.fragile: list[torch.Tensor] = []  # whose graph could not be given back
        self._other_layouts: set[int] = set()  # tensors from outside without strides
        self.left: list[torch.Tensor] = []  # what could not be given back
        self._handles: list[Any] = []
        self.owners = Owners()
        self._give_random_back = random_state()

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
            self._classes.append((tensor, type(tensor)))
            with unwatched():
                if changes_graph(tensor):
                    self.fragile.append(tensor)
                grad = tensor.grad if tensor.is_leaf else None
                self._grads[id(tensor)] = (tensor, grad, tensor.requires_grad, tensor.is_leaf)

    def gradient_before(self, tensor: Any) -> Any:
        """What kind of gradient a tensor had when it was first remembered."""
        return kind_of(self._grads[id(tensor)][1]) if id(tensor) in self._grads else None

    def leaf_with(self, gradient: torch.Tensor) -> Any:
        """The tensor from before the program that had this gradient, and still has it."""
        with unwatched():
            found = (t for t, grad, *_ in self._grads.values() if grad is gradient and t.is_leaf and t.grad is grad)
            return next(found, None)

    def reclassed(self) -> list[tuple[Any, type]]:
        """The tensors whose Python class is another one now, and what it was."""
        return [(obj, cls) for obj, cls in self._classes if type(obj) is not cls]

    def state_before(self, obj: Any) -> State | None:
        """The Python attributes that a wrapper had when it was first remembered."""
        return self._objects[id(obj)][1] if id(obj) in self._objects else None

    def watch_handle(self, handle: Any) -> None:
        """A hook that the program registered: removed again."""
        self._handles.append(handle)

    def watch_memory(self, tensor: torch.Tensor) -> None:
        """A plain tensor that was there before the program: its memory is given back if written."""
        with unwatched():
            if tensor.layout is not torch.strided:
                self._other_layouts.add(id(tensor))
            elif not tensor.is_meta:
                self._outside.add(memory_of(tensor))
                if not tensor.is_inference():
                    self._versions.append((tensor, tensor._version))

    def written_unseen(self) -> torch.Tensor | None:
        """A tensor from outside that was written, and not by an op that was seen: its data are gone."""
        with unwatched():
            for tensor, version in self._versions:
                if tensor._version != version and memory_of(tensor) not in self._data:
                    return tensor
        return None

    def is_lost(self, tensor: torch.Tensor) -> bool:
        """Whether a write into a tensor could not be taken back: it is sparse and from outside."""
        return id(tensor) in self._other_layouts

    def before_write(self, tensors: list[torch.Tensor]) -> None:
        """Remember the data of the plain tensors that an op is about to write."""
        for tensor in tensors:
            self.remember(tensor)

    def remember(self, tensor: torch.Tensor) -> None:
        """Copy the memory that a tensor from outside lies in, once, and its geometry."""
        with unwatched():
            if tensor.layout is not torch.strided or tensor.is_meta:
                return
            storage = tensor.untyped_storage()
            if storage_id(storage) not in self._outside:
                return
            self._geometry.setdefault(id(tensor), (tensor, tensor.data, _geometry(tensor)))
            if storage_id(storage) not in self._data:
                self._data[storage_id(storage)] = (storage, storage.clone())

    def restore(self) -> None:
        """Give everything back; the way it was is all that stays."""
        with unwatched(), torch.no_grad(), contextlib.ExitStack() as stack:
            stack.callback(self._restore_random)
            for handle in self._handles:
                vars(handle).pop("remove", None)  # what the recorder put in its place
                handle.remove()
            for storage, data in self._data.values():
                if storage.nbytes() != data.nbytes():
                    storage.resize_(data.nbytes())
                storage.copy_(data)
            # The first that was seen last: views share the version of their base, and were seen after it.
            for tensor, alias, (size, stride, offset, version) in reversed(self._geometry.values()):
                if memory_of(tensor) != memory_of(alias) or tensor.dtype is not alias.dtype:
                    tensor.data = alias
                elif _geometry(tensor)[:3] != (size, stride, offset):
                    tensor.set_(alias.untyped_storage(), offset, size, stride)
                set_version(tensor, version)
            for obj, cls in self.reclassed():
                obj.__class__ = cls
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
            self.owners.restore()

    def _restore_random(self) -> None:
        self._give_random_back()
        for generator, state in self._generators.values():
            generator.set_state(state)


def _geometry(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Sizes, strides, offset and version of a tensor."""
    version = None if tensor.is_inference() else tensor._version
    return tensor.size(), tensor.stride(), tensor.storage_offset(), version
