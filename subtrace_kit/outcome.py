"""The outcome of one run: all that a caller can see, as facts by path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .copies import Copies, is_ragged
from .guards import tensor_fields
from .intercept import flat_parts, flatten_with_path, is_wrapper_type, memory_of, no_torch_function
from .wrapper_state import read_state

__all__ = [
    "FACTS", "Facts", "Items", "Outcome", "all_facts", "gradients", "look", "named_results", "tree_facts", "walk",
]  # fmt: skip

Facts = dict[str, Any]
"""What is seen of one value, by the name of the fact."""

Outcome = dict[str, dict[str, Facts]]
"""What one run leaves: sections (results, arguments, ...), in each the facts by path."""

Items = list[tuple[str, Any]]
"""Values, each with its path."""

FACTS = {
    "values": "values", "class": "classes", "metadata": "metadata", "inner tensors": "inner tensors", "dtype": "dtype",
    "device": "device", "shape": "shape", "stride": "strides", "layout": "layout", "storage_offset": "storage offset",
    "requires_grad": "requires_grad", "is_leaf": "is_leaf", "lazy": "lazy bits",
}  # fmt: skip
"""The facts of a result that have a row of their own, and what it is called."""


def look(arguments: Items, captured: Items, out: Any) -> Outcome:
    """What a run leaves, gradients of a later backward aside.

    Args:
        arguments: The arguments after the run.
        captured: The captured tensors after the run.
        out: The result.

    Returns:
        Facts by section and path; values are copied, so what happens later does not change them.
    """
    name, (_, spec) = _name(arguments), flatten_with_path(out)
    results = named_results(arguments, out)
    outside = [*arguments, *captured]
    tensors = [(p, t) for p, t in walk([*outside, *gradients(outside), *results]) if isinstance(t, torch.Tensor)]
    return {
        "structure": {name: {"structure": " ".join(str(spec).split())}},
        "results": all_facts(results),
        "aliasing": _partition(tensors, _memory, "memory"),
        "identity": _partition(tensors, id, "object"),
        "arguments": all_facts(arguments, state=True),
        "captured": all_facts(captured, state=True),
    }


def _name(arguments: Items) -> str:
    return "result" if any(path.startswith("out") for path, _ in arguments) else "out"


def named_results(arguments: Items, out: Any) -> Items:
    """The leaves of a result, each with its path."""
    return [(_name(arguments) + "".join(map(str, keys)), leaf) for keys, leaf in flatten_with_path(out)[0]]


def walk(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Values with the tensors inside them, at any depth, each with its path."""
    for path, value in items:
        yield path, value
        if is_wrapper_type(type(value)):
            yield from walk((f"{path}.{name}", getattr(value, name)) for name in value.__tensor_flatten__()[0])


def gradients(items: Items) -> Items:
    """The gradients of tensors, and of those inside them."""
    tensors = [(path, t) for path, t in walk(items) if isinstance(t, torch.Tensor)]
    return [(f"{path}.grad", t.grad) for path, t in tensors if t.is_leaf or t.retains_grad]


def all_facts(items: Iterable[tuple[str, Any]], state: bool = False) -> dict[str, Facts]:
    """The facts of values and of the tensors inside them, by path.

    Args:
        items: The values.
        state: Whether the Python attributes of tensors are facts too.
    """
    return {path: _facts(value, state) for path, value in walk(items)}


def tree_facts(items: Items) -> dict[str, Facts]:
    """The facts of values that may be lists, tuples or dicts of tensors."""
    leaves = [(path, keys, leaf) for path, value in items for keys, leaf in flatten_with_path(value)[0]]
    return all_facts((path + "".join(map(str, keys)), leaf) for path, keys, leaf in leaves)


def _facts(value: Any, state: bool) -> Facts:
    if not isinstance(value, torch.Tensor):
        return {"class": type(value), "values": value}
    wrapper = is_wrapper_type(type(value))
    names, metadata = flat_parts(value) if wrapper else ([], None)
    seen = {"class": type(value), **tensor_fields(value), "is_leaf": value.is_leaf}
    if state:
        own = read_state(value).attributes.items()
        seen["attributes"] = Copies().value({k: v for k, v in own if k not in names and not is_ragged(v)})
    if wrapper:
        return seen | {"metadata": Copies().value(metadata), "inner tensors": tuple(names)}
    with no_torch_function():
        return seen | _plain_facts(value)


def _plain_facts(tensor: torch.Tensor) -> Facts:
    """What only a tensor without others inside has."""
    if tensor.layout is not torch.strided:
        ordered = f", {'' if tensor.is_coalesced() else 'not '}coalesced" if tensor.layout is torch.sparse_coo else ""
        return {"layout": f"{tensor.layout}{ordered}", "values": tensor.detach().to_dense()}
    seen: Facts = {"layout": str(tensor.layout), "storage_offset": tensor.storage_offset()}
    if tensor.is_meta:
        return seen
    return seen | {"values": tensor.detach().resolve_conj().resolve_neg().to("cpu", copy=True)}


def _memory(tensor: torch.Tensor) -> int:
    """Which memory a plain tensor lies in; 0 where there is none."""
    strided = tensor.layout is torch.strided and not is_wrapper_type(type(tensor))
    return (tensor.untyped_storage().data_ptr() or memory_of(tensor)) if strided else 0


def _partition(items: Items, key: Callable[[Any], int], what: str) -> dict[str, Facts]:
    """For each tensor the first one with the same key."""
    first: dict[int, str] = {}
    firsts = {path: first.setdefault(key(tensor), path) if key(tensor) else path for path, tensor in items}
    return {path: {what: f"{what} of {other if other != path else 'its own'}"} for path, other in firsts.items()}
