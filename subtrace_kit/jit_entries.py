"""One kind of input that a jitted function has met: its trace, how often it ran, why it was new."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from .compiled_parts import Notes
from .errors import TraceError
from .graph_node import GraphNode
from .jit_report import EntryReport
from .proxies import TensorProxy
from .repeatable import repeatable
from .running import runner
from .shown import shown
from .symbols import Context, type_text
from .trace import Trace

__all__ = ["Entry"]


class Entry:
    """A lowered trace and the program that runs it.

    Args:
        trace: The lowered trace.
        program: What runs: the same trace, or one with parts that a backend has compiled.
        refused: Why each older entry did not fit when this one was made.
        notes: What the backend made of it.
        node: What runs it where autograd follows operations on wrappers.
    """

    def __init__(
        self,
        trace: Trace,
        program: Trace,
        refused: Mapping[Entry, TraceError],
        notes: Notes | None,
        node: GraphNode | None = None,
    ) -> None:
        self.trace, self.program, self.notes, self.node = trace, program, notes, node
        self.differences = _by_subject(error.what for error in refused.values())
        self._starts = itertools.count()  # counts in one step, which no other thread can come between
        self.start = self._starts.__next__
        self.broken_off = 0  # runs that were refused because of their data
        again = repeatable(trace)
        self.repeatable, self.draws = again.allowed, again.allowed and again.draws
        found = runner(program)
        self.fits, self.check, self.run = found.fits, found.check, found.run
        if node is not None:
            self.run = node.run

    @property
    def runs(self) -> int:
        """How many calls it has answered."""
        return int(repr(self._starts)[len("count(") : -1]) - self.broken_off

    def answer(self, args: tuple, kwargs: dict, captured: dict[str, Any]) -> Any:
        """Count, and run on arguments and captured values that were checked."""
        self.start()
        return self.run(args, kwargs, captured)

    def report(self) -> EntryReport:
        """What is to be said of it."""
        guard = self.trace.guard
        arguments = [f"{a.path}: {_kind(a.proxy, a.value)}" for a in guard.arguments]
        kind = ", ".join([*arguments, *_context_text(guard.context)]) or "no arguments"
        notes = (*(self.notes.lines() if self.notes else ()), *(self.node.notes() if self.node else ()))
        return EntryReport(kind, self.runs, self.differences, notes)


def _by_subject(differences: Iterable[str]) -> tuple[str, ...]:
    """One difference for each argument, the first: `argument n: 3 instead of 2`."""
    found: dict[str, str] = {}
    for text in differences:
        found.setdefault(text.partition(": ")[0], text)
    return tuple(found.values())


def _kind(proxy: TensorProxy | None, value: Any) -> str:
    if proxy is None:
        return shown(value)
    return f"{type_text(proxy)}{' requires_grad' if proxy.requires_grad else ''}"


def _context_text(context: Context) -> list[str]:
    """The global state, where it is another than at the start of Python."""
    found = [f"autocast {dtype} on {kind}" for kind, dtype, _ in context.autocast]
    if context.inference:
        return [*found, "inference mode"]
    return found if context.grad else [*found, "no_grad"]
