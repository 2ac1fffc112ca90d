"""check: is a class a sound wrapper subclass?

check() -> soundness.Example         an object of the class, made anew for each try
        -> each soundness rule       protocol, objects, dispatch, autograd, programs
        -> soundness.Soundness       a row for each rule: holds, broken and where, not tried
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from typing import Any

import torch

from .errors import TraceError
from .progress import Stage, counted
from .protocol import no_protocol
from .shown import a_kind, shown
from .snapshot import random_state
from .soundness.autograd import AUTOGRAD
from .soundness.dispatch import DISPATCH
from .soundness.example import Example, guessed
from .soundness.objects import OBJECTS
from .soundness.programs import PROGRAMS, compiled
from .soundness.protocol import PROTOCOL
from .soundness.report import BROKEN, HOLDS, NOT_TRIED, Finding, Soundness
from .soundness.rule import Fault, NotTried, Rule, failed

__all__ = ["check"]

_RULES = (*PROTOCOL, *OBJECTS, *DISPATCH, *AUTOGRAD, *PROGRAMS)


def check(cls: type, /, *examples: Any, compile: bool = False) -> Soundness:
    """Try the rules of a sound wrapper subclass on examples of a class.

    Each rule runs on copies; the examples, random state and modes stay as they are. What a class does not
    support is no fault as long as it says so: rules without anything to try are `not tried`.

    Args:
        cls: A subclass of torch.Tensor with `__torch_dispatch__`.
        *examples: Objects of the class, of any shape and dtype, or functions of no arguments that make one. Small
            ones do: they are copied some hundred times. Without any, the constructor is tried on random 4 x 4
            matrices.
        compile: Whether torch.compile is tried too (backend aot_eager), which takes seconds.

    Returns:
        A report: `ok`, one row a rule, readable as text and in a notebook. `report.row("views")` gives one;
        `report.broken` those that are broken, with the line in the class and the way out.

    Raises:
        TraceError: `cls` is no wrapper subclass, an example is not of the class, or none can be made up.

    Example:
        >>> import torch, subtrace_kit
        >>> from torch.testing._internal.two_tensor import TwoTensor
        >>> x = TwoTensor(torch.rand(4, 4), torch.rand(4, 4))
        >>> subtrace_kit.check(TwoTensor, x).row("detach").verdict
        'holds'

    Source:
        The flatten protocol: torch/utils/_python_dispatch.py. Dispatch: docs.pytorch.org, "Extending PyTorch".
    """
    _expect_wrapper_class(cls)
    give_back = random_state()
    try:
        with _quiet():
            tried = [Example(cls, given) for given in examples or (guessed(cls),)]
        rules = _RULES + ((compiled,) if compile else ())
        rows: list[Finding] = []
        broken: list[set[str]] = [set() for _ in tried]
        with Stage("checking"):
            for rule in counted(rules):
                rows.append(_finding(rule, tried, broken))
    finally:
        give_back()
    return Soundness(cls.__name__, tuple(example.name for example in tried), tuple(rows))


def _expect_wrapper_class(cls: Any) -> None:
    if not isinstance(cls, type):
        way_out = f"subtrace_kit.check({type(cls).__name__}, x)" if isinstance(cls, torch.Tensor) else ""
        raise TraceError(f"check takes a class first, not {shown(cls)}", way_out=way_out or "give the class itself")
    if not issubclass(cls, torch.Tensor) or cls is torch.Tensor or cls is torch.nn.Parameter:
        raise TraceError(
            f"{cls.__name__} is no wrapper subclass of torch.Tensor",
            way_out="class Mine(torch.Tensor): built by torch.Tensor._make_wrapper_subclass, with __torch_dispatch__",
        )
    if cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        raise no_protocol(cls, None)


def _finding(rule: Rule, examples: list[Example], broken: list[set[str]]) -> Finding:
    looks = [_look(rule, *pair) for pair in zip(examples, broken, strict=True)]
    places = [f"example {i}: " if len(examples) > 1 else "" for i in range(1, len(examples) + 1)]
    faults = [
        replace(fault, text=place + fault.text) for place, look in zip(places, looks, strict=True) for fault in look[0]
    ]
    verdict = BROKEN if faults else HOLDS if any(tried for _, _, tried in looks) else NOT_TRIED
    return Finding(rule.name, rule.says, verdict, tuple(faults), _together(places, [note for _, note, _ in looks]))


def _together(places: list[str], notes: list[str]) -> str:
    if len(set(notes)) == 1:
        return notes[0]
    return "\n".join(place + note for place, note in zip(places, notes, strict=True) if note)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what a class prints and warns of out of the way."""
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _usual_modes() -> Iterator[None]:
    """The modes in which Python starts: grad mode, no inference mode, no autocast."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _look(rule: Rule, example: Example, broken: set[str]) -> tuple[list[Fault], str, bool]:
    """What breaks a rule; what was tried, or why it was not; whether it was. A broken rule joins the broken ones."""
    if missing := [name for name in rule.needs if name in broken]:
        return [], f"see {' and '.join(missing)}", False
    found = _tried(rule, example)
    if found[0]:
        broken.add(rule.name)
    return found


def _tried(rule: Rule, example: Example) -> tuple[list[Fault], str, bool]:
    faults: list[Fault] = []
    notes: list[str] = []
    try:
        with _quiet(), _usual_modes():
            for found in rule.look(example):
                faults.append(found) if isinstance(found, Fault) else notes.append(found)
    except NotTried as reason:
        return faults, str(reason), False
    except TraceError as error:  # no copy can be made
        return faults, f"no example can be made anew: {error.what}", False
    except Exception as error:
        faults.append(failed(f"what the rule looks at ({a_kind(example.first)})", error))
    return faults, "; ".join(notes), True
