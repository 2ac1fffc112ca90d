"""An object of the class that is tried, made anew as often as it is wanted."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ..comparison import inside
from ..copies import Copies
from ..errors import TraceError
from ..intercept import flat_parts, is_wrapper_type
from ..shown import a_kind, message, shown

__all__ = ["Example", "NotTried", "apart", "guessed", "plain_parts", "shared_parts", "values_of"]


class NotTried(Exception):
    """A rule does not apply to an example; the text says why."""


class Example:
    """One example of a class.

    Args:
        cls: The class.
        given: An object of it, or a function of no arguments that makes one.

    Raises:
        TraceError: It is neither.
    """

    def __init__(self, cls: type, given: Any) -> None:
        self.cls, self._given = cls, given
        self.made_by_call = not isinstance(given, torch.Tensor) and callable(given)
        self.first = self._made() if self.made_by_call else given
        if not isinstance(self.first, cls):
            what = f"the function that makes an example returned {a_kind(self.first)}" if self.made_by_call else ""
            raise TraceError(
                what or f"{shown(given)} is no example of {cls.__name__}: it is {a_kind(given)}",
                way_out=f"give objects of {cls.__name__}, or functions that make one",
            )

    def new(self) -> Any:
        """A fresh object: what is done to it changes nothing else.

        Raises:
            TraceError: The class cannot be built anew from its parts.
        """
        if self.made_by_call:
            return self._made()
        if not is_wrapper_type(type(self.first)):
            raise NotTried("x cannot be copied without __tensor_flatten__; give check a function that makes one")
        return Copies().value(self._given)

    def _made(self) -> Any:
        torch.manual_seed(0)  # equal objects, where it draws
        return self._given()

    @property
    def name(self) -> str:
        """The example in a report."""
        return shown(self.first)

    def plain(self) -> torch.Tensor:
        """A plain tensor without memory of the same shape, strides and dtype.

        Raises:
            NotTried: The shape has sizes that are no numbers, as those of jagged tensors.
        """
        x = self.first
        if not all(isinstance(size, int) for size in x.shape):
            raise NotTried(f"no plain tensor has the shape {list(x.shape)}")
        return torch.empty_strided(tuple(x.shape), tuple(x.stride()), dtype=x.dtype, device="meta")


def values_of(value: Any) -> Any:
    """The values and metadata of a wrapper or plain tensor, however they lie in memory."""
    if is_wrapper_type(type(value)):
        inner, metadata = inside(value)
        return {name: values_of(part) for name, part in inner.items()}, metadata
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    return value.resolve_conj().resolve_neg().contiguous() if value.layout is torch.strided else value


def plain_parts(value: Any) -> Iterator[torch.Tensor]:
    """The plain tensors in a wrapper, those of wrappers inside too."""
    if not is_wrapper_type(type(value)):
        yield value
        return
    for name in flat_parts(value)[0]:
        yield from plain_parts(getattr(value, name))


def shared_parts(one: Any, other: Any) -> list[bool]:
    """For each inner tensor of one that has memory: whether it lies in memory of the other."""
    places = {part.untyped_storage().data_ptr() for part in _with_memory(other)}
    return [part.untyped_storage().data_ptr() in places for part in _with_memory(one)]


def apart(one: torch.Tensor, other: torch.Tensor, *facts: str) -> dict[str, tuple[Any, Any]]:
    """The facts that differ between two tensors, each with its two values."""
    pairs = {fact: (_fact(one, fact), _fact(other, fact)) for fact in facts}
    return {fact: pair for fact, pair in pairs.items() if pair[0] != pair[1]}


def _fact(tensor: torch.Tensor, fact: str) -> Any:
    if fact in ("shape", "strides"):
        sizes = tensor.shape if fact == "shape" else tensor.stride()
        return [size if isinstance(size, int) else "?" for size in sizes]  # each jagged tensor has its own symbol
    return getattr(tensor, fact)


def _with_memory(value: Any) -> Iterator[torch.Tensor]:
    return (part for part in plain_parts(value) if part.layout is torch.strided and part.numel() and not part.is_meta)


def guessed(cls: type) -> Callable[[], Any]:
    """A function that makes an example: the constructor on random 4 x 4 matrices.

    Raises:
        TraceError: The constructor does not take them.
    """
    n = _required(cls)

    def make() -> Any:
        return cls(*(torch.rand(4, 4) for _ in range(n)))

    call = f"{cls.__name__}({', '.join(['torch.rand(4, 4)'] * n)})"
    try:
        with torch.random.fork_rng(devices=[]):
            made = make()
    except Exception as error:
        first = (message(error).splitlines() or [""])[0]
        raise _no_guess(cls, f"{call} fails with {type(error).__name__}: {first}") from error
    if not isinstance(made, cls):
        raise _no_guess(cls, f"{call} gives {a_kind(made)}")
    return make


def _no_guess(cls: type, what: str) -> TraceError:
    return TraceError(
        f"no example of {cls.__name__} can be made up: {what}",
        cause="its constructor does not take plain tensors",
        way_out=f"give one: subtrace_kit.check({cls.__name__}, example)",
    )


def _required(cls: type) -> int:
    """How many arguments a constructor must be given by position."""
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    found = 0
    for name in ("__new__", "__init__"):
        try:
            given = list(inspect.signature(getattr(cls, name)).parameters.values())[1:]
        except (TypeError, ValueError):  # torch's own
            continue
        found = max(found, sum(p.kind in kinds and p.default is p.empty for p in given))
    return found or 1
