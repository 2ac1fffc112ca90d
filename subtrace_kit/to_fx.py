"""to_fx: a lowered trace as a torch.fx.GraphModule on plain tensors."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from . import ops
from .called import expect_trace
from .errors import TraceError
from .intercept import flatten_tree, is_custom_node
from .passes import AUTOGRAD
from .proxies import NumberProxy, Proxy, SubclassTensorProxy, TensorProxy
from .running import runner
from .symbols import BoundSymbol, Kind
from .trace import Trace

__all__ = ["PLAIN_VALUES", "inexpressible", "is_constant", "leaf_ops", "to_fx"]


@dataclass(frozen=True)
class Flatten:
    """The plain tensors in the arguments of a program, in the order in which its graph takes them.

    Args:
        ways: For each of them, the index of the leaf of the arguments, and the attributes from there.
    """

    ways: tuple[tuple[int, tuple[str, ...]], ...]

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """The tensors of these arguments."""
        leaves = flatten_tree((args, kwargs))[0]
        return tuple(functools.reduce(getattr, way, leaves[index]) for index, way in self.ways)


def to_fx(lowered: Trace) -> torch.fx.GraphModule:
    """A lowered trace as an FX graph of ATEN ops, as torch.export and other compilers take it.

    Args:
        lowered: What `subtrace_kit.lower` made.

    Returns:
        A module of the plain tensors in the arguments, those inside wrappers each by itself; `meta["inputs"]` names
        them in order, and `meta["flatten"](*args)` takes them out of arguments. Captured tensors are its parameters
        and buffers, by reference. It returns what the program returns, a dict of the inner tensors in place of
        each wrapper. The guards of the trace are not part of it.

    Raises:
        TraceError: The trace is not lowered, or does something that such a graph cannot say: an operation that
            autograd follows on wrapper objects, a check of data, a write into Python objects.

    Example:
        >>> import torch, subtrace_kit
        >>> from subtrace_kit.zoo import TwoTensor
        >>> pair = TwoTensor(torch.ones(2), torch.zeros(2))
        >>> module = subtrace_kit.to_fx(subtrace_kit.lower(subtrace_kit.trace(lambda t: t + 1)(pair)))
        >>> module.meta["inputs"]
        ('t.a', 't.b')
        >>> module(*module.meta["flatten"](pair))
        {'a': tensor([2., 2.]), 'b': tensor([1., 1.])}
        >>> exported = torch.export.export(module, module.meta["flatten"](pair))
    """
    expect_trace(lowered, "to_fx")
    if lowered.failure:
        raise TraceError("the trace of a failed program is no graph", way_out="mend the program first")
    return _Writer(lowered).module()


class _Writer:
    """Writes the nodes of one graph."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.graph = torch.fx.Graph()
        self.values: dict[str, Any] = {}  # name in the trace -> node, or a dict of nodes for a wrapper
        self.attributes: dict[str, torch.Tensor] = {}
        self.inputs: dict[str, tuple[int, tuple[str, ...]]] = {}
        self.grad = trace.context.grad

    def module(self) -> torch.fx.GraphModule:
        """The whole graph."""
        self.take_arguments()
        self.take_captures()
        for bound in self.trace.bound_symbols:
            self.write(bound)
        self.set_grad(self.trace.context.grad)
        self.graph.output(self.given(self.trace.output, None))
        self.graph.lint()
        module = torch.fx.GraphModule(self.attributes, self.graph, self.trace.name)
        module.meta = {"inputs": tuple(self.inputs), "flatten": Flatten(tuple(self.inputs.values()))}
        return module

    # ------------------------------------------------------------------------------------- from outside

    def take_arguments(self) -> None:
        """A placeholder for each plain tensor in the arguments."""
        for index, argument in enumerate(self.trace.guard.arguments):
            for way, proxy in _plain_parts(argument.proxy) if argument.proxy is not None else ():
                if proxy.name not in self.values:
                    self.inputs[".".join((argument.path, *way))] = index, way
                    self.values[proxy.name] = self.graph.placeholder(proxy.name)
            self.note_wrapper(argument.proxy)

    def take_captures(self) -> None:
        """An attribute for each plain tensor among the captured ones."""
        found = runner(self.trace).captured() if self.trace.captures else {}
        for capture in self.trace.captures:
            for way, proxy in _plain_parts(capture.proxy):
                if proxy.name not in self.values:
                    name = f"captured_{proxy.name}"
                    self.attributes[name] = functools.reduce(getattr, way, found[capture.proxy.name])
                    self.values[proxy.name] = self.graph.create_node("get_attr", name)
            self.note_wrapper(capture.proxy)

    def note_wrapper(self, proxy: Any) -> None:
        """A wrapper whose inner tensors are known is a dict of them."""
        if isinstance(proxy, SubclassTensorProxy) and proxy.name not in self.values:
            for _, part in proxy.inner:
                self.note_wrapper(part)
            self.values[proxy.name] = {attribute: self.values[part.name] for attribute, part in proxy.inner}

    # --------------------------------------------------------------------------------------- operations

    def write(self, bound: BoundSymbol) -> None:
        """The nodes of one operation."""
        if is_constant(bound):
            self.attributes[bound.output.name] = torch.tensor(*bound.args, **bound.kwargs)
            constant = self.graph.create_node("get_attr", bound.output.name)
            self.values[bound.output.name] = self.graph.call_function(torch.ops.aten.clone.default, (constant,))
        elif (why := inexpressible(bound)) is not None:
            raise _refused(bound, *why)
        elif bound.symbol is ops.GETATTR:
            owner = self.values.get(bound.args[0].name)
            if not isinstance(owner, dict):
                raise _refused(bound, "reads the inner tensor of a wrapper that no constructor of the trace built")
            self.values[bound.output.name] = owner[bound.args[1]]
        elif bound.symbol.kind is Kind.CONSTRUCTOR:
            self.note_wrapper(bound.output)
        elif bound.symbol is not ops.BUMP:  # without wrapper objects they have no version
            for leaf in leaf_ops(bound):
                self.call(leaf, bound)

    def call(self, leaf: BoundSymbol, outer: BoundSymbol) -> None:
        """The node of one op, and those that take its results apart."""
        context = outer.context or self.trace.context
        if any(isinstance(p, TensorProxy) and p.requires_grad for p in leaf.arguments):
            self.set_grad(context.grad and not context.handler)
        args, kwargs = self.given(leaf.args, outer), self.given(leaf.kwargs, outer)
        node = self.graph.call_function(leaf.symbol.fn, args, kwargs)
        if outer.source is not None:
            node.stack_trace = f'  File "{outer.source.file}", line {outer.source.line}, in {outer.source.function}'
        self.take_results(leaf.output, node)

    def take_results(self, output: Any, node: torch.fx.Node) -> None:
        """Names for the results of a node."""
        if isinstance(output, Proxy):
            self.values.setdefault(output.name, node)
        elif isinstance(output, (list, tuple)):
            for index, item in enumerate(output):
                if isinstance(item, Proxy) and item.name in self.values:
                    continue
                self.take_results(item, self.graph.call_function(operator.getitem, (node, index)))

    def set_grad(self, on: bool) -> None:
        """Switch the grad mode of the graph."""
        if on is not self.grad:
            self.grad = on
            self.graph.call_function(torch._C._set_grad_enabled, (on,))

    def given(self, value: Any, bound: BoundSymbol | None) -> Any:
        """An argument or a result, with nodes in place of proxies."""
        if isinstance(value, SubclassTensorProxy) and bound is not None:
            raise _refused(bound, f"takes {value.name}, a {value.cls.__name__}", "subtrace_kit.to_fx(lower(t))")
        if isinstance(value, Proxy):
            if value.name not in self.values:
                raise _refused(bound, f"takes {value.name}, which is no plain tensor of the trace")
            return self.values[value.name]
        if type(value) is dict:
            return {key: self.given(item, bound) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(*(self.given(part, bound) for part in (value.start, value.stop, value.step)))
        if isinstance(value, (list, tuple)) and not is_odd(value):
            items = [self.given(item, bound) for item in value]
            return items if isinstance(value, list) else tuple(items)
        if value is not None and not isinstance(value, PLAIN_VALUES):
            what = f"takes a {type(value).__name__}" if bound is not None else f"returns a {type(value).__name__}"
            raise _refused(bound, f"{what}, which a graph cannot hold")
        return value


PLAIN_VALUES = (bool, int, float, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format)


def is_odd(value: Any) -> bool:
    """Whether a list or tuple is of a class of its own; sizes are tuples."""
    return not isinstance(value, torch.Size) and (type(value) not in (list, tuple) or is_custom_node(value))


def _plain_parts(proxy: TensorProxy) -> Iterator[tuple[tuple[str, ...], TensorProxy]]:
    """The plain tensors of an argument, each with the attributes that lead to it."""
    if isinstance(proxy, SubclassTensorProxy):
        yield from proxy.leaves()
    else:
        yield (), proxy


def leaf_ops(bound: BoundSymbol) -> list[BoundSymbol]:
    """The ops that an operation on plain tensors is made of, in order."""
    if bound.symbol.kind is Kind.ATEN or not bound.subsymbols:
        return [bound] if bound.symbol.kind is Kind.ATEN or bound.results else []
    return [leaf for inner in bound.subsymbols for leaf in leaf_ops(inner)]


# ------------------------------------------------------------------------------------------- refusals


def inexpressible(bound: BoundSymbol) -> tuple[str, ...] | None:
    """What a graph cannot say of an operation, and the way out; None where it can be said."""
    if bound.replayed or bound.at_class:
        return "stays on wrapper objects: autograd follows it, or its class takes a number", _NO_GRAD
    if any(p.guarded if isinstance(p, NumberProxy) else bound.checked for p in bound.outputs):
        return "has a result that the trace compares with the recorded one", "keep such numbers in 0-dim tensors"
    if bound.context is not None and bound.context.modes:
        return "runs under a dispatch mode of the program", "leave the mode before"
    if _computes_with_number(bound):
        return "computes with a number from data", "keep the number a 0-dim tensor: leave .item() out"
    if bound.symbol in (ops.GETATTR, ops.BUMP) or bound.symbol.kind is Kind.CONSTRUCTOR:
        return None
    if bound.symbol.kind is Kind.PRIM:
        return "writes into a Python object", "return the value instead"
    if bound.symbol.kind is Kind.APPLY:
        return "is an autograd.Function", _NO_GRAD
    if getattr(bound.symbol.fn, "__name__", "") in ops.EFFECTS | AUTOGRAD:
        return ("does what no ATEN op shows",)
    leaves = leaf_ops(bound)
    shown = {p.name for leaf in leaves for p in leaf.results} >= {p.name for p in bound.results}
    return None if shown and all(leaf.symbol.kind is Kind.ATEN for leaf in leaves) else ("has no ATEN ops below it",)


def is_constant(bound: BoundSymbol) -> bool:
    """Whether an operation makes a tensor of Python data: `torch.tensor`."""
    return bound.symbol.fn is torch.tensor and not bound.arguments


def _computes_with_number(bound: BoundSymbol) -> bool:
    """Whether an operation takes a number from data, given to it or read inside: the ops below know a constant."""
    if any(isinstance(p, NumberProxy) for p in bound.arguments):
        return True
    reads = any(leaf.symbol.kind is Kind.ATEN and ops.op_info(leaf.symbol.fn).reads for leaf in leaf_ops(bound))
    return reads and not all(isinstance(p, NumberProxy) for p in bound.outputs)


_NO_GRAD = "record the program under torch.no_grad(), on tensors that need no gradient"


def _refused(bound: BoundSymbol | None, why: str, way_out: str = "") -> TraceError:
    what = f"{bound.symbol.name} {why}" if bound is not None else f"the program {why}"
    return TraceError(
        f"to_fx: {what}",
        source=bound.source if bound is not None else None,
        cause="a torch.fx graph of plain tensors holds ATEN ops, numbers, lists, tuples and dicts alone",
        way_out=way_out or "run the lowered trace itself",
    )
