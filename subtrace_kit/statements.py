"""One bound symbol as one Python statement."""

from __future__ import annotations

import keyword
from typing import Any

import torch

from . import ops
from .intercept import WithOpaque
from .literals import Literals
from .owners import MISSING
from .proxies import Proxy, SubclassTensorProxy, TensorProxy
from .symbols import BoundSymbol, Kind

__all__ = ["statement"]


def statement(bound: BoundSymbol, literals: Literals) -> str:
    """Source text that runs an operation and gives its results their names.

    Args:
        bound: The operation.
        literals: Collects imports and objects.
    """
    if bound.symbol.kind is Kind.PRIM and bound.symbol in _PRIMS:
        return _PRIMS[bound.symbol](bound, literals)
    call = _EXPRESSIONS[bound.symbol.kind](bound, literals)
    if bound.symbol is ops.BUMP and bound.context is not None and bound.context.inference:
        return f"{bound.args[0].name}.is_inference() or {call}"  # inference tensors have no version
    new = {proxy.name for proxy in bound.results}
    if not new:
        return call
    return f"{_target(bound.output, new)} = {call}"


def _target(output: Any, new: set[str]) -> str:
    """The left side: names of new values, `_` for the rest."""
    if isinstance(output, Proxy):
        return output.name if output.name in new else "_"
    if isinstance(output, (list, tuple)):
        inner = ", ".join(_target(item, new) for item in output)
        return f"({inner}{',' if len(output) == 1 else ''})" if inner else "_"
    return "_"


def arguments(bound: BoundSymbol, literals: Literals, skip: int = 0) -> str:
    """The arguments of a call as text."""
    parts = [literals.text(a) for a in bound.args[skip:]]
    parts += [f"{key}={literals.text(value)}" for key, value in bound.kwargs.items()]
    return ", ".join(parts)


def _function(bound: BoundSymbol, literals: Literals) -> str:
    name, fn = bound.symbol.name, bound.symbol.fn
    if name.startswith("torch.Tensor.") and bound.args and isinstance(bound.args[0], TensorProxy):
        return _method(bound, literals, name.removeprefix("torch.Tensor."))
    if name.startswith("torch.") and _resolves(name, fn):
        return f"{name}({arguments(bound, literals)})"
    if isinstance(fn, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"{_op_name(str(fn))}({arguments(bound, literals)})"
    known = literals.importable(fn) or literals.named(fn, "function")
    return f"{known}({arguments(bound, literals)})"


def _method(bound: BoundSymbol, literals: Literals, name: str) -> str:
    """A method call or property access; spelled out where the class overrides the name."""
    owner: TensorProxy = bound.args[0]
    cls = owner.cls if isinstance(owner, SubclassTensorProxy) else torch.Tensor
    if "." in name:  # a property: grad.__get__, requires_grad.__set__
        attribute, kind = name.split(".", 1)
        if getattr(cls, attribute, None) is getattr(torch.Tensor, attribute):
            if kind == "__get__":
                return f"{owner.name}.{attribute}"
            if kind == "__set__":
                return f"{owner.name}.{attribute} = {literals.text(bound.args[1])}"
        return f"torch.Tensor.{name}({arguments(bound, literals)})"
    if getattr(cls, name, None) is getattr(torch.Tensor, name, None) and not name.startswith("__"):
        return f"{owner.name}.{name}({arguments(bound, literals, 1)})"
    if name == "__getitem__" and getattr(cls, name) is torch.Tensor.__getitem__ and not bound.kwargs:
        return f"{owner.name}[{literals.text(bound.args[1])}]"
    if name == "__deepcopy__":
        return f"torch.Tensor.__deepcopy__({owner.name}, {{}})"
    return f"torch.Tensor.{name}({arguments(bound, literals)})"


def _resolves(name: str, fn: Any) -> bool:
    found: Any = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return found is fn


def _op_name(name: str) -> str:
    space, op, overload = (name if name.startswith("aten.") else f"torch.ops.{name}").rpartition(".")
    return f"getattr({space}, {overload!r})" if keyword.iskeyword(overload) else f"{space}{op}{overload}"


def op_text(bound: BoundSymbol, literals: Literals) -> str:
    """The overload itself, as text."""
    return _op_name(bound.symbol.name)


def _aten(bound: BoundSymbol, literals: Literals) -> str:
    return f"{_op_name(bound.symbol.name)}({arguments(bound, literals)})"


def _apply(bound: BoundSymbol, literals: Literals) -> str:
    cls = literals.importable(bound.symbol.fn) or literals.named(bound.symbol.fn, bound.symbol.fn.__name__)
    return f"{cls}.apply({arguments(bound, literals)})"


def _constructor(bound: BoundSymbol, literals: Literals) -> str:
    """Build a wrapper from its inner tensors, with the recorded outer size and stride."""
    proxy: SubclassTensorProxy = bound.output
    cls = literals.importable(proxy.cls) or literals.named(proxy.cls, proxy.cls.__name__)
    parts = [f"{name!r}: {part.name}" for name, part in proxy.inner]
    metadata = proxy.metadata
    if isinstance(metadata, WithOpaque):
        parts += [f"{name!r}: {literals.text(value)}" for name, value in metadata.opaque]
        metadata = metadata.metadata
    inner = ", ".join(parts)
    rest = ", ".join(literals.text(v) for v in (metadata, torch.Size(proxy.shape), tuple(proxy.stride)))
    flag = bound.kwargs.get("requires_grad", False)
    natural = any(part.requires_grad for _, part in proxy.inner)
    tail = f".requires_grad_({flag})" if flag or natural else ""
    return f"{cls}.__tensor_unflatten__({{{inner}}}, {rest}){tail}"


def _prim(bound: BoundSymbol, literals: Literals) -> str:
    return f"{bound.symbol.name}({arguments(bound, literals)})"


def _getattr(bound: BoundSymbol, literals: Literals) -> str:
    owner, name = bound.args
    return f"{bound.output.name} = {owner.name}.{name}"


def _setattr(bound: BoundSymbol, literals: Literals) -> str:
    owner, name, value = bound.args
    return f"{owner.name}.{name} = {literals.text(value)}"


def _delattr(bound: BoundSymbol, literals: Literals) -> str:
    owner, name = bound.args
    return f"del {owner.name}.{name}"


def _store(bound: BoundSymbol, literals: Literals) -> str:
    """What the program puts into an object, list or dict from outside."""
    owner, how, key, value = bound.args
    target = {"attribute": f".{key}", "item": f"[{literals.text(key)}]", "items": "[:]"}[how]
    if value is MISSING:
        return f"del {owner.name}{target}"
    return f"{owner.name}{target} = {literals.text(value)}"


def _leaves_torch(bound: BoundSymbol, literals: Literals) -> str:
    return f"pass  # {bound.args[0]} takes data out of torch here"


_PRIMS = {
    ops.GETATTR: _getattr,
    ops.SETATTR: _setattr,
    ops.DELATTR: _delattr,
    ops.STORE: _store,
    ops.ESCAPE: _leaves_torch,
}

_EXPRESSIONS = {
    Kind.FUNCTION: _function,
    Kind.ATEN: _aten,
    Kind.APPLY: _apply,
    Kind.CONSTRUCTOR: _constructor,
    Kind.PRIM: _prim,
}
