"""Rules for programs: recorded, lowered, without values, compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch

from ..comparison import alike
from ..errors import TraceError
from ..passes import lower
from ..shown import a_kind
from ..tracing import trace
from ..verify import verify
from .example import Example, values_of
from .ops import NEW, Failed, attempt, listed, possible
from .rule import PARTS, Fault, NotTried, Rule, failed, first_line, rule, told

__all__ = ["PROGRAMS", "compiled"]

_OPS = 4
_TELLS = [op for op in NEW if op.text not in ("x - x", "torch.zeros_like(x)", "torch.empty_like(x)")]
"""Ops whose result depends on the values of x."""


def _program(example: Example) -> tuple[str, Callable[[Any], Any]]:
    """A program of the first ops that work and give the class again; or else of the first that gives a tensor."""
    ops, last = [], []
    for op in _TELLS:
        if isinstance(possible(op, example), Failed):
            continue
        made = attempt(op.call, example.new())
        if type(made) is type(example.first) and made.shape == example.first.shape:
            ops.append(op)
        elif isinstance(made, torch.Tensor):
            last.append(op)
    ops = ops[:_OPS] or last[:1]
    if not ops:
        raise NotTried("no op gives a tensor")

    def program(x: Any) -> Any:
        for op in ops:
            x = op.call(x)
        return x

    # What is compiled is kept with the code object; one of its own leaves what others compiled as it is.
    own = FunctionType(program.__code__.replace(), program.__globals__, closure=program.__closure__)
    return listed([op.text for op in ops]), own


@rule("trace", "A program can be traced and lowered, and both give what eager gives.", *PARTS, "unflatten")
def traces(example: Example) -> Iterator[Fault | str]:
    text, program = _program(example)
    try:
        recorded = trace(program)(example.new())
        for made in (recorded, lower(recorded)):
            report = verify(made, example.new())
            if not report.ok:
                yield told(example.cls, str(report), "read the trace: print(subtrace_kit.trace(fn)(x))")
                return
    except TraceError as error:
        yield failed("", error)
        return
    yield f"x after {text}"


@rule("fake tensors", "A program can be recorded without values: the class looks at shapes alone.", *PARTS, "unflatten")
def shapes_alone(example: Example) -> Iterator[Fault | str]:
    text, program = _program(example)
    try:
        trace(program, fake=True)(example.new())
    except TraceError as error:
        by_values = "take decisions from metadata, not from values: torch.compile and export need it"
        yield failed("", error, by_values if "DataDependent" in error.what else "")
        return
    yield f"x after {text}"


def _apart(example: Example, text: str, found: Any, wanted: Any, way_out: str) -> Iterator[Fault]:
    if type(found) is not type(wanted):
        yield told(example.cls, f"x after {text} is {a_kind(found)} instead of {a_kind(wanted)}", way_out)
    elif not alike(values_of(found), values_of(wanted)):
        yield told(example.cls, f"x after {text} is another value", way_out)


@rule("inference mode", "A program gives the same under torch.inference_mode.", *PARTS, "clone")
def inference(example: Example) -> Iterator[Fault | str]:
    text, program = _program(example)
    with torch.no_grad():
        wanted = program(example.new())
    try:
        with torch.inference_mode():
            found = program(example.new().clone())
    except (NotImplementedError, TypeError) as error:
        raise NotTried(f"the class refuses an op that arrives in this mode alone: {first_line(error)}") from error
    except Exception as error:
        yield failed(f"x after {text}", error, "answer the ops that arrive in this mode: more than under autograd")
        return
    yield from _apart(example, text, found, wanted, "answer the ops that arrive in this mode: more than under autograd")
    yield f"x after {text}"


@rule("torch.compile", "torch.compile takes a program whole, and gives what eager gives.", *PARTS)
def compiled(example: Example) -> Iterator[Fault | str]:
    text, program = _program(example)
    with torch.no_grad():
        wanted = program(example.new())
        try:
            found = torch.compile(program, backend="aot_eager", fullgraph=True)(example.new())
        except Exception as error:
            yield failed("torch.compile", error)
            return
    yield from _apart(example, text, found, wanted, "compare with what subtrace_kit.trace shows")
    yield f"x after {text}"


PROGRAMS: tuple[Rule, ...] = (traces, shapes_alone, inference)
