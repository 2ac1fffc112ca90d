"""What the check of the input costs by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._dynamo.eval_frame import _debug_get_cache_entry_list

from subtrace_kit import TraceError
from subtrace_kit.running import runner

from .parts import entry_of
from .programs import Net, function, pair
from .variants import made

__all__ = ["CHECKS", "GUARDED", "guard"]

PARAMETERS = 100

Guarded = tuple[Callable[..., Any], dict[str, Any]]
"""A program, and its arguments by name."""


def _two_wrappers() -> Guarded:
    return function("two", "x, y", ["return x * 2, y * 2"]), {"x": pair(), "y": pair()}


def _module() -> Guarded:
    return Net(PARAMETERS), {"x": pair()}


GUARDED: dict[str, Callable[[], Guarded]] = {"two wrappers": _two_wrappers, f"{PARAMETERS} parameters": _module}


def guard(name: str, check: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """One check of one kind of input, to which it says yes.

    Args:
        name: One of GUARDED.
        check: One of CHECKS.

    Returns:
        The check, and what it is called with.

    Raises:
        AssertionError: It refuses the input, or takes another one.
    """
    fn, given = GUARDED[name]()
    call, arguments = CHECKS[check](fn, given)
    assert _passes(call, arguments(given)), f"{check} refuses {name}"
    other = {key: value.double() for key, value in given.items()}
    assert not _passes(call, arguments(other)), f"{check} takes another dtype"
    return call, arguments(given)


Check = tuple[Callable[..., Any], Callable[[dict[str, Any]], tuple[Any, ...]]]
"""A check, and what it takes for arguments of the program."""


def _generated(fn: Callable[..., Any], given: dict[str, Any]) -> Check:
    return _entry(fn, given).fits, _args_and_kwargs


def _interpreted(fn: Callable[..., Any], given: dict[str, Any]) -> Check:
    return runner(_entry(fn, given).program).check_slowly, _args_and_kwargs


def _of_dynamo(fn: Callable[..., Any], given: dict[str, Any]) -> Check:
    """The guards of torch.compile, which look at the local variables of the frame."""
    made("aot_eager", fn)(*given.values())
    code = getattr(fn, "forward", fn).__code__
    own = {"self": fn} if hasattr(fn, "forward") else {}
    (entry,) = _debug_get_cache_entry_list(code)
    return entry.guard_manager.check, lambda given: ({**own, **given},)


CHECKS: dict[str, Callable[[Callable[..., Any], dict[str, Any]], Check]] = {
    "jit": _generated,
    "jit, interpreted": _interpreted,
    "torch.compile": _of_dynamo,
}


def _entry(fn: Callable[..., Any], given: dict[str, Any]) -> Any:
    jitted = made("jit", fn)
    jitted(*given.values())
    return entry_of(jitted)


def _args_and_kwargs(given: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(given.values()), {}


def _passes(check: Callable[..., Any], arguments: tuple[Any, ...]) -> bool:
    try:
        return check(*arguments) not in (None, False)
    except TraceError:
        return False
