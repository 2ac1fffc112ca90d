"""The forward and the backward of a program recorded together and cut apart: plain ops on inner tensors, both.

What the forward must save is what the backward uses, so the two are recorded as one ("joint") program, once
for all kinds of gradients that have arrived.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from . import ops
from .backward import TANGENT, cut_backward, free_guard, quiet, without_flag
from .errors import TraceError
from .gradient_kinds import Kinds, kinds_of
from .guards import Guard
from .intercept import current_listener, flatten_tree, unflatten_tree
from .lowest import expect_pure, lowest, steps_of
from .made_inputs import like
from .memory import shared_memory
from .passes import drop_dead_code, flatten_inputs, unroll
from .proxies import Proxy, SubclassTensorProxy, TensorProxy, names_in
from .symbols import BoundSymbol, Context, map_tree, proxies_in
from .trace import Trace
from .tracing import record

__all__ = ["Backward", "Split", "split_joint"]


@dataclass(frozen=True)
class Backward:
    """The backward for one kind of gradients.

    Args:
        trace: Takes `saved` and the gradients that arrive; gives a gradient, or None, for each input that may get one.
        saved: Positions, among what the forward keeps, of what it takes.
        arriving: For each result that autograd follows, whether a gradient arrives.
        gradients: The kind of those gradients.
    """

    trace: Trace
    saved: tuple[int, ...]
    arriving: tuple[bool, ...]
    gradients: Guard


@dataclass(frozen=True)
class Split:
    """A program cut in two.

    Args:
        forward: Gives (result, followed results, what is kept for the backward, inputs that get a gradient, all
            tensors that come in and those inside them).
            What is kept includes inputs and results whose memory the backward uses, so that autograd notices writes.
        backwards: One for each kind of gradients.
    """

    forward: Trace
    backwards: tuple[Backward, ...]


def split_joint(trace: Trace, args: tuple, kwargs: dict, kinds: Sequence[Kinds]) -> Split:
    """Record a program with its backward, and cut it in two.

    Args:
        trace: The trace of the program, as recorded.
        args: Arguments that it fits.
        kwargs: Likewise.
        kinds: The kinds of gradients; if there are none, those of the results themselves.

    Returns:
        The two.

    Raises:
        TraceError: The program does something that only eager's own graph does as eager does.
    """
    _expect_plain_parts(trace)
    joint = record(_program(trace, kinds), args, kwargs, places=trace.program, backward=True)
    return _Cutter(trace, joint, max(1, len(kinds))).split()


def _expect_plain_parts(trace: Trace) -> None:
    outside = (*trace.inputs, *(capture.proxy for capture in trace.captures))
    for proxy in outside:
        _expect_quiet_parts(proxy)
    if any(capture.fetch().grad_fn is not None for capture in trace.captures):
        raise TraceError("a captured tensor was computed under autograd")
    if trace.handler_writes:
        raise TraceError("a handler keeps something outside")


def _expect_quiet_parts(proxy: Proxy) -> None:
    if isinstance(proxy, SubclassTensorProxy) and any(part.requires_grad for part in proxy.parts()):
        raise TraceError(f"a tensor inside {proxy.name} requires a gradient")


def _program(trace: Trace, kinds: Sequence[Kinds]) -> Any:
    """The program followed by torch.autograd.grad, once for each kind of gradients."""
    leaves = [capture.fetch() for capture in trace.captures]

    def joint(*args: Any, **kwargs: Any) -> Any:
        out = trace.program(*args, **kwargs)  # type: ignore[misc]
        given = [t for t in (*flatten_tree((args, kwargs))[0], *leaves) if isinstance(t, torch.Tensor)]
        followed = {id(t): t for t in given if t.requires_grad}
        results = [t for t in flatten_tree(out)[0] if isinstance(t, torch.Tensor)]
        live = list({id(t): t for t in results if t.requires_grad and t.grad_fn is not None}.values())
        recorder: Any = current_listener()
        with recorder.bookkeeping:
            wanted = _reached(live, list(followed.values()))
        if not wanted:
            raise TraceError("no gradient reaches an input")
        found = [_gradients(live, wanted, one) for one in kinds or [_own_kinds(live)]]
        return out, live, wanted, found

    joint.__name__ = trace.name
    target = getattr(trace.program, "forward", trace.program)
    with suppress(TypeError, ValueError):
        joint.__signature__ = inspect.signature(target)  # type: ignore[attr-defined,arg-type]
    return joint


def _reached(live: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The inputs to which the graph of some result leads, whatever gradients arrive."""
    open_nodes: list[Any] = [t.grad_fn for t in live]
    nodes, edges, leaves = set(open_nodes), {(t.grad_fn, t.output_nr) for t in live}, set()
    while open_nodes:
        node = open_nodes.pop()
        if (leaf := getattr(node, "variable", None)) is not None:
            leaves.add(id(leaf))
        for following, number in node.next_functions:
            edges.add((following, number))
            if following is not None and following not in nodes:
                nodes.add(following)
                open_nodes.append(following)
    return [t for t in inputs if id(t) in leaves or (t.grad_fn is not None and (t.grad_fn, t.output_nr) in edges)]


def _own_kinds(live: list[torch.Tensor]) -> Kinds:
    recorder: Any = current_listener()
    with recorder.bookkeeping, torch.no_grad():
        return kinds_of(live)


def _gradients(live: list[torch.Tensor], wanted: list[torch.Tensor], kinds: Kinds) -> Any:
    reached = [t for t, kind in zip(live, kinds, strict=True) if kind is not None]
    tangents = [_tangent(kind) for kind in kinds if kind is not None]
    return torch.autograd.grad(reached, wanted, tangents, allow_unused=True, retain_graph=True)


def _tangent(kind: TensorProxy) -> torch.Tensor:
    """A gradient of a kind, made without a trace of it."""
    recorder: Any = current_listener()
    with recorder.bookkeeping, torch.no_grad(), torch.random.fork_rng(devices=[]):
        made = like(kind)
        recorder.store.capture(made, TANGENT)
        return made


# --------------------------------------------------------------------------------------------- cutting


class _Cutter:
    """Cuts the trace of a joint program."""

    def __init__(self, trace: Trace, joint: Trace, count: int) -> None:
        self.trace, self.joint = trace, joint
        body = list(joint.bound_symbols)
        self.before, self.grads = body[:-count], body[-count:]
        if any(b.symbol.fn is not torch.autograd.grad for b in self.grads):
            raise TraceError("the program leaves something behind")
        self.out, live, wanted, self.found = joint.output
        self.live: list[Any] = list(live)
        known = {p.name for p in self.live}
        for proxy in _tensors(self.out):
            _expect_quiet_parts(proxy)
            if proxy.requires_grad and proxy.name not in known:
                raise TraceError(f"{proxy.name}, a result, is a leaf of the graph")
        self.outside = {p.name: p for p in (*trace.inputs, *(capture.proxy for capture in trace.captures))}
        self.expect_same_names()
        self.wanted: list[Any] = list(wanted)

    def expect_same_names(self) -> None:
        """The joint program takes what the program takes, under the same names."""
        own = {capture.proxy.name: capture.path for capture in self.trace.captures}
        found = {c.proxy.name: c.path for c in self.joint.captures if c.path != TANGENT}
        names = [p.name for p in self.joint.inputs] == [p.name for p in self.trace.inputs]
        if not names or not found.items() <= own.items():
            raise TraceError("with its backward, the program finds other tensors outside")

    def split(self) -> Split:
        """The two halves."""
        steps = [step for outer in self.before for step in steps_of(outer)]
        memory = shared_memory(steps)
        self.expect_own_memory(memory)
        body = [op for outer in self.before for op in lowest(quiet(outer))]
        found = [self.backward(grad, gradients) for grad, gradients in zip(self.grads, self.found, strict=True)]
        kept: dict[str, Proxy] = {}
        for _, taken, watched in found:
            kept |= {p.name: p for p in taken if isinstance(p, TensorProxy)}
            kept |= {p.name: p for p in self.watched(watched, memory)}
        forward = self.forward(body, list(kept.values()))
        order = list(kept)
        return Split(
            forward,
            tuple(self.ready(g, back, taken, order) for g, (back, taken, _) in zip(self.grads, found, strict=True)),
        )

    def expect_own_memory(self, memory: dict[str, frozenset[str]]) -> None:
        """Results that share memory with something outside, or with each other, are views that autograd knows."""
        seen = set(self.outside)
        for name in {p.name for p in proxies_in(self.live)} | {p.name for p in _tensors(self.out)}:
            roots = memory.get(name, frozenset({name}))
            if not seen.isdisjoint(roots):
                raise TraceError("a result is an argument, or shares memory with one or with another result")
            seen |= roots

    def watched(self, saved: list[TensorProxy], memory: dict[str, frozenset[str]]) -> Iterator[Proxy]:
        """The inputs and results that share memory with a saved value: autograd must see whether they are written."""
        roots = frozenset().union(*(memory.get(p.name, frozenset({p.name})) for p in saved))
        yield from (proxy for name, proxy in self.outside.items() if name in roots)
        yield from (p for p in _tensors(self.out) if not roots.isdisjoint(memory.get(p.name, {p.name})))

    def backward(self, grad: BoundSymbol, gradients: Any) -> tuple[Trace, list[Proxy], list[TensorProxy]]:
        """A lowered backward, what it takes besides the gradients, and what autograd saved for it."""
        cut = cut_backward(self.trace, self.joint, grad.replace(output=gradients))
        tangents = {p.name for p in proxies_in(grad.kwargs["grad_outputs"])}
        inputs = [p for p in cut.inputs if p.name not in tangents]
        unrolled = unroll(cut.replace(output=None)).replace(output=cut.output)  # a gradient need not be a view
        body = tuple(b for b in unrolled.bound_symbols if b.symbol is not ops.BUMP)  # of temporaries: nobody looks
        lowered = drop_dead_code(flatten_inputs(unrolled.replace(bound_symbols=body)))
        lowered = _opened(lowered, tangents | set(self.outside))
        expect_pure(lowered.bound_symbols, {n for p in lowered.inputs for n in names_in(p)})
        given: list[Any] = [map_tree(without_flag, p) for p in proxies_in(grad.kwargs["grad_outputs"])]
        taken = [p for p in _free(lowered) if p.name not in tangents]
        lowered = lowered.replace(guard=free_guard([*taken, *given], lowered.context))
        return lowered, taken, [p for p in inputs if isinstance(p, TensorProxy)]

    def forward(self, body: list[BoundSymbol], kept: list[Proxy]) -> Trace:
        """The forward, with all that it must give."""
        given = [part for p in self.outside.values() for part in _with_parts(p)]
        quieted = map_tree(without_flag, (self.live, kept, self.wanted, given))
        out = _quiet_tree(self.out)
        lines = (*self.joint.provenance, f"forward: {len(kept)} values saved")
        found = self.trace.replace(
            bound_symbols=tuple(body), output=(out, *map(tuple, quieted)), context=Context(grad=False), provenance=lines
        )
        found = drop_dead_code(flatten_inputs(found))
        expect_pure(found.bound_symbols, {n for p in self.outside.values() for n in names_in(p)})
        if missing := [p for p in _free(found) if p.name not in self.outside]:
            raise TraceError(f"no op that was recorded makes {missing[0].name}")
        return found

    def ready(self, grad: BoundSymbol, back: Trace, taken: list[Proxy], order: list[str]) -> Backward:
        """A backward that says what it takes of what the forward keeps, and which gradients."""
        known = {p.name for p in taken}
        alone = free_guard([p for p in back.inputs if p.name not in known], back.context)
        reached = {p.name for p in proxies_in(grad.args[0])}
        arriving = tuple(p.name in reached for p in self.live)
        return Backward(back, tuple(order.index(p.name) for p in taken), arriving, alone)


def _with_parts(proxy: Proxy) -> Iterator[Proxy]:
    yield proxy
    if isinstance(proxy, SubclassTensorProxy):
        yield from proxy.parts()


def _tensors(tree: Any) -> list[TensorProxy]:
    return [leaf for leaf in flatten_tree(tree)[0] if isinstance(leaf, TensorProxy)]


def _quiet_tree(tree: Any) -> Any:
    leaves, spec = flatten_tree(tree)
    return unflatten_tree([without_flag(leaf) for leaf in leaves], spec)


def _opened(trace: Trace, closed: set[str]) -> Trace:
    """The trace with the inner tensors of wrapper inputs as inputs, where it only reads those; `closed` ones stay."""
    body = list(trace.bound_symbols)
    while True:
        used = {p.name for b in body if b.symbol is not ops.GETATTR for p in b.arguments}
        used |= {p.name for p in trace.results} | closed
        made = {p.name for b in body for p in b.results}
        kept = [b for b in body if b.symbol is not ops.GETATTR or b.args[0].name in used | made]
        if len(kept) == len(body):
            return trace.replace(bound_symbols=tuple(body))
        body = kept


def _free(trace: Trace) -> list[Proxy]:
    """What operations and result use and no operation makes."""
    made: set[str] = set()
    found: dict[str, Proxy] = {}
    for bound in trace.bound_symbols:
        found |= {p.name: p for p in bound.arguments if p.name not in made}
        made |= {p.name for p in bound.results}
    return list((found | {p.name: p for p in trace.results if p.name not in made}).values())
