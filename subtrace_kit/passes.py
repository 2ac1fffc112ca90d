"""Passes: Trace -> Trace. Each walks the bound symbols once and leaves a line of provenance."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from . import ops
from .backward import backward
from .backward_errors import BackwardError
from .called import expect_trace, expect_whole
from .collecting import no_collection
from .data_guards import with_data_guards
from .deep_copies import takes_storage, without_storage
from .errors import TraceError
from .handler_state import changed_by_handler
from .ledger import record_ledger
from .progress import Stage, counted
from .proxies import NumberProxy, Proxy, SubclassTensorProxy, TensorProxy
from .refusals import raw_storage
from .returned_views import returned_views
from .symbols import BoundSymbol, Context, Kind, Symbol
from .trace import Trace

__all__ = ["drop_dead_code", "flatten_inputs", "has_effect", "lower", "unroll", "uses"]

SWITCHES = frozenset({"torch.Tensor.requires_grad_", "torch.Tensor.requires_grad.__set__"})
AUTOGRAD = frozenset({"backward", "grad", "register_hook", "register_post_accumulate_grad_hook", "retain_grad"})
_EFFECTS = ops.EFFECTS | AUTOGRAD
_ON_OBJECTS = (ops.GETATTR, ops.STORE, *ops.STATE_WRITES)
"""Prims that a lowered trace has on wrapper objects too."""


def lower(trace: Trace, *, check_backward: bool = True) -> Trace:
    """A trace on wrapper objects -> a trace on their inner tensors.

    Where autograd follows an operation on wrappers, the operation stays, on wrapper objects, so that
    its gradients are eager's own; what its class would run is answered from the trace.

    Args:
        trace: What `subtrace_kit.trace` recorded.
        check_backward: Whether to try the backward once on made-up inputs, where one can reach a
            class, so that a missing rule is found now.

    Returns:
        A trace that is called the same way and gives the same result. It builds a wrapper object
        only where one is returned, stored or wanted by autograd; `ledger` says which, and why.

    Raises:
        TraceError: The program does something that has no meaning on inner tensors, or its backward
            needs an op that a class has no rule for.

    Example:
        >>> import torch, subtrace_kit
        >>> from subtrace_kit.zoo import TwoTensor
        >>> t = subtrace_kit.trace(lambda t: (t * 2).a)(TwoTensor(torch.ones(2), torch.ones(2)))
        >>> [b.symbol.name for b in subtrace_kit.lower(t).bound_symbols]
        ['getattr', 'aten.mul.Tensor']
    """
    expect_trace(trace, "lower")
    expect_whole(trace, "lowered")
    with no_collection():
        with Stage("lowering"):
            lowered = drop_dead_code(flatten_inputs(unroll(trace)))
        if check_backward and trace.program is not None and _wants_gradient(trace):
            try_backward(trace)
        with Stage("lowering"):
            return with_data_guards(record_ledger(trace, lowered))
        return with_data_guards(record_ledger(trace, lowered))


def _wants_gradient(trace: Trace) -> bool:
    """Whether a backward can reach a class: an input, or the result of an operation on wrappers, requires one."""
    results = (p for b in trace.bound_symbols if b.has_wrapper for p in b.outputs)
    return any(_requires_grad(p) for p in (*trace.inputs, *results))


def try_backward(trace: Trace) -> None:
    """Look for ops that the backward would send and a class has no rule for.

    Programs that need special values, and those without a backward, cannot be tried: they pass.
    """
    try:
        backward(trace)
    except BackwardError as error:
        if error.in_class and isinstance(error.__cause__, (NotImplementedError, TypeError)):
            raise
    except TraceError:
        return


# -------------------------------------------------------------------------------------------- unroll


@dataclass(frozen=True)
class Kept:
    """What stays an operation on wrapper objects beside what autograd follows.

    Args:
        every: Whether all of them do, under grad mode.
        views: Names of wrappers that view ops must make.
    """

    every: bool
    views: frozenset[str]


_NONE = Kept(False, frozenset())


def unroll(trace: Trace) -> Trace:
    """Put what runs inside a wrapper's handlers in place of the op on the wrapper."""
    kept = Kept(any(_reaches_back(b) for b in trace.bound_symbols), returned_views(trace))
    numbered: set[str] = set()
    bound: list[BoundSymbol] = []
    for outer in counted(trace.bound_symbols):
        whole = outer.symbol.kind is Kind.FUNCTION and takes_storage(outer)
        if whole and outer.has_wrapper and (copied := without_storage(outer)) is not None:
            outer, whole = copied, False
        if whole:
            bound.append(outer.replace(at_class=outer.has_wrapper))
        elif _takes_number(outer, numbered):
            numbered |= {p.name for p in (*outer.arguments, *outer.outputs) if isinstance(p, SubclassTensorProxy)}
            bound.append(outer if outer.symbol.kind is Kind.CONSTRUCTOR else outer.replace(at_class=True))
        else:
            bound += [_placed(*found, outer) for found in _unrolled(outer, outer.context, kept)]
    attributes = tuple(dataclasses.replace(attribute, by_class=False) for attribute in trace.attributes)
    constants = tuple(dataclasses.replace(constant, by_class=False) for constant in trace.constants)
    trace = trace.replace(attributes=attributes, constants=constants)  # what a handler read is now a constant
    return _passed(trace, bound, f"unroll: ops on wrappers replaced by the ops of their handlers{_left_out(trace)}")


def _left_out(trace: Trace) -> str:
    """What handlers write outside the trace; counters and logs are left to the trace as written.

    Raises:
        TraceError: A handler keeps something that its later calls may use.
    """
    for path in trace.handler_writes:
        raise changed_by_handler(path)
    return f"; handlers no longer write {', '.join(trace.handler_logs)}" if trace.handler_logs else ""


def _unrolled(
    bound: BoundSymbol, context: Context | None, kept: Kept = _NONE
) -> Iterator[tuple[BoundSymbol, Context | None]]:
    """What a lowered trace runs in place of an operation, each with the global state that it runs under."""
    if bound.symbol is ops.ESCAPE:
        raise _leaves_torch(bound)
    if any(isinstance(argument, torch.UntypedStorage) for argument in bound.args):
        raise raw_storage(bound.source)
    modes = context is not None and bool(context.modes)
    above = modes and _differentiated(bound, context)  # autograd follows the op, not what the modes make of it
    if _is_followed(bound, context, kept):
        yield replayed(bound), context
    elif above or bound.symbol.kind is Kind.CONSTRUCTOR or _is_prim(bound, _ON_OBJECTS):
        yield bound, context
    elif not bound.subsymbols or not (bound.has_wrapper or modes):
        if bound.results or has_effect(bound) or not bound.has_wrapper:
            yield bound, _without_modes(context)
    else:
        inside = context
        if bound.symbol.kind is Kind.ATEN and context is not None and bound.on_wrapper:
            inside = Context(context.grad, context.inference, handler=True)
        for inner in bound.subsymbols:
            yield from _unrolled(inner, inner.context or inside, kept)
        counts = context is not None and not context.handler  # below a handler torch counts no versions
        for wrapper in _written_wrappers(bound) if counts else ():
            yield BoundSymbol(ops.BUMP, (wrapper,), {}, None, source=bound.source), context


def _is_prim(bound: BoundSymbol, prims: tuple[Symbol, ...]) -> bool:
    return bound.symbol.kind is Kind.PRIM and bound.symbol in prims


def _written_wrappers(bound: BoundSymbol) -> list[SubclassTensorProxy]:
    """The wrappers that an ATen op writes."""
    if bound.symbol.kind is not Kind.ATEN or bound.symbol.fn is None or not ops.op_info(bound.symbol.fn).mutable:
        return []
    found = ops.written(bound.args, bound.kwargs, ops.op_info(bound.symbol.fn))
    return [proxy for proxy in found if isinstance(proxy, SubclassTensorProxy)]


def _reaches_back(bound: BoundSymbol) -> bool:
    """Whether an operation makes autograd follow, through views, wrappers that were made before it."""
    if bound.symbol.name in SWITCHES and bound.has_wrapper:
        return True
    return _is_followed(bound, bound.context) and _writes_wrapper(bound)


def _takes_number(bound: BoundSymbol, numbered: set[str]) -> bool:
    """Whether an operation hands a class a number from data, or a wrapper whose metadata may hold one.

    What the class does with it is out of sight: such an operation stays with the class.
    """
    if not bound.has_wrapper or bound.symbol.kind is Kind.PRIM:
        return False
    if any(isinstance(p, NumberProxy) and not p.guarded for p in bound.arguments):
        return True
    return bool(numbered) and any(w.name in numbered for p in bound.arguments for w in (p, *_wrappers_in(p)))


def _placed(inner: BoundSymbol, context: Context | None, outer: BoundSymbol) -> BoundSymbol:
    """An operation from inside a class, under the user's line; it keeps the line of the class beside."""
    if inner.source == outer.source or outer.source is None:
        return inner.replace(context=context)
    return inner.replace(context=context, source=outer.source, handler=inner.source, module=outer.module)


def _writes_wrapper(bound: BoundSymbol) -> bool:
    """Whether an operation writes into a wrapper."""
    if bound.symbol.kind is Kind.ATEN:
        return bound.on_wrapper and ops.op_info(bound.symbol.fn).mutable
    return any(_writes_wrapper(inner) for inner in bound.subsymbols)


def _is_followed(bound: BoundSymbol, context: Context | None, kept: Kept = _NONE) -> bool:
    """Whether autograd follows an operation on wrappers, or the operation talks to autograd.

    A write that autograd follows reaches, through views, tensors that did not require a gradient before:
    with `kept.every` all operations on wrappers under grad mode stay, so that views are eager's own.
    """
    direct = bound.symbol.kind is Kind.ATEN and bound.context is not None  # sent by no function that was seen
    if not (direct or bound.symbol.kind in (Kind.FUNCTION, Kind.APPLY)) or not bound.has_wrapper:
        return False
    if getattr(bound.symbol.fn, "__name__", "") in _EFFECTS:
        return True
    if bound.symbol.kind is Kind.APPLY and any(_requires_grad(p) for _, b in bound.walk() for p in b.outputs):
        return True  # on its way out a Function settles which results autograd follows
    if kept.views and any(p.name in kept.views for p in bound.results):
        return True
    if context is None or not context.grad:  # also under no_grad a view says that it requires a gradient
        return any(_requires_grad(p) for p in bound.results) or (kept.every and _writes_wrapper(bound))
    return kept.every or any(_requires_grad(p) for p in (*bound.arguments, *bound.outputs))


def _differentiated(bound: BoundSymbol, context: Context | None) -> bool:
    """Whether autograd follows an operation on plain tensors."""
    grad = context is not None and context.grad
    return grad and any(_requires_grad(p) for p in (*bound.arguments, *bound.outputs))


def _requires_grad(proxy: Proxy) -> bool:
    return isinstance(proxy, TensorProxy) and proxy.requires_grad


def _without_modes(context: Context | None) -> Context | None:
    if context is None or not context.modes:
        return context
    return Context(context.grad, context.inference, context.autocast)


def _leaves_torch(bound: BoundSymbol) -> TraceError:
    return TraceError(
        f"a handler takes data out of torch with {bound.args[0]}, so it cannot be lowered",
        source=bound.source,
        cause="numbers computed outside torch would be frozen into the lowered trace",
        way_out="stay in torch ops inside __torch_dispatch__, or run `t` itself instead of lower(t)",
    )


def replayed(bound: BoundSymbol) -> BoundSymbol:
    """An operation that autograd follows, with a lowered step for each op that reaches a class.

    The plain ops and the constructors of its own code stand there as well: they run as they are.
    """
    inside = (_step(bound),) if bound.is_step else tuple(_inside(bound))
    return bound.replace(subsymbols=inside, replayed=True, effect=has_effect(bound))


def _inside(bound: BoundSymbol) -> Iterable[BoundSymbol]:
    for inner in bound.subsymbols:
        if inner.symbol.kind in (Kind.ATEN, Kind.CONSTRUCTOR):
            yield _step(inner) if inner.is_step else inner
        else:
            yield from _inside(inner)


def _step(bound: BoundSymbol) -> BoundSymbol:
    """An ATen op on wrappers with its handler's ops lowered."""
    inside = Context(handler=True)
    body = [b.replace(context=None) for inner in bound.subsymbols for b, _ in _unrolled(inner, inside)]
    body = _with_reads(body, bound.arguments, bound.outputs)
    return bound.replace(subsymbols=tuple(_live(body, bound.outputs, bound.arguments)))


# ------------------------------------------------------------------------------------ flatten inputs


def flatten_inputs(trace: Trace) -> Trace:
    """Read the inner tensors of wrapper inputs at the start; read nothing twice."""
    body = _with_reads(list(trace.bound_symbols), _outside(trace), list(trace.results))
    return _passed(trace, body, "flatten inputs: inner tensors read where their wrapper comes in")


def _outside(trace: Trace) -> list[Proxy]:
    return [*trace.inputs, *(capture.proxy for capture in trace.captures)]


def _with_reads(body: list[BoundSymbol], inputs: list[Proxy], output: list[Proxy]) -> list[BoundSymbol]:
    """The body with attribute reads for the inner tensors that it uses but does not compute."""
    given = {p.name for p in inputs}
    computed = given | {p.name for b in body if b.symbol is not ops.GETATTR for p in b.results}
    wanted = {p.name for b in body for p in uses(b)} | {p.name for p in output}
    wanted -= computed
    found: list[BoundSymbol] = []
    for proxy in inputs:
        found += _reads(proxy, wanted, given)
    for bound in body:
        if bound.symbol is ops.GETATTR:
            if bound.output.name in wanted:
                wanted.discard(bound.output.name)
                found.append(bound)
            continue
        found.append(bound)
        if bound.replayed or bound.at_class or bound.symbol.kind is Kind.FUNCTION:
            for proxy in bound.outputs if bound.at_class else bound.results:
                found += [read.replace(context=bound.context) for read in _reads(proxy, wanted, given)]
    return found


def uses(bound: BoundSymbol) -> Iterable[Proxy]:
    """What an operation needs: its arguments, and what the steps of a replayed one find outside."""
    yield from bound.arguments
    if bound.replayed:
        for step in bound.steps:
            own = {p.name for p in step.arguments}
            for inner in step.subsymbols:
                yield from (p for p in inner.arguments if p.name not in own)
                own.update(p.name for p in inner.outputs)


def _reads(proxy: Proxy, wanted: set[str], given: set[str]) -> list[BoundSymbol]:
    """Reads of those inner tensors of a wrapper that are wanted and not read yet; `given` ones have a name."""
    if not isinstance(proxy, SubclassTensorProxy):
        return []
    found: list[BoundSymbol] = []
    for attribute, part in proxy.inner:
        deeper = _reads(part, wanted, given)
        if part.name in wanted or (deeper and part.name not in given):
            wanted.discard(part.name)
            found.append(BoundSymbol(ops.GETATTR, (proxy, attribute), {}, part))
        found += deeper
    return found


# ---------------------------------------------------------------------------------------- dead code


def drop_dead_code(trace: Trace) -> Trace:
    """Drop operations whose results nobody uses, constructors among them."""
    kept = _live(list(trace.bound_symbols), list(trace.results), _outside(trace))
    dropped = len(trace.bound_symbols) - len(kept)
    return _passed(trace, kept, f"drop dead code: {dropped} of {len(trace.bound_symbols)} operations dropped")


def _wrappers_in(proxy: Proxy) -> Iterable[SubclassTensorProxy]:
    """The wrappers inside a wrapper, at any depth."""
    parts = proxy.parts() if isinstance(proxy, SubclassTensorProxy) else ()
    return (part for part in parts if isinstance(part, SubclassTensorProxy))


def _held(body: list[BoundSymbol], output: list[Proxy]) -> set[str]:
    """The wrappers inside those that a lowered trace builds, hands out or keeps for autograd."""
    users = [p for b in body if b.replayed or b.symbol.kind is Kind.CONSTRUCTOR for p in (*b.arguments, *b.outputs)]
    return {inner.name for proxy in (*users, *output) for inner in _wrappers_in(proxy)}


def _live(body: list[BoundSymbol], output: list[Proxy], inputs: list[Proxy]) -> list[BoundSymbol]:
    """The operations that the output needs, and those that have an effect."""
    outside = {p.name for proxy in inputs for p in (proxy, *_wrappers_in(proxy))}
    kept = _needed(body, output, outside)
    while held := _held(kept, output) - outside:  # what is set on an object shows in those that hold it
        outside |= held
        kept = _needed(body, output, outside)
    return kept


def _needed(body: list[BoundSymbol], output: list[Proxy], outside: set[str]) -> list[BoundSymbol]:
    """The operations that the output needs, where what is set on the objects in `outside` shows."""
    needed = {p.name for p in output}
    kept: list[BoundSymbol] = []
    for bound in reversed(body):
        if _is_needed(bound, needed, outside):
            kept.append(bound)
            needed.update(p.name for p in uses(bound))
    return kept[::-1]


def _is_needed(bound: BoundSymbol, needed: set[str], outside: set[str]) -> bool:
    if _is_prim(bound, ops.STATE_WRITES) or bound.symbol is ops.BUMP:
        return bound.args[0].name in outside | needed
    return any(p.name in needed for p in bound.results) or has_effect(bound)


def has_effect(bound: BoundSymbol) -> bool:
    """Whether an operation does more than give results: writes, draws, checks, talks to autograd."""
    if bound.effect or bound.checked or bound.symbol is ops.STORE:
        return True
    if any(isinstance(p, NumberProxy) and p.guarded for p in bound.outputs):
        return True
    name = getattr(bound.symbol.fn, "__name__", "")
    if bound.symbol.kind is Kind.FUNCTION and name in _EFFECTS:
        return True
    if bound.symbol.kind is Kind.ATEN:
        info = ops.op_info(bound.symbol.fn)
        if info.mutable or info.random or info.check:
            return True
        if not bound.results and bound.outputs and bound.symbol.fn is not ops.LIFT:
            return True  # it hands its argument on: it has done something to it, as a wait for a collective does
    return any(has_effect(inner) for inner in bound.subsymbols)


def _passed(trace: Trace, bound: list[BoundSymbol], line: str) -> Trace:
    return trace.replace(bound_symbols=tuple(bound), provenance=(*trace.provenance, line))
