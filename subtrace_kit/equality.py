"""When one Python value can stand for another."""

from __future__ import annotations

import sys
from typing import Any

import torch

from .intercept import flat_parts, is_wrapper_type
from .roots import is_simple, slots_of

__all__ = ["same_metadata", "same_sizes", "same_tensors", "same_value"]


def same_sizes(found: tuple, wanted: tuple) -> bool:
    """Whether sizes agree where they are numbers; ragged sizes are compared through their offsets."""
    return len(found) == len(wanted) and all(
        a == b if type(a) is int and type(b) is int else type(a) is type(b) for a, b in zip(found, wanted, strict=True)
    )


def same_metadata(found: Any, wanted: Any) -> bool:
    """Equality that never raises and never asks a tensor for its truth."""
    if found is wanted:
        return True
    try:
        return bool(found == wanted)
    except Exception:
        return False


def same_value(found: Any, wanted: Any) -> bool:
    """Whether one Python value can stand for another: constants of one type that are equal, the very same object.

    Objects that say they are equal may hold different tensors: they count where all that they hold does.
    """
    if found is wanted:
        return True
    if type(found) is not type(wanted):
        return False
    if isinstance(wanted, float):
        return repr(found) == repr(wanted)  # tells 0.0 from -0.0, and takes nan for nan
    if is_simple(wanted):
        return same_metadata(found, wanted)
    if isinstance(wanted, (list, tuple)):
        return len(found) == len(wanted) and all(map(same_value, found, wanted))
    if isinstance(wanted, dict):
        return list(found) == list(wanted) and all(map(same_value, found.values(), wanted.values()))
    if isinstance(wanted, torch.Tensor) or not same_metadata(found, wanted):
        return False
    if type(wanted).__module__.partition(".")[0] in sys.stdlib_module_names:
        return not isinstance(wanted, (set, frozenset)) or all(map(is_simple, wanted))
    return _keeps_attributes(wanted) and same_value(_held(found), _held(wanted))


def _keeps_attributes(value: Any) -> bool:
    return hasattr(value, "__dict__") or any("__slots__" in vars(base) for base in type(value).__mro__)


def _held(value: Any) -> dict[str, Any]:
    """The attributes of an object, in slots too."""
    names = slots_of(type(value), any_class=True)
    return {**getattr(value, "__dict__", {}), **{name: getattr(value, name, None) for name in names}}


def same_tensors(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether two tensors are of one class and hold the same values, NaN in the same places, at any depth."""
    if one is None or other is None or type(one) is not type(other):
        return one is other
    if is_wrapper_type(type(one)):
        names = flat_parts(one)[0]
        return names == flat_parts(other)[0] and all(same_tensors(getattr(one, n), getattr(other, n)) for n in names)
    if one.shape != other.shape:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())
