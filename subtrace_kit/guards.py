"""The kind of input a trace fits, and the check that an input is of that kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .errors import TraceError
from .intercept import flat_parts, flatten_tree, flatten_with_path, global_context, is_wrapper_type, memory_of
from .proxies import SubclassTensorProxy, TensorProxy
from .symbols import DEFAULT_CONTEXT, Context, type_text

__all__ = ["Argument", "Guard", "difference", "same_metadata"]


@dataclass(frozen=True)
class Argument:
    """One leaf of the arguments.

    Args:
        path: How the user would write it: `x`, `ps[0]`, `state["w"]`.
        proxy: The tensor it was, or None for a Python value.
        value: The Python value it was.
    """

    path: str
    proxy: TensorProxy | None = None
    value: Any = None


@dataclass(frozen=True)
class Guard:
    """The kind of input a trace fits.

    Args:
        positional: Names of the positional parameters.
        keywords: Names of the keyword parameters.
        spec: Pytree structure of (args, kwargs).
        arguments: The leaves, in order.
        same: For each tensor at any depth, its place in the list of different objects.
        shared: Likewise for the memory of each plain tensor.
        context: The global state at the start.
        free: Whether grad mode, the flags `requires_grad`, and which tensors are one object or share memory
            may be any: the inputs of a backward are what a forward saved, as the caller has it.
    """

    positional: tuple[str, ...]
    keywords: tuple[str, ...]
    spec: Any
    arguments: tuple[Argument, ...]
    same: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()
    context: Context = DEFAULT_CONTEXT
    free: bool = False

    @property
    def proxies(self) -> tuple[TensorProxy, ...]:
        """The tensors among the leaves, each object once."""
        return tuple({a.proxy.name: a.proxy for a in self.arguments if a.proxy is not None}.values())

    def check(self, args: tuple, kwargs: dict) -> list[Any]:
        """Make sure that arguments are of this kind.

        Returns:
            Their leaves.

        Raises:
            TraceError: They are not; the error names the argument and the difference.
        """
        leaves, spec = flatten_tree((args, kwargs))
        if spec != self.spec:
            raise self._refusal("the arguments", f"structure {_structure(args, kwargs)} instead of the recorded one")
        for argument, leaf in zip(self.arguments, leaves, strict=True):
            if found := _leaf_difference(argument, leaf, not self.free):
                raise self._refusal(f"argument {argument.path}", found)
        if not self.free:
            self.check_ties(leaves)
        self.check_context()
        return leaves

    def check_ties(self, leaves: list[Any]) -> None:
        """Make sure that the same tensors are one object, and the same share memory, as recorded."""
        if identity(leaves) != self.same:
            raise self._refusal("the arguments", "other objects are one and the same than when recorded")
        if sharing(leaves) != self.shared:
            raise self._refusal("the arguments", "other tensors share memory than when recorded")

    def check_context(self) -> None:
        """Make sure that grad mode, inference mode and autocast are as recorded."""
        now = global_context(1 << 30)
        recorded = self.context
        for name in (*(() if self.free else ("grad",)), "inference", "autocast"):
            if getattr(now, name) != getattr(recorded, name):
                raise self._refusal(f"{name} mode", f"{getattr(now, name)} instead of {getattr(recorded, name)}")

    def _refusal(self, what: str, found: str) -> TraceError:
        return TraceError(
            f"{what}: {found}",
            cause="a trace fits one kind of input: structure, classes, metadata, shapes, strides, dtypes, flags",
            way_out="trace again with such arguments, or use subtrace_kit.jit, which does so by itself",
        )


def _structure(args: tuple, kwargs: dict) -> str:
    return f"({', '.join([*(type(a).__name__ for a in args), *(f'{k}=' for k in kwargs)])})"


def _leaf_difference(argument: Argument, leaf: Any, flags: bool) -> str:
    if argument.proxy is not None:
        return difference(argument.proxy, leaf, flags=flags)
    if isinstance(leaf, torch.Tensor):
        return f"a {type(leaf).__name__} instead of {argument.value!r}"
    same = type(leaf) is type(argument.value) and same_metadata(leaf, argument.value)
    return "" if same else f"{leaf!r} instead of {argument.value!r}"


def difference(proxy: TensorProxy, tensor: Any, where: str = "", flags: bool = True) -> str:
    """How a tensor differs from what a proxy says; empty where it does not.

    Args:
        proxy: What was recorded.
        tensor: What came.
        where: Attribute path so far, for the text.
        flags: Whether `requires_grad` must be the same.
    """
    prefix = f"{where}: " if where else ""
    if not isinstance(tensor, torch.Tensor):
        return f"{prefix}{type(tensor).__name__} instead of a tensor"
    wrapper = isinstance(proxy, SubclassTensorProxy)
    if wrapper or is_wrapper_type(type(tensor)):
        wanted = proxy.cls if isinstance(proxy, SubclassTensorProxy) else torch.Tensor
        if type(tensor) is not wanted:
            return f"{prefix}class {type(tensor).__name__} instead of {wanted.__name__}"
    for name, found in tensor_fields(tensor).items():
        wanted = getattr(proxy, name)
        if name == "requires_grad" and not flags:
            continue
        if found != wanted and not (name in ("shape", "stride") and same_sizes(found, wanted)):
            return f"{prefix}{name} {_show(found)} instead of {_show(wanted)} ({type_text(proxy)})"
    return _inner_difference(proxy, tensor, where, flags) if isinstance(proxy, SubclassTensorProxy) else ""


def _inner_difference(proxy: SubclassTensorProxy, tensor: Any, where: str, flags: bool) -> str:
    names, metadata = flat_parts(tensor)
    wanted = [name for name, _ in proxy.inner]
    prefix = f"{where}: " if where else ""
    if list(names) != wanted:
        return f"{prefix}inner tensors {list(names)} instead of {wanted}"
    if not same_metadata(metadata, proxy.metadata):
        return f"{prefix}metadata {metadata!r} instead of {proxy.metadata!r}"
    for name, inner in proxy.inner:
        if found := difference(inner, getattr(tensor, name), f"{where}.{name}", flags):
            return found
    return ""


def tensor_fields(tensor: torch.Tensor) -> dict[str, Any]:
    """The facts of a tensor that a trace depends on."""
    try:
        stride = tensor.stride()
    except RuntimeError:  # layouts without strides
        stride = ()
    return {
        "dtype": tensor.dtype,
        "shape": tuple(tensor.shape),
        "stride": stride,
        "device": tensor.device,
        "requires_grad": tensor.requires_grad,
        "lazy": (tensor.is_conj(), tensor.is_neg()),
    }


def same_sizes(found: tuple, wanted: tuple) -> bool:
    """Whether sizes agree where they are numbers; ragged sizes are compared through their offsets."""
    return len(found) == len(wanted) and all(
        a == b if type(a) is int and type(b) is int else type(a) is type(b) for a, b in zip(found, wanted, strict=True)
    )


def same_metadata(found: Any, wanted: Any) -> bool:
    """Equality that never raises and never asks a tensor for its truth."""
    if found is wanted:
        return True
    try:
        return bool(found == wanted)
    except Exception:
        return False


def _show(value: Any) -> str:
    return str(value).removeprefix("torch.")


def plain_leaves(tensor: Any) -> list[torch.Tensor]:
    """A tensor and all tensors inside it, at any depth."""
    found = [tensor]
    if is_wrapper_type(type(tensor)):
        for name in flat_parts(tensor)[0]:
            found += plain_leaves(getattr(tensor, name))
    return found


def parts(tensor: Any, attributes: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """A tensor and all tensors inside it, at any depth, each with its attribute path."""
    yield attributes, tensor
    if is_wrapper_type(type(tensor)):
        for name in flat_parts(tensor)[0]:
            yield from parts(getattr(tensor, name), (*attributes, name))


def identity(leaves: list[Any]) -> tuple[int, ...]:
    """Which tensors, at any depth, are one object: equal numbers for the same object."""
    places: dict[int, int] = {}
    tensors = [t for leaf in leaves if isinstance(leaf, torch.Tensor) for t in plain_leaves(leaf)]
    return tuple(places.setdefault(id(t), len(places)) for t in tensors)


def sharing(leaves: list[Any]) -> tuple[int, ...]:
    """Which plain tensors, at any depth, share memory: equal numbers for the same storage."""
    places: dict[int, int] = {}
    tensors = [t for leaf in leaves if isinstance(leaf, torch.Tensor) for t in plain_leaves(leaf)]
    strided = [t for t in tensors if not is_wrapper_type(type(t)) and t.layout is torch.strided]
    return tuple(places.setdefault(memory_of(t), len(places)) for t in strided)


def argument_paths(args: tuple, kwargs: dict, names: tuple[str, ...]) -> list[str]:
    """How the user would write each leaf of the arguments."""
    paths, _ = flatten_with_path((args, kwargs))
    return [_path(keys, names) for keys, _ in paths]


def _path(keys: tuple, names: tuple[str, ...]) -> str:
    whole, first, *rest = keys
    head = names[first.idx] if whole.idx == 0 else first.key
    return head + "".join(str(key) for key in rest)
