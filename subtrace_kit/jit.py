"""jit: a trace for each kind of input, made when it is first met."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from .called import expect_program, name_of
from .errors import TraceError
from .intercept import current_listener
from .passes import lower
from .repeatable import Repeatable, random_state, repeatable
from .running import is_changed_data, runner
from .trace import Trace
from .tracing import trace

__all__ = ["jit"]

LIMIT = 64
"""Kinds of input after which a program is taken to have too many."""


def jit(fn: Callable[..., Any], *given: Any, backend: str = "eager", **named: Any) -> Callable[..., Any]:
    """Run a program through lowered traces, one for each kind of input.

    Args:
        fn: A function or an nn.Module.
        *given: Nothing: the program's arguments belong into the second call.
        backend: "eager" runs the lowered ops one by one.
        **named: Nothing, likewise.

    Returns:
        A function that is called like `fn`. Its attribute `traces` lists the lowered traces. Of a module it
        has the attributes too (`parameters()`, `eval()`), but it is none: put the module into other modules.
        Inside a program that is recorded it is `fn` itself.

    Raises:
        TraceError: The program cannot be traced or lowered, or meets too many kinds of input.

    Example:
        >>> import torch, subtrace_kit
        >>> f = subtrace_kit.jit(lambda x: x * 2)
        >>> f(torch.ones(2)), f(torch.ones(3)), len(f.traces)
        (tensor([2., 2.]), tensor([2., 2., 2.]), 2)
    """
    expect_program(fn, "jit", given, named)
    if backend != "eager":
        raise TraceError(f"jit has no backend {backend!r}", cause="only lowered ops are run", way_out='backend="eager"')
    return _Jitted(fn)


class _Jitted:
    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.traces: list[Trace] = []
        self.again: dict[int, Repeatable] = {}  # by the id of the trace
        functools.update_wrapper(self, fn, updated=())

    def __repr__(self) -> str:
        return f"jit({name_of(self.fn)}): call it like the program; {len(self.traces)} traces so far"

    def __getattr__(self, name: str) -> Any:
        if name == "fn" or not isinstance(self.fn, torch.nn.Module):
            raise AttributeError(f"a jitted function has no attribute {name!r}")
        return getattr(self.fn, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arguments of any kind."""
        if current_listener() is not None:
            return self.fn(*args, **kwargs)  # the outer recording takes it in
        for known in self.traces:
            if (captured := runner(known).fitting(args, kwargs)) is None:
                continue
            again = self.again[id(known)]
            give_back = random_state() if again.allowed and again.draws else None
            try:
                return runner(known).run(args, kwargs, captured)
            except TraceError as error:
                if not (is_changed_data(error) and again.allowed):
                    raise
                if give_back is not None:
                    give_back()
        if len(self.traces) >= LIMIT:
            raise TraceError(
                f"{LIMIT} kinds of input so far",
                cause="an argument, or a number from data, that is another Python number or shape at each call",
                way_out="pass such numbers as tensors",
            )
        self.traces.insert(0, lower(trace(self.fn)(*args, **kwargs)))
        self.again[id(self.traces[0])] = repeatable(self.traces[0])
        return self.traces[0](*args, **kwargs)
