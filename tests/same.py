"""Eager, trace and lowered trace side by side, on fresh inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

import subtrace_kit
from subtrace_kit import passes
from subtrace_kit.checker import check_trace


def picture(value: Any) -> Any:
    """All that a caller can see of a value, as plain Python and cloned plain tensors."""
    if not isinstance(value, torch.Tensor):
        return value
    seen: dict[str, Any] = {
        "class": type(value),
        "facts": (tuple(value.shape), value.dtype, value.stride(), value.storage_offset(), value.requires_grad),
    }
    if hasattr(value, "__tensor_flatten__"):
        names, metadata = value.__tensor_flatten__()
        return seen | {"metadata": metadata, "inner": {name: picture(getattr(value, name)) for name in names}}
    return seen | {"value": value.detach().clone()}


def pictures(tree: Any) -> list[Any]:
    """The pictures of the leaves of a pytree."""
    return [picture(leaf) for leaf in pytree.tree_leaves(tree)]


def assert_same(found: Any, wanted: Any, tolerance: float = 0) -> None:
    """Two pictures are alike, tensors bit for bit, or within a tolerance."""
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted:
            assert_same(found[key], wanted[key], tolerance)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_same(one, other, tolerance)
    else:
        assert found == wanted


def outcome(program: Callable[..., Any], args: tuple) -> dict[str, Any]:
    """Run a program and take the backward: results, arguments afterwards, gradients."""
    torch.manual_seed(3)
    out = program(*args)
    seen = {"out": pictures(out), "structure": str(pytree.tree_structure(out))}
    live = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.grad_fn is not None]
    for tensor in live:
        tensor.sum().backward(retain_graph=True)
    leaves = [t for t in pytree.tree_leaves(args) if isinstance(t, torch.Tensor) and t.is_leaf]
    return seen | {"args": pictures(args), "grads": pictures([t.grad for t in leaves])}


def trace_and_lower(fn: Callable[..., Any], make: Callable[[int], tuple]) -> tuple[Any, Any]:
    """Record on one set of inputs, run on another, compare with eager.

    Args:
        fn: The program.
        make: Gives inputs for a seed, of one kind for all seeds.

    Returns:
        The trace and the lowered trace.
    """
    args = make(0)
    before, state = pictures(args), torch.get_rng_state()
    trace = subtrace_kit.trace(fn)(*args)
    low = subtrace_kit.lower(trace)
    assert_same(pictures(args), before)
    assert torch.equal(torch.get_rng_state(), state)
    for step in (trace, passes.unroll(trace), low):
        compile(str(step), "trace", "exec")
    for step in (trace, passes.flatten_inputs(passes.unroll(trace)), low):
        check_trace(step)
    wanted = outcome(fn, make(1))
    assert_same(outcome(trace, make(1)), wanted)
    assert_same(outcome(low, make(1)), wanted)
    return trace, low
