"""Run a trace: check the input, call the compiled source, tell the user's line when it fails."""

from __future__ import annotations

import functools
import linecache
import operator
import weakref
from collections.abc import Callable
from itertools import count
from typing import Any

import torch

from .bindings import quickest_call
from .called import expect_whole
from .causes import MIXED, MIXED_CAUSE
from .codegen import generate
from .collecting import no_collection
from .equality import same_value
from .errors import TraceError
from .guards import difference
from .intercept import RECLASSED, as_handler, no_torch_function
from .owners import MISSING, module_hooks
from .progress import Stage
from .quick_calls import with_constants
from .quick_guard import quick_guard
from .shown import instead, message
from .symbols import BoundSymbol, Kind
from .tensor_facts import gradient_kind
from .trace import Attribute, Constant, Trace, TrainingFlag

__all__ = ["Runner", "runner"]

CHANGED_DATA = "the data now give"
"""How the helper `expect` begins what it says."""

_numbers = count()


class Runner:
    """A compiled trace.

    Args:
        trace: What to run.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.places = [(c.proxy.name, c.path, c.fetch) for c in trace.captures]
        self.places += [(owner.name, owner.path, owner.fetch) for owner in trace.owners if owner.fetch]
        program = generate(trace)
        self.file = f"<subtrace {trace.name} {next(_numbers)}>"
        head = program.header()
        body = [line.source for line in program.lines]
        source = "\n".join([*head, "", "", program.signature, *body, ""])
        self.first = len(head) + 4
        self.lines = program.lines
        linecache.cache[self.file] = (len(source), None, source.splitlines(True), self.file)
        weakref.finalize(self, linecache.cache.pop, self.file, None)
        code, constants = with_constants(source, self.file, trace.name, self.calls())
        space: dict[str, Any] = {**program.literals.objects, **constants}
        exec(code, space)
        space.update({"as_handler": as_handler} if "as_handler" in space else {})  # the same, and quicker
        self.function: Callable[..., Any] = space[trace.name]
        self.fits = quick_guard(trace) or _unknown
        """Like `check`, at once, and None where it cannot say yes."""

    def calls(self) -> dict[int, Callable[..., Any]]:
        """For the lines that run an ATen op, what is called for it."""
        if any(_changes_class(inner) for outer in self.trace.bound_symbols for _, inner in outer.walk()):
            return {}  # objects of a class with a `__torch_function__` of its own may be among plain tensors
        bound = [(self.first + i, line.bound) for i, line in enumerate(self.lines)]
        return {i: quickest_call(b) for i, b in bound if b is not None and b.symbol.kind is Kind.ATEN}

    def __call__(self, args: tuple, kwargs: dict) -> Any:
        """Check the arguments and run. Parameters that were recorded by position may be given by name."""
        names = self.trace.guard.positional[len(args) :]
        if names and kwargs and all(name in kwargs for name in names):
            args = (*args, *(kwargs[name] for name in names))
            kwargs = {name: value for name, value in kwargs.items() if name not in names}
        captured = self.check(args, kwargs)
        if self.trace.guard.free:  # a backward: autograd runs it so, whatever the mode of its caller
            with torch.no_grad():
                return self.run(args, kwargs, captured)
        return self.run(args, kwargs, captured)

    def check(self, args: tuple, kwargs: dict) -> dict[str, Any]:
        """Make sure that arguments and captured tensors are of the recorded kind.

        Returns:
            The captured values by name.
        """
        captured = self.fits(args, kwargs)
        return self.check_slowly(args, kwargs) if captured is None else captured

    def check_slowly(self, args: tuple, kwargs: dict) -> dict[str, Any]:
        """The same, one thing after the other, so that the difference can be told."""
        with no_torch_function():
            leaves = self.trace.guard.check(args, kwargs)
            for tie in self.trace.ties:
                if look(tie.fetch) is not functools.reduce(getattr, tie.attributes, leaves[tie.argument]):
                    path = ".".join((self.trace.guard.arguments[tie.argument].path, *tie.attributes))
                    raise _tie_broken(path, tie.path)
            for attribute in self.trace.attributes:
                if found := _attribute_difference(attribute, leaves[attribute.argument]):
                    raise _attribute_changed(self.trace.guard.arguments[attribute.argument].path, attribute, found)
            captured = self.captured()
            check_captures(self.trace, captured)
            return captured

    def captured(self) -> dict[str, Any]:
        """The captured tensors as they are now."""
        found = {}
        for name, path, fetch in self.places:
            try:
                found[name] = fetch()
            except (LookupError, AttributeError) as error:
                raise _changed(f"captured {path} is no longer there", "it was deleted or moved") from error
        return found

    def run(self, args: tuple, kwargs: dict, captured: dict[str, Any]) -> Any:
        """Run on arguments and captured values that were checked."""
        try:
            return self.function(*args, **kwargs, **captured)
        except TraceError:
            raise
        except Exception as error:
            raise self.explain(error) from error

    def explain(self, error: Exception) -> TraceError:
        """A TraceError that names the user's line of the operation that failed."""
        bound = None
        step = error.__traceback__
        while step is not None:
            index = step.tb_lineno - self.first
            if step.tb_frame.f_code.co_filename == self.file and index >= 0:  # not in a helper above the program
                bound = next((ln.bound for ln in reversed(self.lines[: index + 1]) if ln.bound is not None), None)
            step = step.tb_next
        name = f" in {bound.symbol.name}" if bound else ""
        what = f"{type(error).__name__}{name} while the trace ran: {message(error)}"
        cause = "data of another kind than recorded, or an op that fails on them in eager as well"
        way_out = "run the program without the kit on the same input; trace again with such input"
        if str(error).startswith(CHANGED_DATA):
            what = f"{error} (a value{name.replace(' in', ' from')})"
            cause = (
                "a number or a size that came out of a tensor is a constant of this trace: code computes with it, or it"
                " stands in metadata"
            )
            way_out = "trace again on such data (jit does, unless something was written before); keep it a 0-dim tensor"
        elif MIXED in str(error):
            cause = MIXED_CAUSE
            way_out = "give the parameters data; on fake arguments it runs too, and a shape is all that comes out"
        told = TraceError(
            what,
            source=bound.source if bound else None,
            handler=bound.handler if bound else None,
            cause=cause,
            way_out=way_out,
        )
        told.trace = self.trace
        return told


def _changes_class(bound: BoundSymbol) -> bool:
    return getattr(bound.symbol.fn, "__name__", "") in RECLASSED


def check_captures(trace: Trace, captured: dict[str, Any]) -> None:
    """Refuse captured tensors and modules that have become another kind."""
    for capture in trace.captures:
        tensor = captured[capture.proxy.name]
        if found := difference(capture.proxy, tensor):
            raise _changed(f"captured tensor {capture.path}: {found}", "a parameter was replaced or cast")
        if any(look(fetch) is not tensor for fetch in capture.others):
            also = ", ".join(getattr(fetch, "path", "another place") for fetch in capture.others)
            what = f"captured tensor {capture.path}: no longer the one that is also at {also}"
            raise _changed(what, "a parameter was replaced in one of these places, an optimizer among them")
    for flag in trace.flags:
        if (changed := flag_difference(flag)) is not None:
            raise _changed(f"module {flag.path or trace.name}: {changed[0]}", changed[1])
    for constant in trace.constants:
        if constant.by_class:
            continue
        if found := constant_difference(constant):
            if constant.path.endswith(".grad"):
                raise _tie_broken(constant.path, "", constant.value)
            raise _changed(f"{constant.path}: {found}", "a Python value that the program reads was changed")


def flag_difference(flag: TrainingFlag) -> tuple[str, str] | None:
    """How a module differs from what was recorded, and the usual cause; None where it does not."""
    if look(flag.fetch) is not flag.module:
        return "another module", "it was replaced"
    if flag.module.training != flag.training:
        return f"training is {flag.module.training} instead of {flag.training}", "train() or eval() was called"
    hooks = module_hooks(flag.module)
    if len(hooks) != len(flag.hooks) or not all(map(operator.is_, hooks, flag.hooks)):
        return "other hooks, or another forward", "a hook was registered or removed"
    return None


def constant_difference(constant: Constant) -> str:
    """How a Python value differs from what was recorded; empty where it does not."""
    return _value_difference(look(constant.fetch), constant.value)


def _value_difference(now: Any, then: Any) -> str:
    return "" if same_value(now, then) else instead(now, then)


def is_changed_data(error: TraceError) -> bool:
    """Whether a run was refused because of a number or a size that its data gave."""
    return str(error).startswith(CHANGED_DATA)


def look(fetch: Callable[[], Any]) -> Any:
    """What is at a place now; a marker where nothing is."""
    try:
        return fetch()
    except (LookupError, AttributeError):
        return MISSING


def _tie_broken(path: str, other: str, recorded: Any = None) -> TraceError:
    if other:
        return _changed(f"argument {path}: no longer the same tensor as {other}", "one of them was replaced")
    if recorded is not None:
        return TraceError(
            f"the gradient of {path.removesuffix('.grad')} is gone, or of another kind than when it was recorded",
            cause="zero_grad() or a gradient set to None between the recording and this run",
            way_out="trace again as the gradients are now (jit does), or leave a gradient there before each run",
        )
    return TraceError(
        f"the gradient of {path.removesuffix('.grad')} is there now; the program found None when it was recorded",
        cause="gradients that an earlier backward left: zero_grad() in the program saw none to reset",
        way_out="trace again now that they are there (jit does), or set them to None before each run",
    )


def _attribute_difference(attribute: Attribute, leaf: Any) -> str:
    if attribute.by_class:
        return ""
    now = look(lambda: functools.reduce(getattr, attribute.way, leaf))
    return _value_difference(now if attribute.ask is None else attribute.ask(now), attribute.value)


def _attribute_changed(path: str, attribute: Attribute, found: str) -> TraceError:
    where, fact = ".".join((path, *attribute.way)), f"{attribute.fact} " if attribute.fact else ""
    if attribute.ask is gradient_kind:
        return _tie_broken(f"{where}.grad", "", attribute.value)
    return TraceError(
        f"argument {where}: {fact}{found}",
        cause=f"the program or a class may ask for it ({attribute.fact})"
        if fact
        else "a Python attribute that the program or a handler reads, and that is no part of the metadata",
        way_out="trace again with such arguments, or use subtrace_kit.jit; return it from __tensor_flatten__",
    )


def _changed(what: str, cause: str) -> TraceError:
    return TraceError(what, cause=f"{cause} after the recording", way_out="trace again")


def _unknown(args: tuple, kwargs: dict) -> dict[str, Any] | None:
    return None


def runner(trace: Trace) -> Runner:
    """The compiled form of a trace, made at its first use.

    Raises:
        TraceError: It is the trace of a failed program.
    """
    expect_whole(trace, "run")
    found = trace.__dict__.get("_runner")
    if found is None:
        with no_collection(), Stage("compiling"):
            found = Runner(trace)
        object.__setattr__(trace, "_runner", found)
    return found
