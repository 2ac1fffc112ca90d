"""What can be told of an object outside and compared at each run: its keys, its attributes, its content."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

from .roots import Place, is_simple, slots_of

__all__ = [
    "answer",
    "array_content",
    "attributes_of",
    "class_place",
    "code_of",
    "hiding",
    "is_array",
    "is_function",
    "is_numpy_random",
    "keys_of",
    "members_of",
    "module_entries",
    "names_of_class",
    "overriding",
]


def is_function(value: Any) -> bool:
    """Whether a value is a Python function, or one that wraps such a function."""
    return isinstance(value, types.FunctionType) or "__wrapped__" in getattr(value, "__dict__", ())


def is_numpy_random(value: Any) -> bool:
    """Whether a value is a random generator of numpy."""
    numpy = sys.modules.get("numpy.random")
    return numpy is not None and isinstance(value, (numpy.Generator, numpy.RandomState))


def is_array(value: Any) -> bool:
    """Whether a value is an array of numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def array_content(array: Any) -> tuple[Any, ...]:
    """All that equal arrays share."""
    return str(array.dtype), array.shape, array.tobytes() if array.dtype != object else repr(array)


def keys_of(value: Any) -> tuple[Any, ...]:
    """The keys of a dict or the members of a set; objects that may not be compared by identity."""
    return tuple(key if is_simple(key) else (type(key).__name__, id(key)) for key in value)


def module_entries(module: Any) -> tuple[tuple[str, ...], ...]:
    """The names of the parameters, buffers and submodules of a module."""
    return tuple(module._parameters), tuple(module._buffers), tuple(module._modules)


def members_of(value: Any) -> frozenset[Any]:
    """The members of a set."""
    return frozenset(keys_of(value))


def attributes_of(value: Any) -> tuple[str, ...]:
    """The names of the attributes of an object."""
    # Under `_sym_` torch keeps answers of a class about its sizes.
    own = [name for name in getattr(value, "__dict__", ()) if not name.startswith("_sym_")]
    return (*own, *(name for name in slots_of(type(value)) if hasattr(value, name)))


def names_of_class(cls: type) -> frozenset[str]:
    """The names of all that a class and its bases keep."""
    return frozenset(name for base in cls.__mro__ for name in vars(base))


def overriding(cls: Any) -> tuple[str, ...]:
    """The names in a class that hide those of its bases."""
    own = vars(cls)
    names = {name for base in cls.__mro__[1:-1] for name in own.keys() & vars(base).keys()}
    # Python itself adds `__annotations__` and the like when they are asked for.
    return tuple([name for name in own if name in names and (not name.startswith("__") or callable(own[name]))])


def hiding(names: frozenset[str], value: Any) -> tuple[str, ...]:
    """Which of these names an object keeps itself."""
    return tuple([name for name in getattr(value, "__dict__", ()) if name in names])


def code_of(function: Any) -> Any:
    """The code of a function: a reload puts other code into the same function."""
    return function.__code__


def answer(ask: Callable[[Any], Any], place: Place) -> Any:
    """What is true of the value that is at a place now."""
    try:
        return ask(place())
    except (TypeError, KeyError) as error:  # something else is there now
        raise AttributeError(place.path) from error


def class_place(cls: type, name: str) -> Place:
    """The place of what a class keeps itself, as it is kept."""
    return Place(f"{cls.__name__}.{name}", functools.partial(vars, cls), (("entry", name),))
