"""Calls with forward and backward."""

import pytest

from .variants import INDUCTOR, VARIANTS, has_compiler, steps


@pytest.mark.parametrize("n", [1, 10, 100])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step(benchmark, n, variant):
    benchmark.group = f"forward and backward, {n} ops"
    benchmark(steps(n, variant))


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("n", [1, 10, 100])
@pytest.mark.parametrize("variant", INDUCTOR)
def test_a_compiled_step(benchmark, n, variant):
    benchmark.group = f"forward and backward, {n} ops"
    benchmark(steps(n, variant))
