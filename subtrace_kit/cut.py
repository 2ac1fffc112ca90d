"""A lowered trace, cut into parts that a backend may compile and what lies between."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from . import ops
from .computing import Leaf, Leaves
from .part import Part, made_part
from .passes import uses
from .symbols import BoundSymbol, Kind
from .to_fx import is_constant
from .trace import Trace

__all__ = ["Cut", "Draft", "cut"]


@dataclass
class Draft:
    """A run of operations that only compute, with the constructors between them.

    Args:
        inference: Whether they run in inference mode.
        originals: The operations as they stand in the trace.
        leaves: The ops they are made of, each with the operation it stands in.
        later: The constructors: no op of the run needs the objects.
    """

    inference: bool
    originals: list[BoundSymbol] = field(default_factory=list)
    leaves: list[tuple[Leaf, BoundSymbol]] = field(default_factory=list)
    later: list[BoundSymbol] = field(default_factory=list)

    def resolve(self, trace: Trace, wanted: set[str]) -> tuple[Part, list[BoundSymbol]]:
        """The part, and what follows it: views that are wanted outside, then the constructors.

        A view shares memory with what it is a view of, as eager has it, only where it is made by itself.
        """
        needed = wanted | {p.name for bound in self.later for p in uses(bound)}
        views: list[BoundSymbol] = []
        for leaf, outer in reversed(self.leaves):
            if leaf.is_view and any(p.name in needed for p in leaf.bound.results):
                views.append(leaf.bound.replace(context=outer.context))
                needed |= {p.name for p in leaf.bound.arguments}
        computed = [p.name for leaf, _ in self.leaves if not leaf.is_view for p in leaf.bound.results]
        part = made_part(
            [leaf.bound for leaf, _ in self.leaves], [n for n in computed if n in needed], trace, self.inference
        )
        return part, [*reversed(views), *self.later]


@dataclass(frozen=True)
class Cut:
    """A trace in pieces.

    Args:
        pieces: Operations that stay, and drafts of parts, in order.
        stay: Why operations stay, and how many for each reason.
    """

    pieces: tuple[BoundSymbol | Draft, ...]
    stay: Counter[str]

    def wanted(self, trace: Trace) -> list[set[str]]:
        """For each piece, the names that later pieces and the result need."""
        needed = {proxy.name for proxy in trace.results}
        found: list[set[str]] = []
        for piece in reversed(self.pieces):
            found.append(set(needed))
            for bound in piece.originals if isinstance(piece, Draft) else (piece,):
                needed |= {p.name for p in uses(bound)}
        return found[::-1]


def cut(trace: Trace) -> Cut:
    """Cut a lowered trace.

    Args:
        trace: The lowered trace.
    """
    pieces: list[BoundSymbol | Draft] = []
    stay: Counter[str] = Counter()
    looks = Leaves()
    draft: Draft | None = None
    for bound in trace.bound_symbols:
        if draft is not None and bound.symbol.kind is Kind.CONSTRUCTOR:
            draft.later.append(bound)
            draft.originals.append(bound)
        elif _may_come_before(bound, draft):
            pieces.insert(len(pieces) - (draft is not None), bound)
        elif bound.symbol is ops.GETATTR or bound.symbol.kind is Kind.CONSTRUCTOR:
            draft = None
            pieces.append(bound)
        elif isinstance(leaves := looks.of(bound), str):
            stay[f"{bound.symbol.name} {leaves}"] += 1
            draft = None
            pieces.append(bound)
        else:
            inference = (bound.context or trace.context).inference
            if draft is None or draft.inference is not inference:
                draft = Draft(inference)
                pieces.append(draft)
            draft.originals.append(bound)
            draft.leaves += [(leaf, bound) for leaf in leaves]
    return Cut(tuple(pieces), stay)


def _may_come_before(bound: BoundSymbol, draft: Draft | None) -> bool:
    """Whether an operation needs nothing of a draft: a constant, or what is read of an object from before."""
    if bound.symbol is not ops.GETATTR:
        return is_constant(bound)
    made = {p.name for original in (draft.originals if draft is not None else ()) for p in original.results}
    return bound.args[0].name not in made
