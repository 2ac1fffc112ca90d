"""Long traces: they open folded, the list and the picture are windows, and a step does not grow with the trace."""

import time
from itertools import pairwise

import pytest
from handmade import call, chain, make, plain

from subtrace_kit import explore
from subtrace_kit.explorer_widget import LISTED, ExplorerWidget
from subtrace_kit.scene import DRAWN, scene
from subtrace_kit.trace import Trace


def irregular(length: int) -> Trace:
    """A long program in which nothing repeats."""
    values = [plain(f"t{i}", (i + 1,)) for i in range(length + 1)]
    rows = [call("torch.cat", (a,), b, call("aten.cat.default", (a,), b)) for a, b in pairwise(values)]
    return make(rows, inputs=values[:1], output=values[-1])


def quickest_step(widget: ExplorerWidget) -> float:
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        widget.show(widget.state.step())
        times.append(time.perf_counter() - begin)
    return min(times)


@pytest.mark.parametrize("length", [10_000, 100_000])
def test_a_long_trace_opens_folded_and_steps(length: int) -> None:
    widget = explore(chain(length))
    assert "folded to level 1" in widget.state.message
    assert len(widget.list.options) == 1
    widget.show(widget.state.expand().to(length // 2))
    assert len(widget.list.options) == LISTED
    assert len(list(scene(widget.state).shown.walk())) < DRAWN
    assert quickest_step(widget) < 0.2


def test_a_long_trace_in_which_nothing_repeats() -> None:
    widget = explore(irregular(10_000))
    assert len(widget.state.lines) == 10_000
    assert len(widget.list.options) == LISTED
    assert "of 10000 shown" in widget.status.value
    widget.show(widget.state.last())
    assert scene(widget.state).shown.outputs
    assert quickest_step(widget) < 0.2
