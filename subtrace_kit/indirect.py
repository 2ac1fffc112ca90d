"""Objects through which a program comes to others: bound methods, weak references, views, caches, iterators."""

from __future__ import annotations

import collections
import contextvars
import functools
import gc
import itertools
import operator
import os
import queue
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .facts import keys_of
from .roots import Place, is_simple

__all__ = [
    "SETTINGS",
    "cached_tensors",
    "environment",
    "fetched_names",
    "filled",
    "is_cache",
    "is_iterator",
    "leads_to",
    "progress",
]

Found = Iterator[tuple[Place, Any]]

_MAPPINGS = (types.MappingProxyType, weakref.WeakValueDictionary, weakref.WeakKeyDictionary, collections.ChainMap)
_VIEWS: tuple[type, ...] = (type({}.keys()), type({}.values()), type({}.items()))
_GETTERS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)


def leads_to(place: Place, value: Any) -> list[tuple[Place, Any]] | None:
    """What stands behind an object that is not looked into itself.

    Args:
        place: Where it is.
        value: The object.

    Returns:
        Places and what is there; None for an object of another kind.
    """
    for kinds, find in _FINDERS:
        if isinstance(value, kinds):
            return list(find(place, value))
    return None


def _owner(place: Place, value: Any) -> Found:
    owner = value.__self__
    if owner is not None and not isinstance(owner, (types.ModuleType, type, torch.Tensor)):
        yield place.attribute("__self__"), owner


def _referent(place: Place, value: Any) -> Found:
    if value() is not None:
        yield Place(f"{place.path}()", lambda: place()()), value()


def _context(place: Place, value: Any) -> Found:
    yield Place(f"{place.path}.get()", lambda: _in_context(place())), _in_context(value)


def _in_context(variable: contextvars.ContextVar[Any]) -> Any:
    try:
        return variable.get()
    except LookupError:
        return None


def _local(place: Place, value: Any) -> Found:
    for name, item in vars(value).items():
        yield place.attribute(name), item


def _items(place: Place, value: Any) -> Found:
    yield Place(f"keys of {place.path}", lambda: keys_of(place())), keys_of(value)
    for key, item in list(value.items()):
        yield place.item(key), item


def _viewed(place: Place, value: Any) -> Found:
    yield Place(place.path, lambda: place().mapping), value.mapping


def _bytes(place: Place, value: Any) -> Found:
    yield Place(place.path, lambda: bytes(place())), bytes(value)


def _queued(place: Place, value: Any) -> Found:
    yield Place(f"{place.path}.queue", lambda: place().queue), value.queue


_FINDERS: tuple[tuple[Any, Callable[[Place, Any], Found]], ...] = (
    ((types.BuiltinMethodType, types.MethodWrapperType), _owner),
    (weakref.ReferenceType, _referent),
    (contextvars.ContextVar, _context),
    (threading.local, _local),
    (_MAPPINGS, _items),
    (_VIEWS, _viewed),
    (bytearray, _bytes),
    (queue.Queue, _queued),
)


def fetched_names(value: Any) -> list[str]:
    """The names that `operator.attrgetter` and the like, or a text that the code holds, may ask for."""
    if isinstance(value, _GETTERS):
        value = value.__reduce__()[1]
    texts = value if isinstance(value, tuple) else (value,)
    return [part for text in texts if isinstance(text, str) for part in text.split(".")]


def is_iterator(value: Any) -> bool:
    """Whether an object gives something else each time it is asked."""
    return hasattr(type(value), "__next__") or isinstance(value, itertools.count)


def progress(value: Any) -> Any:
    """How far an iterator is, in a form that compares by its repr."""
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        return frame and (frame.f_lasti, [(name, _mark(item)) for name, item in frame.f_locals.items()])
    if hasattr(value, "tell"):
        return value.tell() if not getattr(value, "closed", False) else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _mark(value.__reduce__()[1:])
    except TypeError:
        return [(name, _mark(item)) for name, item in getattr(value, "__dict__", {}).items()]


def _mark(value: Any) -> Any:
    if is_simple(value):
        return value
    if isinstance(value, tuple):
        return [_mark(item) for item in value]
    return progress(value) if is_iterator(value) else id(value)


def is_cache(value: Any) -> bool:
    """Whether a function remembers its results, as `functools.lru_cache` makes it."""
    return isinstance(value, functools._lru_cache_wrapper)


def filled(cache: Any) -> tuple[int, int]:
    """How often such a function has computed, and how much it remembers."""
    info = cache.cache_info()
    return info.misses, info.currsize


def cached_tensors(cache: Any) -> list[torch.Tensor]:
    """The tensors that such a function remembers."""
    found, seen, waiting = [], {id(cache)}, list(gc.get_referents(cache))
    while waiting:
        item = waiting.pop()
        if id(item) in seen or isinstance(item, (type, types.ModuleType, types.FunctionType)) or is_simple(item):
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            found.append(item)
        elif isinstance(item, (dict, list, tuple)) or type(item).__name__ == "_lru_list_elem":
            waiting += gc.get_referents(item)
    return found


def environment(mentioned: Iterable[str], texts: Iterable[str], met: bool) -> list[tuple[Place, Any]]:
    """The variables of the environment that code reads, or all of them where it does not say which.

    Args:
        mentioned: The names that the code mentions.
        texts: Names and texts that may be those of variables.
        met: Whether os.environ is in sight under some name.
    """
    if not met and not {"environ", "getenv"}.intersection(mentioned):
        return []
    named = sorted(text for text in texts if text in os.environ or text.isupper())
    if not named:
        return [(Place("os.environ", _whole_environment), _whole_environment())]
    return [(Place(f"os.environ[{n!r}]", functools.partial(os.environ.get, n)), os.environ.get(n)) for n in named]


def _whole_environment() -> int:
    return hash(tuple(os.environ.items()))  # not told: it may hold secrets


def _flags() -> tuple[Any, ...]:
    cudnn = torch.backends.cudnn
    return torch.backends.mkldnn.enabled, cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32


SETTINGS: tuple[tuple[str, Callable[[], Any], frozenset[str]], ...] = (
    ("the number of threads", torch.get_num_threads, frozenset({"get_num_threads"})),
    ("anomaly detection", torch.is_anomaly_enabled, frozenset({"is_anomaly_enabled"})),
    (
        "deterministic algorithms",
        torch.are_deterministic_algorithms_enabled,
        frozenset({"are_deterministic_algorithms_enabled"}),
    ),
    (
        "the precision of matmul",
        torch.get_float32_matmul_precision,
        frozenset({"get_float32_matmul_precision"}),
    ),
    ("the seed", torch.initial_seed, frozenset({"initial_seed"})),
    ("flags of torch.backends", _flags, frozenset({"backends"})),
)
"""Settings that code may ask for: what they are called, how to ask, and the names that such code mentions."""
