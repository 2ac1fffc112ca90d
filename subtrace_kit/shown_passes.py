"""The passes of a trace that the explorer offers, each made when it is first looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from .backward import backward
from .called import no_trace
from .collecting import no_collection
from .errors import TraceError
from .groups import grouped, module_classes
from .passes import lower, unroll
from .proxies import TensorProxy
from .sheet import Sheet
from .shown import a_kind
from .trace import Ledger, Trace
from .view import view

__all__ = ["AS_WRITTEN", "Passes"]

AS_WRITTEN = "as written"
KEPT = 16
LOWERED_UNASKED = 2000
"""Rows up to which a trace is lowered to say what becomes of an object."""


@dataclass(frozen=True, eq=False)
class Passes:
    """Traces by the name of their pass.

    Args:
        makers: What makes each trace, in the order in which they are offered.
        error: The error of a failed trace, in full.
        kept: What was drawn of late.
    """

    makers: Mapping[str, Callable[[], Trace]]
    error: str = ""
    _made: dict[str, Trace | str] = field(default_factory=dict)
    _sheets: dict[str, Sheet] = field(default_factory=dict)
    _parted: dict[tuple[str, frozenset[str]], Sheet] = field(default_factory=dict)
    kept: dict[object, object] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Trace | TraceError, more: Mapping[str, Trace] | None = None) -> Passes:
        """The passes that exist for a trace, or for the trace of an error.

        Raises:
            TraceError: The error has no trace.
        """
        if isinstance(given, TraceError) and given.trace is None:
            raise no_trace(given)
        trace = given.trace if isinstance(given, TraceError) else given
        if not isinstance(trace, Trace):
            raise TraceError(
                f"there is no trace to explore in {a_kind(given)}",
                cause="explore() takes a trace, or a TraceError that arose while a program was recorded",
                way_out="explore(subtrace_kit.trace(fn)(*args))",
            )
        error = str(given) if isinstance(given, TraceError) else trace.failure
        for label, other in (more or {}).items():
            if not isinstance(other, Trace):
                raise TraceError(
                    f"passes={{{label!r}: ...}} is {a_kind(other)}, not a trace",
                    way_out="give traces by the name that is shown: passes={'mine': t}",
                )
        made = {label: _constant(other) for label, other in (more or {}).items()}
        return cls({**_makers(trace), **made}, error)

    @property
    def labels(self) -> tuple[str, ...]:
        """What is offered."""
        return tuple(self.makers)

    @property
    def first(self) -> str:
        """The pass that was given."""
        return self.labels[0]

    def keep(self, key: object, drawn: object) -> None:
        """Keep what was drawn, and let go of what was drawn long ago."""
        self.kept[key] = drawn
        if len(self.kept) > KEPT:
            del self.kept[next(iter(self.kept))]

    def check(self, label: str) -> None:
        """Raise an error that names the passes if there is none of this name."""
        if label not in self.makers:
            raise TraceError(f"there is no pass {label!r}", way_out=f"choose one of {', '.join(self.labels)}")

    def problem(self, label: str) -> str:
        """Why a pass cannot be made, empty where it can.

        Raises:
            TraceError: There is no such pass.
        """
        self.check(label)
        made = self._make(label)
        return made if isinstance(made, str) else ""

    def trace(self, label: str) -> Trace:
        """The trace of a pass.

        Raises:
            TraceError: There is no such pass, or it cannot be made.
        """
        self.check(label)
        made = self._make(label)
        if isinstance(made, str):
            raise TraceError(made)
        return made

    def sheet(self, label: str, apart: frozenset[str] = frozenset()) -> Sheet:
        """The rows of a pass, in groups; some repeated blocks outside of theirs."""
        if apart:
            return self._split(label, apart)
        if label not in self._sheets:
            trace = self.trace(label)
            with no_collection():
                self._sheets[label] = Sheet(grouped(view(trace), module_classes(trace)), trace.seen)
        return self._sheets[label]

    def _split(self, label: str, apart: frozenset[str]) -> Sheet:
        if (label, apart) not in self._parted:
            made = self.sheet(label).split(apart)
            if len(self._parted) > 3:
                del self._parted[next(iter(self._parted))]
            self._parted[label, apart] = made
        return self._parted[label, apart]

    def fate(self, label: str, names: Collection[str]) -> str:
        """What becomes of the wrapper objects of these names when the program is lowered, as text."""
        if not self.ledger and "lowered" in self.makers and len(self.sheet(label).rows) <= LOWERED_UNASKED:
            self.problem("lowered")
        return "\n".join(str(entry) for entry in self.ledger if entry.proxy.name in names)

    @property
    def ledger(self) -> Ledger:
        """What became of each construction, as far as a pass that was looked at says so."""
        made = [trace for trace in self._made.values() if isinstance(trace, Trace)]
        return next((trace.ledger for trace in made if trace.ledger), Ledger())

    def _make(self, label: str) -> Trace | str:
        if label not in self._made:
            try:
                with no_collection():
                    self._made[label] = self.makers[label]()
            except TraceError as error:
                self._made[label] = f"{label}: {error}"
        return self._made[label]


def _constant(trace: Trace) -> Callable[[], Trace]:
    return lambda: trace


def _makers(trace: Trace) -> dict[str, Callable[[], Trace]]:
    """What can be made of a trace: of a failed or a lowered one nothing more."""
    name = _name(trace)
    makers = {name: _constant(trace)}
    if trace.failure or name != AS_WRITTEN:
        return makers
    if any(bound.has_wrapper for bound in trace.bound_symbols):
        makers["unrolled"] = lambda: unroll(trace)
        makers["lowered"] = lambda: lower(trace, check_backward=False)
    if trace.program is not None and any(map(_requires_grad, _outside(trace))):
        makers["backward"] = lambda: backward(trace)
    return makers


def _name(trace: Trace) -> str:
    """The pass that a trace comes from, by its provenance."""
    line = trace.provenance[-1] if trace.provenance else ""
    if trace.ledger or line.startswith(("elide", "drop dead", "flatten")):
        return "lowered"
    if line.startswith("unroll"):
        return "unrolled"
    return "backward" if line.startswith("backward") else AS_WRITTEN


def _outside(trace: Trace) -> list[Any]:
    return [*trace.inputs, *(capture.proxy for capture in trace.captures)]


def _requires_grad(proxy: Any) -> bool:
    return isinstance(proxy, TensorProxy) and proxy.requires_grad
