"""What a program finds outside its arguments: where its tensors, modules and Python values are kept."""

from __future__ import annotations

import dis
import functools
import inspect
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from .intercept import is_wrapper_type
from .source import is_internal
from .traced_number import TracedNumber

__all__ = ["Place", "Surroundings", "is_simple"]

DEPTH, ITEMS = 6, 50_000
"""How deep and how far the search goes; what lies beyond is held by reference."""

_ATOMS = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout)
_CLOSED = (TracedNumber, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
_MODULE_DICTS = ("_parameters", "_buffers", "_modules")
_HOOK_DICTS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
CELL = "cell_contents"


@dataclass(frozen=True)
class Place:
    """Where a value is kept, and the way to look there again.

    Args:
        path: How the user would write it: `fc1.weight`, `cache['k']`.
        root: Gives the object that the way starts from.
        steps: The way: attribute names and item keys.
    """

    path: str
    root: Callable[[], Any] = field(compare=False)
    steps: tuple[tuple[str, Any], ...] = ()

    def __call__(self) -> Any:
        """What is there now."""
        found = self.root()
        for how, key in self.steps:
            found = getattr(found, key) if how == "attribute" else found[key]
        return found

    def attribute(self, name: str) -> Place:
        """The place of an attribute."""
        return Place(f"{self.path}.{name}" if self.path else name, self.root, (*self.steps, ("attribute", name)))

    def item(self, key: Any) -> Place:
        """The place of an item of a list, tuple or dict."""
        shown = repr(key) if isinstance(key, (int, str)) else "..."
        return Place(f"{self.path}[{shown}]", self.root, (*self.steps, ("item", key)))


def is_simple(value: Any) -> bool:
    """Whether a value is a Python constant: a number, a text, None, a dtype, or a tuple of them."""
    return type(value) in _ATOMS or (type(value) is tuple and all(map(is_simple, value)))


def is_closed(value: Any) -> bool:
    """Whether an object is not looked into: a class, a function, a Python module, a trace."""
    return isinstance(value, _CLOSED) or type(value).__module__.partition(".")[0] == __package__


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
        self.left = ITEMS
        self.bindings: list[tuple[Place, Any, str, str]] = []  # variables: place, what holds it, how, key
        for place, names, binding in roots(fn):
            if binding is not None:
                self.bindings.append((place, *binding))
            self.visit(place, place(), names, 0)

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
                inner = {name: getattr(tensor, name) for name in tensor.__tensor_flatten__()[0]}
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
        elif hasattr(value, "__dict__"):
            self.owners.append((place, value))
            names = _EVERYTHING if isinstance(value, torch.optim.Optimizer) else names | names_in(type(value))
            for name, item in list(vars(value).items()):
                self.visit_part(place.attribute(name), name, item, names, depth)

    def visit_part(self, place: Place, key: Any, item: Any, names: frozenset[str], depth: int) -> None:
        """One item or attribute; a constant matters where the code of the program names it."""
        self.left -= 1
        if not is_simple(item) or not isinstance(key, str) or names is _EVERYTHING or key in names:
            self.visit(place, item, names, depth)

    def visit_module(self, place: Place, module: torch.nn.Module, depth: int) -> None:
        """The tensors, constants and submodules of a module."""
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
        return self.tensors.get(id(tensor)) or [Place(name, lambda: tensor)]


_EVERYTHING = frozenset({"everything"})


Root = tuple[Place, frozenset[str], tuple[Any, str, str] | None]
"""A place, the names that its code mentions, and for a variable what holds it, how and under which key."""


def roots(fn: Any) -> Iterator[Root]:
    """Where the search starts: the module, the owner of a method, closure, defaults and globals of a function."""
    owner = getattr(fn, "__self__", None)
    if isinstance(fn, torch.nn.Module):
        yield Place("", lambda: fn), frozenset(), None
    elif isinstance(fn, functools.partial):
        yield Place("args", lambda: fn.args), frozenset(), None
        yield Place("keywords", lambda: fn.keywords), frozenset(), None
        yield from roots(fn.func)
    elif isinstance(owner, torch.nn.Module):
        yield Place("", lambda: owner), frozenset(), None
    elif owner is not None and not isinstance(owner, _CLOSED):
        yield Place("self", lambda: owner), names_in(type(owner)), None
    function = inspect.unwrap(getattr(fn, "__func__", fn))
    if isinstance(function, types.FunctionType):
        yield from function_roots(function)
    elif hasattr(fn, "__dict__") and not isinstance(fn, (torch.nn.Module, functools.partial, *_CLOSED)):
        yield Place("self", lambda: fn), names_in(type(fn)), None


def function_roots(function: types.FunctionType) -> Iterator[Root]:
    """Closure, defaults and named globals of a Python function."""
    code, space = function.__code__, function.__globals__
    names = names_of_code(code)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        if _filled(cell):
            yield Place(name, lambda cell=cell: cell.cell_contents), names, (cell, "attribute", CELL)  # type: ignore[misc]
    defaults = function.__defaults__ or ()
    for index, name in enumerate(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]):
        yield Place(name, lambda index=index: (function.__defaults__ or ())[index]), names, None  # type: ignore[misc]
    for name in function.__kwdefaults__ or ():
        yield Place(name, lambda name=name: (function.__kwdefaults__ or {})[name]), names, None  # type: ignore[misc]
    for name in sorted(globals_of_code(code) & space.keys()):
        yield Place(name, lambda name=name: space[name]), names, (space, "item", name)  # type: ignore[misc]


def frame_roots(frame: Any) -> Iterator[tuple[Place, frozenset[str]]]:
    """Globals that the function of a frame names, and the objects among its variables."""
    code, space = frame.f_code, frame.f_globals
    names = names_of_code(code)
    for name in sorted(globals_of_code(code) & space.keys()):
        yield Place(name, lambda name=name: space[name]), names  # type: ignore[misc]
    for name, value in list(frame.f_locals.items()):
        if not isinstance(value, torch.Tensor) and not is_simple(value):
            yield Place(name, lambda value=value: value), names  # type: ignore[misc]


@functools.lru_cache(1024)
def globals_of_code(code: types.CodeType) -> frozenset[str]:
    """The global variables that a function reads or writes, those of functions inside it too."""
    found = {step.argval for step in dis.get_instructions(code) if step.opname in _GLOBAL_STEPS}
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            found |= globals_of_code(part)
    return frozenset(found)


_GLOBAL_STEPS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL"})


@functools.lru_cache(1024)
def names_of_code(code: types.CodeType) -> frozenset[str]:
    """The names and texts that a function mentions, those in functions inside it too."""
    found = set(code.co_names) | {c for c in code.co_consts if isinstance(c, str)}
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            found |= names_of_code(part)
    return frozenset(found)


_names_in: weakref.WeakKeyDictionary[type, frozenset[str]] = weakref.WeakKeyDictionary()


def names_in(cls: type) -> frozenset[str]:
    """The names that the methods of a class mention, those that only build or describe an object aside."""
    if (known := _names_in.get(cls)) is None:
        known = _names_in[cls] = frozenset(_names_in_methods(cls))
    return known


def _names_in_methods(cls: type) -> set[str]:
    found: set[str] = set()
    for base in cls.__mro__:
        if base not in (object, torch.nn.Module):
            for name, method in vars(base).items():
                function = getattr(method, "__func__", method)
                if isinstance(function, types.FunctionType) and name not in _DESCRIBING:
                    found |= names_of_code(function.__code__)
    return found


_DESCRIBING = frozenset(
    {"__init__", "__repr__", "__setstate__", "__getstate__", "extra_repr", "reset_parameters", "_load_from_state_dict"}
)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
