"""Hand-made traces for the tests of the view model and of pictures."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch

from subtrace_kit.guards import Argument
from subtrace_kit.proxies import SubclassTensorProxy, TensorProxy, proxy_kind
from subtrace_kit.source import Source
from subtrace_kit.symbols import BoundSymbol, Kind, Symbol, constructor_symbol
from subtrace_kit.trace import Capture, Trace

CPU = torch.device("cpu")


class Pair(torch.Tensor):
    """A wrapper class, never built here."""


def plain(name: str, shape: tuple[int, ...] = (4,)) -> TensorProxy:
    return TensorProxy(name, shape, (1,), torch.float32, CPU)


def pair(name: str, a: TensorProxy, b: TensorProxy, cls: type = Pair, metadata: Any = None) -> Any:
    return proxy_kind(cls)(name, (4,), (1,), torch.float32, CPU, cls=cls, inner=(("a", a), ("b", b)), metadata=metadata)


def call(name: str, args: Any, output: Any = None, *inside: BoundSymbol, **fields: Any) -> BoundSymbol:
    kind = fields.pop("kind", Kind.ATEN if name.startswith("aten.") else Kind.FUNCTION)
    return BoundSymbol(Symbol(name, kind), tuple(args), {}, output, tuple(inside), **fields)


def build(value: SubclassTensorProxy) -> BoundSymbol:
    return BoundSymbol(constructor_symbol(value.cls), tuple(p for _, p in value.inner), {}, value)


def make(rows: Any, *, inputs: Any = (), output: Any = None, name: str = "f", **fields: Any) -> Trace:
    arguments = tuple(Argument(proxy.name, proxy) for proxy in inputs)
    guard: Any = SimpleNamespace(proxies=tuple(inputs), arguments=arguments)
    return Trace(name, guard, tuple(rows), output, ("recorded from f",), **fields)


X = pair("x", plain("x_a"), plain("x_b"))
W = plain("w")
MUL = pair("mul", plain("mul_1"), plain("mul_2"))
SIN = pair("sin", plain("sin_1"), plain("sin_2"))


def mul() -> BoundSymbol:
    """`mul = torch.mul(x, w)` on all three levels."""
    inside = (
        call("aten.mul.Tensor", (X.inner[0][1], W), MUL.inner[0][1]),
        call("aten.mul.Tensor", (X.inner[1][1], W), MUL.inner[1][1]),
        build(MUL),
    )
    line = Source("model.py", 3, "f")
    return call("torch.mul", (X, W), MUL, call("aten.mul.Tensor", (X, W), MUL, *inside), source=line)


def sin() -> BoundSymbol:
    """`sin = torch.sin(mul)`."""
    inside = (
        call("aten.sin.default", (MUL.inner[0][1],), SIN.inner[0][1]),
        call("aten.sin.default", (MUL.inner[1][1],), SIN.inner[1][1]),
        build(SIN),
    )
    return call("torch.sin", (MUL,), SIN, call("aten.sin.default", (MUL,), SIN, *inside))


def example(**fields: Any) -> Trace:
    """`torch.sin(torch.mul(x, w))`, with x a Pair."""
    return make((mul(), sin()), inputs=(X, W), output=SIN, **fields)


def chain(length: int) -> Trace:
    """A plain program of `length` operations of one level, each on the result of the one before."""
    values = [plain(f"t{i}") for i in range(length + 1)]
    rows = [call("torch.relu", (a,), b) for a, b in pairwise(values)]
    return make(rows, inputs=values[:1], output=values[-1])


def captured(proxy: TensorProxy, path: str) -> Capture:
    return Capture(proxy, path, lambda: None)
