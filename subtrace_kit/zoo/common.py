"""What the classes of the zoo share: names of ops, refusals, and a true deep copy."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

aten = torch.ops.aten


def overloads(names: str) -> list[Any]:
    """ATen overloads by name, the default one where there is no dot: `overloads("mm add.Tensor")`."""
    pairs = [name.partition(".") for name in names.split()]
    return [getattr(getattr(aten, op), overload or "default") for op, _, overload in pairs]


def functions(names: str) -> list[Any]:
    """What users call by a name, as `__torch_function__` gets it: `torch.sum`, `Tensor.sum`, `functional.linear`."""
    spaces = torch, torch.Tensor, torch.nn.functional
    return [getattr(space, name) for name in names.split() for space in spaces if hasattr(space, name)]


def op_name(func: Any) -> str:
    """The name of the ATen op behind a function: "add" for `torch.add`, "eq" for `Tensor.__eq__`."""
    name = getattr(func, "__name__", "")
    return OPERATORS.get(name, name.strip("_") if name.startswith("__") else name)


@functools.cache
def is_pointwise(func: Any) -> bool:
    """Whether a function has the name of an ATen op of which an overload is pointwise."""
    packet = getattr(aten, op_name(func), None)
    return packet is not None and any(torch.Tag.pointwise in getattr(packet, o).tags for o in packet.overloads())


OPERATORS = {"__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor"}
"""Methods that are not called as their op is."""

# The same elements seen through another shape. All but _unsafe_view share memory with their input, so
# a class has to answer with wrappers around views.
LAYOUT = overloads(
    "alias as_strided detach diagonal expand permute select.int slice.Tensor split.Tensor split_with_sizes"
    " squeeze squeeze.dim squeeze.dims t transpose.int unbind.int unfold unsqueeze view _unsafe_view"
)


@contextlib.contextmanager
def lazy_bits() -> Iterator[None]:
    """Let a handler see that a tensor is conjugated or negated lazily, as by `x.conj()` and `x.conj().imag`.

    Torch resolves these marks before it calls `__torch_dispatch__`, but only for the tensors it passes. In
    the handler it has stopped looking for them, and inner tensors that bear one are taken for what they are
    not, without an error.
    """
    keys, guard = torch._C.DispatchKey, torch._C._SetExcludeDispatchKeyGuard
    with guard(keys.Conjugate, False), guard(keys.Negative, False):
        yield


def no_rule(cls: type, func: Any) -> NotImplementedError:
    """The error for an op (or what `func` prints as) that a class does not handle."""
    return NotImplementedError(f"{cls.__name__} has no rule for {func}")


def take_apart(cls: type, func: Any, args: Any, kwargs: Any) -> Any:
    """The default of a strict class: ops made of other ops are taken apart, the rest is refused.

    Autograd takes ops like reshape apart before they come here. Under inference_mode, and for ops called
    by a handler, there is no autograd, and they come whole.
    """
    if (out := func.decompose(*args, **kwargs)) is NotImplemented:
        raise no_rule(cls, func)
    return out


def check_pair(cls: type, x: torch.Tensor, y: torch.Tensor, dtypes: bool = True) -> None:
    """Raise ValueError for inner tensors that one outer tensor cannot describe truly."""
    for what in ("shape", *(["dtype"] if dtypes else []), "device", "layout", "stride", "storage_offset"):
        ours, others = (value() if callable(value := getattr(t, what)) else value for t in (x, y))
        if ours != others:
            way_out = "; clone() or contiguous() makes them alike" if what.startswith("st") else ""
            raise ValueError(f"{cls.__name__}: inner tensors differ in {what}: {ours}, {others}{way_out}")


def written(func: Any, args: Any, kwargs: Any) -> Iterator[Any]:
    """The tensors an op writes to, as its schema says (`Tensor(a!) self`); of a list, one by one."""
    for i, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[i] if i < len(args) else kwargs.get(argument.name)
            yield from (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def check_target(func: Any, args: Any, kwargs: Any, tensor: torch.Tensor, part: str) -> None:
    """Raise NotImplementedError if an op writes to another tensor than `tensor`, which has a `part` for the result."""
    if any(target is not tensor for target in written(func, args, kwargs)):
        raise no_rule(type(tensor), f"{func} into another tensor, which would not take the {part}")


def check_no_gradient(func: Any, tensor: torch.Tensor, way_out: str = "") -> None:
    """Raise NotImplementedError if autograd would differentiate an op its own way, not that of the class."""
    if tensor.requires_grad and torch.is_grad_enabled():
        raise no_rule(type(tensor), f"{func} with a gradient{way_out}")


def follow(func: Any, tensor: torch.Tensor, inner: torch.Tensor) -> None:
    """Give `tensor` the size that its inner tensor took: `out=` with an empty tensor is resized."""
    if tensor.shape != inner.shape and torch.Tag.inplace_view not in func.tags:
        # These ops come back to the class and do nothing to the inner tensor, which has that size already.
        tensor.resize_(inner.shape).as_strided_(inner.shape, inner.stride())


def deepcopy_wrapper(tensor: Any, memo: dict[int, Any]) -> Any:
    """`__deepcopy__` of a wrapper with its state in `__dict__`; only for leaves, as in torch.

    Torch's own takes the outer strides from `clone()` and the inner tensors from `deepcopy()`, which disagree
    on expanded tensors, and fails on views with an offset. Here the outer tensor is made from the inner ones.
    """
    if id(tensor) in memo:
        return memo[id(tensor)]
    if not tensor.is_leaf:
        raise RuntimeError(f"{type(tensor).__name__}: only leaves can be deep-copied; detach() it first")
    names, metadata = tensor.__tensor_flatten__()
    state = copy.deepcopy(tensor.__dict__, memo)
    inner = {name: state[name] for name in names}
    out = type(tensor).__tensor_unflatten__(inner, metadata, tensor.size(), tensor.stride())
    out.__dict__.update(state)  # Also what others have put there: nn.Parameter leaves its mark so.
    out.requires_grad_(tensor.requires_grad)
    out.grad = copy.deepcopy(tensor.grad, memo)
    memo[id(tensor)] = out
    return out
