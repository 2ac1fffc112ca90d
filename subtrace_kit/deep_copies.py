"""Deep copies of wrappers, lowered to deep copies of their inner tensors."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from . import ops
from .ops import aten
from .proxies import TensorProxy
from .symbols import BoundSymbol, Kind

__all__ = ["takes_storage", "without_storage"]

_FROM_STORAGE = aten.set_.source_Storage_storage_offset
_BETWEEN_STORAGES = (aten.empty.memory_format, aten.set_.source_Storage, aten.copy_.default)


def takes_storage(bound: BoundSymbol) -> bool:
    """Whether an operation, or one that it is made of, is handed raw storage."""
    return any(isinstance(argument, torch.UntypedStorage) for _, inner in bound.walk() for argument in inner.args)


def without_storage(bound: BoundSymbol) -> BoundSymbol | None:
    """A deep copy of a wrapper with a deep copy for each inner tensor, in place of what goes from storage to storage.

    torch gives each inner tensor a copy of its storage: `new_empty`, then `set_` to the new storage.

    Args:
        bound: A call of `torch.Tensor.__deepcopy__` on a wrapper.

    Returns:
        The same with other subsymbols; None where it was done in another way, or where two inner tensors
        lie in one storage, which separate copies would part.

    Source: `Tensor.__deepcopy__` in torch/_tensor.py.
    """
    steps = bound.subsymbols
    empties = {b.output.name: b.args[0] for b in steps if b.symbol.fn is aten.new_empty.default}
    moved = [b for b in steps if b.symbol.fn is _FROM_STORAGE]
    if len({id(b.args[1]) for b in moved}) != len(moved) or {b.args[0].name for b in moved} != empties.keys():
        return None
    kept = [_copy(b, empties) if b.symbol.fn is _FROM_STORAGE else b for b in steps]
    dropped = _scratch(steps) | {id(b) for b in steps if b.symbol.fn is aten.new_empty.default}
    left = tuple(b for b in kept if id(b) not in dropped)
    return None if any(map(takes_storage, left)) else bound.replace(subsymbols=left)


def _copy(moved: BoundSymbol, empties: dict[str, TensorProxy]) -> BoundSymbol:
    copy = ops.function_symbol(torch.Tensor.__deepcopy__)
    return moved.replace(symbol=copy, args=(empties[moved.args[0].name],), kwargs={})


def _scratch(steps: Iterable[BoundSymbol]) -> set[int]:
    """The operations that copy one storage to another, by id."""
    names: set[str] = set()
    found: set[int] = set()
    for bound in steps:
        if bound.symbol.fn is aten.set_.source_Storage:
            names.add(bound.args[0].name)
    for bound in steps:
        scratch = bound.symbol.kind is Kind.ATEN and {p.name for p in (*bound.arguments, *bound.outputs)} <= names
        if scratch and bound.symbol.fn in _BETWEEN_STORAGES:
            found.add(id(bound))
    return found
