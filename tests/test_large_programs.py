"""Large programs: work that grows with the program and no faster, and large models that need no memory."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import subtrace_kit
from subtrace_kit import TraceError
from subtrace_kit.codegen import generate
from subtrace_kit.progress import Stage
from subtrace_kit.running import Runner
from subtrace_kit.zoo import QuantTensor, TwoTensor

# ------------------------------------------------------------------------------------ linear in the operations


class Calls:
    """Counts what Python calls, functions of C too: work that no clock disturbs."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self.note)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def note(self, frame: Any, event: str, arg: Any) -> None:
        self.count += event in ("call", "c_call")


def two() -> TwoTensor:
    return TwoTensor(torch.ones(2), torch.ones(2))


def loop(n: int) -> tuple[Any, tuple[Any, ...]]:
    """Operations one after the other."""

    def program(x: Any) -> Any:
        for _ in range(n):
            x = (-(x * 1.001)).abs()
        return x

    return program, (two(),)


def stack(n: int) -> tuple[Any, tuple[Any, ...]]:
    """Modules with wrapper weights."""
    layers = [nn.Sequential(nn.LayerNorm(2), nn.Linear(2, 2)) for _ in range(n)]
    for layer in layers:
        weight = layer[1].weight.detach()
        layer[1].weight = nn.Parameter(TwoTensor(weight, weight.clone()), requires_grad=False)
    return nn.Sequential(*layers).requires_grad_(False), (torch.ones(2, 2),)


def trained(n: int) -> tuple[Any, tuple[Any, ...]]:
    """Operations that autograd follows, with a leaf for each."""
    weights = [two().requires_grad_() for _ in range(n)]

    def program(x: Any) -> Any:
        for weight in weights:
            x = x * weight
        return x

    return program, (two(),)


def differentiated(n: int) -> tuple[Any, tuple[Any, ...]]:
    """A backward after each operation."""
    weight = nn.Parameter(torch.ones(2))

    def program(x: Any) -> Any:
        for _ in range(n):
            x = x + torch.autograd.grad((weight * x).sum(), weight)[0]
        return x

    return program, (torch.ones(2),)


def joined(n: int) -> tuple[Any, tuple[Any, ...]]:
    """One operation on many tensors."""
    return (lambda x: torch.cat([x * i for i in range(n)])), (torch.ones(2),)


def built(n: int) -> tuple[Any, tuple[Any, ...]]:
    """Many wrappers that hold one tensor."""

    def program(x: Any) -> Any:
        for _ in range(n):
            x = TwoTensor(x, x + 1).b
        return x

    return program, (torch.ones(2),)


def stages(make: Callable[[int], tuple[Any, tuple[Any, ...]]], n: int) -> dict[str, int]:
    """How much each stage does for a program of n parts."""
    program, args = make(n)
    found: dict[str, Calls] = {}
    with found.setdefault("record", Calls()):
        trace = subtrace_kit.trace(program)(*args)
    with found.setdefault("write down", Calls()):
        len(trace.bound_symbols)
    with found.setdefault("lower", Calls()):
        low = subtrace_kit.lower(trace)
    with found.setdefault("text", Calls()):
        str(trace), trace.to_text(levels=1), str(low), str(low.ledger)
    with found.setdefault("codegen", Calls()):
        generate(low)
    with found.setdefault("first run", Calls()):
        Runner(low)(args, {})
    with found.setdefault("second run", Calls()):
        low(*args)
    return {stage: calls.count for stage, calls in found.items()}


@pytest.mark.parametrize("make", [loop, stack, trained, differentiated, joined, built])
def test_twice_the_program_is_twice_the_work(make: Callable[[int], tuple[Any, tuple[Any, ...]]]) -> None:
    stages(make, 3)  # what is done once for each class and op is not counted
    once, twice = stages(make, 60), stages(make, 120)
    assert {stage: round(twice[stage] / once[stage], 2) for stage in once if twice[stage] > 2.2 * once[stage]} == {}


def wrappers() -> int:
    """How many there are."""
    return sum(type(obj) is TwoTensor for obj in gc.get_objects())


def test_a_recording_keeps_no_intermediate_tensor_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    living: list[int] = []

    def tick(stage: Stage) -> None:
        living.append(wrappers())

    program, args = loop(4)
    before = wrappers()
    monkeypatch.setattr(Stage, "tick", tick)
    trace = subtrace_kit.trace(program)(*args)
    assert len(trace.bound_symbols) == 12
    assert max(living) - before <= 3  # the last value, an intermediate one, and the one that is made


# -------------------------------------------------------------------------------- a model that needs no memory

WIDTH, LAYERS, HEADS = 1024, 24, 16


class QuantLinear(nn.Module):
    """A linear map with int8 weights."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        quant = QuantTensor(torch.empty(outputs, inputs, dtype=torch.int8), torch.empty(outputs, 1), 0)
        self.weight = nn.Parameter(quant, requires_grad=False)
        self.bias = nn.Parameter(torch.empty(outputs), requires_grad=False)

    def forward(self, x: Any) -> Any:
        return nn.functional.linear(x, self.weight, self.bias)


class Block(nn.Module):
    """A layer of a transformer: attention and MLP."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = QuantLinear(width, 3 * width), QuantLinear(width, width)
        self.up, self.down = QuantLinear(width, 4 * width), QuantLinear(4 * width, width)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


def transformer(layers: int = LAYERS, width: int = WIDTH) -> nn.Module:
    return nn.Sequential(*[Block(width) for _ in range(layers)]).requires_grad_(False)


def check_transformer(model: nn.Module, x: torch.Tensor) -> None:
    """Trace, lower and print it; the operations are those of its layers."""
    trace = subtrace_kit.trace(model, fake=True)(x)
    low = subtrace_kit.lower(trace)
    for layer in range(LAYERS):
        mine = Counter(b.symbol.name for b in trace.bound_symbols if b.module.split(".")[0] == str(layer))
        assert (mine["torch.nn.functional.linear"], mine["torch.nn.functional.layer_norm"]) == (4, 2)
        assert mine["torch.nn.functional.scaled_dot_product_attention"] == 1
        assert mine.total() == 15
        plain = Counter(b.symbol.name for b in low.bound_symbols if b.module.split(".")[0] == str(layer))
        assert (plain["aten.addmm.default"], plain["aten.mul.Tensor"]) == (4, 4)
    assert [c.kept for c in low.ledger] == [False] * (4 * LAYERS)
    assert low.provenance[-1] == f"elide constructors: {4 * LAYERS} of {4 * LAYERS} elided"
    assert f"i8[{3 * WIDTH}, {WIDTH}]" in str(trace)
    compile(str(low), "low.py", "exec")


MEMORY = """
import resource, sys
sys.path.insert(0, {tests!r})
import torch
from test_large_programs import FakeTensorMode, check_transformer, transformer

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

x = torch.empty(1, 128, 1024)
before = peak()
with {where}:
    model = transformer()
    x = torch.empty(1, 128, 1024)
check_transformer(model, x)
print(peak() - before, sum(p.numel() for p in model.parameters()) / 1e6)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no module resource")
@pytest.mark.parametrize("where", ["FakeTensorMode()", "torch.device('meta')"])
def test_a_transformer_of_24_layers_needs_no_memory(where: str) -> None:
    code = MEMORY.format(tests=str(Path(__file__).parent), where=where)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    grown, weights = map(float, done.stdout.split())
    assert weights > 300
    assert grown < weights / 2


def test_fake_parameters_take_a_real_argument() -> None:
    with FakeTensorMode():
        model = transformer(1, 64)
    x = torch.ones(1, 4, 64)
    trace = subtrace_kit.trace(model, fake=True)(x)
    assert str(trace) == str(subtrace_kit.trace(transformer(1, 64), fake=True)(x))
    with pytest.raises(TraceError, match="shapes without data") as caught:
        subtrace_kit.lower(trace)(x)
    assert "give the parameters data" in str(caught.value)


def test_fake_parameters_and_a_real_argument_without_fake() -> None:
    with FakeTensorMode():
        model = transformer(1, 64)
    with pytest.raises(TraceError, match="shapes without data") as caught:
        subtrace_kit.trace(model)(torch.ones(1, 4, 64))
    assert "fake=True" in str(caught.value)


def test_real_parameters_are_recorded_by_shape_and_run_by_value() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    weight = model.weight.detach().clone()
    trace = subtrace_kit.trace(model, fake=True)(torch.ones(1, 3))
    assert torch.equal(model.weight, weight)
    assert type(model.weight) is nn.Parameter
    assert torch.equal(trace(torch.ones(1, 3)), model(torch.ones(1, 3)))


def test_parameters_on_meta_and_an_argument_that_is_not() -> None:
    with torch.device("meta"):
        model = transformer(1, 64)
    with pytest.raises(TraceError, match="cpu and meta"):
        subtrace_kit.trace(model, fake=True)(torch.ones(1, 4, 64))
