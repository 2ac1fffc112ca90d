"""The backward of a traced program, as a trace of its own."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import torch

from . import ops
from .backward_errors import NoGradient, cut_from_inputs, from_data, no_gradient, under_forward_line
from .called import expect_trace, expect_whole
from .errors import TraceError
from .guards import Argument, Guard
from .intercept import build_wrapper, current_listener, flat_parts, flatten_tree, is_wrapper_type
from .made_inputs import make_arguments
from .one_by_one import OneByOne
from .proxies import NumberProxy, Proxy, SubclassTensorProxy, TensorProxy
from .symbols import BoundSymbol, Context, map_tree, proxies_in
from .trace import Trace
from .tracing import record

__all__ = ["TANGENT", "backward", "cut_backward", "free_guard", "quiet", "without_flag"]

TANGENT = "grad_out"


def backward(trace: Trace) -> Trace:
    """What autograd runs for the gradients of a program, recorded on made-up inputs of its kind.

    Args:
        trace: What `subtrace_kit.trace` recorded.

    Returns:
        A trace whose inputs are the values that the forward saved, by name, and the gradients of the
        outputs, each of its output's own class; its operations stand under the forward line that
        caused them, and its result are the gradients of the inputs and captured tensors that require
        one (None where none arrives). It can be called with such values, whether they require a
        gradient or not, lowered, and verified: eager is then its ops, sent to their classes one by one.

    Raises:
        TraceError: Nothing requires a gradient, no result has a graph (the error says where it is cut),
            the program needs special values, an op of the backward has no rule, or a number taken out
            of a tensor goes into it.

    Example:
        >>> import torch, subtrace_kit
        >>> t = subtrace_kit.trace(lambda x: x.sin())(torch.ones(2, requires_grad=True))
        >>> [b.symbol.name for b in subtrace_kit.backward(t).bound_symbols]
        ['aten.cos.default', 'aten.mul.Tensor']
    """
    expect_trace(trace, "backward")
    expect_whole(trace, "differentiated")
    if trace.program is None:
        raise TraceError("this trace does not know its program", way_out="call backward on the trace before lowering")
    if trace.guard.free:
        raise TraceError(
            f"{trace.name} is a backward already",
            way_out="trace a program that calls torch.autograd.grad(..., create_graph=True), and take its backward",
        )
    args, kwargs = make_arguments(trace.guard)
    try:
        joint = record(_joint(trace), args, kwargs, places=trace.program, backward=True)
    except NoGradient:
        raise
    except TraceError as error:
        raise under_forward_line(error) from error.__cause__
    if found := [*_numbers(joint.bound_symbols[:-1])]:
        raise from_data(trace.name, *found[0])
    return cut_backward(trace, joint, joint.bound_symbols[-1])


def _numbers(body: Any) -> Iterator[tuple[BoundSymbol, NumberProxy]]:
    """The numbers from data that something depends on where no op shows it: autograd keeps them as constants."""
    for outer in body:
        for _, bound in outer.walk():
            asked = bound.symbol.name.rpartition(".__get__")[0].rpartition(".")[2] in ops.QUESTIONS
            yield from ((bound, p) for p in bound.outputs if isinstance(p, NumberProxy) and p.guarded and not asked)


def _joint(trace: Trace) -> Any:
    """The program followed by torch.autograd.grad, with gradients of the outputs' own kinds."""
    leaves = [capture.fetch() for capture in trace.captures]

    def joint(*args: Any, **kwargs: Any) -> Any:
        with _under(trace.context):
            out = trace.program(*args, **kwargs)  # type: ignore[misc]
        wanted = [t for t in (*flatten_tree((args, kwargs))[0], *leaves) if _follows(t)]
        live = [t for t in flatten_tree(out)[0] if _follows(t) and t.grad_fn is not None]
        if not (wanted and live):
            raise no_gradient(trace)
        return torch.autograd.grad(live, wanted, [_tangent(t) for t in live], allow_unused=True)

    joint.__name__ = f"{trace.name}_backward"
    target = getattr(trace.program, "forward", trace.program)
    with contextlib.suppress(TypeError, ValueError):
        joint.__signature__ = inspect.signature(target)  # type: ignore[attr-defined,arg-type]
    return joint


@contextlib.contextmanager
def _under(context: Context) -> Iterator[None]:
    """The global state that a program was recorded under."""
    with contextlib.ExitStack() as stack:
        if context.inference:
            stack.enter_context(torch.inference_mode())
        stack.enter_context(torch.set_grad_enabled(context.grad))
        for kind, dtype, cached in context.autocast:
            stack.enter_context(torch.autocast(kind, dtype=dtype, cache_enabled=cached))
        yield


def _follows(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _tangent(tensor: torch.Tensor) -> torch.Tensor:
    """A gradient of the tensor's own class, made without a trace of it."""
    recorder: Any = current_listener()
    with recorder.bookkeeping, torch.no_grad():
        made = _ones(tensor)
        recorder.store.capture(made, TANGENT)
        return made


def _ones(tensor: Any) -> torch.Tensor:
    if not is_wrapper_type(type(tensor)):
        return torch.ones_like(tensor)
    names, metadata = flat_parts(tensor)
    inner = {name: _ones(getattr(tensor, name)) for name in names}
    return build_wrapper(type(tensor), inner, metadata, tensor.shape, tensor.stride())


def cut_backward(trace: Trace, joint: Trace, grad: BoundSymbol) -> Trace:
    """The part of the joint trace that the call of autograd.grad is made of."""
    context = Context(grad=False)
    body = tuple(quiet(b).replace(context=b.context or context) for b in grad.subsymbols)
    output = map_tree(without_flag, grad.output)
    tangents = [without_flag(capture.proxy) for capture in joint.captures if capture.path == TANGENT]
    body = _with_reads(body, tangents, output, context)
    inputs = _inputs(body, output)
    guard = free_guard(list(inputs.values()), context)
    line = f"backward of {trace.name}: {len(inputs)} saved values and gradients come in"
    lines = (*trace.provenance, line, *cut_from_inputs(trace, output))
    found = Trace(joint.name, guard, body, output, lines, context=context)
    return found.replace(program=OneByOne(found))


def free_guard(inputs: list[Proxy], context: Context) -> Guard:
    """The kind of inputs that a backward takes, by position."""
    arguments = tuple(Argument(p.name, p) for p in inputs if isinstance(p, TensorProxy))
    spec = flatten_tree((tuple(range(len(inputs))), {}))[1]
    return Guard(tuple(p.name for p in inputs), (), spec, arguments, context=context, free=True)


def _inputs(body: tuple[BoundSymbol, ...], output: Any) -> dict[str, Proxy]:
    """What operations and result use and no operation makes, by name."""
    made: set[str] = set()
    inputs: dict[str, Proxy] = {}
    for bound in body:
        inputs |= {p.name: p for p in bound.arguments if p.name not in made and p.name not in inputs}
        made |= {p.name for p in bound.results}
    return inputs | {p.name: p for p in proxies_in(output) if p.name not in made and p.name not in inputs}


def _with_reads(body: tuple[BoundSymbol, ...], tangents: list[Any], output: Any, context: Context) -> Any:
    """The body with reads of what it uses of the inside of wrappers: of those that come in, and of those it makes."""
    wanted = _inputs(body, output)
    found = _reads([*tangents, *wanted.values()], wanted, context)
    for bound in body:
        found += [bound, *_reads(bound.results, wanted, context)]
    return tuple(found)


def _reads(wrappers: list[Any], wanted: dict[str, Proxy], context: Context) -> list[BoundSymbol]:
    """Reads of what is wanted inside wrappers, at any depth, each once."""
    found = []
    for proxy in wrappers:
        for attribute, part in proxy.inner if isinstance(proxy, SubclassTensorProxy) else ():
            needed = wanted.pop(part.name, None)
            deeper = _reads([part], wanted, context)
            if needed is not None or deeper:
                found += [BoundSymbol(ops.GETATTR, (proxy, attribute), {}, part, context=context), *deeper]
    return found


def quiet(bound: BoundSymbol) -> BoundSymbol:
    """An operation of the backward as it runs under no_grad: nothing in it requires a gradient."""
    return bound.replace(
        args=map_tree(without_flag, bound.args),
        kwargs=map_tree(without_flag, bound.kwargs),
        output=map_tree(without_flag, bound.output),
        subsymbols=tuple(map(quiet, bound.subsymbols)),
    )


def without_flag(value: Any) -> Any:
    if not isinstance(value, TensorProxy):
        return value
    if isinstance(value, SubclassTensorProxy):
        value = dataclasses.replace(value, inner=tuple((name, without_flag(part)) for name, part in value.inner))
    return dataclasses.replace(value, requires_grad=False) if value.requires_grad else value
