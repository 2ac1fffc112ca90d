"""Global state of torch and Python that a program can change: read, compare, give back."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import torch

from .errors import TraceError
from .facts import array_content, is_array

__all__ = ["GlobalState"]


def _numpy_state() -> Any:
    """The state of numpy's random numbers, if the program can know numpy."""
    numpy = sys.modules.get("numpy.random")
    return None if numpy is None else numpy.get_state(legacy=False)


def _give_numpy(state: Any) -> None:
    if state is not None:
        sys.modules["numpy.random"].set_state(state)


def _autocast() -> tuple[Any, ...]:
    devices = ("cpu", "cuda")
    return (*((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices),)


def _give_autocast(state: tuple[Any, ...]) -> None:
    for device, enabled, dtype in state:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _give_deterministic(state: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(state[0], warn_only=state[1])


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _give_anomaly(state: tuple[bool, bool]) -> None:
    torch.autograd.set_detect_anomaly(*state)


def _cudnn() -> tuple[bool, ...]:
    return tuple(getattr(torch.backends.cudnn, name) for name in _CUDNN)


def _give_cudnn(state: tuple[bool, ...]) -> None:
    for name, flag in zip(_CUDNN, state, strict=True):
        setattr(torch.backends.cudnn, name, flag)


_CUDNN = ("enabled", "benchmark", "deterministic")

_STATE: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "the program leaves grad mode changed": (torch.is_grad_enabled, torch.set_grad_enabled),
    "the program leaves the default dtype changed": (torch.get_default_dtype, torch.set_default_dtype),
    "the program leaves autocast changed": (_autocast, _give_autocast),
    "the program leaves use_deterministic_algorithms changed": (_deterministic, _give_deterministic),
    "the program leaves the matmul precision changed": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "the program leaves anomaly detection changed": (_anomaly, _give_anomaly),
    "the program leaves a flag of cudnn changed": (_cudnn, _give_cudnn),
    "the program leaves the number of threads changed": (torch.get_num_threads, torch.set_num_threads),
    "the program draws from Python's random": (random.getstate, random.setstate),
    "the program draws from numpy.random": (_numpy_state, _give_numpy),
}
"""What is told when it has changed -> how it is read, and how it is given back."""


class GlobalState:
    """The global state at the start of a recording."""

    def __init__(self) -> None:
        self.before = {told: read() for told, (read, _) in _STATE.items()}

    def changed(self) -> list[str]:
        """What the program has changed, as it is told."""
        return [told for told, (read, _) in _STATE.items() if not _same(read(), self.before[told])]

    def restore(self) -> None:
        """Give back what has changed."""
        for told in self.changed():
            _STATE[told][1](self.before[told])


def _same(now: Any, before: Any) -> bool:
    if before is None:  # numpy came in only now
        return True
    return bool(_content(now) == _content(before))


def _content(state: Any) -> Any:
    """A state that can be compared: arrays of numpy cannot."""
    if isinstance(state, dict):
        return {name: _content(part) for name, part in state.items()}
    return array_content(state) if is_array(state) else state


def state_changed(told: str) -> TraceError:
    """The error for a program that changes what a trace cannot change again."""
    return TraceError(
        told,
        cause="a switch that is set in the program and not set back, or numbers that are not torch's",
        way_out="use the switch as a context manager, or set it outside the program; draw random numbers with torch",
    )
