"""Each rule of a sound wrapper subclass, with classes that break it alone."""

import re

import pytest
import torch
import unsound
from unsound import answering, aten, unwrapped, without

from subtrace_kit import check


def matrix():
    return torch.arange(-8.0, 8.0).reshape(4, 4)


def broken(cls, make=None):
    """The rules that are broken, each with the texts of its faults."""
    report = check(cls, (lambda: cls(matrix())) if make is None else make)
    return {row.name: [fault.text for fault in row.faults] for row in report.broken}


def not_tried(cls):
    return {row.name: row.note for row in check(cls, cls(matrix())).rows if row.verdict == "not tried"}


def on_inner(cls, func, args, kwargs):
    args, kwargs = unwrapped(cls, args, kwargs)
    return func(*args, **kwargs)


@pytest.mark.parametrize("cls", [unsound.Sound, unsound.Aliased, without(aten.exp), without(aten.exp, error=TypeError)])
def test_nothing_is_broken_in_a_sound_class(cls):
    assert broken(cls) == {}


def test_methods_of_the_wrong_kind():
    assert broken(unsound.NoDispatchMethod)["methods"] == ["__torch_dispatch__ is no classmethod"]
    assert broken(unsound.PlainUnflatten) == {"methods": ["__tensor_unflatten__ is no staticmethod"]}


def test_methods_that_do_not_take_what_torch_gives():
    class NoKeywords(unsound.Sound):
        @classmethod
        def __torch_dispatch__(cls, func, types, args):
            return super().__torch_dispatch__(func, types, args)

    class NoSizes(unsound.Sound):
        @staticmethod
        def __tensor_unflatten__(inner, metadata):
            return NoSizes(inner["inner"])

    assert broken(NoKeywords)["methods"] == ["__torch_dispatch__ does not take (func, types, args, kwargs)"]
    row = check(NoSizes, lambda: NoSizes(matrix())).row("methods")
    assert (
        row.faults[0].text == "__tensor_unflatten__ does not take (inner_tensors, metadata, outer_size, outer_stride)"
    )
    assert row.faults[0].way_out == ("def __tensor_unflatten__(..., inner_tensors, metadata, outer_size, outer_stride)")


def test_inner_tensors_that_are_made_when_they_are_read():
    assert broken(unsound.FreshInner)["flatten"] == ["x.inner is a new tensor each time it is read"]


def test_an_outer_device_that_no_inner_tensor_has():
    assert broken(unsound.OtherDevice)["flatten"] == ["the outer device is meta, that of the inner tensors cpu"]


def test_metadata_that_is_not_equal_to_itself():
    (fault,) = broken(unsound.OddMetadata)["metadata"]
    assert fault.startswith("its == gives False for two readings of one object: <object object at ")


def test_metadata_that_differs_between_objects_made_alike():
    (fault,) = broken(unsound.Unpicklable)["metadata"]
    assert fault.startswith("its == gives False for two objects that are made alike: <function ")


@pytest.mark.parametrize(
    ("cls", "faults"),
    [
        (unsound.CopiesInner, ["does not hold the tensors that were given, but others"]),
        (unsound.OtherMetadata, ["has the metadata (3.0,) instead of (2.0,)"]),
        (
            unsound.OtherOuter,
            [
                "has shape [16] instead of [4, 4]",
                "has strides [1] instead of [4, 1]",
                "has dtype torch.float64 instead of torch.float32",
            ],
        ),
    ],
)
def test_an_object_built_again_that_is_another(cls, faults):
    assert broken(cls) == {"unflatten": [f"the object built again {fault}" for fault in faults]}


def test_an_attribute_that_no_one_hands_on():
    given = unsound.Labeled(matrix(), "first")
    assert broken(unsound.Labeled, given) == {
        "attributes": ["x.label is None instead of 'first' in the object built again"]
    }
    given.note = 3
    assert broken(unsound.Labeled, given)["attributes"][1] == "x.note is not there in the object built again"


def test_an_object_that_cannot_be_printed():
    from classes import Base

    assert broken(Base) == {
        "repr": ["repr(x) fails with TypeError: unsupported format string passed to Base.__format__"]
    }


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (on_inner, "x.detach() gives a Tensor"),
        (lambda cls, func, args, kwargs: args[0], "x.detach() returns x itself"),
        (
            lambda cls, func, args, kwargs: cls(args[0].inner.clone()),
            "x.detach() shares no memory with x: writes through x.data are lost",
        ),
    ],
)
def test_detach(answer, fault):
    assert broken(answering(aten.detach, answer)) == {"detach": [fault]}


def test_what_needs_detach_is_not_tried_without_it():
    cls = without(aten.detach)
    assert broken(cls) == {"detach": ["x.detach() fails with NotImplementedError: no aten.detach.default"]}
    notes = not_tried(cls)
    assert {name for name, note in notes.items() if note == "see detach"} == {"Parameter", "files", "memory", "views"}
    assert notes["autograd"] == notes["gradients"] == "x.detach().requires_grad_() does not work"


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (lambda cls, func, args, kwargs: cls(args[0].inner), "shares memory with x"),
        (lambda cls, func, args, kwargs: cls(args[0].inner + 1), "holds other values or metadata than x"),
    ],
)
def test_clone(answer, fault):
    assert broken(answering(aten.clone, answer))["clone"] == [f"x.clone() {fault}"]


def test_deepcopy():
    found = broken(without(aten.clone))
    assert found["deepcopy"] == ["copy.deepcopy(x) fails with NotImplementedError: no aten.clone.default"]


def test_parameters():
    class Stale(unsound.Sound):
        """What Parameter makes of it by detach has lost a name that flatten looks up."""

        def __new__(cls, inner):
            made = super().__new__(cls, inner)
            made.names = ["inner"]
            return made

        def __tensor_flatten__(self):
            return (["inner"] if not isinstance(self, torch.nn.Parameter) else ["nowhere"]), None

    (fault,) = broken(Stale)["Parameter"]
    assert fault.startswith("torch.nn.Parameter(x) ")


def test_files():
    made = unsound.Unpicklable(matrix())
    (fault,) = broken(unsound.Unpicklable, made)["files"]
    assert fault.startswith("saving x or loading it fails with ")
    assert not_tried(without(aten.exp))["files"] == (
        "without.<locals>.Without is no name of a module, so that no file can refer to it"
    )


def test_what_a_class_does_not_know_ends_in_a_bug():
    cls = without(aten.exp, error=KeyError)
    assert broken(cls) == {"refusals": ["x.exp() fails with KeyError: 'no aten.exp.default'"]}
    row = check(cls, cls(matrix())).row("refusals")
    assert row.faults[0].source.text == 'raise error(f"no {func}")'
    assert row.note == "34 ops work"


def test_an_op_that_gives_nothing():
    assert broken(answering(aten.exp, lambda *_: None))["refusals"] == ["x.exp() gives None"]


def test_results_of_another_shape_and_dtype():
    cls = answering(aten.exp, lambda cls, func, args, kwargs: cls(args[0].inner[:2].double()))
    assert broken(cls)["shapes"] == [
        "x.exp() has shape [2, 4] instead of [4, 4]",
        "x.exp() has dtype torch.float64 instead of torch.float32",
    ]


def test_a_dimension_that_was_to_be_kept():
    cls = answering(aten.sum, lambda cls, func, args, kwargs: cls(func(args[0].inner, *args[1:2])))
    assert broken(cls)["shapes"] == ["x.sum(0, keepdim=True) has shape [4] instead of [1, 4]"]


def test_views_with_other_strides_are_noted():
    def transposed(cls, func, args, kwargs):
        made = torch.Tensor._make_wrapper_subclass(cls, args[0].shape[::-1], dtype=args[0].dtype)
        made.inner = args[0].inner.t()
        return made

    row = check(cls := answering(aten.t, transposed), lambda: cls(matrix())).row("shapes")
    assert (row.verdict, row.note) == (
        "holds",
        "strides other than those of a plain tensor: x.t(); see strides of _make_wrapper_subclass",
    )


def test_a_handler_that_forgets_plain_operands():
    def mul(cls, func, args, kwargs):
        first, second = args
        return cls(func(first.__dict__["inner"], second.inner if isinstance(second, cls) else second))

    assert broken(answering(aten.mul, mul)) == {"refusals": ["torch.ones(x.shape) * x fails with KeyError: 'inner'"]}


def test_an_op_that_writes_into_its_argument():
    assert broken(unsound.WritesArguments) == {"arguments": ["x.abs() changed x"]}


def test_in_place_ops_that_write_nowhere():
    cls = answering(aten.add_, lambda cls, func, args, kwargs: cls(args[0].inner + 1))
    assert broken(cls) == {"in-place": ["x.add_(1) changes nothing, and does not fail"]}


def test_an_in_place_op_with_other_values_is_noted():
    def mul_(cls, func, args, kwargs):
        args[0].inner.mul_(args[1]).round_()
        return args[0]

    row = check(cls := answering(aten.mul_, mul_), lambda: cls(matrix() / 8)).row("in-place")
    assert row.verdict == "holds"
    assert row.note.split("; ")[1:] == ["other values than those of the op that is not in place: x.mul_(2)"]
    assert "; " not in check(unsound.Sound, lambda: unsound.Sound(matrix() / 8)).row("in-place").note


def test_writes_that_a_class_takes_for_plain_values_are_lost():
    class FallsBack(unsound.Sound):
        """Every op runs on plain values, and gives them."""

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if func in (aten.detach.default, aten.clone.default):
                return super().__torch_dispatch__(func, types, args, kwargs)
            args, kwargs = unwrapped(cls, args, kwargs or {})
            return func(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args], **kwargs)

    row = check(FallsBack, FallsBack(matrix())).row("in-place")
    assert row.lines == [
        "An in-place op changes the very object and returns it, or is refused.",
        *(f"x.{op} changes nothing, and does not fail" for op in ("add_(1)", "mul_(2)", "neg_()")),
        f"at {row.faults[0].source.place}, {row.faults[0].source.function}",
        "way out: write into the inner tensors or swap them, or raise NotImplementedError",
        "and 2 more",
        "tried: x.add_(1), x.mul_(2), x.neg_(), x.zero_(), x.copy_(x + 1)",
    ]
    assert broken(FallsBack).keys() == {"in-place"}
    assert str(row).splitlines()[:2] == ["in-place: broken", f"  {row.says}"]
    assert check(FallsBack, compile=True).row("torch.compile").note == "x after x.clone()"


def test_in_place_ops_that_a_class_refuses_are_not_tried():
    cls = without(aten.add_, aten.mul_, aten.neg_, aten.zero_, aten.copy_)
    assert broken(cls) == {}
    notes = not_tried(cls)
    assert (
        notes["in-place"]
        == "none works, or tells what it should give: x.add_(1), x.mul_(2), x.neg_(), x.zero_(), x.copy_(x + 1)"
    )
    assert notes["memory"] == "no result can be written into"
    assert notes["views"] == "no view can be written into"


def test_a_result_on_the_memory_of_its_argument():
    cls = answering(aten.relu, lambda cls, func, args, kwargs: cls(args[0].inner))
    assert broken(cls) == {"memory": ["after y = x.relu(), y.add_(1) changes x too"]}


def test_a_result_that_is_its_argument():
    cls = answering(aten.relu, lambda cls, func, args, kwargs: args[0])
    assert broken(cls)["memory"] == ["x.relu() returns x itself"]


def test_views_that_torch_takes_for_tensors_of_their_own_are_noted():
    note = check(unsound.Sound).row("views").note
    assert note.startswith("torch sees no sharing in x.detach(), x.view_as(x), x.view(-1), x.t(), ")
    assert check(unsound.Aliased).row("views").note == ""


def test_metadata_that_is_lost_on_the_way():
    class Forgetful(unsound.Sound):
        """Only what unflatten builds has a scale other than 1."""

        def __new__(cls, inner, scale=1.0):
            made = super().__new__(cls, inner)
            made.scale = scale
            return made

        def __tensor_flatten__(self):
            return ["inner"], self.scale

        @classmethod
        def __tensor_unflatten__(cls, inner, metadata, size, stride):
            return cls(inner["inner"], metadata)

    found = broken(Forgetful, lambda: Forgetful(matrix(), 0.5))
    assert found["way back"][0] == "x.t().t() holds other values or metadata than x"
    assert len(found["way back"]) == 6
    assert broken(Forgetful) == {}


def test_views_that_are_copies():
    cls = answering(aten.t, lambda cls, func, args, kwargs: cls(args[0].inner.t().clone()))
    assert broken(cls) == {
        "views": ["after y = x.t(), which shares no memory with x, y.add_(1) does not change x"],
    }


def test_views_that_a_write_into_the_base_does_not_reach():
    class Swaps(unsound.Sound):
        """Its add_ gives the object another inner tensor: any object, or those alone that no op made."""

        swaps = first_alone = False

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if func is aten.add_.Tensor and (args[0].swaps or not cls.first_alone):
                args[0].inner = func(args[0].inner.clone(), *args[1:])
                return args[0]
            return super().__torch_dispatch__(func, types, args, kwargs)

    def swapping():
        made = Swaps(matrix())
        made.swaps = True
        return made

    assert "after y = x.t(), y.add_(1) does not change x" in broken(Swaps)["views"]
    Swaps.first_alone = True
    assert "after y = x.t(), x.add_(1) does not change y" in broken(Swaps, swapping)["views"]


class OutsideAutograd(unsound.Sound):
    """Its operators never reach autograd."""

    def exp(self):
        with torch.no_grad():
            return torch.exp(self)


def test_results_outside_autograd():
    assert broken(OutsideAutograd) == {"autograd": ["x.exp() does not require grad"]}


def test_gradients_of_another_dtype():
    class Cut(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return type(x)(x.inner.exp())

        @staticmethod
        def backward(ctx, grad):
            return None

    class Loses(unsound.Sound):
        def exp(self):
            return Cut.apply(self)

    assert broken(Loses) == {"gradients": ["the backward of x.exp() gives x no gradient"]}


def test_a_backward_that_the_class_refuses_is_no_fault_and_one_that_fails_is():
    row = check(cls := without(aten.exp, aten.sgn), cls(matrix())).row("gradients")
    assert (row.verdict, row.note) == ("holds", "19 ops; the class refuses the backward of x.abs()")
    assert broken(without(aten.sgn, error=KeyError)) == {
        "gradients": ["the backward of x.abs() fails with KeyError: 'no aten.sgn.default'"]
    }


def test_a_jagged_tensor_holds_where_no_plain_tensor_is_needed():
    x = torch.nested.nested_tensor([torch.rand(2, 3), torch.rand(1, 3)], layout=torch.jagged)
    report = check(type(x), x)
    assert report.ok, report
    assert report.row("in-place").verdict == "holds"
    assert re.fullmatch(r"no plain tensor has the shape \[2, j\d+, 3\]", report.row("views").note)


def test_gradients_of_integers_are_not_tried():
    rows = check(unsound.Sound, unsound.Sound(torch.arange(4))).rows
    notes = {row.name: row.note for row in rows if row.verdict == "not tried"}
    assert notes == dict.fromkeys(("autograd", "gradients"), "autograd does not follow torch.int64")


def test_programs_that_cannot_be_lowered():
    from classes import LeavesTorch

    (fault,) = broken(LeavesTorch)["trace"]
    assert fault == "a handler takes data out of torch with .numpy(), so it cannot be lowered"


def test_what_torch_sets_on_an_object_that_answers_for_its_sizes_is_no_attribute():
    report = check(unsound.Sized)
    assert report.row("attributes").verdict == "holds"
    (fault,) = report.row("fake tensors").faults
    assert fault.text.startswith("argument x, a Sized, cannot be looked at: AssertionError")
    assert fault.way_out == "trace without fake=True, or see why x.shape, x.stride() or x.device fails"


def test_decisions_by_values():
    def add(cls, func, args, kwargs):
        return cls(args[0].inner + (1 if args[0].inner[0, 0].item() < 0 else 2))

    cls = answering(aten.add, add)
    (fault,) = check(cls, cls(matrix())).row("fake tensors").faults
    assert fault.way_out.startswith("take decisions from metadata, not from values")
    assert fault.text.startswith("DataDependentOutputException in torch.Tensor.add (aten.item.default)")


def test_another_value_in_inference_mode():
    def add(cls, func, args, kwargs):
        return cls(args[0].inner + (2 if torch.is_inference_mode_enabled() else 1))

    assert broken(answering(aten.add, add)) == {
        "inference mode": ["x after x * 2, x + 1, x + x, x * x is another value"]
    }


def test_a_result_of_another_class_in_inference_mode():
    def add(cls, func, args, kwargs):
        return on_inner(cls, func, args, kwargs) if torch.is_inference_mode_enabled() else cls(args[0].inner + 1)

    assert broken(answering(aten.add, add)) == {
        "inference mode": ["x after x * 2, x + 1, x + x, x * x is a Tensor instead of an Answering"]
    }


def test_a_refusal_in_inference_mode_alone_is_no_fault():
    def add(cls, func, args, kwargs):
        if torch.is_inference_mode_enabled():
            raise NotImplementedError("not here")
        return cls(args[0].inner + 1)

    cls = answering(aten.add, add)
    assert broken(cls) == {}
    assert not_tried(cls)["inference mode"] == "the class refuses an op that arrives in this mode alone: not here"


def test_what_torch_compile_does_is_tried_on_request():
    assert [row.name for row in check(unsound.Sound).rows].count("torch.compile") == 0
    report = check(unsound.Sound, compile=True)
    assert (report.row("torch.compile").verdict, report.row("torch.compile").note) == (
        "holds",
        "x after x * 2, x + 1, x + x, x * x",
    )
    found = check(unsound.CopiesInner, compile=True).row("torch.compile").verdict
    assert found in ("holds", "broken")
