"""The backends of jit: what runs the plain parts of a lowered trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .cudagraphs import compile_with_cudagraphs
from .errors import TraceError
from .inductor import compile_with_inductor

__all__ = ["Backend", "find_backend", "register_backend"]

Compile = Callable[..., Callable[..., Any]]


@dataclass(frozen=True)
class Backend:
    """What runs lowered traces.

    Args:
        name: What users call it.
        compile: Takes a plain part of a trace and gives what runs it; None runs the generated Python.
    """

    name: str
    compile: Compile | None = None

    def unknown(self, options: dict[str, Any]) -> dict[str, Any]:
        """Those of some options that it does not take."""
        if self.compile is None:
            return options
        parameters = list(inspect.signature(self.compile).parameters.values())[1:]
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return {}
        names = {parameter.name for parameter in parameters}
        return {key: value for key, value in options.items() if key not in names}


_backends = {
    "eager": Backend("eager"),
    "inductor": Backend("inductor", compile_with_inductor),
    "cudagraphs": Backend("cudagraphs", compile_with_cudagraphs),
}
_own = frozenset(_backends)


def register_backend(name: str, compile: Compile) -> None:
    """Let `jit(fn, backend=name)` run the plain parts of lowered traces in another way.

    A lowered trace is cut into parts: runs of operations that only compute tensors from tensors, and what lies
    between (autograd, writes, wrapper objects, numbers), which stays the kit's own. `compile` is called once for
    each part of each kind of input.

    Args:
        name: What users will call it. A name that was registered before gets the new function.
        compile: Takes a Trace whose inputs are plain tensors, given by position, and whose result is a tuple of
            plain tensors; options that `jit` was given follow by name. It returns a function of those tensors
            that gives such a tuple (or list): no view of an input, nothing written. `NotImplementedError("why")`
            leaves the part as it is, and `explain()` tells why.

    Raises:
        TraceError: The name is one of the kit's own, or there is nothing to call.

    Example:
        >>> import torch, subtrace_kit
        >>> def compile_part(part):
        ...     print(f"{len(part.bound_symbols)} ops")
        ...     return subtrace_kit.to_fx(part)
        >>> subtrace_kit.register_backend("counted", compile_part)
        >>> f = subtrace_kit.jit(lambda x: x.sin() + 1, backend="counted")
        >>> f(torch.zeros(2))
        2 ops
        tensor([1., 1.])
    """
    if name in _own:
        raise TraceError(f"{name!r} is a backend of the kit", way_out="register yours under another name")
    if not isinstance(name, str) or not callable(compile):
        raise TraceError(
            "register_backend() takes a name and a function",
            cause="the function alone was given, or the result of a call",
            way_out="subtrace_kit.register_backend('name', function)",
        )
    _backends[name] = Backend(name, compile)


def find_backend(name: str) -> Backend:
    """The backend of a name.

    Raises:
        TraceError: There is none; the error lists those that there are.
    """
    if not isinstance(name, str) or name not in _backends:
        raise TraceError(
            f"jit has no backend {name!r}",
            cause="a name that is misspelt, or that register_backend() was not called for",
            way_out=f"one of {', '.join(map(repr, _backends))}",
        )
    return _backends[name]
