"""Read a wrapper through its own flatten protocol, and say which rule it breaks when it does."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from .errors import TraceError
from .intercept import build_wrapper, flat_parts, is_wrapper_type
from .shown import a_kind, article, key_text, message, shown
from .source import Source, building_line, definition, innermost

__all__ = ["expect_protocol", "flatten", "rule_source", "try_unflatten"]

_SIMPLE = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, torch.Size)


def rule_source(cls: type, rule: str) -> Source | None:
    """The line where a class defines one of its rules."""
    function: Any = getattr(cls, rule, None)
    function = inspect.unwrap(getattr(function, "__func__", function)) if function else None
    return definition(getattr(function, "__code__", None), getattr(function, "__qualname__", ""))


def flatten(obj: Any, source: Source | None = None) -> tuple[list[str], list[torch.Tensor], Any]:
    """The inner tensors and metadata of a wrapper.

    Args:
        obj: A wrapper object.
        source: The user's line that led here, for error messages.

    Returns:
        Attribute names, the inner tensors, the metadata.

    Raises:
        TraceError: The class breaks the protocol; the error names class, rule and line.
    """
    cls = type(obj)
    if not is_wrapper_type(cls):
        raise no_protocol(cls, source)
    try:
        names, metadata = flat_parts(obj)
        inner = [] if isinstance(names, str) else [getattr(obj, name) for name in names]
    except Exception as error:
        raise _flatten_failed(obj, error, source) from error
    if isinstance(names, str):  # `return ["a", "b"]`: the second name is taken for the metadata
        raise _no_pair(cls, obj.__tensor_flatten__(), source)
    for name, tensor in zip(names, inner, strict=True):
        if not isinstance(tensor, torch.Tensor):
            raise _broken(
                cls,
                f"__tensor_flatten__ lists {name!r}, which is {_describe(tensor)}, not a tensor",
                "an optional inner tensor that is None, or several tensors kept in a list",
                "leave the name out while there is no tensor; give each tensor an attribute of its own",
                source,
            )
    if metadata is not None and (where := hidden_tensor(metadata)) is not None:
        raise _broken(
            cls,
            f"the metadata of {cls.__name__} contains a tensor{where}",
            "a tensor kept beside the metadata: a trace would bake its example values in",
            "list it among the inner tensors in __tensor_flatten__",
            source,
        )
    return list(names), inner, metadata


def expect_protocol(value: Any) -> None:
    """Make sure that a wrapper can be read, and those inside it.

    Raises:
        TraceError: The class breaks the protocol.
    """
    if isinstance(value, torch.Tensor) and is_wrapper_type(type(value)):
        for inner in flatten(value)[1]:
            expect_protocol(inner)


def try_unflatten(obj: torch.Tensor, names: list[str], inner: list[torch.Tensor], metadata: Any) -> Any:
    """Build the object again once, to see that the class can.

    Returns:
        The new object.

    Raises:
        TraceError: `__tensor_unflatten__` fails or gives another class.
    """
    cls = type(obj)
    try:
        again = build_wrapper(cls, dict(zip(names, inner, strict=True)), metadata, obj.shape, obj.stride())
    except Exception as error:
        raise _unflatten_failed(cls, error, names, metadata, building_line()) from error
    if type(again) is not cls:
        raise _broken(
            cls,
            f"{cls.__name__}.__tensor_unflatten__ returned {type(again).__name__}, not {cls.__name__}",
            "it hands back an inner tensor, or names another class",
            f"return {article(cls.__name__)} made from the inner tensors",
            building_line(),
            "__tensor_unflatten__",
        )
    return again


def no_protocol(cls: type, source: Source | None) -> TraceError:
    """The error for a class with `__torch_dispatch__` but without the flatten protocol."""
    missing = [n for n in ("__tensor_flatten__", "__tensor_unflatten__") if not hasattr(cls, n)]
    return TraceError(
        f"{cls.__name__} has __torch_dispatch__ but no {' and no '.join(missing)}",
        source=source,
        handler=rule_source(cls, "__torch_dispatch__"),
        cause="the inner tensors of a wrapper can only be known through the flatten protocol",
        way_out=f"add {' and '.join(missing)} to {cls.__name__}",
    )


def _flatten_failed(obj: Any, error: Exception, source: Source | None) -> TraceError:
    cls, line = type(obj), innermost(error)
    if line is None and not _is_pair(given := obj.__tensor_flatten__()):
        return _no_pair(cls, given, source)
    texts = (
        "the list names an attribute that the object does not have",
        "name only attributes that are set, and leave optional ones out of the list while they are None",
    )
    if line is not None:
        texts = (
            "it reads what the object does not have, or not yet",
            "let it read only what every way to build the object sets",
        )
    what = f"__tensor_flatten__ failed with {type(error).__name__}: {message(error)}"
    told = _broken(cls, what, *texts, source)
    told.handler = line or told.handler
    return told


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], (list, tuple))


def _no_pair(cls: type, given: Any, source: Source | None) -> TraceError:
    return _broken(
        cls,
        f"__tensor_flatten__ returned {shown(given)}",
        "it does not return a pair: a list of attribute names, and the metadata",
        'return ["name", ...], metadata',
        source,
    )


def _unflatten_failed(
    cls: type, error: Exception, names: list[str], metadata: Any, source: Source | None
) -> TraceError:
    line = innermost(error)
    given = f"__tensor_flatten__ gave the inner tensors {names} and the metadata {shown(metadata)}"
    if line is None and isinstance(error, TypeError):
        texts = (
            "a signature other than the one that torch calls, such as the two-argument one of early releases",
            "define __tensor_unflatten__(inner_tensors, metadata, outer_size, outer_stride)",
        )
    elif isinstance(error, LookupError):
        texts = (f"it looks up what is not there: {given}", "look up the names that __tensor_flatten__ lists")
    else:
        texts = (f"it does not take what it is given: {given}", "let it take just what __tensor_flatten__ returns")
    what = f"{cls.__name__}.__tensor_unflatten__ failed with {type(error).__name__}: {message(error)}"
    told = _broken(cls, what, *texts, source, "__tensor_unflatten__")
    told.handler = line or told.handler
    return told


def _broken(
    cls: type, what: str, cause: str, way_out: str, source: Source | None, rule: str = "__tensor_flatten__"
) -> TraceError:
    what = what if what.startswith((cls.__name__, "the metadata")) else f"{cls.__name__}.{what}"
    return TraceError(what, source=source, handler=rule_source(cls, rule), cause=cause, way_out=way_out)


def _describe(value: Any) -> str:
    return "None" if value is None else a_kind(value)


def hidden_tensor(value: Any, depth: int = 0) -> str | None:
    """Where in a metadata value a tensor hides: '' for the value itself, None for nowhere."""
    if isinstance(value, _SIMPLE):
        return None
    if isinstance(value, torch.Tensor):
        return ""
    if depth > 4:
        return None
    for key, item in _items(value):
        if (where := hidden_tensor(item, depth + 1)) is not None:
            return f" under {key_text(key)}{where}"
    return None


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(enumerate(value))
    return []
