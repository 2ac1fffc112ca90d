"""Captured tensors that go the same ways, together in one node: a picture is not as wide as they are many."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .flow import Edge

__all__ = ["Bundle", "bundled", "bundles"]

TOGETHER = 4
"""Captured tensors with the same readers from which they are one node."""
MANY = 24
"""Captured tensors in a picture from which any two with the same readers are one node."""


@dataclass(frozen=True)
class Bundle:
    """A node that stands for several.

    Args:
        node: Its id: `caps_0`, `caps_1`, ...
        members: The ids of those it stands for.
    """

    node: str
    members: tuple[str, ...]

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{len(self.members)} captured tensors"


def bundles(edges: Collection[Edge]) -> tuple[Bundle, ...]:
    """The captured values that the same operations read.

    Args:
        edges: The edges of a picture; those of captured values begin at `cap_0`, ...

    Returns:
        Bundles, in the order of their first members.
    """
    readers: dict[str, dict[str, None]] = {}
    for edge in edges:
        if edge.source.startswith("cap_"):
            readers.setdefault(edge.source, {})[edge.target] = None
    alike: dict[tuple[str, ...], list[str]] = {}
    for node, targets in readers.items():
        alike.setdefault(tuple(sorted(targets)), []).append(node)
    least = 2 if len(readers) > MANY else TOGETHER
    found = [tuple(nodes) for nodes in alike.values() if len(nodes) >= least]
    return tuple(Bundle(f"caps_{i}", nodes) for i, nodes in enumerate(found))


def bundled(edges: Collection[Edge], found: tuple[Bundle, ...]) -> tuple[Edge, ...]:
    """Edges that begin at bundles in place of their members, one for each reader."""
    places = {node: bundle for bundle in found for node in bundle.members}
    wide = {(places[e.source].node, e.target) for e in edges if e.wrapper and e.source in places}
    made: dict[Edge, None] = {}
    for edge in edges:
        if (bundle := places.get(edge.source)) is not None:
            wrapper = (bundle.node, edge.target) in wide
            edge = dataclasses.replace(edge, source=bundle.node, name=bundle.name, wrapper=wrapper)
        made[edge] = None
    return tuple(made)
