"""Undo what a run does to all that is not copied: captured tensors, Python state, random state."""

from __future__ import annotations

import contextlib
import functools
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .errors import TraceError
from .intercept import flatten_tree, is_wrapper_type, set_version
from .outcome import Items, gradients, walk
from .outside import Outside
from .snapshot import Snapshot
from .trace import Trace

__all__ = ["captured_tensors", "generators", "given_back", "random_state", "torch_state"]

_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def captured_tensors(trace: Trace, outside: Outside) -> Items:
    """Tensors that are no arguments: those captured, those that the program can reach, the leaves behind them.

    A backward reaches the leaves behind a tensor that has a graph.
    """
    found = [(f"captured {c.path or c.proxy.name}", c.fetch()) for c in trace.captures]
    known = {id(tensor) for _, tensor in found}
    found += [(f"captured {path}", tensor) for path, tensor in outside.tensors if id(tensor) not in known]
    nodes = dict.fromkeys(tensor.grad_fn for _, tensor in found if tensor.grad_fn is not None)
    todo = list(nodes)
    for node in todo:
        deeper = [other for other, _ in node.next_functions if other is not None and other not in nodes]
        nodes.update(dict.fromkeys(deeper))
        todo += deeper
    leaves = [node.variable for node in nodes if type(node).__name__ == "AccumulateGrad"]
    return found + [(f"leaf {i} behind captured tensors", leaf) for i, leaf in enumerate(leaves)]


def generators(trace: Trace, given: Any, outside: Outside) -> list[torch.Generator]:
    """The random generators that a program can draw from, torch's own aside."""
    drawn = [leaf for bound in trace.bound_symbols for leaf in flatten_tree((bound.args, bound.kwargs))[0]]
    found = [g for g in (*flatten_tree(given)[0], *outside.generators, *drawn) if isinstance(g, torch.Generator)]
    return [g for g in dict.fromkeys(found) if g is not torch.default_generator]


def random_state(known: list[torch.Generator]) -> Items:
    """The state of every source of random numbers: torch's, Python's, and the generators given."""
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    states = torch.cuda.get_rng_state_all() if cuda else []
    own = [(f"generator {i}", generator.get_state()) for i, generator in enumerate(known)]
    devices = [(f"cuda:{i}", state) for i, state in enumerate(states)]
    python = [(name, hash(str([*map(_exact, read())]))) for name, read, _ in _python_sources()]
    return [("cpu", torch.get_rng_state()), *devices, *own, *python]


def torch_state() -> dict[str, Any]:
    """What holds for all of torch and can be left changed by a program."""
    return {name: read() for name, read, _ in _TORCH}


_TORCH: tuple[tuple[str, Callable[[], Any], Callable[[Any], Any]], ...] = (
    ("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    ("default dtype", torch.get_default_dtype, torch.set_default_dtype),
)


@contextlib.contextmanager
def given_back(captured: Items, outside: Outside, known: list[torch.Generator]) -> Iterator[None]:
    """Undo what a run does.

    Args:
        captured: Captured tensors: their memory, attributes, hooks and gradients are given back.
        outside: The Python state around the program.
        known: Random generators.

    Raises:
        TraceError: A tensor cannot be given back, since the run put a view into a graph.
    """
    tensors = [t for _, t in walk([*captured, *gradients(captured)]) if isinstance(t, torch.Tensor)]
    snapshot = _snapshot(tensors, known)
    undo = [*_settings(), *map(_hooks, tensors), *map(_without_strides, tensors)]
    try:
        yield
    finally:
        snapshot.restore()
        for step in undo:
            step()
        outside.give_back()
    if snapshot.left:
        raise TraceError(
            "a captured tensor cannot be given back: the run put it into a graph of autograd",
            way_out="pass it as an argument: arguments are copied",
        )


def _snapshot(tensors: Iterable[Any], known: list[torch.Generator]) -> Snapshot:
    snapshot = Snapshot()
    for generator in known:
        snapshot.watch_generator(generator)
    for tensor in tensors:
        if tensor.layout is torch.strided:
            snapshot.watch_object(tensor)
        if tensor.is_leaf:
            snapshot.watch_leaf(tensor)
        if not is_wrapper_type(type(tensor)) and not tensor.is_inference():
            snapshot.watch_memory(tensor)
            snapshot.remember(tensor)
    return snapshot


def _hooks(tensor: Any) -> Callable[[], None]:
    """Takes away the hooks that a run registers on a tensor."""
    before = {name: list(getattr(tensor, name) or ()) for name in _HOOKS}

    def undo() -> None:
        for name, keys in before.items():
            hooks = getattr(tensor, name) or {}
            for key in [key for key in hooks if key not in keys]:
                del hooks[key]

    return undo


def _without_strides(tensor: torch.Tensor) -> Callable[[], None]:
    """Gives a sparse tensor its values back."""
    if tensor.layout is torch.strided:
        return lambda: None
    before, version = tensor.detach().clone(), tensor._version

    def undo() -> None:
        if tensor._version != version:
            with torch.no_grad():
                tensor.copy_(before)
            set_version(tensor, version)

    return undo


def _settings() -> Iterator[Callable[[], Any]]:
    for _, read, write in (*_TORCH, *_python_sources()):
        yield functools.partial(write, read())


def _exact(part: Any) -> Any:
    return part.tobytes() if hasattr(part, "tobytes") else part


def _python_sources() -> list[tuple[str, Callable[[], Any], Callable[[Any], None]]]:
    """Random numbers of Python and numpy: how to read and to set their state."""
    found: list[tuple[str, Callable[[], Any], Callable[[Any], None]]] = [("python", random.getstate, random.setstate)]
    if (numpy := sys.modules.get("numpy.random")) is not None:
        found.append(("numpy", numpy.get_state, numpy.set_state))
    return found
