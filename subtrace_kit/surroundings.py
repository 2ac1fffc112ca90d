"""What a program finds outside its arguments: where its tensors, modules and Python values are kept."""

from __future__ import annotations

import types
from collections.abc import Iterable
from typing import Any

import torch

from .intercept import flat_parts, is_wrapper_type
from .roots import Place, Root, frame_roots, function_roots, is_closed, is_simple, methods_of, names_in, roots
from .source import is_internal

__all__ = ["Surroundings"]

DEPTH, ITEMS = 6, 50_000
"""How deep and how far the search goes; what lies beyond is held by reference."""

_MODULE_DICTS = ("_parameters", "_buffers", "_modules")
_HOOK_DICTS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_EVERYTHING = frozenset({"everything"})


class Surroundings:
    """What a program finds outside its arguments.

    Args:
        fn: The program.
    """

    def __init__(self, fn: Any) -> None:
        self.program = fn
        self.tensors: dict[int, list[Place]] = {}
        self.wrappers: list[torch.Tensor] = []
        self.modules: list[tuple[Place, torch.nn.Module]] = []
        self.owners: list[tuple[Place, Any]] = []  # objects, lists and dicts that the program may change
        self.constants: list[tuple[Place, Any]] = []
        self.generators: list[torch.Generator] = [torch.default_generator]
        self.seen: set[int] = set()
        self.classes: set[type] = set()
        self.left = ITEMS
        self.bindings: list[tuple[Place, Any, str, str]] = []  # variables: place, what holds it, how, key
        self.visit_roots(roots(fn), 0)

    def visit_roots(self, found: Iterable[Root], depth: int) -> None:
        """Note variables, and what they are now."""
        for place, names, binding in found:
            if binding is not None:
                self.bindings.append((place, *binding))
            self.visit(place, place(), names, depth)

    def add_frame(self, frame: Any, stop: Any) -> None:
        """Look into the functions that run now, from a frame out to the program.

        Args:
            frame: The innermost frame.
            stop: The code that called the program.
        """
        lists: tuple[list[Any], ...] = (self.modules, self.owners, self.constants, self.wrappers)
        sizes = [len(found) for found in lists]
        while frame is not None and frame.f_code is not stop:
            for place, names in () if is_internal(frame.f_code.co_filename) else frame_roots(frame):
                self.visit(place, place(), names, 0)
            frame = frame.f_back
        for found, size in zip(lists, sizes, strict=True):
            del found[size:]

    def visit(self, place: Place, value: Any, names: frozenset[str], depth: int) -> None:
        """Note a value and what it holds."""
        if is_simple(value):
            self.constants.append((place, value))
        elif isinstance(value, torch.Tensor):
            self.visit_tensor(place, value)
        elif isinstance(value, torch.Generator):
            self.generators.append(value)
        elif id(value) not in self.seen and depth < DEPTH and self.left > 0 and not is_closed(value):
            self.seen.add(id(value))
            self.visit_inside(place, value, names, depth + 1)
        elif isinstance(value, torch.nn.Module):
            self.visit_again(place, value)

    def visit_tensor(self, place: Place, tensor: Any) -> None:
        """Note a tensor, and the tensors inside a wrapper."""
        self.tensors.setdefault(id(tensor), []).append(place)
        if is_wrapper_type(type(tensor)):
            self.wrappers.append(tensor)
            try:
                inner = {name: getattr(tensor, name) for name in flat_parts(tensor)[0]}
            except Exception:  # told where the program uses it
                return
            for name, part in inner.items():
                if isinstance(part, torch.Tensor):
                    self.visit_tensor(place.attribute(name), part)

    def visit_inside(self, place: Place, value: Any, names: frozenset[str], depth: int) -> None:
        """The items of a container, the attributes of an object."""
        if isinstance(value, torch.nn.Module):
            self.visit_module(place, value, depth)
        elif isinstance(value, (list, tuple, dict)):
            self.owners.append((place, value))
            for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
                self.visit_part(place.item(key), key, item, names, depth)
        elif isinstance(value, types.FunctionType):
            self.visit_roots(function_roots(value), depth)
        elif isinstance(value, types.MethodType):
            self.visit(place.attribute("__self__"), value.__self__, names_in(type(value.__self__)), depth)
        elif hasattr(value, "__dict__"):
            self.visit_class(type(value), depth)
            self.owners.append((place, value))
            names = _EVERYTHING if isinstance(value, torch.optim.Optimizer) else names | names_in(type(value))
            for name, item in list(vars(value).items()):
                self.visit_part(place.attribute(name), name, item, names, depth)

    def visit_class(self, cls: type, depth: int) -> None:
        """What the methods of a class find in globals."""
        if cls not in self.classes:
            self.classes.add(cls)
            for function in methods_of(cls):
                if not is_closed(function):
                    self.visit_roots(function_roots(function), depth)

    def visit_part(self, place: Place, key: Any, item: Any, names: frozenset[str], depth: int) -> None:
        """One item or attribute; a constant matters where the code of the program names it."""
        self.left -= 1
        if not is_simple(item) or not isinstance(key, str) or names is _EVERYTHING or key in names:
            self.visit(place, item, names, depth)

    def visit_module(self, place: Place, module: torch.nn.Module, depth: int) -> None:
        """The tensors, constants and submodules of a module."""
        self.visit_class(type(module), 1)
        self.modules.append((place, module))
        self.owners.append((place, module))
        names = names_in(type(module))
        for name in (*module._parameters, *module._buffers):
            self.visit_part(place.attribute(name), name, getattr(module, name), names, depth)
        for name, item in list(vars(module).items()):
            if name not in (*_MODULE_DICTS, *_HOOK_DICTS, "training") and not name.startswith("_"):
                self.visit_part(place.attribute(name), name, item, names, depth)
        for name, part in module._modules.items():
            if part is not None:  # modules nest deeper than other objects do
                self.visit(place.attribute(name), part, names, 1)

    def visit_again(self, place: Place, module: torch.nn.Module) -> None:
        """A module met a second time: its parameters have one more place."""
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                self.visit_tensor(place.attribute(name), tensor)

    def find(self, tensor: torch.Tensor, name: str) -> list[Place]:
        """Every place that holds a tensor, or the tensor itself where none is known.

        Args:
            tensor: The tensor.
            name: What to call it if no place is known.
        """
        places = sorted(self.tensors.get(id(tensor), ()), key=lambda place: len(place.steps))
        return places or [Place(name, lambda: tensor)]
