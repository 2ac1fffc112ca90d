"""Eager against trace against lowered trace."""

from __future__ import annotations

import dataclasses
import re
import warnings
from typing import Any

import torch

import subtrace_kit
from subtrace_kit.checker import check_trace

from .programs import Program
from .stage import Facts, Sight, Stage, differences, walk


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came of one program: same, skipped, refusal, or fault with its kind and details."""

    what: str
    kind: str = ""
    details: str = ""


def judge(program: Program, seed: int = 0) -> Verdict:
    """Compare eager, trace and lowered trace of one program.

    Args:
        program: The program.
        seed: Its seed; some programs get a second run on other inputs.

    Returns:
        The verdict.
    """
    try:
        stage = Stage.of(program)
        wanted = stage.run(stage.fn, 1)
    except Exception as error:
        return Verdict("skipped", type(error).__name__)
    verdict = _compared(stage, wanted, seed)
    if verdict.what in ("same", "skipped"):
        return verdict
    try:
        for other in (0, 2):
            stage.run(stage.fn, other)
        steady = not differences(stage.run(stage.fn, 1), wanted)
    except Exception as error:
        return Verdict("skipped", type(error).__name__)
    return verdict if steady else Verdict("skipped", "eager differs from itself")


def _compared(stage: Stage, wanted: Facts, seed: int) -> Verdict:
    where = "trace"
    try:
        trace, marks = _traced(stage)
        if marks:
            return Verdict("fault", f"mark: {_kind(marks[0])}", ", ".join(marks[:6]))
        check_trace(trace)
        where = "lower"
        low = check_trace(subtrace_kit.lower(trace))
        for where, run in (("run trace", trace), ("run lowered", low)):
            if verdict := _difference(where, stage.run(run, 1), wanted):
                return verdict
        if seed % 8 == 0:
            compile(str(low), "lowered", "exec")
            where = "second run lowered"
            if verdict := _difference(where, stage.run(low, 2), stage.run(stage.fn, 2)):
                return verdict
        where = "run jit"
        jitted = subtrace_kit.jit(stage.fn)
        for sample in (2, 1):  # the forward and backward of one node are recorded in the second call, and in the third
            stage.run(jitted, sample)
        for where in ("run jit lowered", "run jit again, lowered"):
            if verdict := _difference(where, stage.run(jitted, 1), wanted):
                return verdict
    except subtrace_kit.TraceError as error:
        return Verdict("refusal", f"{where}: {_message(error)}", str(error))
    except Exception as error:
        name = type(error).__name__
        return Verdict("fault", f"{where}: {name}: {_message(error)}", f"{name}: {error}")
    return Verdict("same")


def _traced(stage: Stage) -> tuple[Any, list[str]]:
    """The trace, and what tracing left changed."""
    args = stage.inputs(0)
    everything = {"arg": args, "captured": stage.captured()}
    before, state = _marks(everything), torch.get_rng_state()
    trace = None
    try:
        trace = subtrace_kit.trace(stage.fn)(*args)
    except subtrace_kit.TraceError as error:
        failure = error
    after = _marks(everything)
    changed = differences(after, before) + ["random/state"] * (not torch.equal(torch.get_rng_state(), state))
    if trace is None and (not changed or "cannot take such a view out" in str(failure)):
        raise failure
    return trace, changed


def _marks(everything: dict[str, Any]) -> Facts:
    sight = Sight()
    sight.take(everything)
    sight.partitions(everything)
    sight.gradients(dict(walk(everything)), "grad")
    sight.facts |= {f"{p}/object": id(t) for p, t in walk(everything)}
    modes = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack(), torch.is_grad_enabled()
    return sight.facts | {"torch/modes": modes}


def _difference(where: str, found: Facts, wanted: Facts) -> Verdict | None:
    keys = differences(found, wanted)
    if where.endswith("lowered"):  # There a wrapper is built anew: what it shares are its inner tensors.
        keys = [key for key in keys if not key.endswith("/outer memory")]
    if not keys:
        return None
    keys.sort(key=_weight)
    shown = [f"{key}: {_short(found.get(key))} instead of {_short(wanted.get(key))}" for key in keys[:6]]
    return Verdict("fault", f"{where}: {_kind(keys[0])}", "\n".join(shown))


def _weight(key: str) -> bool:
    """Values and classes are told first."""
    return not key.endswith(("/value", "/class", "/there", "/structure"))


def _short(value: Any) -> str:
    return " ".join(str(value).split())[:160]


def _kind(key: str) -> str:
    """`out.a.grad/value` for all results and inner names."""
    path, _, fact = key.rpartition("/")
    section = re.match(r"\w+", path)
    grad = " grad inside" if ".grad inside" in path else " grad" if ".grad" in path else ""
    return f"{section[0] if section else path}{grad} {fact}"


def _message(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    first = re.sub(r"in \S+ while the trace ran", "while the trace ran", first)
    return re.sub(r"0x\w+|-?\d+(\.\d+)?(e-\d+)?", "N", re.sub(r"\b[xv]\d+\b", "NAME", first))[:130]


def script(program: Program, verdict: Verdict) -> str:
    """A program that shows a verdict, as a Python file to run from the root of the project."""
    comment = "\n".join(f"# {line}" for line in (f"{verdict.what}: {verdict.kind}", *verdict.details.splitlines()))
    return (
        f"{comment}\nfrom tests.fuzz import *\n\n\n{program.source}\n\n"
        f"tell(globals(), like={program.like}, twice={program.twice}, double={program.double})\n"
    )


def tell(space: dict[str, Any], like: bool = True, twice: bool = False, double: bool = False) -> None:
    """Print what is the matter with `program` and `inputs` of a namespace."""
    quiet()
    stage = Stage(space, like, twice, double)
    verdict = _compared(stage, stage.run(stage.fn, 1), 0)
    print(f"{verdict.what}: {verdict.kind}\n{verdict.details}")


def quiet() -> None:
    """One thread and no warnings, as a run of many small programs needs."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
