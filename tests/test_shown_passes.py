import pytest
from handmade import example

from subtrace_kit import TraceError
from subtrace_kit.shown_passes import Passes


def test_a_pass_that_is_not_there_is_told_which_are():
    passes = Passes.of(example())
    for ask in (passes.sheet, passes.trace, passes.problem):
        with pytest.raises(TraceError, match="there is no pass 'x'") as caught:
            ask("x")
        assert caught.value.way_out.startswith("choose one of as written")
