"""Memory that is not torch's, generators that are set in the program, and results in registered classes."""

import numpy as np
import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import subtrace_kit

ARRAY = np.ones(2, dtype=np.float32)


def test_an_array_from_outside_is_that_of_each_run():
    t = subtrace_kit.trace(lambda x: torch.from_numpy(ARRAY) * x)(torch.ones(2))
    for f in (t, subtrace_kit.lower(t)):
        assert f(torch.full((2,), 3.0)).tolist() == [3.0, 3.0]
    assert "torch.from_numpy(" in str(t)
    ARRAY[0] = 5.0
    try:
        with pytest.raises(subtrace_kit.TraceError, match="ARRAY"):
            t(torch.ones(2))
    finally:
        ARRAY[0] = 1.0


REFUSED = {
    "an array made inside": (lambda x: torch.from_numpy(np.ones(2)) + x, "torch.from_numpy of an array"),
    "torch.Tensor": (lambda x: torch.Tensor([1, 2]) * x, "unknown origin"),
}


@pytest.mark.parametrize(("program", "told"), REFUSED.values(), ids=REFUSED)
def test_data_from_nowhere_are_refused(program, told):
    with pytest.raises(subtrace_kit.TraceError, match=told):
        subtrace_kit.trace(program)(torch.ones(2))


GENERATOR = torch.Generator()


@pytest.mark.parametrize("late", [False, True])
def test_a_generator_that_the_program_sets_is_refused_and_given_back(late):
    def program(x):
        if not late:
            GENERATOR.manual_seed(0)
        x = x + torch.randn(2, generator=GENERATOR)
        if late:
            GENERATOR.manual_seed(0)
        return x

    before = GENERATOR.manual_seed(5).get_state()
    with pytest.raises(subtrace_kit.TraceError, match="sets the state of a"):
        subtrace_kit.trace(program)(torch.zeros(2))
    assert torch.equal(GENERATOR.get_state(), before)


def test_draws_from_a_generator_go_on_as_in_eager():
    def program(x):
        return x + torch.randn(2, generator=GENERATOR), torch.rand(2, generator=GENERATOR)

    x = torch.zeros(2)
    GENERATOR.manual_seed(5)
    t = subtrace_kit.trace(program)(x)
    for f in (t, subtrace_kit.lower(t)):
        GENERATOR.manual_seed(5)
        expected = [program(x), program(x)]
        GENERATOR.manual_seed(5)
        assert str([f(x), f(x)]) == str(expected)


class Box:
    def __init__(self, content):
        self.content = content


torch.utils._pytree.register_pytree_node(Box, lambda box: ([box.content], None), lambda parts, _: Box(*parts))


def test_a_wrapper_in_a_registered_class_among_the_results():
    t = subtrace_kit.trace(lambda x: Box(x * 2))(TwoTensor(torch.ones(1), torch.ones(1)))
    for f in (t, subtrace_kit.lower(t)):
        out = f(TwoTensor(torch.ones(1), torch.full((1,), 3.0))).content
        assert (type(out), out.a.item(), out.b.item()) == (TwoTensor, 2.0, 6.0)


def test_an_overload_whose_name_is_a_keyword():
    t = subtrace_kit.trace(lambda x: (x * 1).random_(0, 3))(TwoTensor(torch.ones(50), torch.ones(50)))
    low = subtrace_kit.lower(t)
    assert "getattr(aten.random_, 'from')(" in str(low)
    torch.manual_seed(0)
    out = low(TwoTensor(torch.zeros(50), torch.zeros(50)))
    assert set(out.a.tolist()) | set(out.b.tolist()) == {0.0, 1.0, 2.0}


def test_jit_traces_anew_where_the_data_give_another_size():
    jitted = subtrace_kit.jit(lambda x: x[x > 0] * 2)
    assert jitted(torch.tensor([1.0, -1.0])).tolist() == [2.0]
    assert jitted(torch.tensor([1.0, 1.0])).tolist() == [2.0, 2.0]
    assert jitted(torch.tensor([-1.0, 3.0])).tolist() == [6.0]
    assert len(jitted.traces) == 2


def test_jit_does_not_begin_again_after_a_write():
    def program(x, log):
        log.add_(1)
        return x[x > 0] * 2

    jitted = subtrace_kit.jit(program)
    log = torch.zeros(1)
    jitted(torch.tensor([1.0, -1.0]), log)
    with pytest.raises(subtrace_kit.TraceError, match="the data now give"):
        jitted(torch.tensor([1.0, 1.0]), log)


def test_checks_of_data_are_kept():
    def program(x):
        torch._assert_async((x > 0).all(), "must be positive")
        return x + 1

    for make in (lambda v: torch.full((2,), v), lambda v: TwoTensor(torch.full((2,), v), torch.full((2,), v))):
        t = subtrace_kit.trace(program)(make(1.0))
        for f in (t, subtrace_kit.lower(t)):
            f(make(2.0))
            with pytest.raises(subtrace_kit.TraceError, match="must be positive"):
                f(make(-1.0))
