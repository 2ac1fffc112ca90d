"""Where a program can find things outside its arguments: the variables and attributes that its code names."""

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

from .source import is_internal
from .traced_number import TracedNumber

__all__ = ["Place", "frame_roots", "function_roots", "is_closed", "is_simple", "methods_of", "names_in", "roots"]

_ATOMS = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout)
_CLOSED = (TracedNumber, type, types.ModuleType, types.BuiltinFunctionType)
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
    """Whether an object is not looked into: a class, a Python module, a function that no user wrote, a trace."""
    if isinstance(value, types.FunctionType):
        return is_internal(value.__code__.co_filename)
    return isinstance(value, _CLOSED) or type(value).__module__.partition(".")[0] == __package__


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
    return {name for function in methods_of(cls) for name in names_of_code(function.__code__)}


def methods_of(cls: type) -> Iterator[types.FunctionType]:
    """The methods of a class in Python, those that only build or describe an object aside."""
    for base in cls.__mro__:
        for name, method in vars(base).items() if base not in (object, torch.nn.Module) else ():
            function = getattr(method, "__func__", method)
            if isinstance(function, types.FunctionType) and name not in _DESCRIBING:
                yield function


_DESCRIBING = frozenset(
    {"__init__", "__repr__", "__setstate__", "__getstate__", "extra_repr", "reset_parameters", "_load_from_state_dict"}
)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
