"""What the handlers of classes keep and read: a trace as written calls them again, a lowered one does not."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator
from typing import Any

from .errors import TraceError
from .owners import MISSING, Change, Owner, Owners
from .roots import CELL, is_simple
from .surroundings import Surroundings
from .trace import Constant

__all__ = ["HandlerState", "changed_by_handler", "only_counts", "shown"]


class HandlerState:
    """The Python state that the classes of a program find outside their arguments.

    Args:
        program: What the program finds: what it reads and writes itself is its own affair.
    """

    def __init__(self, program: Surroundings) -> None:
        self.found = Surroundings(None, handlers=program.called_again)
        self.owners = Owners()
        for place, obj in self.found.owners:
            if id(obj) not in program.seen:
                self.owners.watch(Owner(place.path, place), obj)
        for place, *binding in self.found.bindings:
            self.owners.watch_binding(place.path, *binding)
        self.read = [(place, value) for place, value in self.found.constants if not place.path.endswith(HANDLERS)]
        self.flags = [(f"training of {place.path}", module) for place, module in self.found.modules]
        self.named_by_program = frozenset(program.user_names)

    def writes(self) -> tuple[Change, ...]:
        """What has changed since."""
        return tuple(self.owners.changes())

    def constants(self, writes: tuple[Change, ...]) -> Iterator[Constant]:
        """What a lowered trace depends on; what the handlers write themselves is another matter."""
        written = {shown(change) for change in writes}
        for place, value in self.read:
            if not any(path in (place.path, place.path.rpartition(" ")[2]) for path in written):
                yield Constant(place.path, value, place, by_class=True)
        for path, module in self.flags:
            yield Constant(path, module.training, functools.partial(getattr, module, "training"), by_class=True)

    def read_by_program(self, writes: tuple[Change, ...]) -> Change | None:
        """A change by a handler of something that the program itself names."""
        return next((change for change in writes if _name(change) in self.named_by_program), None)

    def is_log(self, change: Change) -> bool:
        """Whether a change is a counter that counts or a list that grows, and no handler reads it."""
        codes = [function.__code__ for function in self.found.functions]
        return _grows(change) and all(only_counts(code, _name(change)) for code in codes)


def shown(change: Change) -> str:
    """The path of what has changed."""
    path = change.owner.path
    known = path == change.key or path.endswith(f".{change.key}") or change.key == CELL
    return path if known or change.how != "attribute" else f"{path}.{change.key}"


def _name(change: Change) -> str:
    return shown(change).rpartition(".")[2]


def _grows(change: Change) -> bool:
    value: Any = change.value
    if change.how == "items" and isinstance(value, list):
        return True
    return value is not MISSING and isinstance(value, int) and not isinstance(value, bool) and is_simple(value)


def only_counts(code: types.CodeType, name: str) -> bool:
    """Whether code does nothing with a variable or attribute but `name += ...` and `name.append(...)`."""
    steps = [s for s in dis.get_instructions(code) if s.opname not in _SILENT]
    loads = [
        i for i, s in enumerate(steps) if s.opname.startswith("LOAD_") and s.opname != "LOAD_CONST" and s.argval == name
    ]
    inner = [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return all(_counts(steps, i) for i in loads) and all(only_counts(part, name) for part in inner)


def _counts(steps: list[dis.Instruction], load: int) -> bool:
    after = steps[load + 1 : load + 6]
    if after and after[0].argval in ("append", "extend"):
        return True
    adds = ["+=" in (s.argrepr if s.opname.startswith("BINARY_OP") else "") or s.opname == "INPLACE_ADD" for s in after]
    added = adds.index(True) if True in adds else None
    if added is None or added + 1 >= len(after):
        return False
    return after[added + 1].opname.startswith("STORE_") and after[added + 1].argval == steps[load].argval


_SILENT = frozenset({"CACHE", "PRECALL", "COPY", "SWAP", "PUSH_NULL", "RESUME", "DUP_TOP", "ROT_TWO", "ROT_THREE"})
HANDLERS = (".__torch_dispatch__", ".__torch_function__")
"""A handler that another one wraps, to count its calls, is still the same handler."""


def changed_by_handler(path: str) -> TraceError:
    """The error for a handler that keeps something between its calls."""
    return TraceError(
        f"a handler writes {path}, so the trace cannot be lowered",
        cause="a cache or a state that a class keeps between calls: a lowered trace no longer calls the class",
        way_out="run `t` itself instead of lower(t): it calls the class; or fill the cache before the recording",
    )
