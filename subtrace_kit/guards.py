"""The kind of input a trace fits, and the check that an input is of that kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .equality import same_metadata, same_sizes, same_value
from .errors import TraceError
from .intercept import (
    flat_parts,
    flatten_tree,
    flatten_with_path,
    global_context,
    is_wrapper_type,
    memory_of,
    tree_children,
)
from .proxies import SubclassTensorProxy, TensorProxy
from .shown import a_kind, beside, instead, message, shown
from .symbols import DEFAULT_CONTEXT, Context, type_text

__all__ = ["Argument", "Guard", "difference"]


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
        if missing := [name for name in self.positional[len(args) :] if name not in kwargs]:
            raise TraceError(
                f"the arguments: {', '.join(missing)} not given",
                cause=f"the trace is called like the program, {call_text(self.spec, self._recorded())}",
                way_out="give all that the program was given when it was recorded, its defaults too",
            )
        if spec != self.spec:
            raise self._refusal("the arguments", self._other_structure(spec, leaves))
        for argument, leaf in zip(self.arguments, leaves, strict=True):
            if found := _leaf_difference(argument, leaf, not self.free):
                raise self._refusal(f"argument {argument.path}", found)
        if not self.free:
            self.check_ties(leaves)
        self.check_context()
        return leaves

    def check_ties(self, leaves: list[Any]) -> None:
        """Make sure that the same tensors are one object, and the same share memory, as recorded."""
        if (now := identity(leaves)) != self.same:
            raise self._other_pair(leaves, now, self.same, ("one tensor", "two"))
        if (now := sharing(leaves)) != self.shared:
            raise self._other_pair(leaves, now, self.shared, ("in one memory", "apart"))

    def check_context(self) -> None:
        """Make sure that grad mode, inference mode and autocast are as recorded."""
        now = global_context(1 << 30)
        recorded = self.context
        for name in (*(() if self.free else ("grad",)), "inference", "autocast"):
            if getattr(now, name) != getattr(recorded, name):
                raise self._refusal(f"{name} mode", f"{getattr(now, name)} instead of {getattr(recorded, name)}")

    def _other_structure(self, spec: Any, leaves: list[Any]) -> str:
        now, then = call_text(spec, map(_kind, leaves)), call_text(self.spec, self._recorded())
        return f"structure {beside(now, then)}"

    def _recorded(self) -> list[str]:
        return [_kind(a.value) if a.proxy is None else _proxy_class(a.proxy).__name__ for a in self.arguments]

    def _other_pair(self, leaves: list[Any], now: tuple, then: tuple, told: tuple[str, str]) -> TraceError:
        """The refusal that names the first two tensors which are one now and were not, or the other way round."""
        given = zip(self.arguments, leaves, strict=True)
        pairs = [(a.path, leaf) for a, leaf in given if isinstance(leaf, torch.Tensor)]
        found = [(".".join((path, *way)), t) for path, leaf in pairs for way, t in parts(leaf)]
        if told[0] != "one tensor":
            found = [(path, t) for path, t in found if has_memory(t)]
        which = [(i, j) for j in range(len(found)) for i in range(j) if (now[i] == now[j]) is not (then[i] == then[j])]
        i, j = which[0]
        is_now, was = told if now[i] == now[j] else told[::-1]
        return TraceError(
            f"{found[i][0]} and {found[j][0]}: {is_now} now, {was} when recorded",
            cause="which tensors are one object or share memory is part of the kind of input: a write shows in both",
            way_out="trace again with such arguments, or use subtrace_kit.jit, which does so by itself",
        )

    def _refusal(self, what: str, found: str) -> TraceError:
        return TraceError(
            f"{what}: {found}",
            cause="a trace fits one kind of input: structure, classes, metadata, shapes, strides, dtypes, flags",
            way_out="trace again with such arguments, or use subtrace_kit.jit, which does so by itself",
        )


def call_text(spec: Any, leaves: Iterable[str]) -> str:
    """The structure of arguments as in a call: `(list of leaves, key=leaf)`.

    Args:
        spec: Pytree structure of (args, kwargs).
        leaves: What to write for each leaf.
    """
    names = iter(leaves)
    args, kwargs = tree_children(spec)
    parts = [_structure(child, names) for child in tree_children(args)]
    parts += [
        f"{key}={_structure(child, names)}" for key, child in zip(kwargs.context, tree_children(kwargs), strict=True)
    ]
    return f"({', '.join(parts)})"


def _structure(spec: Any, names: Iterator[str]) -> str:
    if spec.is_leaf():
        return next(names)
    parts = [_structure(child, names) for child in tree_children(spec)]
    if spec.type is dict:
        return "{" + ", ".join(f"{shown(key)}: {part}" for key, part in zip(spec.context, parts, strict=True)) + "}"
    inside = ", ".join(parts) + ("," if spec.type is tuple and len(parts) == 1 else "")
    return f"[{inside}]" if spec.type is list else f"{'' if spec.type is tuple else spec.type.__name__}({inside})"


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def _leaf_difference(argument: Argument, leaf: Any, flags: bool) -> str:
    if argument.proxy is not None:
        return difference(argument.proxy, leaf, flags=flags)
    if isinstance(leaf, torch.Tensor):
        return f"{a_kind(leaf)} instead of {shown(argument.value)}"
    return "" if same_value(leaf, argument.value) else instead(leaf, argument.value)


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
        wanted = _proxy_class(proxy)
        if type(tensor) is not wanted:
            return f"{prefix}class {type(tensor).__name__} instead of {wanted.__name__}"
    for name, found in tensor_fields(tensor).items():
        wanted = getattr(proxy, name)
        if name == "requires_grad" and not flags:
            continue
        if found != wanted and not (name in ("shape", "stride") and same_sizes(found, wanted)):
            return f"{prefix}{name} {_show(found)} instead of {_show(wanted)} ({type_text(proxy)})"
    return _inner_difference(proxy, tensor, where, flags) if isinstance(proxy, SubclassTensorProxy) else ""


def _proxy_class(proxy: TensorProxy) -> type:
    return proxy.cls if isinstance(proxy, SubclassTensorProxy) else torch.Tensor


def _inner_difference(proxy: SubclassTensorProxy, tensor: Any, where: str, flags: bool) -> str:
    prefix = f"{where}: " if where else ""
    try:
        names, metadata = flat_parts(tensor)
    except Exception as error:
        return f"{prefix}__tensor_flatten__ failed with {type(error).__name__}: {message(error)}"
    wanted = [name for name, _ in proxy.inner]
    if list(names) != wanted:
        return f"{prefix}inner tensors {list(names)} instead of {wanted}"
    if not same_metadata(metadata, proxy.metadata):
        return f"{prefix}metadata {instead(metadata, proxy.metadata)}"
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


def _show(value: Any) -> str:
    return str(value).removeprefix("torch.")


def plain_leaves(tensor: Any) -> list[torch.Tensor]:
    """A tensor and all tensors inside it, at any depth."""
    return [part for _, part in parts(tensor)]


def parts(tensor: Any, attributes: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """A tensor and all tensors inside it, at any depth, each with its attribute path."""
    yield attributes, tensor
    if is_wrapper_type(type(tensor)):
        for name in flat_parts(tensor)[0]:
            yield from parts(getattr(tensor, name), (*attributes, name))


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in memory of its own: it is no wrapper, and has strides."""
    return not is_wrapper_type(type(tensor)) and tensor.layout is torch.strided


def identity(leaves: list[Any]) -> tuple[int, ...]:
    """Which tensors, at any depth, are one object: equal numbers for the same object."""
    places: dict[int, int] = {}
    tensors = [t for leaf in leaves if isinstance(leaf, torch.Tensor) for t in plain_leaves(leaf)]
    return tuple(places.setdefault(id(t), len(places)) for t in tensors)


def sharing(leaves: list[Any]) -> tuple[int, ...]:
    """Which plain tensors, at any depth, share memory: equal numbers for the same storage."""
    places: dict[int, int] = {}
    tensors = [t for leaf in leaves if isinstance(leaf, torch.Tensor) for t in plain_leaves(leaf)]
    strided = [t for t in tensors if has_memory(t)]
    return tuple(places.setdefault(memory_of(t), len(places)) for t in strided)


def argument_paths(args: tuple, kwargs: dict, names: tuple[str, ...]) -> list[str]:
    """How the user would write each leaf of the arguments."""
    try:
        paths, _ = flatten_with_path((args, kwargs))
    except ValueError:  # a class that was registered without names for its parts
        heads = [*zip(names, args, strict=True), *kwargs.items()]
        counts = [(head, len(flatten_tree(argument)[0])) for head, argument in heads]
        return [head if count == 1 else f"{head}[leaf {i}]" for head, count in counts for i in range(count)]
    return [_path(keys, names) for keys, _ in paths]


def _path(keys: tuple, names: tuple[str, ...]) -> str:
    whole, first, *rest = keys
    head = names[first.idx] if whole.idx == 0 else first.key
    return head + "".join(str(key) for key in rest)
