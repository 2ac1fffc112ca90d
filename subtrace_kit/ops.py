"""What is special to an op or a function, in tables with a default."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from .intercept import OpOverload, function_name
from .proxies import TensorProxy
from .symbols import Kind, Symbol

__all__ = ["OpInfo", "function_symbol", "op_info"]

aten = torch.ops.aten

TENSOR_PROPERTIES = frozenset({"grad", "data", "T", "mT", "H", "mH", "real", "imag"})
"""Properties of a tensor that are tensors; all others are questions about its kind."""

QUESTIONS = frozenset({"is_leaf", "retains_grad", "_version"})
"""Properties of a tensor with an answer that a guard does not know."""

PRINTING = frozenset({"__repr__", "__str__", "__format__"})

LEAVES_TORCH = {
    "numpy": ".numpy()",
    "__array__": "a conversion to numpy",
    "tolist": ".tolist()",
    "__reduce_ex__": "pickling (torch.save, copy)",
    "__reduce__": "pickling",
    "__dlpack__": "DLPack export",
}
"""Functions that take the data of a tensor out of torch."""

HOOKS = frozenset({"register_hook", "register_post_accumulate_grad_hook"})

BACKWARD = frozenset({"backward", "grad"})
"""Functions that run a backward: it reaches what the forward saved."""

DUAL = frozenset({"_make_dual", "_unpack_dual"})
"""Functions of forward-mode autograd."""

GRAPH_CHANGES = frozenset({"detach_", "retain_grad"})
"""Functions that change what autograd knows of a tensor, without writing it."""

BRANCHES = frozenset({"__bool__", "is_nonzero"})

EFFECTS = frozenset(
    {
        "manual_seed", "seed", "set_rng_state", "backward", "retain_grad",
        "register_hook", "register_post_accumulate_grad_hook",
        "__set__", "__delete__", "share_memory_", "requires_grad_", "detach_", "rename_",
    }
)  # fmt: skip
"""Functions that do something which no ATen op below them shows."""

UNDECLARED_WRITES = {
    aten.native_batch_norm.default: (3, 4),
    aten.cudnn_batch_norm.default: (3, 4),
    aten.miopen_batch_norm.default: (3, 4),
}
"""Arguments that an op writes although its schema does not say so."""


@dataclass(frozen=True)
class OpInfo:
    """What the recorder needs to know of an ATen overload.

    Args:
        symbol: It as a symbol.
        writes: Positions of the arguments that it writes.
        writes_by_name: Names of the keyword arguments that it writes.
        random: Whether it draws random numbers.
        reads: Whether its result is a Python value that depends on data.
        dynamic: Whether the shape of its result depends on data.
        returns: How many results its schema has.
        takes_storage: Whether it makes a tensor of raw storage.
        mutable: Whether it writes any argument.
        check: Whether it is there to fail on some data: it has no result. The marks of a profiler are none.
    """

    symbol: Symbol
    writes: tuple[int, ...]
    writes_by_name: tuple[str, ...]
    random: bool
    reads: bool
    dynamic: bool
    returns: int
    takes_storage: bool
    mutable: bool
    check: bool


@cache
def op_info(func: OpOverload) -> OpInfo:
    """What is special about an ATen overload, from its schema and tags."""
    schema = func._schema
    written = [(i, a) for i, a in enumerate(schema.arguments) if a.alias_info and a.alias_info.is_write]
    positions = tuple(i for i, a in written if not a.kwarg_only)
    names = tuple(a.name for _, a in written)
    return OpInfo(
        Symbol(str(func), Kind.ATEN, func),
        UNDECLARED_WRITES.get(func, positions),
        names,
        torch.Tag.nondeterministic_seeded in func.tags,
        torch.Tag.data_dependent_output in func.tags or func is aten.is_nonzero.default,
        torch.Tag.dynamic_output_shape in func.tags,
        len(schema.returns),
        any(str(argument.type) == "Storage" for argument in schema.arguments),
        bool(UNDECLARED_WRITES.get(func, written)),
        not schema.returns and func.namespace != "profiler",
    )


def written(args: tuple, kwargs: dict, info: OpInfo) -> list[Any]:
    """What an op writes, of its arguments: tensors or their proxies."""
    found = [args[i] for i in info.writes if i < len(args)]
    found += [kwargs[name] for name in info.writes_by_name if name in kwargs]
    flat = [one for item in found for one in (item if isinstance(item, (list, tuple)) else (item,))]
    return [one for one in flat if isinstance(one, (torch.Tensor, TensorProxy))]


_functions: dict[Any, Symbol] = {}


def function_symbol(func: Any) -> Symbol:
    """A torch function as a symbol. A property's getter is a new object at each call: not kept."""
    if getattr(func, "__name__", "") in ("__get__", "__set__", "__delete__"):
        return Symbol(function_name(func), Kind.FUNCTION, func)
    if (symbol := _functions.get(func)) is None:
        symbol = _functions[func] = Symbol(function_name(func), Kind.FUNCTION, func)
    return symbol


LIFT = aten.lift_fresh.default
"""What `torch.tensor` sends for the data that it was given."""

GETATTR = Symbol("getattr", Kind.PRIM)
SETATTR = Symbol("setattr", Kind.PRIM)
DELATTR = Symbol("delattr", Kind.PRIM)
RESTRIDE = Symbol("restride", Kind.PRIM)
ESCAPE = Symbol("leaves_torch", Kind.PRIM)
STORE = Symbol("store", Kind.PRIM)
BUMP = Symbol("torch.autograd.graph.increment_version", Kind.FUNCTION, torch.autograd.graph.increment_version)
"""Tells autograd that a wrapper object was written, where a lowered trace writes its inner tensors instead."""

STATE_WRITES = (SETATTR, DELATTR, RESTRIDE)
"""Prims that change a wrapper object, not its inner tensors."""
