"""check: arguments, examples, the report, and what is left as it was."""

import re
import warnings

import pytest
import torch
import unsound
from classes import NoProtocol
from torch.testing._internal.two_tensor import TwoTensor
from unsound import Sound, answering, aten, without

import subtrace_kit
from subtrace_kit import TraceError, check
from subtrace_kit.zoo import MaskedTensor, MXTensor, QuantTensor, RaggedTensor


def test_a_report_of_a_sound_class():
    report = check(TwoTensor, TwoTensor(torch.rand(2, 3), torch.rand(2, 3)))
    assert report.ok
    assert report.broken == ()
    report.raise_if_broken()
    lines = str(report).splitlines()
    assert lines[:2] == ["TwoTensor: 23 rules hold", "tried on TwoTensor f32[2, 3]"]
    assert [line.split("  holds")[0].strip() for line in lines[2:]] == [
        "methods", "flatten", "metadata", "unflatten", "attributes", "repr", "detach", "clone", "deepcopy", "Parameter",
        "files", "refusals", "shapes", "arguments", "in-place", "memory", "views", "way back", "autograd", "gradients",
        "trace", "fake tensors", "inference mode",
    ]  # fmt: skip


def test_a_report_of_a_broken_class_says_where_and_what_mends_it():
    cls = answering(aten.relu, lambda cls, func, args, kwargs: cls(args[0].inner))
    report = check(cls, cls(torch.rand(2)))
    assert not report.ok
    text = str(report)
    assert text.startswith("Answering: 21 rules hold, 1 broken, 1 not tried\n")
    start = text.index("  memory")
    place = re.escape("unsound.py:") + r"\d+, answering\.<locals>\.Answering\.__torch_dispatch__"
    assert re.match(
        r"  memory          broken     A result that is no view has memory of its own: .*\n"
        r" {29}after y = x\.relu\(\), y\.add_\(1\) changes x too\n"
        rf" {{29}}at {place}\n"
        r" {29}way out: clone the inner tensors that the op leaves as they are\n",
        text[start:],
    )
    with pytest.raises(TraceError, match="1 broken"):
        report.raise_if_broken()
    assert "after y = x.relu(), y.add_(1) changes x too" in report._repr_html_()
    with pytest.raises(KeyError, match="no rule 'nothing'; there are methods, flatten"):
        report.row("nothing")


def test_many_faults_of_a_rule_are_cut_short():
    cls = answering(aten.view, lambda cls, func, args, kwargs: cls(args[0].inner.new_zeros(1)))
    lines = check(cls, lambda: cls(torch.rand(4, 4))).row("shapes").lines
    assert len(lines) <= 1 + 3 * 3 + 1


@pytest.mark.parametrize("cls", [QuantTensor, MXTensor, MaskedTensor, RaggedTensor])
def test_classes_of_the_zoo_are_sound(cls):
    given = {
        QuantTensor: lambda: QuantTensor.from_float(torch.rand(4, 32)),
        MXTensor: lambda: MXTensor.from_float(torch.rand(4, 32)),
        MaskedTensor: lambda: MaskedTensor(torch.rand(4, 4), torch.rand(4, 4) > 0.3),
        RaggedTensor: lambda: RaggedTensor(torch.rand(3, 2), torch.tensor([0, 2, 3]), 2),
    }[cls]
    report = check(cls, given)
    assert report.ok, report


def test_without_an_example_the_constructor_is_tried():
    assert check(TwoTensor).examples == ("TwoTensor f32[4, 4]",)
    with pytest.raises(TraceError) as caught:
        check(unsound.NeedsArguments)
    assert caught.value.what == (
        "no example of NeedsArguments can be made up: "
        "NeedsArguments(torch.rand(4, 4), torch.rand(4, 4)) fails with ValueError: no rows"
    )
    assert caught.value.way_out == "give one: subtrace_kit.check(NeedsArguments, example)"


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ((3,), "check takes a class first, not 3"),
        ((torch.ones(2),), "check takes a class first, not "),
        ((torch.Tensor,), "Tensor is no wrapper subclass of torch.Tensor"),
        ((torch.nn.Parameter,), "Parameter is no wrapper subclass of torch.Tensor"),
        ((dict,), "dict is no wrapper subclass of torch.Tensor"),
        ((Sound, torch.ones(2)), " is no example of Sound: it is a Tensor"),
        ((Sound, 3), "3 is no example of Sound: it is an int"),
        ((Sound, lambda: None), "the function that makes an example returned a NoneType"),
    ],
)
def test_bad_input(args, what):
    with pytest.raises(TraceError) as caught:
        check(*args)
    assert what in caught.value.what


def test_a_subclass_without_a_handler_is_refused():
    class Renamed(torch.Tensor):
        pass

    with pytest.raises(TraceError, match="Renamed"):
        check(Renamed)


def test_a_class_without_the_protocol_gets_a_report():
    report = check(NoProtocol, lambda: NoProtocol(torch.rand(2, 2)))
    assert [row.name for row in report.broken] == ["methods", "flatten", "refusals"]
    assert report.row("flatten").faults[0].way_out == "add __tensor_flatten__ and __tensor_unflatten__ to NoProtocol"


def test_an_object_without_the_protocol_is_not_copied():
    report = check(NoProtocol, NoProtocol(torch.rand(2, 2)))
    assert [row.name for row in report.broken] == ["methods", "flatten"]
    assert report.row("refusals").note == (
        "x cannot be copied without __tensor_flatten__; give check a function that makes one"
    )


def test_an_error_of_the_function_that_makes_examples_comes_through():
    with pytest.raises(ZeroDivisionError):
        check(Sound, lambda: 1 / 0)


def test_each_of_several_examples_is_named():
    cls = without(aten.exp, error=KeyError)
    report = check(cls, cls(torch.rand(2)), cls(torch.arange(2)))
    row = report.row("refusals")
    assert [fault.text for fault in row.faults] == [
        "example 1: x.exp() fails with KeyError: 'no aten.exp.default'",
        "example 2: x.exp() fails with KeyError: 'no aten.exp.default'",
    ]
    assert report.row("gradients").verdict == "holds"
    assert report.row("gradients").note.splitlines()[1] == "example 2: autograd does not follow torch.int64"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Sound(torch.rand(3, 3)).requires_grad_(),
        lambda: Sound(torch.rand(3, 3)).requires_grad_() * 2,
        lambda: torch.nn.Parameter(Sound(torch.rand(3, 3))),
        lambda: Sound(torch.arange(3)),
        lambda: Sound(torch.tensor([True, False])),
        lambda: Sound(torch.rand(3, dtype=torch.bfloat16)),
        lambda: Sound(torch.tensor(1.5)),
        lambda: Sound(torch.empty(0, 3)),
        lambda: Sound(torch.rand(3, 4).t()),
        lambda: Sound(torch.rand(3, 1).expand(3, 3)),
        lambda: Sound(torch.tensor([[float("nan"), 1.0], [2.0, 3.0]])),
        lambda: Sound(Sound(torch.rand(3, 3))),
        lambda: Sound(torch.rand(3, 3, dtype=torch.complex64)),
        lambda: TwoTensor(Sound(torch.rand(2)), Sound(torch.rand(2))),
    ],
)
def test_examples_of_many_kinds_stay_as_they_are(make):
    x = make()
    with torch.no_grad():
        before = [repr(x), x.requires_grad, x.is_leaf, x._version]
    assert check(TwoTensor if isinstance(x, TwoTensor) else Sound, x).ok
    with torch.no_grad():
        assert [repr(x), x.requires_grad, x.is_leaf, x._version] == before
    assert not x.is_leaf or x.grad is None


def test_random_state_modes_and_output_stay_as_they_are(capsys):
    class Loud(Sound):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            print(func)
            warnings.warn("loud", stacklevel=2)
            return super().__torch_dispatch__(func, types, args, kwargs)

    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    with torch.inference_mode(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = check(Loud, lambda: Loud(torch.rand(2, 2)))
        assert torch.is_inference_mode_enabled()
        assert not torch.is_grad_enabled()
    assert report.ok, report
    assert capsys.readouterr().out == ""
    assert caught == []
    assert torch.equal(torch.random.get_rng_state(), state)


def test_modes_of_the_caller_change_nothing():
    wanted = str(check(Sound))
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        assert str(check(Sound)) == wanted
        assert torch.is_autocast_enabled("cpu")


def test_a_handler_that_never_ends_is_a_fault():
    class Endless(Sound):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    report = check(Endless, lambda: Endless(torch.rand(2, 2)))
    assert [row.name for row in report.broken] == ["detach", "clone", "deepcopy", "refusals"]
    assert "x.detach() fails with RecursionError" in report.row("detach").faults[0].text


def test_the_check_of_a_class_is_public():
    assert "check" in subtrace_kit.__all__
