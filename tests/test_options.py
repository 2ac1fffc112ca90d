"""Options that were given a value they do not take are told what they take."""

import re

import pytest
from handmade import example

from subtrace_kit import TraceError, draw, explore, save_html


@pytest.mark.parametrize(
    ("call", "what", "way_out"),
    [
        (lambda: draw(example(), 0.5), "draw(depth=0.5)", "from 0 on, or None for all levels"),
        (lambda: draw(example(), depth=-1), "draw(depth=-1)", "from 0 on"),
        (lambda: draw(example(), depth="x"), "draw(depth='x')", "from 0 on"),
        (lambda: draw(example(), depth=True), "draw(depth=True)", "from 0 on"),
        (lambda: draw(example(), rankdir="XX"), "draw(rankdir='XX')", "one of TB, LR, BT, RL"),
        (lambda: draw(example(), rankdir=None), "draw(rankdir=None)", "one of TB, LR, BT, RL"),
        (lambda: draw(example(), start="first"), "draw(start='first')", "counted as in a slice"),
        (lambda: draw(example(), stop=1.5), "draw(stop=1.5)", "counted as in a slice"),
        (lambda: draw(example(), collapse=3), "collapse= and expand= do not take 3", "a predicate on rows"),
        (lambda: draw(example(), expand=[3]), "collapse= and expand= do not take [3]", "a predicate on rows"),
        (lambda: example().to_text(levels=0), "to_text(levels=0)", "from 1 on"),
        (lambda: example().to_text(levels="all"), "to_text(levels='all')", "None for all levels"),
        (lambda: explore(example(), depth=-1), "explore(depth=-1)", "from 0 on"),
        (lambda: explore(example(), passes={"mine": 1}), "passes={'mine': ...} is an int", "passes={'mine': t}"),
        (lambda: save_html(example(), "x.html", depth="all"), "save_html(depth='all')", "from 0 on"),
        (lambda: save_html("x.html", example()), "saves at a path, not at", 'save_html(t, "trace.html")'),
        (lambda: save_html(example(), 3), "saves at a path, not at 3", 'save_html(t, "trace.html")'),
    ],
)
def test_a_value_that_is_not_taken(call, what, way_out):
    with pytest.raises(TraceError, match=re.escape(what)) as caught:
        call()
    assert way_out in caught.value.way_out


@pytest.mark.parametrize("call", [draw, explore, lambda t: save_html(t, "x.html")])
def test_what_is_no_trace(call):
    def f(x):
        return x

    with pytest.raises(TraceError, match=r"takes a trace, not a function") as caught:
        call(f)
    assert "subtrace_kit.trace(f)(*args)" in caught.value.way_out
    with pytest.raises(TraceError, match=r"takes a trace, not an int"):
        call(3)


def test_an_error_is_drawn_by_its_trace():
    error = TraceError("no")
    with pytest.raises(TraceError, match="this error has no trace"):
        draw(error)
    error.trace = example(failure="Error: no")
    assert draw(error).source == draw(error.trace).source
