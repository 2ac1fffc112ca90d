"""Calls of the kit that were written another way than they are meant are told the right call."""

import re

import classes
import pytest
import torch

import subtrace_kit
from subtrace_kit import TraceError


def f(x):
    return x.sin()


X = torch.ones(2)


@pytest.mark.parametrize(
    ("call", "what", "way_out"),
    [
        (lambda: subtrace_kit.lower(f), "lower() takes a trace, not a function", "lower(subtrace_kit.trace(f)(*args))"),
        (lambda: subtrace_kit.lower(subtrace_kit.trace(f)), "not trace(f)", "lower(subtrace_kit.trace(f)(*args))"),
        (lambda: subtrace_kit.draw(f), "draw() takes a trace, not a function", "draw(subtrace_kit.trace(f)(*args))"),
        (lambda: subtrace_kit.verify(f, X), "verify() takes", "verify(subtrace_kit.trace(f)(*args), *args)"),
        (lambda: subtrace_kit.backward(f), "backward() takes", "backward(subtrace_kit.trace(f)(*args))"),
        (lambda: subtrace_kit.trace(f, X), "and got a Tensor beside it", "subtrace_kit.trace(f)(...)"),
        (lambda: subtrace_kit.trace(f, x=X), "and got x= beside it", "subtrace_kit.trace(f)(x=...)"),
        (lambda: subtrace_kit.trace(f(X)), "not a Tensor", "subtrace_kit.trace(fn)(*args)"),
        (lambda: subtrace_kit.trace(subtrace_kit.trace(f)), "not trace(f)", "subtrace_kit.trace(f)(*args)"),
        (lambda: subtrace_kit.trace(f, value=True), "trace() has no option 'value'", "trace(f, values=True)"),
        (lambda: subtrace_kit.jit(f, X), "jit() takes the function alone", "subtrace_kit.jit(f)(...)"),
    ],
)
def test_the_right_call_is_shown(call, what, way_out):
    with pytest.raises(TraceError, match=re.escape(what)) as caught:
        call()
    assert str(caught.value).endswith(way_out)


def test_both_structures_are_shown():
    trace = subtrace_kit.trace(lambda d, y=None: d["a"])({"a": X, "b": [1, X]}, y=None)
    with pytest.raises(TraceError) as caught:
        trace({"a": X, "b": (X,)}, y=None)
    assert caught.value.what == (
        "the arguments: structure ({'a': Tensor, 'b': (Tensor,)}, y=None)"
        " instead of ({'a': Tensor, 'b': [int, Tensor]}, y=None)"
    )


def test_the_trace_itself_is_called_t():
    trace = subtrace_kit.trace(lambda t: t.sin())(classes.LeavesTorch(torch.zeros(2)))
    with pytest.raises(TraceError, match=r"or run `t` itself instead of lower\(t\)"):
        subtrace_kit.lower(trace)


def test_a_trace_takes_its_parameters_by_name_too_and_says_which_are_missing():
    trace = subtrace_kit.trace(lambda x, y: x - y)(X, X * 3)
    assert trace(y=X, x=X * 2).tolist() == trace(X * 2, y=X).tolist() == [1, 1]
    with pytest.raises(TraceError, match="the arguments: y not given"):
        trace(X)


def test_what_trace_of_a_function_returns_says_what_it_is():
    assert repr(subtrace_kit.trace(f)) == "trace(f): call it with the program's arguments"
    assert repr(subtrace_kit.trace(torch.nn.ReLU())) == "trace(fn): call it with the program's arguments"
    assert repr(subtrace_kit.jit(f)) == "jit(f): call it like the program; 0 traces so far, see explain()"


@pytest.mark.parametrize("call", [subtrace_kit.explore, lambda t: subtrace_kit.save_html(t, "x.html")])
def test_the_missing_second_call_is_named(call):
    with pytest.raises(TraceError, match=r"takes a trace, not trace\(f\)") as caught:
        call(subtrace_kit.trace(f))
    assert "subtrace_kit.trace(f)(*args)" in caught.value.way_out


def test_the_trace_of_a_failed_program_is_not_run():
    def fails(x):
        return x.sin() @ torch.ones(7)

    with pytest.raises(TraceError) as failed:
        subtrace_kit.trace(fails)(X)
    t = failed.value.trace
    for run in (
        t,
        lambda x: subtrace_kit.verify(t, x),
        lambda x: subtrace_kit.lower(t),
        lambda x: subtrace_kit.backward(t),
    ):
        with pytest.raises(TraceError, match=r"the trace of a failed program cannot be \w+: RuntimeError in") as caught:
            run(X)
        assert caught.value.cause.startswith("fails failed while it was recorded")
