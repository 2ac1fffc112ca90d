"""The backend "inductor": a part of a trace, compiled by torch's own compiler, without its guards.

All use of torch._inductor stands in this file; it is loaded at the first compilation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .errors import TraceError
from .intercept import FakeTensorMode
from .to_fx import to_fx
from .trace import Trace

__all__ = ["compile_with_inductor"]

_lock = threading.RLock()  # inductor's settings are one for all threads
_OURS = {"size_asserts": False, "alignment_asserts": False, "emulate_precision_casts": True}
"""The guards of a trace have checked its arguments. Low precision is rounded after each op, as in eager."""


def compile_with_inductor(part: Trace, *, options: Mapping[str, Any] | None = None) -> Callable[..., Any]:
    """Compile a part of a lowered trace.

    Args:
        part: Plain tensors in, a tuple of plain tensors out.
        options: Settings of inductor by name, as torch.compile takes them.

    Returns:
        What inductor made: a function of the tensors, without guards.

    Raises:
        TraceError: There is no C++ compiler, or no such option.
    """
    with _lock:
        _expect_options(options or {})
        if any(proxy.device.type == "cpu" for proxy in part.results):  # type: ignore[attr-defined]
            _expect_compiler()
        return _compiled(part, {**_OURS, **(options or {})})


def _compiled(part: Trace, settings: dict[str, Any]) -> Callable[..., Any]:
    from torch._functorch import config as functorch_config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner

    made: list[Any] = []

    def inner(graph: Any, inputs: Any, **rest: Any) -> Any:
        made.append((compile_fx_inner(graph, inputs, **rest), len(inputs)))
        return made[-1][0]

    module, count = to_fx(part), len(part.guard.arguments)
    with functorch_config.patch(enable_autograd_cache=False):  # it would give the whole, without a call of `inner`
        whole: Any = compile_fx(module, _fakes(part), inner_compile=inner, config_patches=settings)
    if len(made) == 1 and made[0][1] == count and callable(getattr(made[0][0], "current_callable", None)):
        call = made[0][0].current_callable
        return lambda *tensors: call([*tensors])
    return whole


def _fakes(part: Trace) -> list[torch.Tensor]:
    """Tensors without memory of the kind that the part takes."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with FakeTensorMode(shape_env=ShapeEnv()):  # without one, inductor leaves its cache on disk alone
        return [torch.empty_strided(p.shape, p.stride, dtype=p.dtype, device=p.device) for p in part.guard.proxies]


def _expect_options(options: Mapping[str, Any]) -> None:
    from torch._inductor import config

    if options.get("triton.cudagraphs"):
        raise TraceError(
            "inductor's own CUDA graphs hand out results that the next run overwrites",
            cause='options={"triton.cudagraphs": True}',
            way_out='jit(fn, backend="cudagraphs"), which copies them',
        )
    known = config.get_config_copy()
    for name in options:
        if name not in known:
            raise TraceError(
                f"inductor has no option {name!r}",
                cause="a name that is misspelt, or of another version of torch",
                way_out='jit(fn, backend="inductor", options={...}) with names of torch._inductor.list_options()',
            )


def _expect_compiler() -> None:
    from torch._inductor import cpp_builder

    try:
        cpp_builder.get_cpp_compiler()
    except Exception as error:
        raise TraceError(
            'jit(backend="inductor") found no C++ compiler that works',
            cause="on CPU, inductor writes C++ and needs g++ or clang++ to build it",
            way_out='install g++ (or set CXX to another compiler), or use jit(fn, backend="eager")',
        ) from error
