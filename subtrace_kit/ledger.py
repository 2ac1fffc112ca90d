"""What became of each construction of a wrapper object: kept or elided, and why."""

from __future__ import annotations

from . import ops
from .followed import Followed, listed
from .proxies import Proxy, TensorProxy
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
    reasons = _Reasons(lowered)
    ledger = Ledger(
        Construction(b.output, b.output.name in reasons.built, reasons.why(b.output), b.source)
        for outer in original.bound_symbols
        for _, b in outer.walk()
        if b.symbol.kind is Kind.CONSTRUCTOR
    )
    kept = sum(construction.kept for construction in ledger)
    line = f"elide constructors: {len(ledger) - kept} of {len(ledger)} elided"
    return lowered.replace(ledger=ledger, provenance=(*lowered.provenance, line))


class _Reasons:
    def __init__(self, lowered: Trace) -> None:
        self.built: set[str] = set()
        self.followed: dict[str, str] = {}
        self.numbered: set[str] = set()
        self.users: dict[str, str] = {}
        self.cut: dict[str, str] = {}
        self.returned = {p.name for p in lowered.results}
        self.leaves = Followed(lowered)
        for bound in lowered.bound_symbols:
            self.read(bound)
            self.leaves.read(bound)

    def read(self, bound: BoundSymbol) -> None:
        if bound.symbol.kind is Kind.CONSTRUCTOR:
            self.built.add(bound.output.name)
            self.cut[bound.output.name] = self.beginning(bound)
        for proxy in bound.arguments:
            if proxy.name not in self.users:
                self.users[proxy.name] = self.use(bound, proxy)
        made = {b.output.name for _, b in bound.walk() if b.symbol.kind is Kind.CONSTRUCTOR}
        if bound.at_class:
            self.built |= made
            self.numbered |= made
        if bound.replayed:
            made |= {p.name for p in bound.results} if bound.symbol.kind is Kind.APPLY else set()
            self.built |= made
            self.followed |= dict.fromkeys(made, self.following(bound))

    def beginning(self, bound: BoundSymbol) -> str:
        """What a constructor that is called directly does to the graph."""
        behind = self.leaves.of(bound.arguments)
        return f"a new leaf, as its constructor cuts it off from {listed(behind)}; " if behind else ""

    def use(self, bound: BoundSymbol, proxy: Proxy) -> str:
        """What the first operation that takes a wrapper object wants of it."""
        if bound.symbol.kind is Kind.CONSTRUCTOR:
            return f"it is inside {bound.symbol.name}"
        behind = self.leaves.of(bound.arguments)
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
            return "only its inner tensors are used"
        if proxy.name in self.returned:
            return "it is returned"
        if proxy.name in self.numbered:
            return "its class takes a number from data"
        if proxy.name in self.followed:
            return self.followed[proxy.name]
        return self.cut.get(proxy.name, "") + self.users.get(proxy.name, "it is stored")


def _require(leaves: tuple[str, ...], own: str = "") -> str:
    if leaves == (own,):
        return "it requires a gradient"
    return f"{listed(leaves)} require{'s a gradient' if len(leaves) == 1 else ' gradients'}"
