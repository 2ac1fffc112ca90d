"""What a trace is as an object of Python."""

import copy
import pickle

import pytest
from handmade import example, make

from subtrace_kit import TraceError


@pytest.mark.parametrize("done", [pickle.dumps, copy.deepcopy])
def test_a_trace_belongs_to_its_process(done):
    with pytest.raises(TraceError, match=r"a trace cannot be") as caught:
        done(make(()))
    assert "own objects" in caught.value.cause
    assert caught.value.way_out


def test_a_copy_of_a_trace_is_the_trace():
    t = example()
    assert copy.copy(t) is t
