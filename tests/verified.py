"""Helpers for the tests of verify: small wrappers, agreement without a mark, and traces damaged on purpose."""

import torch
from classes import Base

import subtrace_kit
from subtrace_kit import verify
from subtrace_kit.zoo import ScaleTensor, TwoTensor


class Counting(TwoTensor):
    """Counts its ops in an attribute."""

    count = 0

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        for arg in args:
            if isinstance(arg, cls):
                arg.count += 1
        return super().__torch_dispatch__(func, types, args, kwargs)


class Child(Base):
    """Its inherited unflatten names the parent."""

    @staticmethod
    def __tensor_unflatten__(inner, metadata, size, stride):
        return Base(inner["inner"])


def two(*shape, grad=False):
    return TwoTensor(torch.randn(shape), torch.randn(shape)).requires_grad_(grad)


def scale(*shape):
    return ScaleTensor(torch.randn(*shape), torch.tensor(0.5))


def assert_agrees(fn, *args):
    """The trace and the lowered trace agree with eager, and the arguments are left as they were."""
    trace = subtrace_kit.trace(fn)(*args)
    before, state = repr(args), torch.get_rng_state()
    for one in (trace, subtrace_kit.lower(trace)):
        report = verify(one, *args)
        assert report.ok, report
        assert repr(args) == before
        assert torch.equal(torch.get_rng_state(), state)
    return trace


def wrong(trace, *args):
    """The names of the rows that differ."""
    report = verify(trace, *args)
    assert not report.ok
    return [row.name for row in report.rows if row.verdict == "differs"]


def dropped(trace, name, put=()):
    """The trace without the operations of that name, with others in place of the first."""
    at = [i for i, bound in enumerate(trace.bound_symbols) if bound.symbol.name == name]
    assert at
    kept = [bound for bound in trace.bound_symbols if bound.symbol.name != name]
    return trace.replace(bound_symbols=(*kept[: at[0]], *put, *kept[at[0] :]))


def changed(trace, name, **fields):
    """The trace with other fields in the operations of that name."""
    found = [b.replace(**fields) if b.symbol.name == name else b for b in trace.bound_symbols]
    assert found != list(trace.bound_symbols)
    return trace.replace(bound_symbols=tuple(found))
