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
    "node": "entry.node.run, less its forward: the node in the graph, and what it remembers for the backward",
    "frames": "the real jit.__call__ and Runner.run, with an entry whose check and function do nothing",
    "not in a part": "the call, less all parts: one after the other they take longer than each in a loop of its own",
    "backward": "call and backward, less the call",
    "its check": "of which: the check of the gradient that is generated for a backward",
    "its run": "of which: the generated backward on the values that were kept, its ops and the gradient's object",
    "its engine": "of which: the rest, torch's own engine and what it asks of Python",
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
    if gradients:
        step = Step(jitted, (x,), (pair(),))
        for _ in range(3):  # then forward and backward are recorded
            step()
        timers = _timers(jitted, x) | _of_backward(jitted, x) | {"step": timer(step)}
    else:
        timers = _timers(jitted, x)
    us = _parts(medians(timers, rounds), gradients)
    subject = "Pair, gradients" if gradients else "Pair"
    return [Figure("parts", subject, n, part, time, HOW[part]) for part, time in us.items()]


def _timers(jitted: Any, x: torch.Tensor) -> dict[str, Timer]:
    """What is run: the call, and its parts."""
    result = jitted(x)
    entry = entry_of(jitted)
    program, args = entry.node.halves.forward if entry.node else runner(entry.program), (x,)
    captured = entry.fits(args, {})
    timers = {
        "call": timer(jitted, x),
        "guard": timer(entry.fits, args, {}),
        "function": _of_function(program, args, captured),
        "state": _state,
        "frames": timer(_hollow(jitted, entry, result), x),
    }
    if entry.node:
        timers["node"] = timer(entry.node.run, args, {}, captured)
    return timers | _pieces(program, args, captured, result)


def _of_backward(jitted: Any, x: torch.Tensor) -> dict[str, Timer]:
    """The parts of a backward on the gradient that a step gives."""
    halves = entry_of(jitted).node.halves
    (half,) = halves.backwards
    with torch.no_grad():
        saved = halves.forward.run((x,), {}, {})[2]
    given = (*(saved[i] for i in half.saved), pair())
    return {"its check": timer(half.fits, (pair(),), {}), "its run": timer(half.backward.run, given, {}, {})}


def _pieces(program: Runner, args: tuple, captured: dict[str, Any], result: Any) -> dict[str, Timer]:
    """The statements of the generated function by kind; none where it has others than these."""
    try:
        found = Pieces(program, args, captured)
    except ValueError:
        return {}
    value = found.value[0] if isinstance(found.value, tuple) else found.value  # a half gives more than the result
    torch.testing.assert_close(inner_tensors(value), inner_tensors(result), rtol=0, atol=0)
    return {kind: found.timer(kind) for kind in KINDS}


def _parts(us: Mapping[str, float], gradients: bool) -> dict[str, float]:
    """The parts in the order of a call."""
    kinds = {kind: us[kind] for kind in KINDS if kind in us} or {"run": us["function"]}
    found = {"call": us["call"], "guard": us["guard"], **kinds, "state": us["state"]}
    if gradients:
        found["node"] = us["node"] - us["function"]
    found["frames"] = us["frames"]
    found["not in a part"] = us["call"] - sum(time for part, time in found.items() if part != "call")
    return found | (_parts_of_backward(us) if gradients else {})


def _parts_of_backward(us: Mapping[str, float]) -> dict[str, float]:
    whole, check, run = us["step"] - us["call"], us["its check"], us["its run"]
    return {"backward": whole, "its check": check, "its run": run, "its engine": whole - check - run}


def _of_function(program: Runner, args: tuple, captured: dict[str, Any]) -> Timer:
    """A timer of the generated function, under no_grad, which is entered outside the time."""
    timed = timer(program.function, *args) if not captured else timer(lambda: program.function(*args, **captured))

    def run(n: int) -> float:
        with torch.no_grad():
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
