"""A few random programs; the long run is `python -m tests.fuzz`."""

import pytest
from fuzz import judge, make_program, script, shrink
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.filterwarnings("ignore")


@settings(max_examples=150)
@given(st.integers(0, 2**40))
def test_trace_and_lowered_trace_are_eager_s_equal(seed):
    program = make_program(seed)
    verdict = judge(program, seed)
    if verdict.what == "fault":
        pytest.fail(script(shrink(program, verdict, seed), verdict))


def test_most_random_programs_run_traced_and_lowered():
    verdicts = [judge(make_program(seed), seed).what for seed in range(40)]
    assert verdicts.count("same") >= 30
