"""Attributes of tensors that no flatten protocol names: each is seen at its moment, or refused by name."""

from __future__ import annotations

import pytest
import torch
from classes import Base
from torch.utils import _pytree as pytree

import subtrace_kit
from subtrace_kit import TraceError


class Scaled(Base):
    """Computes with a tensor that its flatten protocol does not list."""

    @staticmethod
    def __new__(cls, inner, scale=None):
        made = Base.__new__(cls, inner)
        made.scale = torch.ones(()) if scale is None else scale
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = pytree.tree_map_only(cls, lambda t: t.inner * t.scale, (args, kwargs or {}))
        return func(*args, **kwargs)


class InList(Scaled):
    """Keeps the tensor in a list."""

    @staticmethod
    def __new__(cls, inner, scale=None):
        made = Base.__new__(cls, inner)
        made.parts = [scale]
        return made

    scale = property(lambda self: self.parts[0])


class Counting(Base):
    """Counts what it is sent."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args[0].calls = getattr(args[0], "calls", 0) + 1
        return super().__torch_dispatch__(func, types, args, kwargs)


class Moded(Base):
    """Computes with a number that is no metadata."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        factor = args[0].factor
        args, kwargs = pytree.tree_map_only(cls, lambda t: t.inner, (args, kwargs or {}))
        return func(*args, **kwargs) * factor


def moded(factor):
    made = Moded(torch.ones(2))
    made.factor = factor
    return made


@pytest.mark.parametrize(("cls", "path"), [(Scaled, "scale"), (InList, r"parts\[0\]")])
def test_an_unlisted_tensor_of_an_argument_is_refused(cls, path):
    with pytest.raises(
        TraceError, match=rf"{cls.__name__}\.{path} is a tensor that .*__tensor_flatten__ does not list"
    ):
        subtrace_kit.trace(lambda h: h + 1)(cls(torch.ones(2), torch.tensor(2.0)))


def test_an_unlisted_tensor_of_a_wrapper_built_inside_is_set_again():
    def program(x, scale):
        return Scaled(x, scale) + 1

    trace = subtrace_kit.trace(program)(torch.ones(2), torch.tensor(2.0))
    fresh = torch.full((2,), 3.0), torch.tensor(5.0)
    assert "scaled.scale = scale" in trace.to_text()
    for run in (trace, subtrace_kit.lower(trace)):
        assert torch.equal(run(*fresh), program(*fresh))


def test_a_tensor_attached_to_a_plain_argument_is_refused():
    x = torch.ones(2)
    x.extra = torch.ones(2)
    with pytest.raises(TraceError, match="reads a tensor from the attribute 'extra'"):
        subtrace_kit.trace(lambda x: x + x.extra)(x)


def test_an_attribute_of_a_plain_argument_is_guarded():
    x, y = torch.ones(2), torch.ones(2)
    x.factor, y.factor = 2, 3
    trace = subtrace_kit.trace(lambda x: x * x.factor)(x)
    assert trace(x).tolist() == [2, 2]
    with pytest.raises(TraceError, match=r"argument x\.factor: 3 instead of 2"):
        trace(y)
    with pytest.raises(TraceError, match=r"argument x\.factor: .* instead of 2"):
        trace(torch.ones(2))


def test_what_only_a_handler_reads_is_guarded_once_lowered():
    trace = subtrace_kit.trace(lambda h: h + 1)(moded(2))
    assert trace(moded(3)).tolist() == [6, 6]
    low = subtrace_kit.lower(trace)
    assert low(moded(2)).tolist() == [4, 4]
    with pytest.raises(TraceError, match=r"argument h\.factor: 3 instead of 2"):
        low(moded(3))


def test_a_handler_that_counts_runs_as_written_and_is_refused_lowered():
    h = Counting(torch.ones(2))
    h.calls = 0
    trace = subtrace_kit.trace(lambda h: h + 1)(h)
    assert h.calls == 0
    trace(h), trace(h)
    assert h.calls == 2
    with pytest.raises(TraceError, match=r"argument h\.calls: 2 instead of 0"):
        subtrace_kit.lower(trace)(h)


def test_jit_traces_anew_for_another_attribute():
    f = subtrace_kit.jit(lambda h: h + 1)
    assert [f(moded(n)).tolist() for n in (2, 3, 2)] == [[4, 4], [6, 6], [4, 4]]
    assert len(f.traces) == 2
