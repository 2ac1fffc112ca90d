"""What became of each construction of a wrapper object: kept or elided, and why."""

from __future__ import annotations

from .proxies import Proxy
from .symbols import BoundSymbol, Kind, Symbol, proxies_in
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
        self.followed: set[str] = set()
        self.numbered: set[str] = set()
        self.by_code: dict[str, str] = {}  # built by the code of a replayed function: its name
        self.users: dict[str, Symbol] = {}
        self.returned = {p.name for p in proxies_in(lowered.output)}
        for bound in lowered.bound_symbols:
            self.read(bound)

    def read(self, bound: BoundSymbol) -> None:
        if bound.symbol.kind is Kind.CONSTRUCTOR:
            self.built.add(bound.output.name)
        for proxy in bound.arguments:
            self.users.setdefault(proxy.name, bound.symbol)
        if bound.at_class:
            self.built |= (inside := _built_in(bound))
            self.numbered |= inside
        if bound.replayed:
            self.replayed(bound)

    def replayed(self, bound: BoundSymbol) -> None:
        """What a replayed operation builds: its steps, for autograd, and the code of a Function, for itself."""
        applied = bound.symbol.kind is Kind.APPLY
        made = _built_in(bound)
        own = made if applied else {name for b in bound.subsymbols if not b.is_step for name in _built_in(b)}
        results = {p.name for p in bound.results}
        self.by_code |= dict.fromkeys(own - results, bound.symbol.name)
        self.built |= made | (results if applied else set())
        self.followed |= made | (results if applied else set())

    def why(self, proxy: Proxy) -> str:
        if proxy.name not in self.built:
            return "only its inner tensors are used"
        if proxy.name in self.returned:
            return "it is returned"
        if proxy.name in self.numbered:
            return "its class takes a number from data"
        if proxy.name in self.by_code:
            return f"{self.by_code[proxy.name]} builds it"
        if proxy.name in self.followed:
            return "autograd follows it"
        user = self.users.get(proxy.name)
        if user is None:
            return "it is stored"
        return f"it is inside {user.name}" if user.kind is Kind.CONSTRUCTOR else f"{user.name} wants the object"


def _built_in(bound: BoundSymbol) -> set[str]:
    return {b.output.name for _, b in bound.walk() if b.symbol.kind is Kind.CONSTRUCTOR}
