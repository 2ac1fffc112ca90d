"""Why a program or a class usually fails with an error of this kind, and the way out.

A text claims only what the error itself shows; the first rule that knows the error is taken.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .shown import a_kind, article, message
from .source import Source, user_lines

__all__ = ["HIGHER_ORDER", "UNINITIALIZED", "Failure", "Texts", "cause_of", "is_declined", "unsupported"]

Texts = tuple[str, str]
"""The usual cause and the way out."""

HANDLERS = ("__torch_dispatch__", "__torch_function__")
_OF_CLASS = ("__new__", "__init__", "__tensor_flatten__", "__tensor_unflatten__")
FIND_OUT = "run the program once without trace() to see whether it fails there too"
MIXED = "convert all Tensors to FakeTensors"
MIXED_CAUSE = "fake tensors, which are shapes without data, and real ones meet in one op"
LOOK = "print(error.trace) shows the operations up to here; the one that failed stands last"


@dataclass(frozen=True)
class Failure:
    """What is known of an error that ended a program.

    Args:
        error: The error.
        op: The ATen op or function that failed; empty where none did.
        classes: The wrapper classes among its arguments.
        backward: Whether a backward ran.
    """

    error: BaseException
    op: str = ""
    classes: tuple[str, ...] = ()
    backward: bool = False

    @property
    def lines(self) -> Sequence[Source]:
        """The lines of user code, outermost first."""
        return user_lines(self.error)

    @property
    def in_handler(self) -> bool:
        """Whether the handler of a class was at work."""
        return any(line.function in HANDLERS for line in self.lines)

    @property
    def in_class(self) -> bool:
        """Whether code of a class was at work: a handler, a constructor, a half of the flatten protocol."""
        return any(line.function in (*HANDLERS, *_OF_CLASS) for line in self.lines)

    @property
    def text(self) -> str:
        """What the error says."""
        return message(self.error)


def cause_of(failure: Failure) -> Texts:
    """The usual cause and the way out."""
    return next(texts for rule in _RULES if (texts := rule(failure)) is not None)


def is_declined(error: BaseException | None) -> bool:
    """Whether every handler that was asked has answered NotImplemented."""
    return isinstance(error, TypeError) and "handlers returned NotImplemented" in message(error)


def _declined(failure: Failure) -> Texts | None:
    if not is_declined(failure.error):
        return None
    op, classes = failure.op or "this op", " and ".join(failure.classes) or "the class"
    return (
        f"no class among the arguments has a rule for {op}: __torch_dispatch__ of {classes} returned NotImplemented",
        f"add a rule for {op} to {classes}",
    )


def _recursion(failure: Failure) -> Texts | None:
    if not isinstance(failure.error, RecursionError):
        return None
    repeated = Counter(failure.lines).most_common(1)
    handler = next((line.function for line in failure.lines[::-1] if line.function in HANDLERS), "")
    if not handler:
        name = repeated[0][0].function if repeated else "a function"
        return (
            f"{name} calls itself without end, or so deep that the recorder's frames on top of its own are too many",
            f"{FIND_OUT}; if it does not, raise sys.setrecursionlimit() while tracing",
        )
    if handler == "__torch_function__":
        return (
            "__torch_function__ calls the function on the wrapper itself again, and so comes back to itself",
            "call super().__torch_function__(func, types, args, kwargs), or the function under "
            "torch._C.DisableTorchFunctionSubclass()",
        )
    if not failure.classes:
        return (
            "the __torch_dispatch__ of a mode runs ops with the mode entered again, and so comes back to itself",
            "run them as they are: a mode is off inside its own __torch_dispatch__",
        )
    return (
        "__torch_dispatch__ runs the op on the wrapper itself again, or prints it, and so comes back to itself",
        "run the op on the inner tensors, and print those: take them out of all arguments first, those in lists too",
    )


def _fake(failure: Failure) -> Texts | None:
    if MIXED in failure.text:
        return MIXED_CAUSE, "trace(fn, fake=True) takes both; print(), lower() and draw() need no data"
    if type(failure.error).__name__ not in ("DataDependentOutputException", "DynamicOutputShapeException"):
        return None
    return (
        f"{failure.op or 'the op'} depends on the data of its arguments, and fake tensors have none",
        "trace without fake=True",
    )


HIGHER_ORDER = r"HigherOrderOperator (\w+) and mode"
UNINITIALIZED = "uninitialized (parameter|buffer)"
_FREED = "the program runs a backward twice through one graph; the first has freed what it saved"
_SHAPES = "arguments whose shapes do not fit this op"
# What the message says, the cause, the way out; the first three rows are also for errors outside of ops.
_KNOWN: tuple[tuple[str, str, str], ...] = (
    (
        r"because it has weakref|Couldn't swap",
        "torch.utils.swap_tensors, which .to() of a module with wrapper parameters calls too, takes no tensor that "
        "something refers to weakly, and the recorder so refers to each tensor that it has seen",
        "swap or convert outside the traced program; inside it, write with copy_() under torch.no_grad()",
    ),
    (
        HIGHER_ORDER,
        "torch.cond, while_loop and their kin hold branches for later: a trace is one straight line",
        "torch.where computes both sides; or trace each side, and choose outside the traced programs",
    ),
    (
        UNINITIALIZED,
        "a lazy module (torch.nn.LazyLinear and its kin) that was not called yet: a trace needs its parameters",
        "call the module once before tracing; make one with its sizes (torch.nn.Linear) inside a program",
    ),
    (r"backward through the graph a second time", _FREED, "backward(retain_graph=True) the first time"),
    (
        r"can be implicitly created only for scalar outputs",
        "backward or grad is called on a tensor with more than one element, without a gradient for it",
        "sum() it first, or pass a gradient: backward(torch.ones_like(out))",
    ),
    (
        r"does not require grad and does not have a grad_fn",
        "nothing that the tensor was made of requires a gradient, or it was made under no_grad or from a detach()",
        "call requires_grad_() on an input before; a wrapper that is built directly is a new leaf: build it in an "
        "autograd.Function where gradients must pass through its constructor",
    ),
    (
        r"modified by an inplace operation",
        "the program writes in place into a tensor that the backward needs as it was",
        "use the op that does not write in place, or write into a clone()",
    ),
    (
        r"not have been used in the graph",
        "a gradient is asked for a tensor that the result does not depend on",
        "torch.autograd.grad(..., allow_unused=True), or ask for those alone that take part",
    ),
    (
        r"leaf Variable that requires grad|view of a leaf",
        "a write in place into a leaf that requires a gradient, or into a view of one, with grad mode on",
        "write under torch.no_grad(), or into a clone()",
    ),
    (
        r"view size is not compatible",
        "a view() of a tensor whose strides do not allow it",
        "use reshape(); or make the tensor contiguous() first",
    ),
    (
        r"same device|not compiled with|No CUDA GPUs|NVIDIA driver|Expected all tensors to be on",
        "tensors on several devices, or a device that this machine or this torch does not have",
        "pass device= and move the tensors before; trace(fn, fake=True) records for a device that is not there",
    ),
    (
        r"same dtype|scalar type|not implemented for '|[Dd]type .* (but|and)|can't be cast|could not be promoted",
        "a dtype that this op does not take, or arguments of different dtypes",
        f"convert with to(dtype) before; {LOOK}",
    ),
    (
        r"must match|shapes? .*(cannot|invalid|not)|[Ss]izes? of tensor|size mismatch|[Dd]imension|broadcast"
        r"|[Ee]xpected size|is invalid for input|same shape|same size|out of bounds for",
        _SHAPES,
        LOOK,
    ),
)


def _told_by_torch(failure: Failure) -> Texts | None:
    """What torch's own message says, if it is one of the common ones."""
    lines = failure.lines
    if lines and lines[-1].text.startswith("raise "):
        return None  # the words are those of the user
    known = _KNOWN if failure.op else _KNOWN[:3]
    cause, way_out = next(((c, w) for pattern, c, w in known if re.search(pattern, failure.text)), ("", ""))
    if cause is _SHAPES and failure.in_handler:
        cause = (
            "inner tensors of other shapes than the wrapper shows, or sizes among the arguments that are the wrapper's"
        )
    return (cause, way_out) if cause else None


def _attribute(failure: Failure) -> Texts | None:
    error = failure.error
    if not isinstance(error, AttributeError) or error.name is None:
        return None
    owner, name = error.obj, error.name
    if type(owner) in (torch.Tensor, torch.nn.Parameter) and failure.in_handler:
        return (
            f"the handler asks a plain tensor for {name!r}, as if every tensor argument were a wrapper",
            "ask the class first: isinstance(arg, cls)",
        )
    if isinstance(owner, torch.Tensor) and type(owner) is not torch.Tensor:
        cls = type(owner).__name__
        return (
            f"{name!r} is misspelt, or set only on some ways to build {article(cls)}: results of ops and "
            "__tensor_unflatten__ build one too",
            f"set it in every place that builds {article(cls)}; {LOOK}",
        )
    return (
        f"{name!r} is misspelt or not set, or {a_kind(owner)} stands where another was meant",
        f"{FIND_OUT}; {LOOK}",
    )


def _missing_rule(failure: Failure) -> Texts | None:
    error, op = failure.error, failure.op or "this op"
    looked_up = isinstance(error, KeyError) and any(isinstance(arg, torch._ops.OpOverload) for arg in error.args)
    if not (isinstance(error, NotImplementedError) or looked_up):
        return None
    if not failure.in_handler:
        return "torch, or a function at this line, has no implementation for such arguments", FIND_OUT
    if "Could not run" in failure.text:
        return f"torch has no kernel of {op} for the inner tensors that the handler hands it", LOOK
    whose = " or ".join(failure.classes) or "the class"
    sent = ", which the backward sends" if failure.backward else ""
    return f"{whose} has no rule for {op}{sent}", f"add a rule for {op} to {whose}"


def _type(failure: Failure) -> Texts | None:
    if not isinstance(failure.error, TypeError):
        return None
    if not failure.lines:
        return (
            "the program takes other arguments than trace(fn)(...) was given",
            "give all the arguments of the program, as in a call of it",
        )
    if failure.in_handler:
        return (
            "the handler does not expect such arguments: a plain tensor or None for a wrapper, or one left out "
            "because it has its default",
            LOOK,
        )
    return "an argument of another type, or another number of arguments, than the function at this line takes", FIND_OUT


def _in_backward(failure: Failure) -> Texts | None:
    if not failure.backward:
        return None
    return (
        f"the backward that the program runs comes to {failure.op or 'an op'}, which fails: an op, a hook or an "
        "autograd.Function of the backward does not expect such gradients",
        f"{FIND_OUT}; a class must have a rule for each op that the backward sends",
    )


def _python(failure: Failure) -> Texts:
    if failure.in_handler:
        return (
            f"the code of the class does not expect such arguments of {failure.op or 'this op'}",
            f"{FIND_OUT}; {LOOK}",
        )
    if failure.op:
        return f"{failure.op} does not take such arguments", f"{FIND_OUT}; {LOOK}"
    return "the code at this line, or what it calls, raises it", FIND_OUT


_RULES: tuple[Callable[[Failure], Any], ...] = (
    _declined, _recursion, _fake, _told_by_torch, _attribute, _missing_rule, _type, _in_backward, _python,
)  # fmt: skip


def unsupported(error: BaseException, failures: Sequence[tuple[BaseException, Any]]) -> BaseException:
    """The error to tell: Python's own text for an operator hides that the class has answered NotImplemented."""
    last = failures[-1][0] if failures else error
    hidden = isinstance(error, TypeError) and "unsupported operand" in message(error)
    return last if hidden and is_declined(last) else error
