"""Which tensors that require a gradient make autograd follow a value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .proxies import Proxy, SubclassTensorProxy, TensorProxy
from .symbols import BoundSymbol, Kind
from .trace import Trace

__all__ = ["Followed", "Leaves"]

_SHOWN = 2


@dataclass(frozen=True)
class Leaves:
    """The leaves behind some values, as far as they are shown.

    Args:
        names: The first of them.
        count: How many there are.
    """

    names: tuple[str, ...]
    count: int

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        """`x`, `x and w`, `x, w and 3 more`."""
        more = self.count - len(self.names)
        return f"{', '.join(self.names)} and {more} more" if more else " and ".join(self.names)


class Followed:
    """For each value of a trace, the leaves through which autograd follows it, as the user knows them.

    A set of leaves is a number with a bit for each: deep models have many leaves behind each of many values.

    Args:
        trace: Its arguments and captured tensors are the first leaves.
    """

    def __init__(self, trace: Trace) -> None:
        self.names: list[str] = []
        self.leaves: dict[str, int] = {}
        for argument in trace.guard.arguments:
            self.add_outside(argument.path, argument.proxy)
        for capture in trace.captures:
            self.add_outside(capture.path, capture.proxy)

    def add_outside(self, path: str, proxy: Proxy | None) -> None:
        """A tensor from outside, and those inside it."""
        if isinstance(proxy, TensorProxy) and proxy.requires_grad:
            self.add(proxy.name, path)
        for name, part in proxy.inner if isinstance(proxy, SubclassTensorProxy) else ():
            self.add_outside(f"{path}.{name}", part)

    def add(self, name: str, path: str) -> None:
        """A value that is a leaf itself."""
        self.leaves[name] = 1 << len(self.names)
        self.names.append(path)

    def of(self, values: Iterable[Proxy]) -> Leaves:
        """The leaves behind some values: arguments and captured tensors first, each once."""
        bits = rest = self.behind(values)
        names: list[str] = []
        while rest and len(names) < _SHOWN:
            names.append(self.names[(rest & -rest).bit_length() - 1])
            rest &= rest - 1
        return Leaves(tuple(names), bin(bits).count("1"))

    def behind(self, values: Iterable[Proxy]) -> int:
        """The same as a number."""
        bits = 0
        for value in values:
            bits |= self.leaves.get(value.name, 0)
        return bits

    def read(self, bound: BoundSymbol) -> None:
        """Follow an operation of the top level."""
        behind = self.behind(bound.arguments)
        own = bound.symbol.kind is Kind.CONSTRUCTOR or bound.symbol.name.startswith("torch.Tensor.requires_grad")
        for value in bound.outputs:
            if not (isinstance(value, TensorProxy) and value.requires_grad):
                self.leaves.pop(value.name, None)
            elif own:  # a new leaf: what it was made of is cut off
                self.add(value.name, value.name)
            elif behind:
                self.leaves[value.name] = behind
