"""Numbers from data that leave as Python values, and errors that depend on data."""

import pytest
import torch

import subtrace_kit

FIRST, OTHER = torch.tensor([1.0, 2.0]), torch.tensor([-3.0, 5.0])

OUTSIDE = {
    "text": lambda x: (x + 1, f"{x.sum().item():.1f}"),
    "int of a flag": lambda x: (x + 1, int((x > 0).all().item())),
    "key": lambda x: {x.sum().item(): x + 1},
    "is True": lambda x: x * 2 if torch.equal(x, x.abs()) is True else x * 3,
    "index": lambda x: [x + 1, x + 100][(x > 0).all().item()] * 1,
    "class": lambda x: x * 2 if type(x.sum().item()) is float else x * 3,
    "isinstance": lambda x: x * 2 if isinstance((x > 0).all().item(), bool) else x * 3,
}


@pytest.mark.parametrize("program", OUTSIDE.values(), ids=OUTSIDE)
def test_python_values_made_of_numbers_are_never_stale(program):
    t = subtrace_kit.trace(program)(FIRST)
    for f in (t, subtrace_kit.lower(t)):
        assert str(f(FIRST)) == str(program(FIRST))
        with pytest.raises(subtrace_kit.TraceError, match="the data now give"):
            f(OTHER)


def test_floats_among_the_results_are_computed_anew():
    def program(x):
        loss = x.sum()
        return x + 1, float(loss), loss.item(), 3.0

    t = subtrace_kit.trace(program)(FIRST)
    for f in (t, subtrace_kit.lower(t)):
        assert f(OTHER)[1:] == (2.0, 2.0, 3.0)
        assert type(f(OTHER)[1]) is float


def factor(x):
    try:
        return torch.linalg.cholesky(x)
    except RuntimeError:
        return torch.zeros_like(x)


def pick(x):
    try:
        return torch.gather(x, 0, torch.full((1, 2), 5))
    except RuntimeError:
        return x * 2


@pytest.mark.parametrize("program", [factor, pick])
def test_going_on_after_an_error_by_data_is_refused(program):
    with pytest.raises(subtrace_kit.TraceError, match="the program goes on after"):
        subtrace_kit.trace(program)(-torch.eye(2))


def test_going_on_after_an_error_of_the_kind_is_traced():
    def flat(x):
        try:
            return x.view(-1)
        except RuntimeError:
            return x.reshape(-1)

    t = subtrace_kit.trace(flat)(torch.ones(2, 3).t())
    x = torch.arange(6.0).view(2, 3).t()
    assert t(x).tolist() == flat(x).tolist() == [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]


class Holder:
    def __init__(self, tensor):
        self.tensor = tensor

    def __eq__(self, other):
        return True

    __hash__ = None


def test_an_equal_object_is_not_the_recorded_one():
    t = subtrace_kit.trace(lambda x, h: x * h.tensor)(FIRST, held := Holder(OTHER))
    assert t(FIRST, held).tolist() == [-3.0, 10.0]
    with pytest.raises(subtrace_kit.TraceError, match="argument h"):
        t(FIRST, Holder(FIRST))


def test_zeros_of_other_signs_are_two_kinds_of_input():
    jitted = subtrace_kit.jit(lambda x, k: x / k)
    assert [jitted(torch.ones(1), k).item() for k in (0.0, -0.0, 0.0)] == [float("inf"), -float("inf"), float("inf")]
