"""What handlers take from data and the program reads, counters that results depend on, code that is replaced."""

import os

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.weak import WeakTensorKeyDictionary

import subtrace_kit


class Amax(torch.Tensor):
    """A wrapper whose handlers leave a number from data where the class says."""

    last = 0.0
    count = 0
    mode = ""

    def __new__(cls, a, s=1.0):
        made = torch.Tensor._make_wrapper_subclass(cls, a.shape, dtype=a.dtype)
        made.a, made.s = a, s
        return made

    def __tensor_flatten__(self):
        return ["a"], self.s

    @classmethod
    def __tensor_unflatten__(cls, inner, meta, size, stride):
        return cls(inner["a"], meta)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if cls.mode == "raises" and args[0].a.amax().item() > 4:
            raise ValueError("overflow")
        if cls.mode == "counts":
            Amax.count += 1
            args = (args[0], args[1] / Amax.count)
        out = func(*[x.a if isinstance(x, cls) else x for x in args], **(kwargs or {}))
        if cls.mode == "class":
            Amax.last = out.amax().item()
        if cls.mode == "tag":
            return cls(out, "big" if out.amax().item() > 4 else "small")
        return cls(out, out.amax().item() if cls.mode == "metadata" else 1.0)


def small():
    return Amax(torch.tensor([1.0, 2.0]))


def falls_back(x):
    try:
        return (x + 5).a
    except ValueError:
        return x.a * 100


DECIDES = {
    "metadata": lambda x: (y := x * 2).a / y.s,
    "class": lambda x: (x * 2).a / Amax.last,
    "tag": lambda x: (y := x * 2).a + (100 if y.s == "big" else -100),
    "raises": falls_back,
}


@pytest.mark.parametrize(("mode", "program"), DECIDES.items(), ids=DECIDES)
def test_a_program_that_goes_on_with_what_a_handler_took_from_data_is_refused(mode, program, monkeypatch):
    monkeypatch.setattr(Amax, "mode", mode)
    monkeypatch.setattr(Amax, "last", 0.0)
    with pytest.raises(subtrace_kit.TraceError):
        subtrace_kit.trace(program)(small())
    assert Amax.last == 0.0


def test_numbers_of_handlers_that_the_program_leaves_alone_are_traced(monkeypatch, capsys):
    monkeypatch.setattr(Amax, "mode", "metadata")

    def program(x):
        y = x * 2
        print("now", y.a)
        return y

    t = subtrace_kit.trace(program)(small())
    assert capsys.readouterr().out.count("now") == 1
    out = t(Amax(torch.tensor([3.0, 4.0])))
    assert (out.a.tolist(), out.s) == ([6.0, 8.0], 8.0)


def test_a_counter_that_results_depend_on_is_not_lowered(monkeypatch):
    monkeypatch.setattr(Amax, "mode", "counts")
    monkeypatch.setattr(Amax, "count", 0)
    t = subtrace_kit.trace(lambda x: (x * 6).a)(small())
    assert [t(small())[0].item() for _ in range(3)] == [6.0, 3.0, 2.0]
    with pytest.raises(subtrace_kit.TraceError, match=r"writes Amax\.count"):
        subtrace_kit.lower(t)
    with pytest.raises(subtrace_kit.TraceError, match="count"):
        subtrace_kit.trace(lambda x: ((x * 6).a, Amax.count))(small())


def test_texts_of_tensors_that_the_program_goes_on_with():
    with pytest.raises(subtrace_kit.TraceError, match="as a text of a tensor"):
        subtrace_kit.trace(lambda x: x / float(f"{x.max():.2f}"))(torch.tensor([1.0, 4.0]))


def test_a_cache_by_identity_is_refused_for_another_tensor_and_traced_anew_by_jit():
    weights = [TwoTensor(k * torch.eye(2), torch.eye(2)) for k in (1.0, 2.0)]
    x = torch.ones(1, 2)
    ways = (({}, id), ({}, lambda w: w), (WeakTensorKeyDictionary(), lambda w: w), ({}, lambda w: w.a.data_ptr()))
    for cache, key in ways:

        def program(x, w, cache=cache, key=key):
            if key(w) not in cache:
                cache[key(w)] = w.a.t().contiguous()
            return x @ cache[key(w)]

        for w in weights:
            program(x, w)
        t = subtrace_kit.trace(program)(x, weights[0])
        assert t(x, weights[0]).tolist() == [[1.0, 1.0]]
        with pytest.raises(subtrace_kit.TraceError, match=r"identity|address"):
            t(x, weights[1])
        jitted = subtrace_kit.jit(program)
        assert [jitted(x, w).tolist()[0][0] for w in (*weights, *weights)] == [1.0, 2.0, 1.0, 2.0]


def test_code_that_is_replaced_is_refused():
    class Scale(torch.nn.Module):
        def forward(self, x):
            return x * 2

    class Two(TwoTensor):
        def total(self):
            return self.a + self.b

    def helper(x):
        return x * 2

    module, two, x = Scale(), Two(torch.ones(1), torch.ones(1)), torch.ones(1)
    known = [
        (subtrace_kit.trace(module)(x), x),
        (subtrace_kit.trace(lambda t: t.total())(two), two),
        (subtrace_kit.trace(lambda x: helper(x))(x), x),
    ]
    for t, given in known:
        assert t(given).item() == 2.0
    Scale.forward = lambda self, x: x * 3
    Two.total = lambda self: self.a - self.b
    helper.__code__ = (lambda x: x * 3).__code__
    for t, given in known:
        with pytest.raises(subtrace_kit.TraceError):
            t(given)


def test_only_the_variables_that_are_read_are_compared(monkeypatch):
    monkeypatch.setenv("SUBTRACE_LEVEL", "2")
    t = subtrace_kit.trace(lambda x: x * int(os.environ["SUBTRACE_LEVEL"]))(torch.ones(1))
    monkeypatch.setenv("SUBTRACE_OTHER", "secret")
    assert t(torch.ones(1)).item() == 2.0
    monkeypatch.setenv("SUBTRACE_LEVEL", "3")
    with pytest.raises(subtrace_kit.TraceError, match=r"os\.environ\['SUBTRACE_LEVEL'\]: '3' instead of '2'"):
        t(torch.ones(1))


def test_a_lowered_write_advances_the_version_of_the_wrapper():
    x = TwoTensor(torch.ones(2), torch.ones(2))
    t = subtrace_kit.trace(lambda x: x.mul_(2).a.sum())(x)
    for f in (t, subtrace_kit.lower(t)):
        version = x._version
        f(x)
        assert x._version == version + 1


def test_fake_runs_give_plain_tensors():
    t = subtrace_kit.trace(lambda x: [x * 2, x.t()], fake=True)(torch.ones(2, 2))
    assert [out.tolist() for out in t(torch.ones(2, 2))] == [[[2.0, 2.0], [2.0, 2.0]], [[1.0, 1.0], [1.0, 1.0]]]


def versions(nested):
    return [nested._version, nested.a._version, nested.a.a._version]


def test_versions_advance_where_torch_counts_them():
    def inference(x):
        with torch.inference_mode():
            x.add_(1)
        return x.a * 1

    nested = TwoTensor(TwoTensor(torch.ones(2), torch.ones(2)), TwoTensor(torch.ones(2), torch.ones(2)))
    for program in (inference, lambda x: x.add_(1).a * 1):
        t = subtrace_kit.trace(program)(nested)
        seen = []
        for f in (program, t, subtrace_kit.lower(t)):
            before = versions(nested)
            f(nested)
            seen.append([now - then for now, then in zip(versions(nested), before, strict=True)])
        assert seen[0] == seen[1] == seen[2]
