"""The Python attributes of a wrapper object: read, compare, write back."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import Any

import torch

from .ops import DELATTR, SETATTR
from .owners import refill, same_contents

__all__ = ["State", "changes", "is_unchanged", "read_state", "write_state"]

_MISSING = object()
_CONTAINERS = (list, dict, set)
_CONSTANTS = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_known_slots: dict[type, tuple[str, ...]] = {}


@dataclass(slots=True)
class State:
    """The attributes of an object at one moment.

    Args:
        attributes: The objects that the attributes are.
        contents: Copies of those that are lists, dicts or sets, which can change in place.
    """

    attributes: dict[str, Any]
    contents: dict[str, Any] = field(default_factory=dict)


def _find_slots(cls: type) -> tuple[str, ...]:
    """The attributes that a class keeps in slots."""
    found: list[str] = []
    for base in cls.__mro__:
        if base is torch.Tensor:
            break
        names = base.__dict__.get("__slots__", ())
        found += [names] if isinstance(names, str) else list(names)
    return tuple(name for name in found if not name.startswith("__"))


def _attributes(obj: Any) -> dict[str, Any]:
    cls = type(obj)
    if (slots := _known_slots.get(cls)) is None:
        slots = _known_slots[cls] = _find_slots(cls)
    return obj.__dict__ | {n: getattr(obj, n) for n in slots if hasattr(obj, n)} if slots else obj.__dict__


def read_state(obj: Any) -> State:
    """The attributes of an object, those in slots too."""
    attributes = dict(_attributes(obj))
    contents = {name: value.copy() for name, value in attributes.items() if type(value) in _CONTAINERS}
    return State(attributes, contents)


def is_unchanged(obj: Any, state: State) -> bool:
    """Whether an object still has the very attributes of an earlier reading."""
    now, before = _attributes(obj), state.attributes
    if len(now) != len(before) or not all(map(operator.is_, now.values(), before.values())):
        return False
    return not state.contents or all(same_contents(now[name], copy) for name, copy in state.contents.items())


def changes(before: State, now: State) -> tuple[dict[str, Any], list[str]]:
    """Attributes set to another object or changed inside, and attributes deleted."""
    changed = {
        name: value
        for name, value in now.attributes.items()
        if before.attributes.get(name, _MISSING) is not value
        or (name in before.contents and not same_contents(value, before.contents[name]))
    }
    return changed, [name for name in before.attributes if name not in now.attributes]


def differing(state: State, other: State, apart: list[str]) -> list[tuple[Any, ...]]:
    """What must be set or deleted so that an object with the attributes of `other` gets those of `state`.

    Attributes of both that are tensors, containers or objects of one type count as equal: the class made
    each from the same inner tensors and metadata.

    Args:
        state: The attributes wanted.
        other: The attributes there.
        apart: Names to leave out.

    Returns:
        (SETATTR, name, value) and (DELATTR, name) for each.
    """
    if state.attributes.keys() == other.attributes.keys() and not _changed_constant(state, other, apart):
        return []
    # Under `_sym_` torch keeps answers of the class about its sizes.
    wanted = {n: v for n, v in state.attributes.items() if n not in apart and not n.startswith("_sym_")}
    found: list[tuple[Any, ...]] = [
        (SETATTR, name, value)
        for name, value in wanted.items()
        if name not in other.attributes or _differ(value, other.attributes[name])
    ]
    return found + [
        (DELATTR, name) for name in other.attributes if name not in state.attributes and not name.startswith("_sym_")
    ]


def _changed_constant(state: State, other: State, apart: list[str]) -> bool:
    there = other.attributes
    return any(_differ(v, there[n]) for n, v in state.attributes.items() if v is not there[n] and n not in apart)


def _differ(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return True
    return isinstance(one, _CONSTANTS) and one is not other and bool(one != other)


def write_state(obj: Any, state: State) -> None:
    """Give an object the attributes it had, and its containers their contents."""
    changed, gone = changes(state, read_state(obj))
    for name in changed.keys() - state.attributes.keys():
        delattr(obj, name)
    for name in [*(changed.keys() & state.attributes.keys()), *gone]:
        setattr(obj, name, _refilled(state, name))


def _refilled(state: State, name: str) -> Any:
    value = state.attributes[name]
    if name in state.contents:
        refill(value, state.contents[name])
    return value
