"""jit: modules, and jitted functions inside recorded programs."""

import copy
import dataclasses
import pickle
import threading

import pytest
import torch

import subtrace_kit
from subtrace_kit import TraceError
from subtrace_kit.jit_report import CacheInfo
from subtrace_kit.zoo import TwoTensor


def test_a_jitted_module_has_the_attributes_of_the_module():
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
    jitted = subtrace_kit.jit(module)
    optimizer = torch.optim.SGD(jitted.parameters(), 0.1)
    jitted.eval()
    x = torch.ones(1, 2)
    assert torch.equal(jitted(x), module(x))
    jitted(x).sum().backward()
    optimizer.step()
    assert torch.equal(jitted(x), module(x))
    assert len(jitted.traces) == 1
    with pytest.raises(AttributeError, match="no attribute 'parameters'"):
        subtrace_kit.jit(lambda x: x).parameters()


def test_a_jitted_function_inside_a_recorded_program_is_the_function():
    inner = subtrace_kit.jit(lambda x: x * 2)
    t = subtrace_kit.trace(lambda x: inner(x) + 1)(torch.ones(2))
    assert [bound.symbol.name for bound in t.bound_symbols] == ["torch.Tensor.mul", "torch.Tensor.add"]
    assert t(torch.full((2,), 3.0)).tolist() == [7.0, 7.0]
    assert inner.traces == []


class Short(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        return x + k

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_verify_says_where_gradients_were_not_compared():
    x = torch.ones(2, requires_grad=True)
    report = subtrace_kit.verify(subtrace_kit.trace(lambda x: Short.apply(x, 1) * 2)(x), x)
    assert report.row("gradients").verdict == "not compared"
    assert "not compared" in report.title
    with pytest.raises(KeyError, match="no row 'grads'"):
        report.row("grads")


def double(x):
    return x * 2


@subtrace_kit.jit
def decorated(x):
    return x * 2


def countdown(x, n):
    return x if n == 0 else jitted_countdown(x * 2, n - 1)


jitted_countdown = subtrace_kit.jit(countdown)


def in_threads(work, count=8):
    """Run `work(i)` in threads that start together; give what they raise."""
    errors, barrier = [], threading.Barrier(count)

    def body(i):
        barrier.wait()
        try:
            work(i)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_the_cache_is_counted():
    f = subtrace_kit.jit(double, limit=3)
    for size in (1, 2, 1, 1):
        f(torch.ones(size))
    assert f.cache_info() == CacheInfo(hits=2, misses=2, entries=2, limit=3, backend="eager")


def test_runs_that_their_data_broke_off_are_not_counted_as_hits():
    f = subtrace_kit.jit(lambda x: x[x > 0] * 2)
    assert [len(f(torch.arange(4.0) - n)) for n in (1, 0, 0, 1)] == [2, 3, 3, 2]
    assert f.cache_info() == CacheInfo(2, 2, 2, 64)
    assert "the data now give (3,)" in f.explain().entries[1].new_because


def test_explain_says_what_each_kind_is_and_what_made_it_new():
    f = subtrace_kit.jit(lambda t, n: t * n)
    pair = TwoTensor(torch.ones(2), torch.ones(2))
    f(pair, 3)
    f(pair, 3)
    f(pair, n=4)
    f(pair, 4)
    with torch.no_grad():
        f(torch.ones(2, requires_grad=True), 4)
    report = f.explain()
    assert [entry.runs for entry in report.entries] == [2, 1, 1, 1]
    assert report.entries[0].kind == "t: TwoTensor f32[2] {a: f32[2], b: f32[2]}, n: 3"
    assert report.entries[3].kind == "t: f32[2] requires_grad, n: 4, no_grad"
    assert [entry.new_because for entry in report.entries] == [
        "the first call",
        "the arguments: structure (TwoTensor, n=int) instead of (TwoTensor, int)",
        "the arguments: structure (TwoTensor, int) instead of (TwoTensor, n=int); argument n: 4 instead of 3",
        "argument t: class Tensor instead of TwoTensor; "
        "the arguments: structure (Tensor, int) instead of (TwoTensor, n=int)",
    ]
    assert str(report).startswith(
        "jit(fn), backend eager: 4 of 64 kinds of input, hits 1, misses 4\n  1. ran 2 times\n"
    )
    assert "<td" in report._repr_html_()


def test_too_many_kinds_are_refused_with_what_differed():
    f = subtrace_kit.jit(lambda x, n: x * n, limit=4)
    for n in range(4):
        f(torch.ones(2), n)
    with pytest.raises(
        TraceError, match="argument n: 4 instead of 3; argument n: 3 instead of 2; argument n: 2"
    ) as told:
        f(torch.ones(2), 4)
    assert "jit(..., limit=8)" in str(told.value)
    assert f(torch.ones(2), 3).tolist() == [3, 3]


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    y: torch.Tensor


class Config:
    def __init__(self, size):
        self.size = size


@pytest.mark.parametrize(
    ("make", "cause", "way_out"),
    [
        (
            lambda: Batch(torch.ones(2), torch.ones(2)),
            "argument b is a Batch that holds tensors and is no registered container",
            "torch.utils._pytree.register_dataclass(Batch)",
        ),
        (
            lambda: Config(torch.ones(2)),
            "argument b is a Config that holds tensors",
            "register_pytree_node(Config, flatten, unflatten)",
        ),
        (lambda: Config(3), "argument b is a Config, an object that equals none", "pass the same Config again"),
    ],
)
def test_objects_that_are_new_at_each_call_are_named_as_the_cause(make, cause, way_out):
    f = subtrace_kit.jit(lambda x, b: x * 2, limit=3)
    kept = [make() for _ in range(4)]
    for batch in kept[:3]:
        f(torch.ones(2), batch)
    with pytest.raises(TraceError) as told:
        f(torch.ones(2), kept[3])
    assert cause in told.value.cause
    assert way_out in told.value.way_out


def test_threads_share_one_trace_for_each_kind():
    f = subtrace_kit.jit(lambda t: (t * 2).relu())

    def work(i):
        for n in range(50):
            a = torch.full((n % 5 + 1,), float(i))
            out = f(TwoTensor(a, -a))
            assert type(out) is TwoTensor
            assert torch.equal(out.a, a * 2)

    assert in_threads(work) == []
    assert f.cache_info() == CacheInfo(395, 5, 5, 64)


def test_threads_may_trace_at_once():
    def work(i):
        for n in range(5):
            f = subtrace_kit.jit(lambda t: (t * 2).relu() + i)
            assert f(TwoTensor(torch.ones(n + 1), torch.ones(n + 1))).a.tolist() == [2 + i] * (n + 1)

    assert in_threads(work) == []


def test_a_jitted_function_may_call_itself_and_others():
    assert jitted_countdown(torch.ones(1), 3).tolist() == [8]
    assert jitted_countdown(torch.ones(1), 3).tolist() == [8]
    outer = subtrace_kit.jit(lambda x: decorated(x) + 1)
    for _ in range(3):
        decorated(torch.ones(2))
        assert outer(torch.ones(2)).tolist() == [3, 3]
    assert outer.cache_info().entries == 1


@pytest.mark.parametrize("f", [subtrace_kit.jit(double, limit=7), decorated])
def test_a_pickle_is_a_jitted_function_with_an_empty_cache(f):
    f(torch.ones(2))
    for again in (pickle.loads(pickle.dumps(f)), copy.copy(f), copy.deepcopy(f)):
        assert again.cache_info() == CacheInfo(0, 0, 0, f.cache_info().limit)
        assert again(torch.ones(2)).tolist() == [2, 2]


def test_a_pickled_module_keeps_its_parameters():
    f = subtrace_kit.jit(torch.nn.Linear(2, 2))
    again = pickle.loads(pickle.dumps(f))
    assert torch.equal(again(torch.ones(1, 2)), f(torch.ones(1, 2)))


def test_what_cannot_be_pickled_says_so():
    with pytest.raises(TraceError, match=r"jit\(fn\) cannot be pickled, because fn cannot"):
        pickle.dumps(subtrace_kit.jit(lambda x: x))


def test_many_kinds_are_found_by_their_quick_checks():
    f = subtrace_kit.jit(double)
    for size in range(1, 10):
        f(torch.ones(size))
    entry = f._entries[-1]
    assert entry.trace.inputs[0].shape == (1,)
    for other in f._entries[:-1]:
        other.check = None  # the interpreted check would be called
    assert f(torch.ones(1)).tolist() == [2]


def test_a_transform_of_torch_func_gets_the_function_itself():
    jitted = subtrace_kit.jit(lambda x: (x * 2).sin())
    x = torch.ones(3)
    for _ in range(2):
        assert torch.equal(torch.func.grad(lambda x: jitted(x).sum())(x), 2 * torch.cos(2 * x))
        assert torch.equal(jitted(x), (x * 2).sin())
    with pytest.raises(TraceError, match=r"a trace inside a transform of torch.func"):
        torch.func.grad(lambda x: subtrace_kit.trace(torch.sin)(x)(x).sum())(x)
