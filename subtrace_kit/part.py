"""A part of a lowered trace that only computes plain tensors from plain tensors, for a backend to compile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .guards import Argument, Guard
from .intercept import flatten_tree
from .proxies import TensorProxy
from .symbols import BoundSymbol, Context
from .trace import Trace

__all__ = ["Part", "made_part"]


@dataclass(frozen=True)
class Part:
    """Some operations of a trace.

    Args:
        bound_symbols: ATEN ops without effects, in order.
        inputs: What they take from outside.
        outputs: What is wanted of them outside: new memory, each its own.
        context: The global state that they run under.
    """

    bound_symbols: tuple[BoundSymbol, ...]
    inputs: tuple[TensorProxy, ...]
    outputs: tuple[TensorProxy, ...]
    context: Context

    def trace(self, name: str) -> Trace:
        """The part as a trace of its own: plain tensors by position in, a tuple of plain tensors out."""
        names = tuple(proxy.name for proxy in self.inputs)
        spec = flatten_tree((names, {}))[1]
        places = tuple(range(len(names)))
        arguments = tuple(Argument(proxy.name, proxy) for proxy in self.inputs)
        guard = Guard(names, (), spec, arguments, places, places, Context(grad=False), free=True)
        made = f"part of a lowered trace: {len(self.bound_symbols)} operations on plain tensors"
        body = tuple(bound.replace(context=None) for bound in self.bound_symbols)
        return Trace(name, guard, body, self.outputs, (made,), context=Context(grad=False))


def made_part(ops: Sequence[BoundSymbol], wanted: Iterable[str], trace: Trace, inference: bool) -> Part:
    """The part that computes some values.

    Args:
        ops: Operations that hold all that the values need of the part.
        wanted: The names of the values.
        trace: The whole trace.
        inference: Whether it runs in inference mode.
    """
    needed = set(wanted)
    kept: list[BoundSymbol] = []
    for bound in reversed(ops):
        if any(proxy.name in needed for proxy in bound.results):
            kept.append(bound)
            needed.update(proxy.name for proxy in bound.arguments)
    kept.reverse()
    made = {p.name: p for bound in kept for p in bound.results if isinstance(p, TensorProxy)}
    taken = {p.name: p for bound in kept for p in bound.arguments if isinstance(p, TensorProxy)}
    inputs = tuple(proxy for name, proxy in taken.items() if name not in made)
    outputs = tuple(made[name] for name in dict.fromkeys(wanted) if name in made)
    return Part(tuple(kept), inputs, outputs, _context(inputs, trace, inference))


def _context(inputs: tuple[TensorProxy, ...], trace: Trace, inference: bool) -> Context:
    """Autograd is off where an input requires a gradient: the results of a part require none."""
    base = trace.context
    if base.autocast:
        return Context(base.grad, inference, handler=True)  # what is recorded are the ops below autocast
    follows = any(proxy.requires_grad for proxy in inputs)
    return Context(base.grad and not follows, inference)
