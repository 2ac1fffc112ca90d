"""One side of the comparison: a run of eager or of the trace on copies, and what it leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from .copies import Given, copy_arguments
from .guards import argument_paths
from .intercept import build_wrapper, flat_parts, flatten_tree, is_wrapper_type
from .outcome import Items, Outcome, all_facts, gradients, look, tree_facts, walk
from .outside import Outside
from .sent_ops import SentOps
from .shown import message
from .trace import Trace
from .undo import captured_tensors, generators, given_back, random_state, torch_state

__all__ = ["Side"]


class Side:
    """Eager or the trace, ready to run any number of times from the same state.

    Args:
        call: The program or the trace.
        trace: The trace.
        given: The arguments; each run gets copies.
        backward: Whether a backward is run from the results that require a gradient.
    """

    def __init__(self, call: Callable[..., Any], trace: Trace, given: Given, backward: bool) -> None:
        self.call, self.trace, self.given, self.backward = call, trace, given, backward

    def outcome(self) -> Outcome:
        """Run, look at all that the run leaves, and undo it. A run that fails has the section `error` only."""
        return self._run(None)

    def sent(self) -> Outcome:
        """Run again, and note the ops that reach each class."""
        ops = SentOps()
        seen = self._run(ops)
        if "error" in seen:
            ops.sent["then"] = {"op": seen["error"]["run"]["error"]}
        return {"ops": ops.sent}

    def _run(self, ops: SentOps | None) -> Outcome:
        outside = Outside(self.trace.program)
        captured = captured_tensors(self.trace, outside)
        torch_before = torch_state()
        known = generators(self.trace, self.given, outside)
        with given_back(captured, outside, known):
            args, kwargs = copy_arguments(self.trace, self.given, [t for _, t in walk(captured)])
            before = [*self._arguments(args, kwargs), *captured]
            try:
                with _noting(ops):
                    out = self.call(*args, **kwargs)
            except Exception as error:
                return {"error": {"run": {"error": _told(error)}}}
            seen = look(self._arguments(args, kwargs), captured, out)
            settings = [(f"torch {k}", v) for k, v in torch_state().items() if v != torch_before[k]]
            seen["Python state"] = tree_facts([*outside.changes(), *settings])
            seen |= _Gradients(before, out).facts(ops) if self.backward else _no_gradients(before)
            seen["random state"] = {name: {"values": state} for name, state in random_state(known)}
            return seen

    def _arguments(self, args: tuple, kwargs: dict) -> Items:
        paths = argument_paths(args, kwargs, self.trace.guard.positional)
        return list(zip(paths, flatten_tree((args, kwargs))[0], strict=True))


def _noting(ops: SentOps | None) -> Any:
    return ops.modes.ops if ops else contextlib.nullcontext()


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {message(error)}".splitlines()[0]


def _no_gradients(before: Items) -> Outcome:
    nothing = {"backward": {"error": ""}}
    return {"backward": nothing, "gradients": all_facts(gradients(before)), "second": nothing, "second gradients": {}}


class _Gradients:
    """What a backward from all results gives, and one through that backward.

    Args:
        before: The values as they were before the run: gradients arrive there.
        out: The result.
    """

    def __init__(self, before: Items, out: Any) -> None:
        self.before = before
        self.leaves = [t for t in flatten_tree(out)[0] if isinstance(t, torch.Tensor) and t.grad_fn is not None]
        self.numbers = torch.Generator().manual_seed(0)

    def facts(self, ops: SentOps | None) -> Outcome:
        """Gradients by path, in the order in which they are taken, and the errors on the way."""
        failed = _error(lambda: self._backward(ops))
        seen = {"backward": {"backward": {"error": failed}}, "gradients": all_facts(gradients(self.before))}
        second: Items = []
        failed = "" if failed or ops else _error(lambda: second.extend(self._second()))
        return seen | {"second": {"backward": {"error": failed}}, "second gradients": all_facts(second)}

    def _backward(self, ops: SentOps | None) -> None:
        grads = self._tangents(self.leaves)
        with _noting(ops):
            torch.autograd.backward(self.leaves, grads, retain_graph=True)  # Captured tensors can have a user's graph.

    def _second(self) -> Items:
        """Gradients of the gradients; nothing where no graph leads there."""
        inputs = [t for _, t in walk(self.before) if isinstance(t, torch.Tensor) and t.requires_grad]
        if not self.leaves or not inputs:
            return []
        given = [tangent.requires_grad_() for tangent in self._tangents(self.leaves)]
        first = torch.autograd.grad(self.leaves, inputs, given, create_graph=True, allow_unused=True)
        live = [t for t in first if t is not None and t.grad_fn is not None]
        if not live:
            return []
        for tensor in inputs:
            tensor.grad = None
        torch.autograd.backward(live, self._tangents(live), retain_graph=True)  # Reaches nodes that only raise, too.
        return gradients(self.before)

    def _tangents(self, tensors: list[Any]) -> list[Any]:
        with torch.no_grad():
            return [_tangent(tensor, self.numbers) for tensor in tensors]


def _error(call: Callable[[], None]) -> str:
    try:
        call()
    except Exception as error:
        return _told(error)
    return ""


def _tangent(tensor: Any, numbers: torch.Generator) -> Any:
    """A random gradient of a tensor's own class; inner tensors that are no floats keep their values."""
    if is_wrapper_type(type(tensor)):
        names, metadata = flat_parts(tensor)
        inner = {name: _tangent(getattr(tensor, name), numbers) for name in names}
        return build_wrapper(type(tensor), inner, metadata, tensor.size(), tensor.stride())
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor  # The very tensor: ragged sizes belong to their offsets.
    kind = torch.complex64 if tensor.is_complex() else torch.float32
    values = torch.randn(tensor.shape, generator=numbers, dtype=kind)
    return torch.empty_like(tensor, requires_grad=False).copy_(values)
