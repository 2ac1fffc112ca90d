"""Global state that a program leaves changed is refused and given back; a switch that it sets back is none."""

import random

import numpy as np
import numpy.random  # else numpy loads it late, in the middle of a test
import pytest
import torch

import subtrace_kit
from subtrace_kit.global_state import GlobalState


def grad_mode():
    torch.set_grad_enabled(False)


def default_dtype():
    torch.set_default_dtype(torch.float64)


def autocast():
    torch.set_autocast_enabled("cpu", True)


def autocast_dtype():
    torch.set_autocast_dtype("cpu", torch.float16)


def deterministic():
    torch.use_deterministic_algorithms(True)


def precision():
    torch.set_float32_matmul_precision("high")


def anomaly():
    torch.autograd.set_detect_anomaly(True, check_nan=False)


def cudnn():
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark


def draw():
    random.random()


def draw_numpy():
    np.random.rand()


ACTS = {
    grad_mode: "grad mode",
    default_dtype: "default dtype",
    autocast: "autocast",
    autocast_dtype: "autocast",
    deterministic: "use_deterministic_algorithms",
    precision: "matmul precision",
    anomaly: "anomaly detection",
    cudnn: "cudnn",
    draw: "Python's random",
    draw_numpy: "numpy.random",
}


def state():
    return repr(GlobalState().before)


@pytest.fixture(autouse=True)
def _as_before():
    kept = GlobalState()
    yield
    changed = kept.changed()
    kept.restore()
    assert changed == []


@pytest.mark.parametrize(("act", "told"), ACTS.items(), ids=[f.__name__ for f in ACTS])
def test_a_change_is_refused_and_given_back(act, told):
    before = state()

    def program(x):
        y = x * 2
        act()
        return y

    with pytest.raises(subtrace_kit.TraceError, match=told):
        subtrace_kit.trace(program)(torch.ones(2))
    assert state() == before


@pytest.mark.parametrize("act", ACTS, ids=[f.__name__ for f in ACTS])
def test_a_change_is_given_back_when_the_program_fails(act):
    before = state()

    def program(x):
        act()
        raise ValueError("no")

    with pytest.raises(subtrace_kit.TraceError):
        subtrace_kit.trace(program)(torch.ones(2))
    assert state() == before


def test_the_number_of_threads():
    before = torch.get_num_threads()

    def program(x):
        torch.set_num_threads(before + 1)
        return x * 2

    with pytest.raises(subtrace_kit.TraceError, match="number of threads"):
        subtrace_kit.trace(program)(torch.ones(2))
    assert torch.get_num_threads() == before


def test_a_switch_that_is_set_back():
    def program(x):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        torch.set_grad_enabled(False)
        z = x * 2
        torch.set_grad_enabled(True)
        return y, z, x * 3

    trace = subtrace_kit.trace(program)(torch.ones(2, 2))
    x = torch.full((2, 2), 2.0, requires_grad=True)
    fresh = subtrace_kit.trace(program)(x)
    for form in (fresh, subtrace_kit.lower(fresh)):
        found = form(x)
        assert [t.dtype for t in found] == [torch.bfloat16, torch.float32, torch.float32]
        assert [t.requires_grad for t in found] == [False, False, True]
    assert torch.equal(trace(torch.ones(2, 2))[0], torch.full((2, 2), 2.0, dtype=torch.bfloat16))


def test_torch_random_numbers_are_drawn_anew():
    def program(x):
        return x + torch.rand(2)

    before = torch.get_rng_state()
    trace = subtrace_kit.trace(program)(torch.ones(2))
    assert torch.equal(torch.get_rng_state(), before)
    for form in (trace, subtrace_kit.lower(trace)):
        torch.manual_seed(3)
        found = [form(torch.ones(2)) for _ in range(3)]
        torch.manual_seed(3)
        assert all(torch.equal(one, program(torch.ones(2))) for one in found)


def test_what_changed_is_told_and_given_back():
    kept = GlobalState()
    assert kept.changed() == []
    grad_mode(), draw()
    assert kept.changed() == ["the program leaves grad mode changed", "the program draws from Python's random"]
    kept.restore()
    assert kept.changed() == []
    assert torch.is_grad_enabled()


def test_the_warning_of_deterministic_algorithms_is_given_back():
    kept = GlobalState()
    torch.use_deterministic_algorithms(True, warn_only=True)
    warned = GlobalState()
    torch.use_deterministic_algorithms(True, warn_only=False)
    warned.restore()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    kept.restore()
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
