"""What became of each construction of a wrapper object: kept or elided, and why."""

from __future__ import annotations

from . import ops
from .followed import Followed, Leaves
from .progress import counted
from .proxies import Proxy, SubclassTensorProxy, TensorProxy, names_in
from .symbols import BoundSymbol, Kind
from .trace import Construction, Ledger, Trace

__all__ = ["record_ledger"]


def record_ledger(original: Trace, lowered: Trace) -> Trace:
    """Say for every construction of the original what the lowered trace does with it.

    Args:
        original: The trace before lowering.
        lowered: The trace after.

    Returns:
        The lowered trace with its ledger.
    """
    reasons = _Reasons(lowered, _taken(original))
    ledger = Ledger(
        Construction(b.output, b.output.name in reasons.built, reasons.why(b.output), b.source)
        for outer in original.bound_symbols
        for _, b in outer.walk()
        if b.symbol.kind is Kind.CONSTRUCTOR
    )
    kept = sum(construction.kept for construction in ledger)
    line = f"elide constructors: {len(ledger) - kept} of {len(ledger)} elided"
    return lowered.replace(ledger=ledger, provenance=(*lowered.provenance, line))


def _taken(trace: Trace) -> set[str]:
    """The names of the wrappers that some operation takes, or that are returned, alone or inside another one."""
    arguments = {p.name: p for outer in trace.bound_symbols for _, b in outer.walk() for p in b.arguments}
    return set().union(*(names_in(p) for p in (*arguments.values(), *trace.results) if _is_wrapper(p)))


def _is_wrapper(proxy: Proxy) -> bool:
    return isinstance(proxy, SubclassTensorProxy)


class _Reasons:
    def __init__(self, lowered: Trace, taken: set[str]) -> None:
        self.taken = taken
        self.built: set[str] = set()
        self.followed: dict[str, str] = {}
        self.numbered: set[str] = set()
        self.by_code: dict[str, str] = {}  # built by the code of a replayed function: its name
        self.users: dict[str, str] = {}
        self.cut: dict[str, str] = {}
        self.returned = {p.name for p in lowered.results}
        self.leaves = Followed(lowered)
        for bound in counted(lowered.bound_symbols):
            self.read(bound)
            self.leaves.read(bound)

    def read(self, bound: BoundSymbol) -> None:
        if bound.symbol.kind is Kind.CONSTRUCTOR:
            self.built.add(bound.output.name)
            self.cut[bound.output.name] = self.beginning(bound)
        if new := [proxy for proxy in filter(_is_wrapper, bound.arguments) if proxy.name not in self.users]:
            behind = self.leaves.of(bound.arguments)
            self.users |= {proxy.name: self.use(bound, proxy, behind) for proxy in new}
        if bound.at_class:
            made = _built_in(bound)
            self.built |= made
            self.numbered |= made
        if bound.replayed:
            self.replayed(bound)

    def replayed(self, bound: BoundSymbol) -> None:
        """What a replayed operation builds: its steps, for autograd, and the code of a Function, for itself."""
        applied = bound.symbol.kind is Kind.APPLY
        made = _built_in(bound)
        own = made if applied else {name for b in bound.subsymbols if not b.is_step for name in _built_in(b)}
        results = {p.name for p in bound.results}
        self.by_code |= dict.fromkeys(own - results, bound.symbol.name)
        made |= results if applied else set()
        self.built |= made
        self.followed |= dict.fromkeys(made, self.following(bound))

    def beginning(self, bound: BoundSymbol) -> str:
        """What a constructor that is called directly does to the graph."""
        behind = self.leaves.of(bound.arguments)
        return f"a new leaf, as its constructor cuts it off from {behind}; " if behind else ""

    def use(self, bound: BoundSymbol, proxy: Proxy, behind: Leaves) -> str:
        """What the first operation that takes a wrapper object wants of it."""
        if bound.symbol.kind is Kind.CONSTRUCTOR:
            return f"it is inside {bound.symbol.name}"
        if not (bound.replayed and behind):
            return f"{bound.symbol.name} wants the object"
        return f"{bound.symbol.name} takes the object, since {_require(behind, proxy.name)}"

    def following(self, bound: BoundSymbol) -> str:
        """Why a replayed operation builds objects."""
        if bound.symbol.name.rpartition(".")[2] in ops.BACKWARD:
            return f"{bound.symbol.name} builds it"
        if behind := self.leaves.of(bound.arguments):
            return f"autograd follows it, since {_require(behind)}"
        if any(p.requires_grad for p in bound.outputs if isinstance(p, TensorProxy)):
            return "autograd follows it"
        return "autograd may follow it later, through a view"

    def why(self, proxy: Proxy) -> str:
        if proxy.name not in self.built:
            return "only its inner tensors are used" if proxy.name in self.taken else "nothing uses it"
        if proxy.name in self.returned:
            return "it is returned"
        if proxy.name in self.numbered:
            return "its class takes a number from data"
        if proxy.name in self.by_code:
            return f"{self.by_code[proxy.name]} builds it"
        if proxy.name in self.followed:
            return self.followed[proxy.name]
        return self.cut.get(proxy.name, "") + self.users.get(proxy.name, "it is stored")


def _require(leaves: Leaves, own: str = "") -> str:
    if leaves == Leaves((own,), 1):
        return "it requires a gradient"
    return f"{leaves} require{'s a gradient' if leaves.count == 1 else ' gradients'}"


def _built_in(bound: BoundSymbol) -> set[str]:
    return {b.output.name for _, b in bound.walk() if b.symbol.kind is Kind.CONSTRUCTOR}
