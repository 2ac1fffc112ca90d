"""What handlers read and write outside the trace, and deep copies."""

import collections
import copy

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import subtrace_kit

FACTOR = 2.0


class Kept(torch.Tensor):
    """A wrapper whose handler reads a global and a class attribute, and writes what a test asks for."""

    scale = 3.0
    calls = 0
    log: list = []  # noqa: RUF012
    cache: dict = {}  # noqa: RUF012
    keeps = ""

    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        out = func(*[a.inner if isinstance(a, cls) else a for a in args], **(kwargs or {}))
        if cls.keeps == "counter":
            cls.calls += 1
        if cls.keeps == "log":
            cls.log.append(str(func))
        if cls.keeps == "cache":
            cls.cache[len(cls.cache)] = out
        return cls(out * cls.scale * FACTOR)


def kept(value=1.0):
    return Kept(torch.full((2,), value))


def test_a_lowered_trace_refuses_another_class_attribute_or_global(monkeypatch):
    t = subtrace_kit.trace(lambda x: (x + 1).inner)(kept())
    low = subtrace_kit.lower(t)
    assert low(kept()).tolist() == [12.0, 12.0]
    for target, name in ((Kept, "scale"), (globals(), "FACTOR")):
        with monkeypatch.context() as patch:
            patch.setattr(target, name, 5.0) if target is Kept else patch.setitem(target, name, 5.0)
            assert t(kept()).tolist() == [(2.0 * (5.0 if target is Kept else 3.0) * FACTOR)] * 2
            with pytest.raises(subtrace_kit.TraceError, match=name):
                low(kept())
    assert low(kept(2.0)).tolist() == [18.0, 18.0]


def test_tracing_gives_back_what_handlers_write_and_runs_write_it(monkeypatch):
    monkeypatch.setattr(Kept, "log", [])
    monkeypatch.setattr(Kept, "calls", 0)
    for keeps, told in (("counter", "calls"), ("log", "log")):
        monkeypatch.setattr(Kept, "keeps", keeps)
        t = subtrace_kit.trace(lambda x: x + 1)(kept())
        assert (Kept.calls, Kept.log) == (0, [])
        low = subtrace_kit.lower(t)
        assert f"handlers no longer write Kept.{told}" in str(low)
        assert low(kept(2.0)).inner.tolist() == [18.0, 18.0]
        assert (Kept.calls, Kept.log) == (0, [])
        t(kept())
        assert (Kept.calls, Kept.log) == ((1, []) if keeps == "counter" else (0, ["aten.add.Tensor"]))
        Kept.log.clear()
        Kept.calls = 0


def test_a_handler_that_fills_a_cache_is_not_lowered(monkeypatch):
    monkeypatch.setattr(Kept, "cache", {})
    monkeypatch.setattr(Kept, "keeps", "cache")
    t = subtrace_kit.trace(lambda x: x + 1)(kept())
    assert Kept.cache == {}
    t(kept())
    assert list(Kept.cache) == [0]
    with pytest.raises(subtrace_kit.TraceError, match=r"a handler writes Kept\.cache"):
        subtrace_kit.lower(t)


def test_deep_copies_are_lowered_to_copies_of_the_inner_tensors():
    def program(x):
        made = copy.deepcopy(x)
        made.mul_(2)
        return made

    t = subtrace_kit.trace(program)(TwoTensor(torch.ones(2), torch.ones(2)))
    low = subtrace_kit.lower(t)
    assert "new_empty = torch.Tensor.__deepcopy__(x_a, {})" in str(low)
    x = TwoTensor(torch.tensor([3.0, 4.0]), torch.tensor([5.0, 6.0]))
    for f in (t, low):
        out = f(x)
        assert (out.a.tolist(), out.b.tolist()) == ([6.0, 8.0], [10.0, 12.0])
    assert (x.a.tolist(), x.b.tolist()) == ([3.0, 4.0], [5.0, 6.0])


def test_deep_copies_of_tensors_in_one_storage_stay_in_one():
    def make():
        memory = torch.arange(4.0).view(2, 2)
        return TwoTensor(memory, memory.view(2, 2))

    t = subtrace_kit.trace(lambda x: copy.deepcopy(x))(make())
    for f in (copy.deepcopy, t, subtrace_kit.lower(t)):
        out = f(make())
        assert out.a.untyped_storage().data_ptr() == out.b.untyped_storage().data_ptr()


class Box:
    def __init__(self, a, b):
        self.a, self.b = a, b


torch.utils._pytree.register_pytree_node(Box, lambda box: ([box.a, box.b], None), lambda parts, _: Box(*parts))


class Out:
    y = None


def test_changes_of_arguments_are_given_back_and_done_at_each_run():
    def into_box(box):
        box.b = box.a * 2
        return box.a

    def into_object(x, out):
        out.y = x * 2
        return x + 1

    def data(x):
        x.data = x.data * 2
        return x + 1

    def attribute(x):
        x.scaled = x * 2
        return x + 1

    box, out = Box(torch.ones(1), torch.zeros(1)), Out()
    x = torch.ones(2)
    t = subtrace_kit.trace(into_box)(box)
    assert box.b.item() == 0.0
    t(box)
    assert box.b.item() == 2.0
    t = subtrace_kit.trace(into_object)(x, out)
    assert out.y is None
    assert t(x, out).tolist() == [2.0, 2.0]
    assert out.y.tolist() == [2.0, 2.0]
    t = subtrace_kit.trace(attribute)(x)
    assert vars(x) == {}
    t(y := torch.full((2,), 3.0))
    assert y.scaled.tolist() == [6.0, 6.0]
    t = subtrace_kit.trace(data)(x)
    assert x.tolist() == [1.0, 1.0]
    assert t(x).tolist() == [3.0, 3.0]
    assert x.tolist() == [2.0, 2.0]


def test_data_of_another_kind_is_given_back():
    def other(x):
        x.data = torch.ones(4, dtype=torch.float64)
        return x * 2

    x = torch.arange(6.0).view(2, 3)
    memory = x.data_ptr()
    t = subtrace_kit.trace(other)(x)
    assert (x.shape, x.dtype, x.data_ptr(), x.tolist()[1]) == ((2, 3), torch.float32, memory, [3.0, 4.0, 5.0])
    assert t(x).tolist() == [2.0] * 4
    assert x.dtype is torch.float64


class Other(Kept):
    pass


def changes_class(x):
    x.__class__ = Other
    return x * 1


REFUSED = {
    "deque": (lambda q: q.append(q[0]) or q[0] * 2, lambda: collections.deque([torch.ones(1)]), "changes item of q"),
    "set_": (lambda x: x.set_(torch.arange(4.0)), kept, r"set_\(\) on a wrapper"),
    "class": (changes_class, kept, "changes the class of a Kept to Other"),
}


@pytest.mark.parametrize(("program", "make", "told"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_done_again_is_refused_and_leaves_no_mark(program, make, told):
    given = make()
    with pytest.raises(subtrace_kit.TraceError, match=told):
        subtrace_kit.trace(program)(given)
    assert (type(given), len(given)) == (type(make()), len(make()))


def test_attributes_of_plain_results():
    def program(x):
        y = x * 2
        y.tag, y.twice = "hi", y * 2
        return y

    t = subtrace_kit.trace(program)(torch.ones(1))
    for f in (t, subtrace_kit.lower(t)):
        out = f(torch.full((1,), 3.0))
        assert (out.tag, out.twice.item()) == ("hi", 12.0)


class Offset(Kept):
    """A wrapper whose constructor, not its handler, asks where its inner tensor begins."""

    keeps = ""

    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype
        )
        made.inner = inner
        return made


class AsksOffset(Kept):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls(args[0].inner * args[0].storage_offset())


def test_what_only_a_constructor_asks_is_asked_anew():
    low = subtrace_kit.lower(subtrace_kit.trace(lambda x: x + 1)(Offset(torch.ones(2))))
    assert low(Offset(torch.ones(4)[2:])).inner.tolist() == [12.0, 12.0]
    asks = subtrace_kit.lower(subtrace_kit.trace(lambda x: x + 1)(AsksOffset(torch.ones(2))))
    with pytest.raises(subtrace_kit.TraceError, match="storage offset 2 instead of 0"):
        asks(AsksOffset(torch.ones(4)[2:]))
