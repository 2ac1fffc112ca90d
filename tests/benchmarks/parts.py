"""What one call of a jitted function costs, part by part; each part is run and timed by itself."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import count, repeat
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import torch

from subtrace_kit.intercept import as_handler
from subtrace_kit.running import Runner, runner

from .classes import inner_tensors
from .pieces import KINDS, Pieces
from .programs import chain, pair
from .tables import Figure
from .timing import Timer, medians, timer
from .variants import Step, made

__all__ = ["HOW", "breakdown", "entry_of"]

HOW = {
    "call": "the whole call",
    "guard": "entry.fits(args, kwargs), the check that is generated for the entry",
    "unwrap": "the attribute reads of the entry's generated function, alone, in a loop",
    "run": "its ops on inner tensors, alone, on the values that they had",
    "wrap": "its __tensor_unflatten__ calls, alone",
    "state": "an empty `with as_handler()`, which stands around ops that autograd does not follow",
    "kept ops": "the generated function under no_grad, less unwrap, run and wrap: wrapper objects that are sent anew",
    "autograd": "the generated function as it is, less the same under no_grad",
    "frames": "the real jit.__call__ and Runner.run, with an entry whose check and function do nothing",
    "not in a part": "the call, less all parts: one after the other they take longer than each in a loop of its own",
    "backward": "call and backward, less the call: torch's engine, and what it sends",
}
"""How each part is measured."""


def entry_of(jitted: Any) -> Any:
    """The entry of a jitted function that has met one kind of input."""
    (entry,) = jitted._entries
    return entry


def breakdown(n: int, rounds: int, gradients: bool = False) -> list[Figure]:
    """The parts of one call of jit on a Pair.

    Args:
        n: How many ops the program has.
        rounds: Interleaved rounds.
        gradients: Whether autograd follows the call.

    Returns:
        A figure for the call and for each of its parts.

    Raises:
        AssertionError: What the parts compute is not what the call gives.
    """
    jitted, x = made("jit", chain(n)), pair(gradients)
    timers = _timers(jitted, x)
    if gradients:
        timers["step"] = timer(Step(jitted, (x,), (pair(),)))
    us = _parts(medians(timers, rounds), gradients)
    subject = "Pair, gradients" if gradients else "Pair"
    return [Figure("parts", subject, n, part, time, HOW[part]) for part, time in us.items()]


def _timers(jitted: Any, x: torch.Tensor) -> dict[str, Timer]:
    """What is run: the call, and its parts."""
    result = jitted(x)
    entry = entry_of(jitted)
    program, args = runner(entry.program), (x,)
    captured = entry.fits(args, {})
    timers = {
        "call": timer(jitted, x),
        "guard": timer(entry.fits, args, {}),
        "function": _of_function(program, args, captured),
        "no_grad": _of_function(program, args, captured, torch.no_grad()),
        "state": _state,
        "frames": timer(_hollow(jitted, entry, result), x),
    }
    return timers | _pieces(program, args, captured, result)


def _pieces(program: Runner, args: tuple, captured: dict[str, Any], result: Any) -> dict[str, Timer]:
    """The statements of the generated function by kind; none where it has others than these."""
    try:
        found = Pieces(program, args, captured)
    except ValueError:
        return {}
    torch.testing.assert_close(inner_tensors(found.value), inner_tensors(result), rtol=0, atol=0)
    return {kind: found.timer(kind) for kind in KINDS}


def _parts(us: Mapping[str, float], gradients: bool) -> dict[str, float]:
    """The parts in the order of a call."""
    kinds = {kind: us[kind] for kind in KINDS if kind in us} or {"run": us["no_grad"]}
    found = {"call": us["call"], "guard": us["guard"], **kinds}
    if gradients:
        found["kept ops"] = us["no_grad"] - sum(kinds.values())
        found["autograd"] = us["function"] - us["no_grad"]
    else:
        found["state"] = us["state"]
    found["frames"] = us["frames"]
    found["not in a part"] = us["call"] - sum(time for part, time in found.items() if part != "call")
    return found | ({"backward": us["step"] - us["call"]} if gradients else {})


def _of_function(program: Runner, args: tuple, captured: dict[str, Any], mode: Any = None) -> Timer:
    """A timer of the generated function, in a mode that is entered outside the time."""
    timed = timer(program.function, *args) if not captured else timer(lambda: program.function(*args, **captured))

    def run(n: int) -> float:
        if mode is None:
            return timed(n)
        with mode:
            return timed(n)

    return run


def _state(n: int) -> float:
    begin = perf_counter()
    for _ in repeat(None, n):
        with as_handler():
            pass
    return perf_counter() - begin


def _hollow(jitted: Any, entry: Any, result: Any) -> Any:
    """The jitted function with nothing in it: its frames, and those of the entry."""
    program = object.__new__(Runner)
    program.function = lambda x: result
    found = copy.copy(jitted)
    parts = {"fits": lambda args, kwargs: {}, "start": count().__next__, "draws": entry.draws, "run": program.run}
    found._entries = (SimpleNamespace(**parts),)
    return found
