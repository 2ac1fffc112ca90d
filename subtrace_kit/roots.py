"""Where a program can find things outside its arguments: the variables and attributes that its code names."""

from __future__ import annotations

import dis
import enum
import functools
import numbers
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from .source import is_internal
from .traced_number import TracedNumber
from .variables import contents_of, default_of, keyword_default_of, variable_of

__all__ = [
    "DESCRIBING", "Place", "frame_roots", "function_roots", "functions_in", "is_closed",
    "is_simple", "is_user_class", "itself", "names_in", "names_of_code", "roots", "slots_of",
    "steps_of_code", "unset_variables",
]  # fmt: skip

_ATOMS = (
    int, float, complex, bool, str, bytes, type(None), range, slice, torch.dtype, torch.device, torch.layout,
    torch.memory_format, torch.Size,
)  # fmt: skip
_CLOSED = (TracedNumber, type, types.ModuleType, types.BuiltinFunctionType)
_FOREIGN = sys.stdlib_module_names - {
    "builtins", "types", "functools", "collections", "argparse", "random", "__main__"
}  # fmt: skip
CELL = "cell_contents"


@dataclass(frozen=True)
class Place:
    """Where a value is kept, and the way to look there again.

    Args:
        path: How the user would write it: `fc1.weight`, `cache['k']`.
        root: Gives the object that the way starts from.
        steps: The way: attribute names, entries of a class, item keys.
    """

    path: str
    root: Callable[[], Any] = field(compare=False)
    steps: tuple[tuple[str, Any], ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The names that code must mention to come here."""
        return frozenset(key for how, key in self.steps if how != "item" and not key.startswith("__"))

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


def itself(value: Any) -> Any:
    """The value itself: with functools.partial, a place that cannot move."""
    return value


def is_simple(value: Any) -> bool:
    """Whether a value is a Python constant: a number, a text, None, a dtype, an enum, or a tuple of them."""
    if type(value) in _ATOMS or isinstance(value, (enum.Enum, numbers.Number, str, bytes)):
        return not isinstance(value, TracedNumber)
    if type(value).__module__ == "numpy" and hasattr(value, "dtype") and not hasattr(value, "__array_finalize__"):
        return True  # one of numpy's scalars
    return type(value) in (tuple, frozenset) and all(map(is_simple, value))


def is_closed(value: Any) -> bool:
    """Whether an object is not looked into: a class, a Python module, a function that no user wrote, a trace."""
    if isinstance(value, types.FunctionType):
        return is_internal(value.__code__.co_filename)
    module = type(value).__module__
    package = module.partition(".")[0]
    own = module.startswith("torch._") and not isinstance(value, torch.nn.Module)  # what torch.compile gives is one
    return isinstance(value, _CLOSED) or package == __package__ or package in _FOREIGN or own


Root = tuple[Place, frozenset[str], tuple[Any, str, str] | None]
"""A place, the names that its code mentions, and for a variable what holds it, how and under which key."""


def roots(fn: Any) -> Iterator[Root]:
    """Where the search starts: the function, the module, the owner of a method, the arguments of a partial."""
    owner = getattr(fn, "__self__", None)
    if isinstance(fn, types.FunctionType):
        yield Place(fn.__name__, functools.partial(itself, fn)), frozenset(), None
    elif isinstance(fn, torch.nn.Module):
        yield Place("", functools.partial(itself, fn)), frozenset(), None
    elif isinstance(fn, functools.partial):
        yield Place("args", lambda: fn.args), frozenset(), None
        yield Place("keywords", lambda: fn.keywords), frozenset(), None
        yield from roots(fn.func)
    elif isinstance(owner, torch.nn.Module):
        yield Place("", functools.partial(itself, owner)), frozenset(), None
    elif owner is not None and not isinstance(owner, _CLOSED):
        yield Place("self", functools.partial(itself, owner)), names_in(type(owner)), None
    elif owner is None and hasattr(fn, "__dict__") and not isinstance(fn, _CLOSED):
        yield Place("self", functools.partial(itself, fn)), names_in(type(fn)), None
    elif isinstance(owner, type):
        yield Place(owner.__name__, functools.partial(itself, owner)), frozenset(), None
    if isinstance(fn, types.MethodType):
        yield Place(fn.__name__, lambda: fn.__func__), frozenset(), None


def function_roots(function: types.FunctionType) -> Iterator[Root]:
    """Closure, defaults and named globals of a Python function."""
    code, space = function.__code__, function.__globals__
    names = names_of_code(code)
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        if _filled(cell):
            yield Place(name, functools.partial(contents_of, cell)), names, (cell, "attribute", CELL)
    defaults = function.__defaults__ or ()
    for index, name in enumerate(code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]):
        yield Place(name, functools.partial(default_of, function, index)), names, None
    for name in function.__kwdefaults__ or ():
        yield Place(name, functools.partial(keyword_default_of, function, name)), names, None
    wanted = globals_of_code(code) | (names if "globals" in names else frozenset())
    for name in sorted(wanted & space.keys()):
        yield Place(name, functools.partial(variable_of, space, name)), names, (space, "item", name)
    for name in sorted(steps_of_code(code)):
        if name.startswith("IMPORT_NAME ") and (module := sys.modules.get(name.split()[1])) is not None:
            yield Place(module.__name__, lambda module=module: module), names, None  # type: ignore[misc]


def unset_variables(function: types.FunctionType) -> Iterator[tuple[str, Any, str, str]]:
    """Variables of the closure, and globals that a function sets, which have no value yet: name, holder, how, key."""
    code, space = function.__code__, function.__globals__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        if not _filled(cell):
            yield name, cell, "attribute", CELL
    for step in sorted(steps_of_code(code)):
        name = step.removeprefix("STORE_GLOBAL ")
        if name != step and name not in space:
            yield name, space, "item", name


def frame_roots(frame: Any) -> Iterator[tuple[Place, frozenset[str]]]:
    """Globals that the function of a frame names, and the objects among its variables."""
    code, space = frame.f_code, frame.f_globals
    names = names_of_code(code)
    for name in sorted(globals_of_code(code) & space.keys()):
        yield Place(name, functools.partial(variable_of, space, name)), names
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
    """The names that a function reads and the texts that it mentions, those in functions inside it too."""
    named = {step.argval for step in dis.get_instructions(code) if step.opname not in _NAMED_STEPS}
    found = named.intersection(code.co_names) | {text for c in code.co_consts for text in _texts(c)}
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            found |= names_of_code(part)
    return frozenset(found)


def _texts(constant: Any) -> list[str]:
    return [c for c in (constant if isinstance(constant, tuple) else (constant,)) if isinstance(c, str)]


@functools.lru_cache(1024)
def steps_of_code(code: types.CodeType) -> frozenset[str]:
    """The kinds of steps of a function and of those inside it; writes and imports with the name they are for."""
    steps = list(dis.get_instructions(code))
    found = {f"{s.opname} {s.argval}" if s.opname in _NAMED_STEPS else s.opname for s in steps}
    kinds = [s.opname for s in steps]
    if any(
        a.opname == "LOAD_CONST" and isinstance(a.argval, bool) and b == "IS_OP"
        for a, b in zip(steps, kinds[1:], strict=False)
    ):
        found.add("IS_OP bool")
    found |= {
        f"calls {s.argval}" for s in steps if s.argval == "data_ptr" or (s.opname in _GLOBAL_STEPS and s.argval == "id")
    }
    if kinds.count("PUSH_EXC_INFO") > kinds.count("WITH_EXCEPT_START"):
        found.add("except")
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            found |= steps_of_code(part)
    return frozenset(found)


_NAMED_STEPS = frozenset({"STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "IMPORT_NAME"})

_names_in: weakref.WeakKeyDictionary[type, frozenset[str]] = weakref.WeakKeyDictionary()


def names_in(cls: type) -> frozenset[str]:
    """The names that the methods of a class mention, those that only build or describe an object aside."""
    if (known := _names_in.get(cls)) is None:
        known = _names_in[cls] = frozenset(_names_in_methods(cls))
    return known


def _names_in_methods(cls: type) -> set[str]:
    bases = [base for base in cls.__mro__ if base not in (object, torch.nn.Module, torch.Tensor)]
    found = [
        f for base in bases for name, item in vars(base).items() if name not in DESCRIBING for f in functions_in(item)
    ]
    # What a dataclass generates compares and describes.
    return {n for f in found if f.__code__.co_filename != "<string>" for n in names_of_code(f.__code__)}


def functions_in(item: Any) -> Iterator[types.FunctionType]:
    """The Python functions of what a class keeps: methods, properties, and those that a decorator has wrapped."""
    waiting, seen = [item], set()
    while waiting:
        item = waiting.pop()
        if id(item) in seen or item is None:
            continue
        seen.add(id(item))
        if isinstance(item, types.FunctionType):
            yield item
        if (
            isinstance(item, _DESCRIPTORS)
            or "__wrapped__" in getattr(item, "__dict__", ())
            or isinstance(item, types.FunctionType)
        ):
            waiting += [
                getattr(item, name, None) for name in ("__func__", "__wrapped__", "fget", "fset", "fdel", "func")
            ]


_DESCRIPTORS = (staticmethod, classmethod, property, functools.cached_property, types.MethodType)


def is_user_class(cls: type) -> bool:
    """Whether a class is neither built in nor of torch, the kit or Python's own library."""
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if cls.__module__ == "builtins" or (module is not None and file is None and cls.__module__ != "__main__"):
        return False
    return cls.__module__.partition(".")[0] not in (__package__, "torch") and not (file and is_internal(file))


def slots_of(cls: type, *, any_class: bool = False) -> list[str]:
    """The attributes that the objects of a class keep in slots; those of users' classes alone if not said otherwise."""
    found: list[str] = []
    for base in cls.__mro__:
        names = vars(base).get("__slots__", ()) if any_class or is_user_class(base) else ()
        given = [names] if isinstance(names, str) else list(names)
        private = f"_{base.__name__.lstrip('_')}"  # as Python writes the names of private attributes
        found += [private + name if name.startswith("__") else name for name in given if not name.endswith("__")]
    return found


DESCRIBING = frozenset(
    {"__repr__", "__setstate__", "__getstate__", "extra_repr", "reset_parameters", "_load_from_state_dict"}
)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
