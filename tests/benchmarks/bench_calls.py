"""Calls without gradients."""

import pytest

from .programs import SUBJECTS
from .variants import INDUCTOR, VARIANTS, calls, has_compiler


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("n", [1, 10, 100])
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_call(benchmark, subject, n, variant):
    benchmark.group = f"call, {subject}, {n} ops"
    run = calls(subject, n, variant)
    benchmark(run.call, *run.args)


@pytest.mark.skipif(not has_compiler(), reason="no C++ compiler")
@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("n", [1, 10, 100])
@pytest.mark.parametrize("variant", INDUCTOR)
def test_a_compiled_call(benchmark, subject, n, variant):
    benchmark.group = f"call, {subject}, {n} ops"
    run = calls(subject, n, variant)
    benchmark(run.call, *run.args)
