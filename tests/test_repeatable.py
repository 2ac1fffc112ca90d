"""jit traces anew where data give another number, and the broken-off run has left no mark."""

import pytest
import torch
from classes import Base

import subtrace_kit


class Tagged(Base):
    """One inner tensor, and a number among its metadata."""

    @staticmethod
    def __new__(cls, inner, tag=0.0):
        made = Base.__new__(cls, inner)
        made.tag = tag
        return made

    def __tensor_flatten__(self):
        return ["inner"], self.tag

    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        return cls(inner["inner"], metadata)


ONE, TWO = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 8.0])


def into_its_own(x):
    scale = x.amax().item()
    y = x / scale
    y.round_()
    return Tagged(y, scale)


def draws(x):
    return Tagged(x + torch.rand(2), x.amax().item())


def writes_before(x):
    x.add_(1)
    return Tagged(x * 1, x.amax().item())


def writes_a_view_before(x):
    x[:1].unsqueeze(0).mul_(2)
    return Tagged(x * 1, x.amax().item())


def writes_after(x):
    scale = x.amax().item()
    out = Tagged(x / scale, scale)
    x.zero_()
    return out


@pytest.mark.parametrize("program", [into_its_own, draws, writes_after])
def test_a_run_without_marks_is_made_again(program):
    f = subtrace_kit.jit(program)
    f(ONE.clone())
    torch.manual_seed(3)
    given, expected_given = TWO.clone(), TWO.clone()
    found = f(given)
    after = torch.get_rng_state()
    torch.manual_seed(3)
    expected = program(expected_given)
    assert (found.tag, len(f.traces)) == (expected.tag, 2)
    assert torch.equal(found.inner, expected.inner)
    assert torch.equal(given, expected_given)
    assert torch.equal(after, torch.get_rng_state())


@pytest.mark.parametrize("program", [writes_before, writes_a_view_before])
def test_a_run_that_has_written_an_argument_is_not(program):
    f = subtrace_kit.jit(program)
    f(ONE.clone())
    with pytest.raises(subtrace_kit.TraceError, match="the data now give"):
        f(TWO.clone())
