"""What a program finds outside its arguments: where its tensors, modules and Python values are kept."""

from __future__ import annotations

import collections
import functools
import os
import random
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.weak import WeakIdRef

from .facts import (
    answer,
    array_content,
    attributes_of,
    class_place,
    code_of,
    hiding,
    is_array,
    is_function,
    is_numpy_random,
    keys_of,
    members_of,
    module_entries,
    names_of_class,
    overriding,
)
from .indirect import SETTINGS, cached_tensors, environment, fetched_names, filled, is_cache, is_iterator, leads_to
from .intercept import flat_parts, hooks_of_all_modules, is_wrapper_type
from .roots import (
    DESCRIBING,
    Place,
    Root,
    frame_roots,
    function_roots,
    functions_in,
    is_closed,
    is_simple,
    is_user_class,
    itself,
    names_in,
    names_of_code,
    roots,
    slots_of,
    steps_of_code,
    unset_variables,
)
from .source import is_internal

__all__ = ["Surroundings"]

_CALLED_AGAIN = (torch.Tensor, torch.autograd.Function)
"""Classes whose methods a trace calls again: what they find outside is their own affair."""

_BUILDING = frozenset({"__new__", "__init__", "__tensor_flatten__", "__tensor_unflatten__"})
"""Methods that a lowered trace calls again: what they ask of their arguments is asked anew."""

DEPTH, ITEMS = 12, 50_000
"""How deep and how far the search goes; what lies beyond is held by reference."""

_MODULE_DICTS = ("_parameters", "_buffers", "_modules")
_HOOK_DICTS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_OWN = frozenset(vars(torch.nn.Module()))
_CONTAINERS = (list, tuple, dict, set, collections.deque)
_LOOKING = frozenset({"CONTAINS_OP", "GET_ITER", "CALL_FUNCTION_EX", "DICT_MERGE", "DICT_UPDATE", "except"})
_LOOKING_NAMES = frozenset({"get", "keys", "values", "items", "len", "list", "tuple", "pop", "popitem", "setdefault"})
_ASKING_NAMES = frozenset({"hasattr", "getattr", "setattr", "vars", "__dict__", "__getattr__"})
_SITE = sysconfig.get_path("purelib")


class Surroundings:
    """What a program finds outside its arguments.

    Python values count where the code that the search meets names each attribute on the way to them.

    Args:
        fn: The program.
        arguments: The paths and leaves of its arguments: classes may have handlers, modules and functions come in.
        handlers: Instead of a program, classes whose handlers and Functions are looked into.
    """

    def __init__(
        self, fn: Any, arguments: Iterable[tuple[str, Any]] = (), handlers: Iterable[type] | None = None
    ) -> None:
        self.program = fn
        self.of_handlers = handlers is not None
        self.called_again: dict[type, None] = {}  # classes whose methods a trace as written calls again
        self.tensors: dict[int, list[Place]] = {}
        self.wrappers: list[torch.Tensor] = []
        self.modules: list[tuple[Place, torch.nn.Module]] = []
        self.owners: list[tuple[Place, Any]] = []  # objects, lists and dicts that the program may change
        self.constants: list[tuple[Place, Any]] = []
        self.generators: list[torch.Generator] = [torch.default_generator]
        self.seen: dict[int, Any] = {}  # kept, so that no other object gets the id
        self.functions: set[types.FunctionType] = set()
        self.classes: dict[type, None] = {}
        self.python_modules: dict[str, tuple[Place, types.ModuleType]] = {}
        self.left = ITEMS
        self.bindings: list[tuple[Place, Any, str, str]] = []  # variables: place, what holds it, how, key
        self.names: set[str] = set()
        self.user_names: set[str] = set()  # those in code that no one but the user wrote
        self.asking: set[str] = set()  # those of them outside of constructors
        self.environment = False  # whether os.environ was met under some name
        self.builds = False  # whether a constructor is being looked into
        self.steps: set[str] = set()
        self.maybe: list[tuple[Place, Any, frozenset[str]]] = []  # constants, if the code mentions the names
        self.looks: list[tuple[Place, Any, frozenset[str]]] = []  # keys of dicts
        self.asks: list[tuple[Place, Any, frozenset[str]]] = []  # names of attributes
        self.sure: list[int] = []  # the depth of an optimizer, all of which is read
        self.visit_roots(() if self.of_handlers else roots(fn), 0)
        for cls in handlers or ():
            self.visit_class(cls, 0)
        for path, leaf in arguments:
            if is_wrapper_type(type(leaf)):
                self.visit_class(type(leaf), 0)
            elif not isinstance(leaf, torch.Tensor):
                self.visit(Place(path, functools.partial(itself, leaf)), leaf, 0)
        self.visit_python_modules()
        self.choose_constants()

    def visit_roots(self, found: Iterable[Root], depth: int) -> None:
        """Note variables, and what they are now."""
        for place, names, binding in found:
            self.names |= names
            if binding is not None:
                self.bindings.append((place, *binding))
            self.visit(place, place(), depth)

    def visit_function(self, function: Any, depth: int) -> None:
        """The variables of a function, and of those that a decorator has wrapped."""
        for part in functions_in(function):
            if part not in self.functions and not is_closed(part):
                self.functions.add(part)
                self.user_names |= names_of_code(part.__code__)
                self.asking |= frozenset() if self.builds else names_of_code(part.__code__)
                self.names |= self.user_names
                self.steps |= steps_of_code(part.__code__)
                code = Place(f"code of {part.__name__}", functools.partial(code_of, part))
                self.constants.append((code, part.__code__))
                self.visit_roots(function_roots(part), depth)
                self.bindings += [
                    (Place(name, functools.partial(itself, None)), *rest) for name, *rest in unset_variables(part)
                ]

    def visit_function_attributes(self, place: Place, function: types.FunctionType, depth: int) -> None:
        """The attributes that a user gave to a function."""
        self.seen[id(function)] = function
        self.owners.append((place, function))
        for name, item in list(vars(function).items()):
            if name != "__wrapped__":
                self.visit(place.attribute(name), item, depth + 1)

    def visit_python_modules(self) -> None:
        """What the code may find in Python modules and classes: their variables that it names."""
        done: set[tuple[str, str]] = set()
        while True:
            names = frozenset(self.names)
            todo = [
                (place, module, name)
                for key, (place, module) in list(self.python_modules.items())
                for name in sorted(names & vars(module).keys())
                if (key, name) not in done
            ]
            if not todo:
                return
            for place, module, name in todo:
                done.add((module.__name__, name))
                self.bindings.append((place.attribute(name), module, "attribute", name))
                self.visit(place.attribute(name), vars(module)[name], 1)

    def choose_constants(self) -> None:
        """Keep the constants that the code reads: it names the attributes on the way."""
        every = bool(self.user_names & {"getattr", "vars", "__dict__"}) and self.asks_for_unknown()
        looks = bool(self.steps & _LOOKING or self.user_names & _LOOKING_NAMES)
        asks = bool(self.user_names & _ASKING_NAMES or self.steps & {"except"})
        maybe = [*self.maybe, *(self.looks if looks else ()), *(self.asks if asks else ())]
        named = self.names.issuperset
        self.constants += [(place, value) for place, value, names in maybe if every or named(names)]
        if not self.of_handlers:
            self.constants.append((Place("the default dtype", torch.get_default_dtype), torch.get_default_dtype()))
        self.constants += environment(self.user_names, self.names, self.environment)
        self.constants += [named for cls in self.called_again for named in self.named_parts(cls)]
        self.user_names |= {step for step in self.steps if step.startswith("calls ")}
        for told, ask, mentions in SETTINGS:
            if self.user_names & mentions:
                self.constants.append((Place(told, ask), ask()))
        stored = {step.split()[1] for step in self.steps if step.startswith(("STORE_ATTR ", "DELETE_ATTR "))}
        for cls in self.classes:
            for name in stored - vars(cls).keys():
                self.bindings.append((class_place(cls, name), cls, "attribute", name))

    def named_parts(self, cls: type) -> list[tuple[Place, Any]]:
        """The methods and the constants of a class with handlers that the program itself names."""
        bases = [base for base in cls.__mro__ if is_user_class(base)]
        found = [(base, name, item) for base in bases for name, item in vars(base).items() if name in self.user_names]
        return [
            (class_place(base, name), item) for base, name, item in found if is_simple(item) or any(functions_in(item))
        ]

    @property
    def looks_at_classes(self) -> bool:
        """Whether user code asks for the very class of a number: `is True`, type(), isinstance(..., bool)."""
        return "IS_OP bool" in self.steps or bool(self.user_names & {"type", "bool", "__class__"})

    def asks_for_unknown(self) -> bool:
        """Whether user code may ask for attributes by a name that it does not mention."""
        return bool(self.steps & {"FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "GET_ITER"}) or bool(
            self.user_names & {"vars", "__dict__"}
        )

    def add_frame(self, frame: Any, stop: Any) -> None:
        """Look into the functions that run now, from a frame out to the program.

        Args:
            frame: The innermost frame.
            stop: The code that called the program.
        """
        lists: tuple[list[Any], ...] = (self.modules, self.owners, self.constants, self.wrappers, self.bindings)
        sizes = [len(found) for found in lists]
        while frame is not None and frame.f_code is not stop:
            for place, names in () if is_internal(frame.f_code.co_filename) else frame_roots(frame):
                self.names |= names
                self.visit(place, place(), 0)
            frame = frame.f_back
        for found, size in zip(lists, sizes, strict=True):
            del found[size:]

    def visit(self, place: Place, value: Any, depth: int) -> None:
        """Note a value and what it holds."""
        if value is os.environ:
            self.environment = True
        elif value is id:
            self.steps.add("calls id")
        elif is_simple(value):
            self.note(place, value)
            self.names.update(fetched_names(value))
        elif isinstance(value, torch.Tensor):
            self.visit_tensor(place, value, depth)
        elif isinstance(value, torch.Generator):
            self.generators.append(value)
        elif isinstance(value, type):
            self.note(place, value)
            if is_user_class(value):
                self.visit_class(value, depth)
            if is_user_class(type(value)):
                self.visit_class(type(value), depth)
        elif isinstance(value, types.ModuleType):
            self.visit_python_module(place, value)
        elif id(value) in self.seen and (is_iterator(value) or is_cache(value)):
            return
        elif (found := leads_to(place, value)) is not None:
            self.note(place, value)
            for further, item in found if depth < DEPTH else ():
                self.visit(further, item, depth + 1)
        elif is_iterator(value):
            self.seen[id(value)] = value
            self.owners.append((place, value))
        elif is_function(value) or is_closed(value):
            self.note(place, value)
            self.names.update(fetched_names(value))
            if is_cache(value):
                self.visit_cache(place, value)
            if isinstance(value, types.FunctionType) and id(value) not in self.seen and not is_closed(value):
                self.visit_function_attributes(place, value, depth)
            if depth < DEPTH:
                self.visit_function(value, depth + 1)
        elif id(value) not in self.seen and depth < DEPTH and self.left > 0:
            self.seen[id(value)] = value
            self.visit_inside(place, value, depth + 1)
        elif isinstance(value, torch.nn.Module):
            self.visit_again(place, value)

    def visit_cache(self, place: Place, value: Any) -> None:
        """A function that remembers its results: they stay what they are until it computes another."""
        self.seen[id(value)] = value
        self.owners.append((place, value))
        for tensor in cached_tensors(value):
            self.tensors.setdefault(id(tensor), []).append(Place(place.path, functools.partial(itself, tensor)))
        self.note_fact(f"cache of {place.path}", place, filled, value)

    def note(self, place: Place, value: Any, kept: list[tuple[Place, Any, frozenset[str]]] | None = None) -> None:
        """A constant that counts if the code reads it."""
        if self.sure:
            self.constants.append((place, value))
        else:
            (self.maybe if kept is None else kept).append((place, value, place.names))

    def note_fact(self, told: str, place: Place, ask: Callable[[Any], Any], value: Any, kept: Any = None) -> None:
        """What is true of a value: how long a list is, which keys a dict has."""
        fact = Place(told, functools.partial(answer, ask, place))
        if self.sure:
            self.constants.append((fact, ask(value)))
        else:
            (self.maybe if kept is None else kept).append((fact, ask(value), place.names))

    def visit_tensor(self, place: Place, tensor: Any, depth: int = 0) -> None:
        """Note a tensor, its attributes, and the tensors inside a wrapper."""
        known = id(tensor) in self.tensors
        self.tensors.setdefault(id(tensor), []).append(place)
        if is_wrapper_type(type(tensor)):
            self.wrappers.append(tensor)
            self.visit_class(type(tensor), depth)
            try:
                inner = {name: getattr(tensor, name) for name in flat_parts(tensor)[0]}
            except Exception:  # told where the program uses it
                return
            for name, part in inner.items():
                if isinstance(part, torch.Tensor):
                    self.visit_tensor(place.attribute(name), part, depth)
            self.visit_wrapper_attributes(place, tensor, inner.keys(), depth)
        elif not known and hasattr(tensor, "__dict__"):
            self.owners.append((place, tensor))
            for name, item in list(vars(tensor).items()):
                self.visit_part(place.attribute(name), item, depth + 1)

    def visit_wrapper_attributes(self, place: Place, tensor: Any, apart: Iterable[str], depth: int) -> None:
        """What a wrapper has besides the tensors that it lists: the recorder looks after what is written there."""
        hidden = functools.partial(hiding, names_of_class(type(tensor)))
        self.note_fact(f"attributes of {place.path} that hide those of its class", place, hidden, tensor)
        for name, item in list(vars(tensor).items()):
            if (
                name not in apart
                and not name.startswith("_sym_")
                and (is_simple(item) or isinstance(item, torch.Tensor))
            ):
                self.visit(place.attribute(name), item, depth + 1)

    def visit_inside(self, place: Place, value: Any, depth: int) -> None:
        """The items of a container, the attributes of an object."""
        if isinstance(value, torch.nn.Module):
            self.visit_module(place, value, depth)
        elif isinstance(value, _CONTAINERS):
            self.visit_container(place, value, depth)
        elif isinstance(value, types.MethodType):
            self.visit(place.attribute("__self__"), value.__self__, depth)
            self.visit_function(value.__func__, depth)
        elif isinstance(value, functools.partial):
            for name in ("func", "args", "keywords"):
                self.names.add(name)
                self.visit(place.attribute(name), getattr(value, name), depth)
        elif isinstance(value, random.Random) or is_numpy_random(value):
            self.owners.append((place, value))
        elif is_array(value):
            self.note_fact(place.path, place, array_content, value)
        else:
            self.visit_object(place, value, depth)

    def visit_container(self, place: Place, value: Any, depth: int) -> None:
        """The items of a container, and how many there are."""
        self.owners.append((place, value))
        if isinstance(value, dict):
            missing = hasattr(type(value), "__missing__")  # asking for a key makes it
            self.note_fact(f"keys of {place.path}", place, keys_of, value, None if missing else self.looks)
        elif isinstance(value, set):
            self.note_fact(place.path, place, members_of, value)
            return
        else:
            self.note_fact(f"length of {place.path}", place, len, value)
        for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
            if isinstance(key, (torch.Tensor, WeakIdRef)) and not self.sure:  # an optimizer has its own keys
                self.steps.add("calls id")  # looking it up asks which object it is
            self.visit_part(place.item(key), item, depth)

    def visit_object(self, place: Place, value: Any, depth: int) -> None:
        """The attributes of an object."""
        slots = [name for name in slots_of(type(value)) if hasattr(value, name)]
        if not hasattr(value, "__dict__") and not slots:
            return
        sure = isinstance(value, torch.optim.Optimizer)
        self.sure += [depth] if sure else []
        self.visit_type(place, value, depth)
        self.owners.append((place, value))
        for name, item in [*getattr(value, "__dict__", {}).items(), *((name, getattr(value, name)) for name in slots)]:
            self.visit_part(place.attribute(name), item, depth)
        del self.sure[len(self.sure) - sure :]

    def visit_type(self, place: Place, value: Any, depth: int) -> None:
        """The class of an object: which one it is, what its methods find, and what the object hides of it."""
        cls = type(value)
        self.visit_class(cls, depth)
        shown, is_module = place.path or "the program", isinstance(value, torch.nn.Module)
        if is_module:
            place = Place(place.path, functools.partial(itself, value))  # that it is this module, its flag checks
        self.note_fact(f"class of {shown}", place, type, value)
        if is_user_class(cls):
            hidden = functools.partial(hiding, names_of_class(cls))
            self.note_fact(f"attributes of {shown} that hide those of its class", place, hidden, value)
        if not is_module:
            self.note_fact(f"attributes of {shown}", place, attributes_of, value, self.asks)

    def visit_class(self, cls: type, depth: int) -> None:
        """What a class keeps, and what its methods find in globals."""
        if cls in self.classes or depth >= DEPTH:
            return
        if issubclass(cls, _CALLED_AGAIN) and not self.of_handlers:
            self.called_again[cls] = None
            return
        self.names |= names_in(cls)
        for base in cls.__mro__:
            if base not in self.classes and is_user_class(base):
                self.classes[base] = None
                own = Place(base.__name__, functools.partial(itself, base))
                if not self.of_handlers:  # a handler that another one wraps is still the same handler
                    self.note_fact(f"attributes of {base.__name__} that hide those of its bases", own, overriding, base)
                for name, item in list(vars(base).items()):
                    self.visit_class_part(base, name, item, depth + 1)

    def visit_class_part(self, cls: type, name: str, item: Any, depth: int) -> None:
        """One attribute or method of a class."""
        place = class_place(cls, name)
        if name in DESCRIBING:
            return
        if found := list(functions_in(item)):
            self.note(place, item)
            self.builds = name in _BUILDING
            for function in found:
                self.visit_function(function, depth)
            self.builds = False
            if isinstance(item, functools.cached_property):
                self.user_names.add("__dict__")
        elif not name.startswith("__") and name != "_abc_impl":
            self.bindings.append((place, cls, "attribute", name))
            self.visit_part(place, item, depth)

    def visit_python_module(self, place: Place, module: types.ModuleType) -> None:
        """A Python module of the user: its variables are looked at later, those that the code names."""
        self.note(place, module)
        file = getattr(module, "__file__", None)
        known = sys.modules.get(module.__name__) is module
        if known and file and not is_internal(file) and not file.startswith(_SITE):
            self.python_modules.setdefault(module.__name__, (place, module))

    def visit_part(self, place: Place, item: Any, depth: int) -> None:
        """One item or attribute."""
        self.left -= 1
        self.visit(place, item, depth)

    def visit_module(self, place: Place, module: torch.nn.Module, depth: int) -> None:
        """The tensors, constants, hooks and submodules of a module."""
        if not self.modules:
            every = Place("hooks of all modules", hooks_of_all_modules)
            self.constants.append((every, every()))
        self.modules.append((place, module))
        self.names.add("forward")
        self.owners.append((place, module))
        self.visit_type(place, module, 1)
        told = f"parameters, buffers and modules of {place.path or 'the program'}"
        entries = Place(
            told, functools.partial(module_entries, module)
        )  # that it is this module is checked by its flag
        self.constants.append((entries, entries()))
        for name in (*module._parameters, *module._buffers):
            self.visit_part(place.attribute(name), getattr(module, name), depth)
        for name, item in list(vars(module).items()):
            if name not in _OWN:
                self.visit_part(place.attribute(name), item, depth)
        for hook in [hook for name in _HOOK_DICTS for hook in vars(module).get(name, {}).values()]:
            self.visit(Place(f"a hook of {place.path}", lambda hook=hook: hook), hook, 1)  # type: ignore[misc]
        for name, part in module._modules.items():
            if part is not None:  # modules nest deeper than other objects do
                self.names.add(name)
                self.visit(place.attribute(name), part, 1)

    def visit_again(self, place: Place, module: torch.nn.Module) -> None:
        """A module met a second time: its parameters have one more place."""
        for name, tensor in (*module._parameters.items(), *module._buffers.items()):
            if tensor is not None:
                self.visit_tensor(place.attribute(name), tensor)

    def find(self, tensor: torch.Tensor) -> list[Place]:
        """Every place that holds a tensor, the nearest first."""
        return sorted(self.tensors.get(id(tensor), ()), key=lambda place: len(place.steps))
