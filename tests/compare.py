"""One program in every form that the kit gives it, each equal to eager on fresh inputs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from same import assert_same, outcome, pictures
from torch.utils import _pytree as pytree

import subtrace_kit
from subtrace_kit import passes
from subtrace_kit.checker import check_trace


def parts(tree: Any) -> list[torch.Tensor]:
    """The tensors of a pytree and the tensors inside them, at any depth."""
    found = []
    for leaf in pytree.tree_leaves(tree):
        if isinstance(leaf, torch.Tensor):
            found.append(leaf)
            if hasattr(leaf, "__tensor_flatten__"):
                found += parts([getattr(leaf, name) for name in leaf.__tensor_flatten__()[0]])
    return found


def numbered(keys: Any) -> list[int]:
    """Equal numbers for equal keys, in order of first sight."""
    places: dict[Any, int] = {}
    return [places.setdefault(key, len(places)) for key in keys]


def ties(tree: Any) -> tuple[list[int], list[int]]:
    """Which tensors of a pytree are one object, and which plain ones share memory."""
    found = parts(tree)
    plain = [t for t in found if not hasattr(t, "__tensor_flatten__")]
    return numbered(map(id, found)), numbered(t.untyped_storage()._cdata for t in plain)


def attributes(tree: Any) -> list[dict[str, str]]:
    """Python attributes of the tensors of a pytree; torch itself keeps answers under `_sym_`."""
    return [
        {k: repr(v) for k, v in vars(t).items() if not isinstance(v, torch.Tensor) and not k.startswith("_sym_")}
        for t in parts(tree)
    ]


def result(program: Callable[..., Any], make: Callable[[int], tuple], seed: int) -> list[Any]:
    """Everything that a caller can see of one run: values, gradients, identities, shared memory, random state."""
    args, again = make(seed), make(seed)
    seen = outcome(program, args)
    torch.manual_seed(5)
    out = program(*again)
    return [seen, ties((again, out)), attributes((again, out)), torch.rand(1)]


def run_text(low: subtrace_kit.Trace) -> Callable[..., Any]:
    """The printed lowered trace as a function, made of its text and of torch alone."""
    text = str(low)
    code = [line.split("#")[0] for line in text.splitlines()]
    assert not any("subtrace_kit" in line.replace("subtrace_kit.zoo", "") for line in code)
    assert "Objects that cannot be written as text" not in text
    space: dict[str, Any] = {}
    exec(compile(text, "lowered.py", "exec"), space)
    captured = {c.proxy.name: c.fetch for c in low.captures}
    return lambda *args: space[low.name](*args, **{name: fetch() for name, fetch in captured.items()})


def stages(trace: subtrace_kit.Trace) -> list[subtrace_kit.Trace]:
    """The trace after each pass of lowering."""
    unrolled = passes.unroll(trace)
    flat = passes.flatten_inputs(unrolled)
    return [trace, flat, passes.drop_dead_code(flat), subtrace_kit.lower(trace)]


def assert_same_as_eager(
    fn: Callable[..., Any], make: Callable[[int], tuple], *, text: bool = True
) -> tuple[subtrace_kit.Trace, subtrace_kit.Trace]:
    """Record on one set of inputs; trace, lowered trace and its text give on others what eager gives.

    Args:
        fn: The program.
        make: Gives arguments for a seed, of one kind for all seeds.
        text: Whether the printed lowered trace can run by itself.

    Returns:
        The trace and the lowered trace.
    """
    args = make(0)
    objects, versions = parts(args), [t._version for t in parts(args)]
    before, held, state = pictures(args), attributes(args), torch.get_rng_state()
    trace = subtrace_kit.trace(fn)(*args)
    low = subtrace_kit.lower(trace)
    assert_same([pictures(args), attributes(args)], [before, held])
    assert all(now is then for now, then in zip(parts(args), objects, strict=True))
    assert [t._version for t in parts(args)] == versions
    assert all(t.grad is None for t in objects if t.is_leaf)
    assert torch.equal(torch.get_rng_state(), state)
    for stage in stages(trace):
        check_trace(stage)
        compile(str(stage), "trace.py", "exec")
    names = [p.name for p in chain(trace.inputs, (c.proxy for c in trace.captures))]
    assert len(set(names)) == len(names)
    for seed in (1, 2):
        wanted = result(fn, make, seed)
        for form in (trace, low, *([run_text(low)] if text else [])):
            found = result(form, make, seed)
            assert found[1:3] == wanted[1:3]
            assert_same(found[0], wanted[0])
            assert torch.equal(found[3], wanted[3])
    return trace, low
