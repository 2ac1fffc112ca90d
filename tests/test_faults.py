"""What a class or a program does wrong is told with class, rule and line; nothing is left changed."""

import copy
import io
import pickle
import threading

import classes
import pytest
import torch
from same import picture

import subtrace_kit
from subtrace_kit import TraceError
from subtrace_kit.zoo import TwoTensor

PATCHED = [(torch.Tensor, n) for n in ("_make_wrapper_subclass", "tolist", "numpy", "__array__")]
PATCHED += [(torch, "manual_seed"), (torch.random, "set_rng_state")]


def marks():
    """Everything of torch that a recording touches."""
    modes = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()
    code = vars(torch.autograd.Function)["apply"].__func__.__code__
    places = [(getattr(space, name), name in vars(space)) for space, name in PATCHED]
    return modes, code, places, torch.is_grad_enabled(), torch.get_rng_state().tolist()


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (classes.MissingName, r"MissingName\.__tensor_flatten__ failed with AttributeError"),
        (classes.NoneListed, r"NoneListed\.__tensor_flatten__ lists 'extra', which is None"),
        (classes.OldSignature, r"OldSignature\.__tensor_unflatten__ failed with TypeError"),
        (classes.GivesPlain, r"GivesPlain\.__tensor_unflatten__ returned Tensor"),
        (classes.HidesTensor, r"metadata of HidesTensor contains a tensor under 'secret'"),
        (classes.GivesNothing, r"GivesNothing\.__torch_dispatch__ returned None for aten\.add\.Tensor"),
        (classes.NoProtocol, r"NoProtocol has __torch_dispatch__ but no __tensor_flatten__"),
    ],
)
def test_a_broken_rule_is_named(cls, text):
    def program(x):
        return cls(x * 2) + 1

    with pytest.raises(TraceError, match=text) as caught:
        subtrace_kit.trace(program)(torch.ones(2))
    assert "classes.py" in str(caught.value)
    assert "way out" in str(caught.value)


class ListedAlone(classes.Base):
    def __tensor_flatten__(self):
        return ["i", "n"]


@pytest.mark.parametrize(
    ("cls", "text"),
    [
        (classes.MissingName, r"MissingName\.__tensor_flatten__ failed with AttributeError"),
        (classes.NoneListed, r"NoneListed\.__tensor_flatten__ lists 'extra', which is None"),
        (ListedAlone, r"ListedAlone\.__tensor_flatten__ returned \['i', 'n'\]"),
    ],
)
def test_a_broken_rule_of_an_argument_is_named(cls, text):
    broken = cls(torch.ones(2))
    with pytest.raises(TraceError, match=text):
        subtrace_kit.trace(lambda t: t + 1)(broken)
    with pytest.raises(TraceError, match=text):
        subtrace_kit.trace(lambda x: broken + x)(torch.ones(2))


def test_an_argument_that_can_no_longer_be_flattened_is_refused_by_a_trace():
    trace = subtrace_kit.trace(lambda t: t + 1)(TwoTensor(torch.ones(2), torch.ones(2)))
    damaged = TwoTensor(torch.ones(2), torch.ones(2))
    del damaged.b
    for run in (trace, subtrace_kit.lower(trace)):
        with pytest.raises(TraceError, match="argument t: __tensor_flatten__ failed with AttributeError"):
            run(damaged)


def test_a_handler_that_leaves_torch_runs_as_written_and_is_not_lowered():
    trace = subtrace_kit.trace(lambda t: t.sin())(classes.LeavesTorch(torch.zeros(2)))
    assert trace(classes.LeavesTorch(torch.ones(2))).inner.sum() == 4
    with pytest.raises(TraceError, match=r"takes data out of torch with \.numpy\(\)"):
        subtrace_kit.lower(trace)


def saved(x):
    buffer = io.BytesIO()
    torch.save(x, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("program", [pickle.dumps, saved, copy.copy])
def test_the_bytes_of_a_tensor_are_refused(program):
    with pytest.raises(TraceError, match="pickling"):
        subtrace_kit.trace(lambda x: program(x * 2))(torch.ones(2))
    assert pickle.loads(pickle.dumps(torch.ones(2))).sum() == 2


def test_a_list_read_by_a_handler_must_be_the_same_in_a_lowered_trace():
    low = subtrace_kit.lower(subtrace_kit.trace(lambda t: t + 1)(classes.ReadsList(torch.tensor([2.0, 3.0]))))
    assert low(classes.ReadsList(torch.tensor([2.0, 3.0]))).sum() == 10
    with pytest.raises(TraceError, match="the data now give"):
        low(classes.ReadsList(torch.tensor([4.0, 3.0])))


def test_python_attributes_end_as_in_eager_and_tracing_gives_them_back():
    example, fresh = classes.Counting(torch.ones(2)), classes.Counting(torch.ones(2))
    trace = subtrace_kit.trace(lambda t: t.sin() + t.cos())(example)
    assert example.count == 0
    trace(fresh)
    assert fresh.count == 2
    lowered = classes.Counting(torch.ones(2))
    subtrace_kit.lower(trace)(lowered)
    assert lowered.count == 2


@pytest.mark.parametrize("step", range(6))
def test_a_failure_at_any_op_leaves_no_mark(step):
    def program(t, x):
        for index in range(6):
            if index == step:
                raise KeyboardInterrupt if step % 2 else ValueError("stop")
            t.add_(1)
            x.unsqueeze_(0)
            torch.manual_seed(index)
            x = x * torch.rand(1)

    t, x = TwoTensor(torch.ones(2), torch.ones(2)), torch.ones(2)
    before, seen, version = marks(), (picture(t), picture(x)), x._version
    with pytest.raises((TraceError, KeyboardInterrupt)):
        subtrace_kit.trace(program)(t, x)
    assert marks() == before
    assert str((picture(t), picture(x))) == str(seen)
    assert x._version == version


def test_threads_that_do_not_trace_run_as_ever():
    wrong: list[str] = []

    def trace_one():
        for _ in range(20):
            out = subtrace_kit.trace(lambda t: (t * 2).sin())(TwoTensor(torch.ones(3), torch.ones(3)))
            if len(out.bound_symbols) != 2:
                wrong.append(str(out))

    def run_one():
        for _ in range(200):
            t = TwoTensor(torch.ones(3), torch.ones(3)) * 2
            if not torch.equal(t.a, torch.full((3,), 2.0)):
                wrong.append("value")

    before = marks()[:3]
    threads = [threading.Thread(target=job) for job in (trace_one, run_one) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert marks()[:3] == before


def test_another_kind_of_input_is_refused_by_name():
    def program(x, t, n=1):
        return x * n + t.a

    t = TwoTensor(torch.ones(2), torch.ones(2))
    trace = subtrace_kit.trace(program)(torch.ones(2), t, n=2)
    same = torch.ones(2)
    for args, kwargs, text in [
        ((torch.ones(3), t), {"n": 2}, r"argument x: shape \(3,\) instead of \(2,\)"),
        ((torch.ones(2, dtype=torch.float64), t), {"n": 2}, "argument x: dtype float64"),
        ((torch.ones(4)[::2], t), {"n": 2}, "argument x: stride"),
        ((torch.ones(2, requires_grad=True), t), {"n": 2}, "argument x: requires_grad True"),
        ((t, t), {"n": 2}, "argument x: class TwoTensor instead of Tensor"),
        ((torch.ones(2), torch.ones(2)), {"n": 2}, "argument t: class Tensor instead of TwoTensor"),
        ((torch.ones(2), t), {"n": 3}, "argument n: 3 instead of 2"),
        ((torch.ones(2), None), {"n": 2}, "argument t: NoneType instead of a tensor"),
        ((torch.ones(2), t), {}, "structure"),
        ((same, TwoTensor(same, torch.ones(2))), {"n": 2}, "x and t.a: one tensor now, two when recorded"),
    ]:
        with pytest.raises(TraceError, match=text):
            trace(*args, **kwargs)
    with torch.no_grad(), pytest.raises(TraceError, match="grad mode: False instead of True"):
        trace(torch.ones(2), t, n=2)


def test_a_python_value_put_into_a_container_is_refused_and_given_back():
    def program(xs, seen):
        seen["calls"] = 1
        return xs[0]

    seen = {}
    with pytest.raises(TraceError, match=r"the program changes item\['calls'\] of seen to an int"):
        subtrace_kit.trace(program)([torch.ones(2)], seen)
    assert seen == {}


def test_a_result_that_may_hide_tensors_is_refused():
    class Hidden:
        def __init__(self, tensor):
            self.tensor = tensor

    with pytest.raises(TraceError, match="returns a Hidden"):
        subtrace_kit.trace(lambda x: Hidden(x * 2))(torch.ones(2))


def test_inference_tensors_and_non_leaf_arguments_are_left_alone():
    with torch.inference_mode():
        x = torch.ones(2)
        subtrace_kit.trace(lambda x: x.add_(1))(x)
    assert x.tolist() == [1, 1]
    inner = torch.ones(2, requires_grad=True) * 2
    subtrace_kit.trace(lambda y: y.sin())(inner)


def test_outer_geometry_generators_and_lists_in_attributes_are_given_back():
    t, generator = TwoTensor(torch.ones(3), torch.ones(3)), torch.Generator()
    t.notes = [1]
    state = generator.get_state()

    def program(t):
        t.notes.append(2)
        return t.unsqueeze_(0) + torch.rand(3, generator=generator)

    subtrace_kit.trace(program)(t)
    assert t.shape == (3,)
    assert t.stride() == (1,)
    assert t.notes == [1]
    assert torch.equal(generator.get_state(), state)


def test_torch_is_as_found_after_many_recordings_that_fail_at_random_points():
    class StopError(Exception):
        pass

    class Fails(TwoTensor):
        left = 0

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            Fails.left -= 1
            if Fails.left < 0:
                raise StopError(str(func))
            return super().__torch_dispatch__(func, types, args, kwargs)

    def program(t):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            t.add_(1)
            u = (t @ t).relu_()
        v = torch.utils.checkpoint.checkpoint(lambda x: (x * 2).sin(), t, use_reentrant=False)
        v.sum().backward()
        return u, t.grad

    before, told = marks(), []
    for count in range(200):
        Fails.left = count % 25
        t = Fails(torch.ones(2, 2), torch.ones(2, 2)).requires_grad_()
        seen = str(picture(t))
        try:
            subtrace_kit.trace(program)(t)
        except TraceError as error:
            told.append(str(error))
        assert str(picture(t)) == seen
        assert t.grad is None
    assert told
    assert all("StopError" in text for text in told)
    assert marks() == before
