"""Which tensors that require a gradient make autograd follow a value."""

from __future__ import annotations

from collections.abc import Iterable

from .proxies import Proxy, SubclassTensorProxy, TensorProxy
from .symbols import BoundSymbol, Kind
from .trace import Trace

__all__ = ["Followed", "listed"]

_SHOWN = 2


class Followed:
    """For each value of a trace, the leaves through which autograd follows it, as the user knows them.

    Args:
        trace: Its arguments and captured tensors are the first leaves.
    """

    def __init__(self, trace: Trace) -> None:
        self.leaves: dict[str, tuple[str, ...]] = {}
        for argument in trace.guard.arguments:
            self.add_outside(argument.path, argument.proxy)
        for capture in trace.captures:
            self.add_outside(capture.path, capture.proxy)

    def add_outside(self, path: str, proxy: Proxy | None) -> None:
        """A tensor from outside, and those inside it."""
        if isinstance(proxy, TensorProxy) and proxy.requires_grad:
            self.leaves[proxy.name] = (path,)
        for name, part in proxy.inner if isinstance(proxy, SubclassTensorProxy) else ():
            self.add_outside(f"{path}.{name}", part)

    def of(self, values: Iterable[Proxy]) -> tuple[str, ...]:
        """The leaves behind some values, each once."""
        return tuple(dict.fromkeys(leaf for value in values for leaf in self.leaves.get(value.name, ())))

    def read(self, bound: BoundSymbol) -> None:
        """Follow an operation of the top level."""
        behind = self.of(bound.arguments)
        own = bound.symbol.kind is Kind.CONSTRUCTOR or bound.symbol.name.startswith("torch.Tensor.requires_grad")
        for value in bound.outputs:
            if not (isinstance(value, TensorProxy) and value.requires_grad):
                self.leaves.pop(value.name, None)
            elif own:  # a new leaf: what it was made of is cut off
                self.leaves[value.name] = (value.name,)
            elif behind:
                self.leaves[value.name] = behind


def listed(leaves: tuple[str, ...]) -> str:
    """`x`, `x and w`, `x, w and 3 more`."""
    first, more = leaves[:_SHOWN], len(leaves) - _SHOWN
    return f"{', '.join(first)} and {more} more" if more > 0 else " and ".join(first)
