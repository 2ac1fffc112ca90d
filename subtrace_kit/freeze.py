"""Events -> Trace: give names, put in the attribute reads, and freeze."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from . import ops
from .collecting import no_collection
from .errors import TraceError
from .naming import Names, base_name, identifier
from .progress import Stage, counted
from .proxies import NumberProxy, Proxy, TensorProxy, proxy_kind
from .seen import Seen
from .symbols import BoundSymbol, Kind, map_tree
from .values import Event, Value, values_in

__all__ = ["Body", "Freezer"]


class Body(Sequence[BoundSymbol]):
    """A tuple of bound symbols that is made when it is first looked at.

    Args:
        make: Makes the bound symbols; called once.
    """

    def __init__(self, make: Callable[[], list[BoundSymbol]]) -> None:
        self._make: Callable[[], list[BoundSymbol]] | None = make
        self._made: tuple[BoundSymbol, ...] = ()
        self._lock = threading.Lock()

    @property
    def made(self) -> tuple[BoundSymbol, ...]:
        """The bound symbols."""
        with self._lock:
            if self._make is not None:
                with no_collection():
                    self._made, self._make = tuple(self._make()), None
        return self._made

    def __getitem__(self, index: Any) -> Any:
        return self.made[index]

    def __iter__(self) -> Iterator[BoundSymbol]:
        return iter(self.made)

    def __len__(self) -> int:
        return len(self.made)

    def __eq__(self, other: object) -> bool:
        return self.made == tuple(other) if isinstance(other, (Body, tuple)) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.made)

    def __repr__(self) -> str:
        return repr(self.made)


class Freezer:
    """Turns values into proxies and events into bound symbols."""

    def __init__(self) -> None:
        self.names = Names()
        self.defined: set[Value] = set()  # roots that have a name at the top level
        self.reads: dict[Event | None, list[tuple[Value, Value, str]]] = {}  # event -> values to read after it

    # ------------------------------------------------------------------------------------ names

    def name(self, value: Value, hint: str | None = None) -> str:
        """The name of a value's root, given when it is first asked for."""
        root = value.root
        if not root.name:
            root.name = self.names.new(hint or base_name(root.hint))
        return root.name

    def proxy(self, value: Value) -> Any:
        """The proxy of one state of a value."""
        if value.proxy is None:
            value.proxy = self.make_proxy(value)
        return value.proxy

    def make_proxy(self, value: Value) -> Proxy:
        name = self.name(value)
        if value.number is not None:
            number = value.number[0]
            return NumberProxy(name, type(number), number, value.number[1])
        fields = (
            name, value.shape, value.stride, value.dtype, value.device, value.requires_grad, value.offset, value.lazy,
        )  # fmt: skip
        if value.cls is None:
            return TensorProxy(*fields)
        for attribute, part in value.inner:
            self.name(part, f"{name}_{identifier(attribute)}" if part.outside else None)
        inner = tuple((attribute, self.proxy(part)) for attribute, part in value.inner)
        return proxy_kind(value.cls)(*fields, value.cls, inner, value.metadata)

    def tree(self, tree: Any) -> Any:
        """Proxies in place of values."""
        kind = type(tree)
        if kind is Value:
            return tree.proxy or self.proxy(tree)
        if kind is tuple:
            return tuple([self.tree(item) for item in tree])
        if isinstance(tree, (list, tuple, dict, slice)):
            return map_tree(lambda leaf: self.proxy(leaf) if type(leaf) is Value else leaf, tree)
        return tree

    # ------------------------------------------------------------------------------------ events

    def freeze(self, events: list[Event], output: Any) -> Body:
        """Bound symbols for the top level, attribute reads put in where they were possible.

        What can go wrong goes wrong here; the writing out waits until somebody looks.
        """
        self.plan_reads(events, output)
        for event in events:
            for value in values_in(event.out):
                if not value.root.name:
                    self.name(value, base_name(event.symbol.name))
        return Body(lambda: self.write_out(events))

    def write_out(self, events: list[Event]) -> list[BoundSymbol]:
        """All events as bound symbols, in order."""
        frozen = self.reads_after(None)
        with Stage("writing down"):
            for event in counted(events):
                frozen.append(self.bind(event))
                frozen += self.reads_after(event)
        self.reads.clear()
        untie(events)
        return frozen

    def bind(self, event: Event) -> BoundSymbol:
        """One event, and all inside it."""
        out = event.out
        for value in (out,) if type(out) is Value else values_in(out):
            if not value.root.name:
                self.name(value, base_name(event.symbol.name))
        subs = tuple([self.bind(inner) for inner in event.subs]) if event.subs else ()
        built = event.symbol.kind is Kind.CONSTRUCTOR
        return BoundSymbol(
            event.symbol,
            tuple([proxy for _, proxy in self.proxy(out).inner]) if built else self.tree(event.args),
            self.tree(event.kwargs) if event.kwargs and not built else event.kwargs,
            self.tree(out),
            subs,
            event.source,
            event.module,
            event.context,
            event.checked,
            seen=tuple([Seen(self.name(value), summary) for value, summary in event.seen]) if event.seen else (),
        )

    # ------------------------------------------------------------------------- attribute reads

    def plan_reads(self, events: list[Event], output: Any) -> None:
        """Find the values used at the top level that must first be read from a wrapper."""
        kept = {None, *events}
        before = None
        for event in events:
            for value in values_in((event.args, event.kwargs)):
                self.need(value, event, before, kept)
            if event.symbol.kind is Kind.CONSTRUCTOR:
                for _, part in event.out.inner:
                    self.need(part, event, before, kept)
            self.defined.update(value.root for value in values_in(event.out))
            before = event
        for value in values_in(output):
            self.need(value, None, before, kept)

    def need(self, value: Value, event: Event | None, before: Event | None, kept: set[Event | None]) -> None:
        """See to it that a value has a name at the top level before an event."""
        made_now = event is not None and event.symbol.kind is Kind.CONSTRUCTOR and event.out is value
        if value.root not in self.defined and not made_now and not self.plan_read(value.root, before, kept):
            raise unknown_origin(value, event)

    def plan_read(self, root: Value, before: Event | None, kept: set[Event | None]) -> bool:
        """Plan to read a value from a wrapper that has a name at the top level by then."""
        for owner, attribute in root.owners:
            if owner.root in self.defined or self.plan_read(owner.root, before, kept):
                self.defined.add(root)
                after = owner.born if owner.born in kept else before
                self.reads.setdefault(after, []).append((root, owner, attribute))
                return True
        return False

    def reads_after(self, event: Event | None) -> list[BoundSymbol]:
        """The attribute reads that become possible after an event."""
        found = []
        for root, owner, attribute in self.reads.get(event, ()):
            arguments = (self.proxy(owner), attribute)
            self.name(root, f"{self.name(owner)}_{identifier(attribute)}")
            found.append(BoundSymbol(ops.GETATTR, arguments, {}, self.proxy(root)))
        return found


def untie(events: Sequence[Event]) -> None:
    """Take events and values apart that hold each other: only the garbage collector would find them, and take long."""
    for event in events:
        out = event.out
        for value in (out,) if type(out) is Value else values_in(out):
            if value.number is None:  # The program may hold a number, and ask it what it is.
                value.__dict__.clear()
        if event.subs:
            untie(event.subs)


def unknown_origin(value: Value, event: Event | None) -> TraceError:
    """The error for a tensor that no recorded operation made."""
    return TraceError(
        f"a tensor of shape {list(getattr(value, 'shape', ()))} of unknown origin",
        source=event.source if event else None,
        cause="an object that keeps a tensor in a place that neither __tensor_flatten__ names nor an op returns",
        way_out="list it in __tensor_flatten__, or return it from an op or an autograd.Function",
    )
