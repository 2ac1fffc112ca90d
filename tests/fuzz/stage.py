"""Run a program in a world of its own and tell all that a caller can see, as facts by path."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from subtrace_kit.zoo import TwoTensor

from .grammar import CAPTURED, LINEAR, NAMES, TWO_LINEAR, is_wrapper

if TYPE_CHECKING:
    from .programs import Program

Facts = dict[str, Any]


def renew(space: dict[str, Any]) -> None:
    """New captured tensors, where programs look for them."""
    for name in ("weight", "bias"):
        shape = getattr(LINEAR, name).shape
        setattr(LINEAR, name, torch.nn.Parameter(torch.randn(shape)))
        setattr(TWO_LINEAR, name, torch.nn.Parameter(TwoTensor(torch.randn(shape), torch.randn(shape))))
    space["weight"] = torch.nn.Parameter(torch.randn(3, 3))
    space["table"] = TwoTensor(torch.randn(3, 3), torch.randn(3, 3))
    space["half"] = torch.tensor(0.5) + torch.rand(())


class Stage:
    """A program and the world it runs in.

    Args:
        space: Holds `program` and `inputs`; captured tensors are put there.
        like: Whether gradients of results are of the class of the result, or plain.
        twice: Whether the backward is run twice.
        double: Whether the gradients of gradients are taken too.
    """

    def __init__(self, space: dict[str, Any], like: bool = True, twice: bool = False, double: bool = False) -> None:
        self.space, self.fn = space, space["program"]
        self.like, self.twice, self.double = like, twice, double

    @classmethod
    def of(cls, program: Program) -> Stage:
        """The stage of a generated program."""
        space = dict(NAMES)
        exec(compile(program.source, "<program>", "exec"), space)
        return cls(space, program.like, program.twice, program.double)

    def inputs(self, seed: int) -> tuple[Any, ...]:
        """New inputs and new captured tensors."""
        torch.manual_seed(seed)
        renew(self.space)
        return self.space["inputs"]()

    def captured(self) -> dict[str, torch.Tensor]:
        """The captured tensors as they are now."""
        parameters = dict(LINEAR.named_parameters()) | dict(TWO_LINEAR.named_parameters(prefix="two"))
        return {name: self.space[name] for name in CAPTURED} | parameters

    def run(self, call: Callable[..., Any], seed: int) -> Facts:
        """Run eager or a trace on new inputs, take the backward, and tell all that a caller can see."""
        args = self.inputs(seed)
        given = {"arg": args, "captured": self.captured()}
        before = dict(walk(given))
        torch.manual_seed(5)
        out = call(*args)
        sight = Sight()
        everything = given | {"out": out}
        sight.take(everything)
        sight.facts["out/structure"] = _structure(out)
        sight.facts |= {f"{p}/object kept": before.get(p) is t for p, t in walk(given)}
        sight.partitions(everything)
        sight.facts["random/state"] = torch.get_rng_state()
        self.backward(sight, everything, out)
        return sight.facts

    def backward(self, sight: Sight, everything: dict[str, Any], out: Any) -> None:
        """Gradients of the results that have some, and what they leave in leaves."""
        live = {id(t): t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.grad_fn is not None}
        outs = list(live.values())
        tensors = dict(walk(everything))
        sight.gradients(tensors, "grad inside")
        try:
            if self.double:
                self.double_backward(sight, tensors, outs)
            for _ in range(1 + self.twice):
                torch.autograd.backward(outs, [self.tangent(t) for t in outs], retain_graph=True)
        except Exception as error:
            sight.facts["backward/error"] = f"{type(error).__name__}: {error}"[:150]
            return
        sight.facts["backward/error"] = ""
        sight.gradients(tensors, "grad")
        sight.facts["random/state after backward"] = torch.get_rng_state()

    def double_backward(self, sight: Sight, tensors: dict[str, torch.Tensor], outs: list[torch.Tensor]) -> None:
        """Gradients of the gradients of leaves."""
        leaves = list({id(t): t for t in tensors.values() if t.is_leaf and t.requires_grad}.values())
        options = {"allow_unused": True, "retain_graph": True}
        tangents = [self.tangent(t) for t in outs]
        first = torch.autograd.grad(outs, leaves, tangents, create_graph=True, **options) if outs and leaves else ()
        live = [grad for grad in first if grad is not None and grad.grad_fn is not None]
        second = torch.autograd.grad(live, leaves, [self.tangent(t) for t in live], **options) if live else ()
        for index, grad in enumerate(second):
            sight.facts[f"backward/second {index}"] = grad is not None
            for path, part in inside(f"backward/second {index}", grad) if grad is not None else ():
                sight.tensor(path, part)

    def tangent(self, tensor: torch.Tensor) -> torch.Tensor:
        """The gradient of a result: ones of its class where that can be, or plain ones."""
        if self.like:
            with contextlib.suppress(Exception):
                return torch.ones_like(tensor, requires_grad=False)
        return torch.ones(tensor.shape, dtype=tensor.dtype)


def walk(tree: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors of a tree with their paths, wrappers before what is inside."""
    for keys, leaf in pytree.tree_flatten_with_path(tree)[0]:
        if isinstance(leaf, torch.Tensor):
            path = "".join(map(str, keys)).removeprefix("['")
            yield from inside(path.replace("']", "", 1), leaf)


def inside(path: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """A tensor and those inside it."""
    yield path, tensor
    if is_wrapper(tensor):
        for name in tensor.__tensor_flatten__()[0]:  # type: ignore[attr-defined]
            yield from inside(f"{path}.{name}", getattr(tensor, name))


def _structure(out: Any) -> list[Any]:
    leaves, spec = pytree.tree_flatten(out)
    return [str(spec), *("tensor" if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)]


class Sight:
    """What can be seen of tensors, as plain facts by `path/fact`."""

    def __init__(self) -> None:
        self.facts: Facts = {}

    def take(self, tree: Any) -> None:
        """The facts of all tensors of a tree."""
        for path, tensor in walk(tree):
            self.tensor(path, tensor)

    def tensor(self, path: str, tensor: torch.Tensor) -> None:
        """The facts of one tensor, apart from what is inside it."""
        facts = self.facts
        facts[f"{path}/class"] = type(tensor)
        facts[f"{path}/shape"] = tuple(tensor.shape)
        facts[f"{path}/dtype"] = tensor.dtype
        facts[f"{path}/strides"] = tensor.stride()
        facts[f"{path}/offset"] = tensor.storage_offset()
        facts[f"{path}/requires_grad"] = tensor.requires_grad
        facts[f"{path}/leaf"] = tensor.is_leaf
        facts[f"{path}/lazy"] = tensor.is_conj(), tensor.is_neg(), tensor.is_inference()
        if is_wrapper(tensor):
            facts[f"{path}/metadata"] = tensor.__tensor_flatten__()[1]  # type: ignore[attr-defined]
            facts[f"{path}/attributes"] = sorted(tensor.__dict__)
        else:
            facts[f"{path}/value"] = tensor.detach().resolve_conj().resolve_neg().clone()

    def partitions(self, tree: Any) -> None:
        """Which tensors are one object, and which share memory."""
        objects: dict[int, str] = {}
        memory: dict[int, str] = {}
        for path, tensor in walk(tree):
            self.facts[f"{path}/same object"] = objects.setdefault(id(tensor), path)
            where = "outer memory" if is_wrapper(tensor) else "memory"
            self.facts[f"{path}/{where}"] = memory.setdefault(tensor.untyped_storage()._cdata, path)

    def gradients(self, tensors: dict[str, torch.Tensor], name: str) -> None:
        """The gradients that tensors hold."""
        for path, tensor in tensors.items():
            grad = tensor.grad if tensor.is_leaf or tensor.retains_grad else None
            self.facts[f"{path}.{name}/there"] = grad is not None
            if grad is not None:
                for inner, part in inside(f"{path}.{name}", grad):
                    self.tensor(inner, part)


def differences(found: Facts, wanted: Facts) -> list[str]:
    """The keys of the facts that differ, in the order that they were taken."""
    keys = dict.fromkeys([*wanted, *found])
    if wanted.get("backward/error"):  # What a failed backward leaves behind is not defined.
        keys = {key: None for key in keys if not re.search(r"^backward|state after|\.grad\b(?! inside)", key)}
    return [key for key in keys if key not in found or key not in wanted or not _equal(found[key], wanted[key])]


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, torch.Tensor):
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            return False
        return torch.equal(found, wanted) or torch.allclose(found, wanted, rtol=0, atol=0, equal_nan=True)
    return found == wanted or (found != found and wanted != wanted)
