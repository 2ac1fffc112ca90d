"""The values that a program had while it was recorded, in short: for traces made with `values=True`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .intercept import unwatched
from .values import Event, Value, values_in

__all__ = ["Seen", "Summary", "Watch", "summarize"]

BINS = 16
SMALL = 16
"""Elements up to which a tensor is kept in full."""


@dataclass(frozen=True)
class Summary:
    """A tensor's values in short. Of complex numbers the magnitudes are taken.

    Args:
        count: How many elements it has.
        nans: How many of them are not a number.
        infs: How many are infinite.
        low: The smallest finite one; None where there is none.
        high: The largest finite one.
        mean: Their mean.
        bins: How many lie in each of 16 equal steps from `low` to `high`.
        items: All elements as text, of a small tensor.
    """

    count: int
    nans: int = 0
    infs: int = 0
    low: float | None = None
    high: float | None = None
    mean: float | None = None
    bins: tuple[int, ...] = ()
    items: str = ""

    @property
    def nonfinite(self) -> int:
        """How many elements are infinite or not a number."""
        return self.nans + self.infs


@dataclass(frozen=True)
class Seen:
    """What a value was when an operation had made or written it, or at first.

    Args:
        name: The value's name.
        summary: Its values.
    """

    name: str
    summary: Summary


def summarize(tensor: torch.Tensor) -> Summary | None:
    """A tensor's values in short; None where they cannot be read, as those of a fake tensor.

    Args:
        tensor: A plain tensor of any dtype.

    Example:
        >>> found = summarize(torch.tensor([1.0, 3.0, float("inf")]))
        >>> found.low, found.high, found.mean, found.nans, found.infs, found.items
        (1.0, 3.0, 2.0, 0, 1, '[1, 3, inf]')
    """
    try:
        with torch.no_grad():
            return _summary(tensor.detach())
    except (RuntimeError, TypeError, NotImplementedError):
        return None


def _summary(tensor: torch.Tensor) -> Summary:
    dense = (tensor.to_dense() if tensor.layout is not torch.strided else tensor).cpu()
    numbers = dense.reshape(-1)
    items = _text(dense.tolist()) if numbers.numel() <= SMALL else ""
    numbers = (numbers.abs() if numbers.is_complex() else numbers).double()
    finite = numbers[torch.isfinite(numbers)]
    count, left, nans = numbers.numel(), finite.numel(), int(torch.isnan(numbers).sum())
    infs = count - left - nans
    if not left:
        return Summary(count, nans, infs, items=items)
    low, high = finite.min().item(), finite.max().item()
    bins = torch.histc(finite, BINS, low, high).int().tolist() if low < high else ()
    return Summary(count, nans, infs, low, high, finite.mean().item(), tuple(bins), items)


def _text(item: Any) -> str:
    if isinstance(item, list):
        return f"[{', '.join(map(_text, item))}]"
    return f"{item:.5g}" if isinstance(item, (float, complex)) else str(item)


class Watch:
    """Writes the values of a recording down as they come.

    Attributes:
        first: What the values were that no operation has made: inputs, captured tensors.
    """

    def __init__(self) -> None:
        self.first: dict[Value, Summary] = {}
        self.made: set[Value] = set()

    def begin(self, event: Event) -> None:
        """Note the arguments of an operation that were not seen before."""
        for value in _plain((event.args, event.kwargs)):
            if value.root not in self.made and value.root not in self.first and (found := _look(value)) is not None:
                self.first[value.root] = found

    def end(self, event: Event) -> None:
        """Note what an operation has made or written."""
        made = list(_plain(event.out)) or (list(_plain(event.args)) if event.writes else [])
        self.made.update(value.root for value in made if value.root not in self.first)
        found = [(value, _look(value)) for value in dict.fromkeys(made)]
        event.seen = tuple((value, summary) for value, summary in found if summary is not None)

    def seen(self) -> tuple[Seen, ...]:
        """What the values were that no operation has made, by the names that they have by now."""
        return tuple(Seen(root.name, summary) for root, summary in self.first.items() if root.name)


def _look(value: Value) -> Summary | None:
    tensor = value.ref()
    with unwatched():
        return None if tensor is None else summarize(tensor)


def _plain(tree: Any) -> Iterator[Value]:
    """The plain tensors in arguments or results, also those inside wrappers."""
    for value in values_in(tree):
        if value.number is not None:
            continue
        if value.cls is None:
            yield value
        else:
            yield from _plain([part for _, part in value.inner])
