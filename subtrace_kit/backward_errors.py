"""Why a program has no backward, and which line is to blame where its backward fails."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch

from .causes import is_declined
from .errors import TraceError
from .proxies import NumberProxy, Proxy, TensorProxy
from .source import Source
from .symbols import BoundSymbol, Kind, proxies_in
from .trace import Trace

__all__ = ["BackwardError", "NoGradient", "cut_from_inputs", "from_data", "no_gradient", "under_forward_line"]


class NoGradient(TraceError):
    """A program without a backward: nothing requires a gradient, or its graph is cut."""


class BackwardError(TraceError):
    """An op of the backward that fails, told under the forward line that caused it."""

    in_class = False  # whether it was an op, not a hook or a Function of the user


# ---------------------------------------------------------------------------------- no gradient at all


def no_gradient(trace: Trace) -> NoGradient:
    """The error for a program none of whose results has a graph that leads to an input."""
    if not any(map(_follows, (*trace.inputs, *(capture.proxy for capture in trace.captures)))):
        return NoGradient(
            f"nothing in {trace.name} requires a gradient",
            cause="no input and no captured tensor requires one",
            way_out="call requires_grad_() on an input before tracing",
        )
    cuts = [*_cuts(trace)]
    where = f": the graph is cut at {cuts[0].symbol.name}" if cuts else ""
    return NoGradient(
        f"no gradient reaches the inputs of {trace.name}{where}",
        source=cuts[0].source if cuts else None,
        cause=_why(cuts[0]) if cuts else "the program returns nothing that it computes from what requires a gradient",
        way_out="build wrappers in the forward of an autograd.Function; take out detach(), no_grad() and the like",
    )


def cut_from_inputs(trace: Trace, gradients: Any) -> tuple[str, ...]:
    """A line of provenance where no gradient arrives at all."""
    if any(True for _ in proxies_in(gradients)):
        return ()
    cuts = [*_cuts(trace)]
    where = f": {_why(cuts[0])}, {cuts[0].source.place if cuts[0].source else cuts[0].symbol.name}" if cuts else ""
    return (f"no gradient arrives{where}",)


def _cuts(trace: Trace) -> Iterator[BoundSymbol]:
    """The operations, seen from the results, that take what requires a gradient and hand on nothing that follows it."""
    needed = {p.name for p in proxies_in(trace.output)}
    for bound in reversed(trace.bound_symbols):
        if not any(p.name in needed for p in bound.outputs):
            continue
        if any(map(_follows, bound.arguments)) and (
            bound.symbol.kind is Kind.CONSTRUCTOR or not any(map(_follows, bound.outputs))
        ):
            yield bound
        else:
            needed |= {p.name for p in bound.arguments}


def _follows(proxy: Proxy) -> bool:
    return isinstance(proxy, TensorProxy) and proxy.requires_grad


def _why(bound: BoundSymbol) -> str:
    if bound.symbol.kind is Kind.CONSTRUCTOR:
        return f"{bound.symbol.name} is called directly, which makes a new leaf"
    if bound.context is not None and not bound.context.grad:
        return f"{bound.symbol.name} runs under no_grad"
    return f"the result of {bound.symbol.name} has no gradient"


# --------------------------------------------------------------------------------- constants from data


def from_data(name: str, bound: BoundSymbol, number: NumberProxy) -> TraceError:
    """The error for a backward that would hold a number from made-up data."""
    return TraceError(
        f"the backward of {name} may hold a number that was taken out of a tensor ({bound.symbol.name})",
        source=bound.source,
        cause="autograd keeps a Python number as a constant: a backward with the number of another run would be wrong",
        way_out="keep it a 0-dim tensor; the gradients of the trace itself are right",
    )


# ---------------------------------------------------------------------------------- a backward that fails


def under_forward_line(error: TraceError) -> TraceError:
    """The error of a failing backward, told under the forward line that caused it."""
    if not error.failed or error.trace is None or error.trace.bound_symbols[-1].symbol.name != GRAD:
        return error
    failing = error.trace.bound_symbols[-1]
    while failing.subsymbols and not failing.module:
        failing = failing.subsymbols[-1]
    cause = error.__cause__
    missing = error.failed != GRAD and isinstance(cause, (NotImplementedError, TypeError))
    if (found := _function_to_blame(error)) is not None and not missing:
        told = _function_fails(cause, *found)
    elif error.failed == GRAD:
        told = _code_fails(error, failing)
    else:
        told = _op_fails(error, failing)
        told.in_class = True
    told.trace, told.inside = error.trace, error.inside
    return told


GRAD = "torch.autograd.grad"


def _op_fails(error: TraceError, failing: BoundSymbol) -> BackwardError:
    cause, way_out, reason = error.cause, error.way_out, error.__cause__
    if is_declined(reason) or (isinstance(reason, NotImplementedError) and "has no rule for" in cause):
        cause = "the class has a rule for the forward op but none for what its backward sends"
        way_out = f"add a rule for {failing.symbol.name} to the class, or wrap the op in an autograd.Function"
    return BackwardError(
        f"in the {failing.module or 'backward'}: {failing.symbol.name} fails: {told_by(error)}",
        source=failing.source,
        handler=error.handler,
        cause=cause,
        way_out=way_out,
    )


def told_by(error: TraceError) -> str:
    """What an error says, without the type of that which caused it."""
    return (error.__cause__ is not None and error.what.partition(": ")[2]) or error.what


def _code_fails(error: TraceError, last: BoundSymbol) -> BackwardError:
    cause = error.__cause__
    return BackwardError(
        f"the backward fails after {last.symbol.name}: {type(cause).__name__}: {cause}",
        source=last.source,
        handler=error.handler,
        cause="a hook, or a gradient of another shape or dtype than its tensor; it fails in eager as well",
        way_out="call torch.autograd.grad on the program without the kit",
    )


def _function_fails(cause: BaseException | None, bound: BoundSymbol, line: Source) -> BackwardError:
    name = bound.symbol.name.removesuffix(".apply")
    return BackwardError(
        f"{name}.backward fails: {type(cause).__name__}: {cause}",
        source=bound.source,
        handler=line,
        cause="an error in the backward of the autograd.Function itself; it fails in eager as well",
        way_out=f"mend {name}.backward; torch.autograd.grad on the program without the kit runs it, too",
    )


def _function_to_blame(error: TraceError) -> tuple[BoundSymbol, Source] | None:
    """The last call of the autograd.Function in whose backward the error was raised, and the line there."""
    assert error.trace is not None
    applied = [b for outer in error.trace.bound_symbols for _, b in outer.walk() if b.symbol.kind is Kind.APPLY]
    codes = {code: b for b in applied for code in _backward_codes(b.symbol.fn)}
    found, step = None, error.__cause__.__traceback__ if error.__cause__ else None
    while step is not None:
        code = step.tb_frame.f_code
        if code in codes:
            found = codes[code], Source(code.co_filename, step.tb_lineno, code.co_name)
        step = step.tb_next
    return found


def _backward_codes(cls: Any) -> Iterator[Any]:
    """The code of a Function's own backward, under any decorator."""
    for name in ("backward", "vjp"):
        function = inspect.unwrap(getattr(cls, name, None) or torch.autograd.Function.backward)
        if function is not getattr(torch.autograd.Function, name, None) and hasattr(function, "__code__"):
            yield function.__code__
