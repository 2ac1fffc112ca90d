"""Names of values: identifiers, unique, and never one that the generated file needs."""

import keyword

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import subtrace_kit
from subtrace_kit.naming import Names, base_name, identifier
from subtrace_kit.zoo import TwoTensor


@given(st.text())
def test_any_text_gives_an_identifier(text):
    assert identifier(text).isidentifier()
    assert identifier(text).isascii()


def test_identifiers_look_like_their_text():
    assert [identifier(t) for t in ("aten.mul.Tensor", "0.weight", "", "state['w']")] == [
        "aten_mul_Tensor",
        "_0_weight",
        "_",
        "state__w__",
    ]


@given(st.lists(st.sampled_from(["a", "a_1", "a_2", "lambda", "print", "torch", "aten"])))
def test_names_are_unique_and_hide_nothing(hints):
    names = Names()
    given_names = [names.new(hint) for hint in hints]
    assert len(set(given_names)) == len(given_names)
    assert not {*given_names} & {*keyword.kwlist, "print", "torch", "aten"}


def test_results_are_called_after_their_operation():
    assert [base_name(n) for n in ("torch.Tensor.mul", "aten.mul.Tensor", "Pair.apply", "aten.t.default")] == [
        "mul",
        "mul",
        "pair",
        "t",
    ]


def test_arguments_with_names_that_the_file_needs_still_run():
    def program(aten, operator, expect, replay, as_handler, restride, pickle):
        return aten + operator + expect + replay + as_handler + restride + pickle

    args = [torch.full((2,), float(i)) for i in range(7)]
    trace = subtrace_kit.trace(program)(*args)
    for run in (trace, subtrace_kit.lower(trace)):
        assert torch.equal(run(*args), program(*args))


def torch_pair(torch, slice):
    return TwoTensor(torch[0], slice["a"])[0:1]


def as_handler(x):
    return TwoTensor(x, x).view(-1)


def step_0(step_0):
    return step_0.view(-1)


ONE = torch.ones(1)


@pytest.mark.parametrize(
    ("program", "args"),
    [
        (TwoTensor, (ONE, ONE)),
        (torch_pair, ([ONE], {"a": ONE})),
        (as_handler, (ONE,)),
        (step_0, (TwoTensor(ONE, ONE),)),
    ],
)
def test_a_program_or_parameter_may_have_the_name_of_what_it_needs(program, args):
    trace = subtrace_kit.trace(program)(*args)
    expected = program(*args)
    for run in (trace, subtrace_kit.lower(trace), subtrace_kit.jit(program)):
        assert run(*args).a.tolist() == expected.a.tolist()
    space = {}
    exec(str(trace), space)
    assert space[trace.name](*args).a.tolist() == expected.a.tolist()


def test_an_argument_that_is_given_by_such_a_name_is_refused():
    with pytest.raises(subtrace_kit.TraceError, match="given by the name torch"):
        subtrace_kit.trace(torch_pair)(torch=[ONE], slice={"a": ONE})
