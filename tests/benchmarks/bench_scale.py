"""Long programs: each stage should take ten times as long for ten times the ops."""

import pytest

import subtrace_kit
from subtrace_kit.running import Runner

from .classes import inner_tensors
from .programs import chain, pair
from .variants import expect_equal

SIZES = [1, 1_000, 10_000]


@pytest.mark.parametrize("n", SIZES)
def test_tracing(benchmark, n):
    benchmark.group = f"stages, {n} ops"
    trace = subtrace_kit.trace(chain(n))
    benchmark.pedantic(trace, (pair(),), rounds=3)


@pytest.mark.parametrize("n", SIZES)
def test_lowering(benchmark, n):
    benchmark.group = f"stages, {n} ops"
    benchmark.pedantic(subtrace_kit.lower, (subtrace_kit.trace(chain(n))(pair()),), rounds=3)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("stage", [Runner, str])
def test_code_and_text(benchmark, n, stage):
    benchmark.group = f"stages, {n} ops"
    benchmark.pedantic(stage, (subtrace_kit.lower(subtrace_kit.trace(chain(n))(pair())),), rounds=3)


@pytest.mark.parametrize("n", SIZES)
def test_running(benchmark, n):
    benchmark.group = f"stages, {n} ops"
    fn, x = chain(n), pair()
    lowered = subtrace_kit.lower(subtrace_kit.trace(fn)(x))
    expect_equal("lowered", inner_tensors(lowered(x)), inner_tensors(fn(x)))
    benchmark(lowered, x)
