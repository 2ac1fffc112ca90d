"""The Python attributes of a wrapper object: read, compare, write back."""

from __future__ import annotations

import operator
from typing import Any

import torch

__all__ = ["changes", "is_unchanged", "read_state", "write_state"]

_MISSING = object()


_known_slots: dict[type, tuple[str, ...]] = {}


def _slots(cls: type) -> tuple[str, ...]:
    """The attributes that a class keeps in slots."""
    if (known := _known_slots.get(cls)) is None:
        known = _known_slots[cls] = _find_slots(cls)
    return known


def _find_slots(cls: type) -> tuple[str, ...]:
    found: list[str] = []
    for base in cls.__mro__:
        if base is torch.Tensor:
            break
        names = base.__dict__.get("__slots__", ())
        found += [names] if isinstance(names, str) else list(names)
    return tuple(name for name in found if not name.startswith("__"))


def read_state(obj: Any) -> dict[str, Any]:
    """The attributes of an object, those in slots too."""
    state = dict(obj.__dict__)
    for name in _slots(type(obj)):
        value = getattr(obj, name, _MISSING)
        if value is not _MISSING:
            state[name] = value
    return state


def is_unchanged(obj: Any, state: dict[str, Any]) -> bool:
    """Whether an object still has the very attributes of an earlier reading."""
    now = read_state(obj) if _slots(type(obj)) else obj.__dict__
    return len(now) == len(state) and all(map(operator.is_, now.values(), state.values()))


def changes(before: dict[str, Any], now: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Attributes set to another object, and attributes deleted."""
    changed = {k: v for k, v in now.items() if before.get(k, _MISSING) is not v}
    return changed, [k for k in before if k not in now]


def write_state(obj: Any, state: dict[str, Any]) -> None:
    """Give an object the attributes it had."""
    changed, gone = changes(read_state(obj), state)
    for name in gone:
        delattr(obj, name)
    for name, value in changed.items():
        setattr(obj, name, value)
