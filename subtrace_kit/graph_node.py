"""A lowered program as one node of autograd's graph: its forward and its backward are plain ops on inner tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .compiled_parts import Notes
from .equality import same_tensors
from .errors import TraceError
from .gradient_kinds import Kinds, kinds_of, same_kinds
from .intercept import current_listener, flatten_tree, is_watched_otherwise, node_maker, unflatten_tree
from .joint import Backward, Split, split_joint
from .made_inputs import like
from .quick_guard import quick_guard
from .running import runner
from .shown import message
from .snapshot import random_state
from .trace import Trace

__all__ = ["GraphNode", "wants_node"]

_KINDS = 4  # of gradients, after which the program is run again in the backward for others

Run = Callable[[tuple, dict, dict[str, Any]], Any]
Compiled = Callable[[Trace], "tuple[Trace, Notes | None]"]


def wants_node(lowered: Trace) -> bool:
    """Whether autograd follows operations on wrappers, which one node can stand for."""
    return any(bound.replayed for bound in lowered.bound_symbols)


class GraphNode:
    """Runs a program whose gradients somebody may want.

    The first call, and whatever one node cannot stand for, run the operations on wrapper objects that autograd
    follows. From the second call on, the forward runs on inner tensors and leaves one node in the graph; its backward
    is recorded for the kinds of gradients that have arrived, and for a new one the program is run again.

    Args:
        trace: The program, as recorded.
        run: Runs it lowered, with the graph that eager makes, on (args, kwargs, captured values).
        compiled: What a backend makes of a trace, and what is to be said of it.
        draws: Whether it draws random numbers.
    """

    def __init__(self, trace: Trace, run: Run, compiled: Compiled, draws: bool) -> None:
        self.trace = trace.replace(bound_symbols=(), output=None)  # what it holds is recorded again
        self.run_followed, self.compiled, self.draws = run, compiled, draws
        self.kinds: tuple[Kinds, ...] = ()
        self.used: set[Kinds] = set()
        self.halves: _Halves | None = None
        self.pending = True  # whether the halves are to be made, at the next call
        self.refused = ""
        self.calls = 0
        self.lock = threading.Lock()

    def run(self, args: tuple, kwargs: dict, captured: dict[str, Any]) -> Any:
        """Run on arguments and captured values that were checked."""
        if is_watched_otherwise():
            return self.run_followed(args, kwargs, captured)
        if self.pending and self.calls:
            self.prepare(args, kwargs, captured)
        self.calls += 1
        halves = self.halves
        if halves is None:
            return self.run_followed(args, kwargs, captured)
        return halves.run(_Call(self, halves, args, kwargs, captured))

    def prepare(self, args: tuple, kwargs: dict, captured: dict[str, Any]) -> None:
        """Record forward and backward together, and try them beside eager's graph."""
        with self.lock:
            if not self.pending:
                return
            self.pending = False
            try:
                args, kwargs = _apart(args, kwargs)
                split = split_joint(self.trace, args, kwargs, self.kinds)
                self.try_out(split, args, kwargs, captured)
                self.halves = _Halves(split, self.compiled)
            except TraceError as error:
                self.refused = error.what
                self.halves = None

    def try_out(self, split: Split, args: tuple, kwargs: dict, captured: dict[str, Any]) -> None:
        """Compare the gradients with eager's: autograd takes some other formulas while it is watched."""
        halves = _Halves(split, lambda half: (half, None))
        give_back = random_state()
        call = _Call(self, halves, args, kwargs, captured)
        saved = halves.compute(call)[2]
        for half, back in zip(halves.backwards, split.backwards, strict=True):
            arriving = tuple(like(a.proxy) for a in back.gradients.arguments if a.proxy is not None)
            given = iter(arriving)
            whole = tuple(next(given) if there else None for there in half.arriving)
            with torch.no_grad():
                found = half.backward.run((*[saved[i] for i in half.saved], *arriving), {}, {})
                wanted = call.remade(whole)
            if not all(map(same_tensors, found, wanted)):
                give_back()
                raise TraceError("autograd uses other formulas while it is recorded")
        give_back()

    def met(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Gradients of a kind for which there is no backward yet."""
        try:
            kinds = kinds_of(gradients)
        except Exception:
            return  # a class that cannot be taken apart: there the program runs again each time
        with self.lock:
            if len(self.kinds) < _KINDS and not any(same_kinds(kinds, known) for known in self.kinds):
                self.kinds = (*self.kinds, kinds)
                self.pending = True

    @property
    def split(self) -> Split | None:
        """The halves as traces, once they are made."""
        return None if self.halves is None else self.halves.split

    def notes(self) -> tuple[str, ...]:
        """What is to be said of it."""
        if self.refused:
            return (f"gradients: through eager's own graph, since {self.refused}",)
        if self.halves is None:
            return ()
        count = len(self.halves.backwards)
        found = [f"gradients: one node in the graph, {count} backward{'' if count == 1 else 's'}"]
        compiled = [("forward", self.halves.notes), *(("backward", half.notes) for half in self.halves.backwards)]
        for name, notes in compiled:
            found += [f"{name}: {line}" for line in (notes.lines() if notes else ())]
        return tuple(found)


def _apart(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments, none computed from another: the gradient of each is what reaches it directly."""
    leaves, spec = flatten_tree((args, kwargs))
    followed = {id(t): t for t in leaves if isinstance(t, torch.Tensor) and t.grad_fn is not None}
    try:
        with torch.no_grad():
            apart = {key: tensor.detach().requires_grad_() for key, tensor in followed.items()}
    except Exception as error:
        raise TraceError(f"an argument cannot be detached: {message(error)}") from error
    found = unflatten_tree([apart.get(id(leaf), leaf) for leaf in leaves], spec)
    return found[0], found[1]


class _Halves:
    """Forward and backwards, compiled."""

    def __init__(self, split: Split, compiled: Compiled) -> None:
        self.split = split
        program, self.notes = compiled(split.forward)
        self.forward = runner(program)
        self.backwards = [_Half(back, compiled) for back in split.backwards]

    def run(self, call: _Call) -> Any:
        out, live, saved = self.compute(call)
        put_in_graph(call, live, saved, *call.wanted)
        return out

    def compute(self, call: _Call) -> tuple[Any, tuple, tuple]:
        """The forward half: the result, what autograd follows of it, and what is kept."""
        grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            out, live, saved, call.wanted, call.given = self.forward.run(call.args, call.kwargs, call.captured)
        finally:
            torch._C._set_grad_enabled(grad)
        call.versions = _versions(call.given)
        return out, live, saved


def _versions(tensors: Sequence[torch.Tensor]) -> list[int]:
    """How often each tensor was written; inference tensors do not count."""
    try:
        return [tensor._version for tensor in tensors]
    except RuntimeError:  # an inference tensor is among them
        return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


class _Half:
    """One backward, compiled, with a quick check of its gradients."""

    def __init__(self, back: Backward, compiled: Compiled) -> None:
        self.saved, self.arriving = back.saved, back.arriving
        program, self.notes = compiled(back.trace)
        self.backward = runner(program)
        alone = back.trace.replace(guard=back.gradients, bound_symbols=(), output=None)
        self.fits = quick_guard(alone) or (lambda args, kwargs: None)
        self.all_arrive = all(back.arriving)

    def takes(self, gradients: Sequence[torch.Tensor | None], there: tuple[torch.Tensor, ...]) -> bool:
        """Whether it is for gradients of this kind, of which some may be None."""
        if len(there) == len(gradients):
            alike = self.all_arrive
        else:
            alike = self.arriving == tuple([g is not None for g in gradients])
        return alike and self.fits(there, {}) is not None


class _Call:
    """One call of a program, as its node remembers it."""

    __slots__ = ("args", "captured", "give_back", "given", "halves", "kwargs", "node", "versions", "wanted")

    def __init__(self, node: GraphNode, halves: _Halves, args: tuple, kwargs: dict, captured: dict[str, Any]) -> None:
        self.node, self.halves = node, halves
        self.args, self.kwargs, self.captured = args, kwargs, captured
        self.wanted: tuple[torch.Tensor, ...] = ()
        self.give_back = random_state() if node.draws else None
        self.given: tuple[torch.Tensor, ...] = ()
        self.versions: list[int] = []

    def gradients(self, ctx: Any, gradients: tuple[torch.Tensor | None, ...]) -> Sequence[torch.Tensor | None]:
        """The gradients of the inputs."""
        if torch.is_grad_enabled() or current_listener() is not None or is_watched_otherwise():
            return self.again(ctx, gradients)
        there = tuple([g for g in gradients if g is not None])
        for half in self.halves.backwards:
            if half.takes(gradients, there):
                saved = ctx.saved_tensors
                kept = [saved[i] for i in half.saved] if saved else ()
                return half.backward.run((*kept, *there), {}, {})
        self.node.met(gradients)
        return self.again(ctx, gradients)

    def again(self, ctx: Any, gradients: tuple[torch.Tensor | None, ...]) -> Sequence[torch.Tensor | None]:
        """The same through eager's own graph, made anew: for any gradients, and differentiable itself."""
        _ = ctx.saved_tensors  # autograd's own complaints come first
        self.expect_unwritten()
        return self.remade(gradients)

    def remade(self, gradients: tuple[torch.Tensor | None, ...]) -> Sequence[torch.Tensor | None]:
        with torch.enable_grad():
            fresh = {id(t): _Same.apply(t) for t in self.wanted}
        leaves, spec = flatten_tree((self.args, self.kwargs))
        args, kwargs = unflatten_tree([fresh.get(id(leaf), leaf) for leaf in leaves], spec)
        captured = {name: fresh.get(id(value), value) for name, value in self.captured.items()}
        with torch.enable_grad():
            live = _followed(self.run_again(args, kwargs, captured))
        pairs = [(t, g) for t, g in zip(live, gradients, strict=True) if g is not None]
        found = torch.autograd.grad(
            [t for t, _ in pairs],
            [fresh[id(t)] for t in self.wanted],
            [g for _, g in pairs],
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
        )
        return found

    def run_again(self, args: tuple, kwargs: dict, captured: dict[str, Any]) -> Any:
        if self.give_back is None:
            return self.node.run_followed(args, kwargs, captured)
        now = random_state()
        self.give_back()
        try:
            return self.node.run_followed(args, kwargs, captured)
        finally:
            now()

    def expect_unwritten(self) -> None:
        if _versions(self.given) != self.versions:
            raise TraceError(
                f"the backward of {self.node.trace.name} runs the program again, and an input was written since",
                cause="a gradient of a kind that has not arrived before, or create_graph=True",
                way_out="write the input after the backward, or call the program without jit",
            )


def _followed(out: Any) -> list[torch.Tensor]:
    results = [t for t in flatten_tree(out)[0] if isinstance(t, torch.Tensor)]
    return list({id(t): t for t in results if t.requires_grad and t.grad_fn is not None}.values())


class Lowered(torch.autograd.Function):
    """Hands on results that were computed before, and asks the call for the gradients."""

    @staticmethod
    def forward(ctx: Any, call: _Call, live: tuple, saved: tuple, *wanted: torch.Tensor) -> Any:
        ctx.call = call
        ctx.set_materialize_grads(False)
        if saved:
            ctx.save_for_backward(*saved)
        return live

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        return (None, None, None, *ctx.call.gradients(ctx, gradients))


put_in_graph = node_maker(Lowered)


class _Same(torch.autograd.Function):
    """The same tensor as a value of a graph of its own: what is hooked to the tensor does not see it."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient
