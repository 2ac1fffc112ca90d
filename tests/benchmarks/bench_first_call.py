"""The first call of a program: trace, lower, compile, run."""

import pytest
import torch

from .classes import inner_tensors
from .programs import chain, pair
from .variants import INDUCTOR, VARIANTS, expect_equal, has_compiler, made

pytestmark = pytest.mark.filterwarnings("ignore:dynamo_pgo force disabled")


def first_call(benchmark, n, variant):
    """Each round has a program of its own, and a compiler without a cache."""
    benchmark.group = f"first call, {n} ops"
    x = pair()

    def setup():
        torch._dynamo.reset()
        return (chain(n),), {}

    with torch._inductor.config.patch(force_disable_caches=True):
        expect_equal(variant, inner_tensors(made(variant, chain(n))(x)), inner_tensors(chain(n)(x)))
        benchmark.pedantic(lambda fn: made(variant, fn)(x), setup=setup, rounds=3)


@pytest.mark.parametrize("n", [1, 100])
@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant != "floor"])
def test_a_first_call(benchmark, n, variant):
    first_call(benchmark, n, variant)


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("n", [1, 100])
@pytest.mark.parametrize("variant", INDUCTOR)
def test_a_compiled_first_call(benchmark, n, variant):
    first_call(benchmark, n, variant)
