"""Python objects, lists and dicts that were there before the program: what it changes about them."""

from __future__ import annotations

import collections
import operator
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .indirect import filled, is_cache, is_iterator, progress
from .intercept import is_custom_node
from .roots import slots_of
from .shown import key_text

__all__ = ["Change", "Owner", "Owners"]

MISSING = object()
_MODULE_DICTS = ("_parameters", "_buffers", "_modules")
_HOOK_DICTS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(eq=False)
class Owner:
    """An object, list or dict from outside that a program changes.

    Args:
        path: How the user would write it.
        fetch: Gives it as it is now; None where it lies among the arguments, and the path leads to it.
        name: What generated code calls it.
    """

    path: str
    fetch: Callable[[], Any] | None
    name: str = ""


@dataclass(frozen=True)
class Change:
    """One attribute or item that is another object than before.

    Args:
        owner: What has changed.
        how: "attribute", "item", or "items" for a list of another length as a whole.
        key: The name or key.
        value: What is there now; MISSING where it was deleted.
    """

    owner: Owner
    how: str
    key: Any
    value: Any


class Owners:
    """Remembers attributes and items by identity, tells what has changed, and gives them back."""

    def __init__(self) -> None:
        self.kept: list[tuple[Owner, Any, Any, str]] = []  # owner, container, its copy, how it is written
        self.states: list[tuple[Owner, Callable[[], Any], Callable[[Any], Any], Any]] = []  # of random generators
        self.bindings: list[tuple[Owner, Any, str, str, Any]] = []  # a variable: owner, holder, how, key, value

    def watch(self, owner: Owner, obj: Any) -> None:
        """Remember an object, list, dict or set."""
        if isinstance(obj, torch.nn.Module):
            for name in (*_MODULE_DICTS, *_HOOK_DICTS):
                if name in vars(obj):
                    self.kept.append((owner, vars(obj)[name], vars(obj)[name].copy(), name))
        if (state := _random_state(obj)) is not None:
            self.states.append((owner, *state, state[0]()))
        elif isinstance(obj, (list, dict, set, collections.deque)):
            self.kept.append((owner, obj, obj.copy(), "item"))
        elif hasattr(obj, "__dict__"):
            self.kept.append((owner, vars(obj), vars(obj).copy(), "attribute"))
        for name in slots_of(type(obj)):
            self.bindings.append((owner, obj, "attribute", name, _bound(obj, "attribute", name)))

    def watch_argument(self, path: str, obj: Any) -> None:
        """Remember the lists, dicts and sets in an argument, at any depth."""
        if isinstance(obj, (list, dict, set, collections.deque)) or is_custom_node(obj):
            self.watch(Owner(path, None, path), obj)
        if isinstance(obj, (list, tuple, dict, collections.deque)):
            for key, item in obj.items() if isinstance(obj, dict) else enumerate(obj):
                self.watch_argument(f"{path}[{key_text(key)}]", item)
        elif is_custom_node(obj):
            for name, item in getattr(obj, "__dict__", {}).items():
                self.watch_argument(f"{path}.{name}", item)

    def watch_binding(self, path: str, holder: Any, how: str, key: str) -> None:
        """Remember which object a variable is: of a closure (the holder is its cell) or global."""
        self.bindings.append((Owner(path, lambda: holder), holder, how, key, _bound(holder, how, key)))

    def changes(self) -> list[Change]:
        """What is another object than before."""
        found = [change for entry in self.kept for change in _changes(*entry)]
        for owner, holder, how, key, value in self.bindings:
            if (now := _bound(holder, how, key)) is not value:
                found.append(Change(owner, how, key, now))
        found += [
            Change(owner, "state", None, NewState())
            for owner, read, _, before in self.states
            if _differs(read(), before)
        ]
        return self.without_shared(found)

    def without_shared(self, found: list[Change]) -> list[Change]:
        """The changes, with a marker for a container that is put into two places: a trace would make two of it."""
        seen = {id(now) for _, now, _, how in self.kept if how == "item"}
        return [Change(c.owner, c.how, c.key, SharedContainer()) if _meets(c, seen) else c for c in found]

    def restore(self) -> None:
        """Give everything back as it was."""
        for _, now, copy, _ in self.kept:
            refill(now, copy)
        for _, holder, how, key, value in self.bindings:
            if _bound(holder, how, key) is not value:
                _bind(holder, how, key, value)
        for _, read, write, before in self.states:
            if _differs(read(), before):
                write(before)


class NewState:
    """Stands for the state of a random generator, which a trace cannot set."""


class SharedContainer:
    """Stands for a list or dict that the program puts into several places."""


class NewlyRegistered:
    """Stands for a buffer, parameter or submodule that the program registers, which a trace cannot do."""


def _meets(change: Change, seen: set[int]) -> bool:
    """Whether a new value holds a container that was met before; those it holds count as met."""
    waiting = [change.value]
    if change.how == "items":  # the list itself, with other items
        waiting = [*change.value] if isinstance(change.value, list) else []
    while waiting:
        value = waiting.pop()
        if isinstance(value, (list, dict)):
            if id(value) in seen:
                return True
            seen.add(id(value))
        if isinstance(value, (list, tuple, dict)):
            waiting += value.values() if isinstance(value, dict) else value
    return False


def _random_state(obj: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """How the state of a random generator of Python or numpy is read and given back."""
    if is_cache(obj):
        return lambda: filled(obj), lambda before: None if before[1] else obj.cache_clear()
    if is_iterator(obj):
        return lambda: progress(obj), lambda before: _set_back(obj, before)
    if isinstance(obj, random.Random):
        return obj.getstate, obj.setstate
    numpy = sys.modules.get("numpy.random")
    if numpy is not None and isinstance(obj, numpy.RandomState):
        return lambda: obj.get_state(legacy=False), obj.set_state
    if numpy is not None and isinstance(obj, numpy.Generator):
        return lambda: obj.bit_generator.state, lambda state: setattr(obj.bit_generator, "state", state)
    return None


def _set_back(iterator: Any, before: Any) -> None:
    """Put an iterator of a list, a tuple or a range back; others have no way back."""
    if hasattr(iterator, "__setstate__") and isinstance(before, list) and isinstance(before[-1], int):
        iterator.__setstate__(before[-1])


def _differs(now: Any, before: Any) -> bool:
    return repr(now) != repr(before)


def _bound(holder: Any, how: str, key: str) -> Any:
    if isinstance(holder, type):
        return vars(holder).get(key, MISSING)  # its own, not that of a base
    try:
        return getattr(holder, key) if how == "attribute" else holder[key]
    except (LookupError, AttributeError, ValueError):
        return MISSING


def _bind(holder: Any, how: str, key: str, value: Any) -> None:
    if value is MISSING:
        delattr(holder, key) if how == "attribute" else holder.__delitem__(key)
    else:
        setattr(holder, key, value) if how == "attribute" else holder.__setitem__(key, value)


def module_hooks(module: torch.nn.Module) -> tuple[Any, ...]:
    """The hooks of a module, and its own `forward` where one was put in place of its class's."""
    found = [hook for name in _HOOK_DICTS for hook in vars(module).get(name, {}).values()]
    return (*found, *([vars(module)["forward"]] if "forward" in vars(module) else []))


def _changes(owner: Owner, now: Any, copy: Any, how: str) -> list[Change]:
    if same_contents(now, copy):
        return []
    if isinstance(now, list) and len(now) == len(copy):
        pairs = enumerate(zip(now, copy, strict=True))
        return [Change(owner, "item", index, item) for index, (item, before) in pairs if item is not before]
    if not isinstance(now, dict):
        return [Change(owner, "items", None, now)]
    if how in _MODULE_DICTS:
        new = [
            Change(owner, "attribute", k, v if k in copy else NewlyRegistered())
            for k, v in now.items()
            if copy.get(k) is not v
        ]
        return new + [Change(owner, "attribute", k, MISSING) for k in copy if k not in now]
    gone = [k for k in copy if k not in now]
    kept = [k for k in copy if k in now]
    moved = next((i for i, (one, other) in enumerate(zip(kept, now, strict=False)) if one is not other), len(kept))
    again = {*kept[moved:]}  # taken out and put in again: they stand last now
    changed = [Change(owner, how, k, v) for k, v in now.items() if copy.get(k, MISSING) is not v or k in again]
    return [Change(owner, how, k, MISSING) for k in (*gone, *kept[moved:])] + changed


def same_contents(now: Any, copy: Any) -> bool:
    """Whether a container holds the very objects of its copy: asking tensors for equality would run ops."""
    if len(now) != len(copy):
        return False
    if isinstance(now, dict):
        return all(map(operator.is_, now.keys(), copy.keys())) and all(map(operator.is_, now.values(), copy.values()))
    return {*map(id, now)} == {*map(id, copy)} if isinstance(now, set) else all(map(operator.is_, now, copy))


def refill(container: Any, copy: Any) -> None:
    """Give a list, dict or set the contents it had."""
    if not same_contents(container, copy):
        container.clear()
        container.extend(copy) if isinstance(container, (list, collections.deque)) else container.update(copy)


def map_changed(value: Any, tensor: Callable[[Any], Any]) -> Any:
    """A new value of an attribute with tensors mapped; MISSING where a trace cannot make it anew.

    Args:
        value: A tensor, None, or a list, tuple or dict that holds tensors.
        tensor: Maps one tensor.
    """
    if isinstance(value, torch.Tensor):
        return tensor(value)
    if value is None:
        return None
    if type(value) in (list, tuple):
        items = [map_changed(item, tensor) for item in value]
        return MISSING if MISSING in items else type(value)(items)
    if type(value) is dict:
        found = {key: map_changed(item, tensor) for key, item in value.items()}
        return MISSING if MISSING in found.values() else found
    return MISSING
