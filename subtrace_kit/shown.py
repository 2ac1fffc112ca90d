"""How values stand in messages: tensors by class, dtype and shape, without their repr; nothing raises."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .intercept import unwatched
from .symbols import dtype_text

__all__ = ["a_kind", "article", "beside", "holds_tensor", "instead", "key_text", "message", "shown"]

_LONGEST, _DEPTH, _ITEMS = 300, 4, 20


def shown(value: Any) -> str:
    """A value as a message shows it.

    Args:
        value: Any object.

    Returns:
        Its repr, cut where it is long; what holds tensors is shown without theirs.

    Example:
        >>> shown({"w": torch.ones(2), "n": 3})
        "{'w': Tensor f32[2], 'n': 3}"
    """
    text = _safely(lambda: _text(value, 0), value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def article(name: str) -> str:
    """A name after its article: `a Tensor`, `an int`."""
    return f"a{'n' * (name[:1].lower() in tuple('aeiou'))} {name}"


def a_kind(value: Any) -> str:
    """What kind of thing a value is, by its class: `an int`."""
    return article(type(value).__name__)


def instead(found: Any, wanted: Any) -> str:
    """`2 instead of 3`, also where both read the same."""
    return beside(shown(found), shown(wanted))


def beside(found: str, wanted: str) -> str:
    """Two texts that stand for different things, beside each other."""
    return f"{found} instead of {wanted}" + (", another one that reads the same" if found == wanted else "")


def key_text(key: Any) -> str:
    """The key of an item, whole where it can be written."""
    return repr(key) if isinstance(key, (str, int, float, bytes)) else shown(key)


def message(error: BaseException) -> str:
    """What an error says. An error may have been given a tensor for its text."""
    if holds_tensor(error.args, 0):
        return ", ".join(map(shown, error.args))
    return _safely(lambda: str(error), error)


def _safely(text: Callable[[], str], value: Any) -> str:
    try:
        return text()
    except Exception:  # the repr of a user's object
        return f"<{type(value).__name__}>"


def _text(value: Any, depth: int) -> str:
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if depth > _DEPTH:
        return "..."
    if type(value) in _BRACKETS:
        return _container(value, depth + 1)
    if isinstance(value, types.MethodType):
        return f"<method {value.__qualname__}>"
    if holds_tensor(value, 0):
        return f"<{type(value).__name__} that holds tensors>"
    return repr(value)


def _tensor(tensor: torch.Tensor) -> str:
    name = type(tensor).__name__
    with unwatched():
        try:
            return f"{name} {dtype_text(tensor.dtype)}[{', '.join(map(str, tensor.shape))}]"
        except Exception:  # a wrapper that is not complete, or whose class answers for its sizes
            return name


_BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}"), set: ("{", "}")}


def _container(value: Any, depth: int) -> str:
    if not value:
        return repr(value)
    parts = [_text(item, depth) for item in list(value)[:_ITEMS]]
    if isinstance(value, dict):
        parts = [f"{key}: {_text(value[k], depth)}" for key, k in zip(parts, value, strict=False)]
    more = ["..."] if len(value) > _ITEMS else [""] if len(value) == 1 and isinstance(value, tuple) else []
    before, after = _BRACKETS[type(value)]
    return f"{before}{', '.join([*parts, *more]).rstrip(' ')}{after}"


def holds_tensor(value: Any, depth: int = 0) -> bool:
    """Whether an object holds a tensor that its repr may show."""
    if isinstance(value, torch.Tensor):
        return True
    if depth > _DEPTH or isinstance(value, (type, types.ModuleType, types.FunctionType)):
        return False
    return any(holds_tensor(part, depth + 1) for part in _parts(value))


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple, set, frozenset)):
        yield from value
    elif isinstance(value, dict):
        yield from (*value.keys(), *value.values())
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, (types.MethodType, types.BuiltinMethodType)):
        return
    yield from getattr(value, "__dict__", {}).values()
    for cls in type(value).__mro__:
        slots = vars(cls).get("__slots__", ())
        yield from (getattr(value, name, None) for name in ([slots] if isinstance(slots, str) else slots))
