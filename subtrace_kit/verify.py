"""verify: run a program and its trace on equal inputs, and compare all that a caller can see.

verify() -> _rows -> a run of each side      _run, on copies made by _Copier
                       -> what it leaves     _look: facts by path, taken before anything is undone
                  -> side by side            report.Comparison -> Check
                  -> again, noting the ops   _Ops
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .errors import TraceError
from .guards import argument_paths, tensor_fields
from .intercept import (
    Modes,
    OpOverload,
    flatten_tree,
    flatten_with_path,
    is_wrapper_type,
    no_torch_function,
    unflatten_tree,
)
from .made_inputs import make_arguments
from .ops import op_info
from .report import DIFFERS, FACTS, SKIPPED, Check, Comparison, Facts, Outcome, Report
from .snapshot import Snapshot
from .trace import Trace
from .wrapper_state import State, read_state, write_state

__all__ = ["verify"]

Given = tuple[tuple[Any, ...], dict[str, Any]]
Items = list[tuple[str, Any]]


def verify(
    trace: Trace, /, *args: Any, backward: bool = True, raises: bool = False, rtol: float = 0.0, atol: float = 0.0,
    **kwargs: Any,
) -> Report:  # fmt: skip
    """Run eager and a trace side by side, and compare all that a caller can see.

    Both run on copies of the arguments and with the same random state, twice: the second time the ops
    that reach each class are noted. Arguments, captured tensors and random state stay as they are.

    Args:
        trace: What `subtrace_kit.trace` recorded, or a pass made of it.
        *args: The program's arguments; without any, random ones of the recorded kind are made up.
        backward: Whether a backward is run from the results that require a gradient.
        raises: Whether a difference raises.
        rtol: Relative tolerance for values; those within it are reported as `close`.
        atol: Absolute tolerance for values.
        **kwargs: The program's keyword arguments.

    Returns:
        A report: `ok`, one row a check, readable as text and in a notebook.

    Raises:
        TraceError: The trace is that of a failed program or does not know its program, the arguments
            are not of its kind or cannot be copied or made up, eager fails, or, with `raises`, a
            check differs.

    Example:
        >>> import torch, subtrace_kit
        >>> t = subtrace_kit.trace(lambda x: x.t() + 1)(torch.ones(2, 3))
        >>> subtrace_kit.verify(t, torch.ones(2, 3)).ok
        True
    """
    if trace.failure or trace.program is None:
        raise TraceError("this trace has no program to compare with", way_out="verify a trace that trace() returned")
    given = (args, kwargs) if args or kwargs or not trace.guard.arguments else _made_up(trace)
    trace.guard.check(*given)
    report = Report(trace.name, tuple(_rows(trace, given, backward, (rtol, atol))))
    if raises:
        report.raise_if_wrong()
    return report


# --------------------------------------------------------------------------------------------- inputs


def _made_up(trace: Trace) -> Given:
    try:
        made = make_arguments(trace.guard)
        trace.guard.check(*made)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise TraceError(
            f"no arguments can be made up for {trace.name}: {reason}",
            cause="arguments that share memory, special values inside a class, or a device that is not there",
            way_out="give the arguments: subtrace_kit.verify(t, *args)",
        ) from error
    return made


class _Copier:
    """Copies of arguments, sharing memory and objects as the originals do."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}
        self.storages: dict[int, tuple[Any, Any]] = {}

    def arguments(self, trace: Trace, given: Given) -> Given:
        leaves, spec = flatten_tree(given)
        args, kwargs = unflatten_tree([self.value(leaf) for leaf in leaves], spec)
        try:
            trace.guard.check(args, kwargs)
        except TraceError as error:
            raise TraceError(f"the arguments cannot be copied truly: {error.what}", cause=error.cause) from error
        return args, kwargs

    def value(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.made[id(value)] if id(value) in self.made else self.tensor(value)
        if type(value) in (list, tuple, set):
            return type(value)(map(self.value, value))
        return {key: self.value(item) for key, item in value.items()} if type(value) is dict else value

    def tensor(self, tensor: Any) -> Any:
        with torch.inference_mode(tensor.is_inference()), torch.enable_grad():
            made = self.wrapper(tensor) if is_wrapper_type(type(tensor)) else self.plain(tensor)
            made.requires_grad_(tensor.requires_grad and tensor.is_leaf)
            if not tensor.is_leaf:
                made = _Follow.apply(torch.ones((), requires_grad=True), [made])
                made.retain_grad()
            elif tensor.grad is not None:
                made.grad = self.value(tensor.grad)
        self.made[id(tensor)] = made
        own = read_state(made).attributes
        state = read_state(tensor).attributes.items()
        write_state(made, State({k: own[k] if k in own and _is_ragged(v) else self.value(v) for k, v in state}))
        return made

    def wrapper(self, tensor: Any) -> Any:
        names, metadata = tensor.__tensor_flatten__()
        inner = {name: self.value(getattr(tensor, name)) for name in names}
        made = type(tensor).__tensor_unflatten__(inner, self.value(metadata), tensor.size(), tensor.stride())
        if type(made) is not type(tensor) and issubclass(type(tensor), type(made)):
            made.__class__ = type(tensor)  # An inherited unflatten that names its own class.
        return made

    def plain(self, tensor: torch.Tensor) -> torch.Tensor:
        with no_torch_function():
            if tensor.layout is not torch.strided:
                return tensor.detach().clone()
            storage = tensor.untyped_storage()
            copy = self.storages.setdefault(id(storage), (storage, None))[1]
            if copy is None:
                copy = storage.clone()
                self.storages[id(storage)] = storage, copy
            made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            made.set_(copy, tensor.storage_offset(), tensor.size(), tensor.stride())
            made = made.conj() if tensor.is_conj() else made
            if isinstance(tensor, torch.nn.Parameter):
                return torch.nn.Parameter(made, requires_grad=False)
            return made if type(tensor) is torch.Tensor else made.as_subclass(type(tensor))


def _is_ragged(value: Any) -> bool:
    """Whether a value holds symbolic sizes, which belong to the offsets of one object."""
    return any(isinstance(size, torch.SymInt) for size in flatten_tree(value)[0])


class _Follow(torch.autograd.Function):
    """Makes a tensor one that autograd follows and that is no leaf, without touching it."""

    @staticmethod
    def forward(ctx: Any, source: torch.Tensor, box: list[Any]) -> Any:
        return box[0]

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple[None, None]:
        return None, None


# ----------------------------------------------------------------------------------------------- runs


def _run(call: Any, trace: Trace, given: Given, backward: bool, ops: _Ops | None = None) -> Outcome:
    """Run one side on copies and look at what it leaves; captured tensors are given back."""
    captured = _captured(trace)
    with _given_back(captured):
        args, kwargs = _Copier().arguments(trace, given)
        before = _arguments(trace, args, kwargs)
        try:
            with ops.modes.ops if ops else contextlib.nullcontext():
                out = call(*args, **kwargs)
        except Exception as error:
            if ops:
                ops.sent["then"] = {"op": _told(error)}
            return {"error": {"run": {"error": _told(error)}}}
        seen = _look(_arguments(trace, args, kwargs), captured, out)
        failed = _backward(out, ops) if backward else ""
        seen["backward"] = {"backward": {"error": failed}}
        seen["gradients"] = _all_facts(_gradients([*before, *captured]))
        seen["random state"] = {name: {"values": state} for name, state in _random_state()}
        return seen


class _Ops:
    """Notes each op on a wrapper, at any depth, and lets the class answer.

    Questions about sizes, device and the like are left out: a trace fits one kind and need not ask again.
    """

    def __init__(self) -> None:
        listener: Any = self
        self.modes, self.passing = Modes(listener), None
        self.sent: dict[str, Facts] = {}

    def dispatch(self, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        if self.passing is func:
            self.passing = None
            return NotImplemented
        classes = [cls.__name__ for cls in types if is_wrapper_type(cls)]
        if not classes:
            return func(*args, **kwargs)
        if not _is_question(func):
            self.sent[f"op {len(self.sent)}"] = {"op": f"{func} to {', '.join(classes)}"}
        self.passing = func
        try:
            return self.modes.call_inside(func, args, kwargs)
        finally:
            self.passing = None


def _is_question(func: Any) -> bool:
    if not isinstance(func, OpOverload) or op_info(func).reads or op_info(func).mutable:
        return False
    return not any("Tensor" in str(result.type) for result in func._schema.returns)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


@contextlib.contextmanager
def _given_back(captured: Items) -> Iterator[None]:
    """Undo what a run does to captured tensors, their gradients and the random state."""
    snapshot = Snapshot()
    for _, tensor in [*_walk(captured), *_walk(_gradients(captured))]:
        if isinstance(tensor, torch.Tensor):
            snapshot.watch_object(tensor)
            if tensor.is_leaf:
                snapshot.watch_leaf(tensor)
            if not is_wrapper_type(type(tensor)) and not tensor.is_inference():
                snapshot.watch_memory(tensor)
                snapshot.remember(tensor)
    try:
        yield
    finally:
        snapshot.restore()


def _backward(out: Any, ops: _Ops | None) -> str:
    """A backward from all results that have one; the error if it fails."""
    numbers = torch.Generator().manual_seed(0)
    leaves = [t for t in flatten_tree(out)[0] if isinstance(t, torch.Tensor) and t.grad_fn is not None]
    try:
        with torch.no_grad():
            grads = [_tangent(t, numbers) for t in leaves]
        with ops.modes.ops if ops else contextlib.nullcontext():
            torch.autograd.backward(leaves, grads, retain_graph=True)  # Captured tensors can have graphs of the user.
    except Exception as error:
        return _told(error)
    return ""


def _tangent(tensor: Any, numbers: torch.Generator) -> Any:
    """A random gradient of a tensor's own class; inner tensors that are no floats keep their values."""
    if is_wrapper_type(type(tensor)):
        names, metadata = tensor.__tensor_flatten__()
        inner = {name: _tangent(getattr(tensor, name), numbers) for name in names}
        return type(tensor).__tensor_unflatten__(inner, metadata, tensor.size(), tensor.stride())
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return tensor  # The very tensor: ragged sizes belong to their offsets.
    kind = torch.complex64 if tensor.is_complex() else torch.float32
    values = torch.randn(tensor.shape, generator=numbers, dtype=kind)
    return torch.empty_like(tensor, requires_grad=False).copy_(values)


# ---------------------------------------------------------------------------------------------- looks


def _look(arguments: Items, captured: Items, out: Any) -> Outcome:
    paths, spec = flatten_with_path(out)
    name = "result" if any(path.startswith("out") for path, _ in arguments) else "out"
    results = [(name + "".join(map(str, keys)), leaf) for keys, leaf in paths]
    tensors = [(p, t) for p, t in _walk([*arguments, *captured, *results]) if isinstance(t, torch.Tensor)]
    return {
        "structure": {name: {"structure": " ".join(str(spec).split())}},
        "results": _all_facts(results),
        "aliasing": _partition(tensors, _memory, "memory"),
        "identity": _partition(tensors, id, "object"),
        "arguments": _all_facts(arguments, state=True),
        "captured": _all_facts(captured, state=True),
    }


def _captured(trace: Trace) -> Items:
    """Captured tensors, and the leaves behind those that have a graph: a backward reaches them."""
    found = [(f"captured {c.path or c.proxy.name}", c.fetch()) for c in trace.captures]
    nodes = dict.fromkeys(tensor.grad_fn for _, tensor in found if tensor.grad_fn is not None)
    todo = list(nodes)
    for node in todo:
        deeper = [other for other, _ in node.next_functions if other is not None and other not in nodes]
        nodes.update(dict.fromkeys(deeper))
        todo += deeper
    leaves = [node.variable for node in nodes if type(node).__name__ == "AccumulateGrad"]
    return found + [(f"leaf {i} behind captured tensors", leaf) for i, leaf in enumerate(leaves)]


def _arguments(trace: Trace, args: tuple, kwargs: dict) -> Items:
    paths = argument_paths(args, kwargs, trace.guard.positional)
    return list(zip(paths, flatten_tree((args, kwargs))[0], strict=True))


def _walk(items: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Values with the tensors inside them, at any depth, each with its path."""
    for path, value in items:
        yield path, value
        if is_wrapper_type(type(value)):
            yield from _walk((f"{path}.{name}", getattr(value, name)) for name in value.__tensor_flatten__()[0])


def _gradients(items: Items) -> Items:
    tensors = [(path, t) for path, t in _walk(items) if isinstance(t, torch.Tensor)]
    return [(f"{path}.grad", t.grad) for path, t in tensors if t.is_leaf or t.retains_grad]


def _all_facts(items: Items, state: bool = False) -> dict[str, Facts]:
    return {path: _facts(value, state) for path, value in _walk(items)}


def _facts(value: Any, state: bool) -> Facts:
    """All that can be seen of a value, apart from what is inside a wrapper."""
    if not isinstance(value, torch.Tensor):
        return {"class": type(value), "values": value}
    wrapper = is_wrapper_type(type(value))
    names, metadata = value.__tensor_flatten__() if wrapper else ((), None)  # type: ignore[attr-defined]
    seen = {"class": type(value), **tensor_fields(value), "is_leaf": value.is_leaf}
    if state:
        own = read_state(value).attributes.items()
        seen["attributes"] = _Copier().value({k: v for k, v in own if k not in names and not _is_ragged(v)})
    if wrapper:
        return seen | {"metadata": _Copier().value(metadata), "inner tensors": tuple(names)}
    with no_torch_function():
        if value.layout is not torch.strided:
            return seen | {"values": value.detach().to_dense()}
        plain = value.detach().resolve_conj().resolve_neg().to("cpu", copy=True)
        return seen | {"storage_offset": value.storage_offset(), "values": plain}


def _memory(tensor: torch.Tensor) -> int:
    """Where the memory of a plain tensor is; 0 where there is none."""
    strided = tensor.layout is torch.strided and not is_wrapper_type(type(tensor))
    return tensor.untyped_storage().data_ptr() if strided else 0


def _partition(items: Items, key: Callable[[Any], int], what: str) -> dict[str, Facts]:
    """For each tensor the first one with the same key."""
    first: dict[int, str] = {}
    firsts = {path: first.setdefault(key(tensor), path) if key(tensor) else path for path, tensor in items}
    return {path: {what: f"{what} of {other if other != path else 'its own'}"} for path, other in firsts.items()}


def _random_state() -> Items:
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()
    states = torch.cuda.get_rng_state_all() if cuda else []
    return [("cpu", torch.get_rng_state()), *((f"cuda:{i}", state) for i, state in enumerate(states))]


# ----------------------------------------------------------------------------------------------- rows


def _rows(trace: Trace, given: Given, backward: bool, tolerance: tuple[float, float]) -> Iterator[Check]:
    wanted, found = (_run(call, trace, given, backward) for call in (trace.program, trace))
    if "error" in wanted:
        error = wanted["error"]["run"]["error"]
        raise TraceError(f"the program fails in eager: {error}", way_out="run it without the kit first")
    if "error" in found:
        yield Check("run", DIFFERS, (f"the trace raises {found['error']['run']['error']}",), "nothing is compared")
        return
    compare = Comparison(found, wanted, *tolerance)
    yield compare.check("structure")
    for fact in FACTS:
        yield compare.check("results", fact)
    for section in ("aliasing", "identity", "arguments", "captured", "random state"):
        yield compare.check(section)
    yield _gradient_check(compare, backward)
    yield _ops_check(trace, given, backward)


def _gradient_check(compare: Comparison, backward: bool) -> Check:
    wanted, found = (side["backward"]["backward"]["error"] for side in (compare.wanted, compare.found))
    check = compare.check("gradients")
    if found != wanted:
        return Check("gradients", DIFFERS, (f"backward: {found or 'no error'} instead of {wanted or 'no error'}",))
    note = f"the backward fails in eager too: {wanted}" if wanted else "" if backward else "as left without a backward"
    return dataclasses.replace(check, note=note or check.note)


def _ops_check(trace: Trace, given: Given, backward: bool) -> Check:
    if any(line.startswith("unroll") for line in trace.provenance):
        return Check("ops", SKIPPED, note="the classes are not asked in a lowered trace")
    sides = _Ops(), _Ops()
    for call, ops in zip((trace, trace.program), sides, strict=True):
        _run(call, trace, given, backward, ops)
    found, wanted = ({"ops": ops.sent} for ops in sides)
    return Comparison(found, wanted).check("ops")
