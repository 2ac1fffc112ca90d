"""The backward of a traced program, as a trace of its own."""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import torch

from .called import expect_trace
from .causes import is_declined
from .errors import TraceError
from .guards import Argument, Guard
from .intercept import build_wrapper, current_listener, flat_parts, flatten_tree, is_wrapper_type
from .made_inputs import make_arguments
from .proxies import Proxy, TensorProxy
from .symbols import BoundSymbol, Context
from .trace import Trace
from .tracing import record

__all__ = ["BackwardError", "backward"]

GRAD = "torch.autograd.grad"


def backward(trace: Trace) -> Trace:
    """What autograd runs for the gradients of a program, recorded on made-up inputs of its kind.

    Args:
        trace: What `subtrace_kit.trace` recorded.

    Returns:
        A trace whose inputs are the values that the forward saved, by name, and the gradients of the
        outputs, each of its output's own class; its operations stand under the forward line that
        caused them, and its result are the gradients of the inputs and captured tensors that require
        one (None where none arrives). It can be lowered.

    Raises:
        TraceError: Nothing requires a gradient, the program needs special values, or an op of the
            backward has no rule.

    Example:
        >>> import torch, subtrace_kit
        >>> t = subtrace_kit.trace(lambda x: x.sin())(torch.ones(2, requires_grad=True))
        >>> [b.symbol.name for b in subtrace_kit.backward(t).bound_symbols]
        ['aten.cos.default', 'aten.mul.Tensor']
    """
    expect_trace(trace, "backward")
    if trace.program is None:
        raise TraceError("this trace does not know its program", way_out="call backward on the trace before lowering")
    args, kwargs = make_arguments(trace.guard)
    try:
        joint = record(_joint(trace), args, kwargs, places=trace.program, backward=True)
    except TraceError as error:
        raise _under_forward_line(error) from error.__cause__
    grad = next((b for b in reversed(joint.bound_symbols) if b.symbol.name == GRAD), None)
    if grad is None:
        raise TraceError(
            f"nothing in {trace.name} requires a gradient",
            cause="no input and no captured tensor requires one, or the program runs under no_grad",
            way_out="call requires_grad_() on an input before tracing",
        )
    return _cut(trace, joint, grad)


class BackwardError(TraceError):
    """An op of the backward that fails, told under the forward line that caused it."""

    in_class = False  # whether it was an op, not a hook or a Function of the user


def _under_forward_line(error: TraceError) -> TraceError:
    if error.trace is None or not error.trace.bound_symbols or error.trace.bound_symbols[-1].symbol.name != GRAD:
        return error
    failing = error.trace.bound_symbols[-1]
    while failing.subsymbols and not failing.module:
        failing = failing.subsymbols[-1]
    where = failing.module or "backward"
    cause, way_out, reason = error.cause, error.way_out, error.__cause__
    if is_declined(reason) or (isinstance(reason, NotImplementedError) and "has no rule for" in cause):
        cause = "the class has a rule for the forward op but none for what its backward sends"
        way_out = f"add a rule for {failing.symbol.name} to the class, or wrap the op in an autograd.Function"
    told = BackwardError(
        f"in the {where}: {failing.symbol.name} fails: {told_by(error)}",
        source=failing.source,
        handler=error.handler,
        cause=cause,
        way_out=way_out,
    )
    told.trace, told.in_class, told.inside = error.trace, failing.symbol.name != GRAD, error.inside
    return told


def told_by(error: TraceError) -> str:
    """What an error says, without the type of that which caused it."""
    return (error.__cause__ is not None and error.what.partition(": ")[2]) or error.what


def _joint(trace: Trace) -> Any:
    """The program followed by torch.autograd.grad, with gradients of the outputs' own kinds."""
    leaves = [capture.fetch() for capture in trace.captures]

    def joint(*args: Any, **kwargs: Any) -> Any:
        out = trace.program(*args, **kwargs)  # type: ignore[misc]
        wanted = [t for t in (*flatten_tree((args, kwargs))[0], *leaves) if _follows(t)]
        live = [t for t in flatten_tree(out)[0] if _follows(t) and t.grad_fn is not None]
        if wanted and live:
            return torch.autograd.grad(live, wanted, [_tangent(t) for t in live], allow_unused=True)
        return out

    joint.__name__ = f"{trace.name}_backward"
    target = getattr(trace.program, "forward", trace.program)
    with contextlib.suppress(TypeError, ValueError):
        joint.__signature__ = inspect.signature(target)  # type: ignore[attr-defined,arg-type]
    return joint


def _follows(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _tangent(tensor: torch.Tensor) -> torch.Tensor:
    """A gradient of the tensor's own class, made without a trace of it."""
    recorder: Any = current_listener()
    with recorder.bookkeeping, torch.no_grad():
        made = _ones(tensor)
        recorder.store.capture(made, "grad_out")
        return made


def _ones(tensor: Any) -> torch.Tensor:
    if not is_wrapper_type(type(tensor)):
        return torch.ones_like(tensor)
    names, metadata = flat_parts(tensor)
    inner = {name: _ones(getattr(tensor, name)) for name in names}
    return build_wrapper(type(tensor), inner, metadata, tensor.shape, tensor.stride())


def _cut(trace: Trace, joint: Trace, grad: BoundSymbol) -> Trace:
    """The part of the joint trace that the call of autograd.grad is made of."""
    body = tuple(b.replace(context=b.context or Context(grad=False)) for b in grad.subsymbols)
    made: set[str] = set()
    inputs: dict[str, Proxy] = {}
    for bound in body:
        inputs |= {p.name: p for p in bound.arguments if p.name not in made and p.name not in inputs}
        made |= {p.name for p in bound.results}
    inputs |= {p.name: p for p in grad.results if p.name not in made}
    arguments = tuple(Argument(name, p) for name, p in inputs.items() if isinstance(p, TensorProxy))
    names = tuple(inputs)
    spec = flatten_tree((tuple(range(len(names))), {}))[1]
    context = Context(grad=False)
    guard = Guard(names, (), spec, arguments, context=context)
    line = f"backward of {trace.name}: {len(inputs)} saved values and gradients come in"
    return Trace(joint.name, guard, body, grad.output, (*trace.provenance, line), context=context)
