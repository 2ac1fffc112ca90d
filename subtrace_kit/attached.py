"""What is attached to tensors as plain Python attributes, and named by no flatten protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .errors import TraceError
from .guards import parts
from .intercept import flat_parts, flatten_tree, is_wrapper_type
from .protocol import rule_source
from .roots import is_simple, names_in
from .shown import key_text
from .source import Source
from .tensor_facts import asked
from .trace import Attribute
from .wrapper_state import read_state

__all__ = ["attribute_guards", "hidden", "holder_of"]

DEPTH = 3


def attribute_guards(
    leaves: Iterable[Any], names: Iterable[str], handler_names: Iterable[str] = (), asking: Iterable[str] = ()
) -> Iterator[Attribute]:
    """The Python values on tensors among the arguments that the program or the class may read.

    What the metadata of a wrapper says is compared as metadata.

    Args:
        leaves: The leaves of the arguments.
        names: The names that the code of the program mentions.
        handler_names: The names that classes and what they call mention.
        asking: Those that they mention outside of constructors.
    """
    named, by_handler = frozenset(names), frozenset(handler_names)
    for index, leaf in enumerate(leaves):
        for way, tensor in parts(leaf) if isinstance(leaf, torch.Tensor) else ():
            by_class = names_in(type(tensor)) | by_handler if is_wrapper_type(type(tensor)) else frozenset()
            for name, value in _apart(tensor):
                if is_simple(value) and name in named | by_class:
                    yield Attribute(index, (*way, name), value, by_class=name not in named)
                elif isinstance(value, (dict, list)) and name in named | by_class:
                    recorded, only = constants_in(value), name not in named
                    yield Attribute(index, (*way, name), recorded, only, constants_in, "constants")
            for told, ask in asked(tensor, named | frozenset(asking)):
                yield Attribute(index, way, ask(tensor), ask=ask, fact=told)


def constants_in(value: Any) -> Any:
    """The Python constants in a dict or list, at any depth; everything else counts by its class."""
    if isinstance(value, dict):
        return tuple((key if is_simple(key) else id(key), constants_in(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(constants_in, value))
    return value if is_simple(value) else type(value)


def _apart(tensor: torch.Tensor) -> Iterator[tuple[str, Any]]:
    """The attributes of a tensor that its flatten protocol does not tell."""
    if not is_wrapper_type(type(tensor)):
        yield from vars(tensor).items()
        return
    inner, metadata = flat_parts(tensor)
    told = [metadata, *flatten_tree(metadata)[0]]
    for name, value in read_state(tensor).attributes.items():
        if name not in inner and not name.startswith("_sym_") and not any(value is other for other in told):
            yield name, value


def hidden(obj: Any, apart: Iterable[str], is_older: Callable[[torch.Tensor], bool]) -> list[tuple[str, torch.Tensor]]:
    """The attributes of a wrapper that are tensors from before it was built, and that it does not list."""
    attributes = read_state(obj).attributes.items()
    return [(n, item) for n, item in attributes if n not in apart and isinstance(item, torch.Tensor) and is_older(item)]


def holder_of(tensor: torch.Tensor, objects: Iterable[Any], source: Source | None) -> TraceError | None:
    """The error for a tensor that is only known as an attribute of another tensor from outside.

    Args:
        tensor: What the program or a class uses.
        objects: Tensors from outside.
        source: The user's line.

    Returns:
        The error, which names the attribute; None where no such tensor holds it.
    """
    for obj in objects:
        path = next((p for name, item in _apart(obj) if (p := _way(item, tensor, name)) is not None), None)
        if path is not None:
            return _not_listed(obj, path, source)
    return None


def _way(item: Any, tensor: torch.Tensor, path: str, depth: int = 0) -> str | None:
    """How to come from an object to a tensor that it holds."""
    if item is tensor:
        return path
    if depth >= DEPTH or isinstance(item, (torch.Tensor, type)) or is_simple(item):
        return None
    steps: list[tuple[str, Any]] = [(f".{name}", part) for name, part in getattr(item, "__dict__", {}).items()]
    if isinstance(item, dict):
        steps = [(f"[{key_text(key)}]", part) for key, part in item.items()]
    elif isinstance(item, (list, tuple)):
        steps = [(f"[{index}]", part) for index, part in enumerate(item)]
    found = (_way(part, tensor, f"{path}{step}", depth + 1) for step, part in steps)
    return next((way for way in found if way is not None), None)


def _not_listed(obj: Any, path: str, source: Source | None) -> TraceError:
    if not is_wrapper_type(type(obj)):
        return TraceError(
            f"the program reads a tensor from the attribute {path!r} of another tensor",
            source=source,
            cause="an attribute that was set on a plain tensor: of other arguments a trace knows the data alone",
            way_out="pass it as an argument of its own",
        )
    cls = type(obj)
    return TraceError(
        f"{cls.__name__}.{path} is a tensor that {cls.__name__}.__tensor_flatten__ does not list",
        source=source,
        handler=rule_source(cls, "__tensor_flatten__"),
        cause="an inner tensor, or a cached one, beside those that the class names: a trace would keep its example",
        way_out=f"list {path.partition('.')[0].partition('[')[0]!r} in __tensor_flatten__, or clear the cache before",
    )
