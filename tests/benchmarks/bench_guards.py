"""The check of the input, alone."""

import pytest

from .guards import CHECKS, GUARDED, guard


@pytest.mark.parametrize("name", GUARDED)
@pytest.mark.parametrize("check", CHECKS)
def test_a_guard(benchmark, name, check):
    benchmark.group = f"guard, {name}"
    call, args = guard(name, check)
    benchmark(call, *args)
