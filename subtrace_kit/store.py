"""Ties objects to values by identity, and notices what changes about them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from . import ops, refusals
from .attached import hidden, holder_of
from .intercept import (
    flat_parts,
    global_context,
    handles_functions,
    is_wrapper_type,
    lacks_protocol,
    made_by_function,
)
from .numbers import Numbers, guard_number
from .pending import Pending
from .protocol import flatten, no_protocol, try_unflatten
from .roots import Place
from .source import Source, nearest_line
from .surroundings import Surroundings
from .symbols import Symbol, constructor_symbol, map_tree
from .traced_number import TracedNumber
from .values import Event, Value, describe
from .wrapper_state import State, changes, differing, is_unchanged, read_state, write_state

if TYPE_CHECKING:
    from .recorder import Recorder

__all__ = ["Store"]


_READ_GRADIENT: Any = getattr(torch.Tensor, "grad").__get__  # noqa: B009
_ATOMS = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.Size})


class _Seen(weakref.ref):
    """A weak reference that knows the id its object had."""

    __slots__ = ("key",)
    key: int


class Store:
    """The values of one recording.

    Args:
        recorder: Where events that the store finds out about are written.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.values: dict[int, Value] = {}
        self.forget_one = self.gone  # bound once: every wrapper seen gets it
        self.states: dict[int, State] = {}
        self.pending: dict[int, Pending] = {}
        self.captures: list[tuple[Value, list[Place]]] = []
        self.outside_wrappers: list[Any] = []
        self.outside_values: list[Value] = []
        self.numbers = Numbers()
        self.built = 0
        self.sound: dict[type, State] = {}  # the attributes of the last object that was built again

    def forget(self) -> None:
        """Let go of all objects."""
        for kept in (self.values, self.states, self.pending, self.captures, self.outside_wrappers, self.outside_values):
            kept.clear()

    # ------------------------------------------------------------------------------------ trees

    def map_in(self, tree: Any, wrappers: list[Any]) -> Any:
        """Arguments with values in place of tensors; wrapper objects are added to `wrappers`."""
        if isinstance(tree, torch.Tensor):
            value = self.values.get(id(tree))
            if value is not None and value.cls is None and value.ref() is tree:
                return value if value.requires_grad is tree.requires_grad else self.changed_unseen(tree, value)
            if is_wrapper_type(type(tree)):
                wrappers.append(tree)
            return self.value(tree)
        kind = type(tree)
        if kind in _ATOMS:
            return tree
        if kind is tuple:
            return tuple([self.map_in(item, wrappers) for item in tree])
        if isinstance(tree, (list, tuple, dict, slice)):
            return map_tree(lambda leaf: self.map_in(leaf, wrappers), tree)
        if isinstance(tree, torch.Generator):
            # Below the function the same generator comes as another Python object.
            if self.recorder.at_function_level:
                if id(tree) not in self.recorder.generators:
                    raise self.recorder.refuse(refusals.unknown_generator(nearest_line()))
                self.recorder.check_generator(tree)
            self.recorder.snapshot.watch_generator(tree)
        return tree.value if isinstance(tree, TracedNumber) else tree

    def map_out(self, tree: Any, hint: str) -> Any:
        """Results with values in place of tensors."""
        if isinstance(tree, torch.Tensor):
            return self.result(tree, hint)
        if isinstance(tree, (list, tuple)) and not isinstance(tree, torch.Size):
            items = [self.map_out(item, hint) for item in tree]
            return items if isinstance(tree, list) else tuple(items)
        if isinstance(tree, dict):
            return {key: self.map_out(item, hint) for key, item in tree.items()}
        return tree

    def has_value(self, tree: Any) -> bool:
        """Whether a result holds a tensor or a number of the trace."""
        if type(tree) is Value:
            return True
        if isinstance(tree, (list, tuple)):
            return any(self.has_value(item) for item in tree)
        return isinstance(tree, dict) and any(self.has_value(item) for item in tree.values())

    # ---------------------------------------------------------------------------------- tensors

    def value(self, obj: torch.Tensor) -> Value:
        """The value of a tensor used as an argument, as it is now."""
        key = id(obj)
        value = self.known(obj)
        if value is not None:
            # Nothing has run since the function that sends this op was opened: it has just been looked at.
            return value if value.cls is None or self.recorder.just_opened else self.sync(obj)
        if (waiting := self.pending.pop(key, None)) is not None:
            return self.complete(obj, waiting)
        before = self.recorder.snapshot.state_before(obj)
        if before is None and is_wrapper_type(type(obj)) and self.made_here(obj):
            return self.adopt(obj)
        return self.capture(obj)

    def changed_unseen(self, obj: torch.Tensor, value: Value) -> Value:
        """A plain tensor that autograd follows since something that the recorder did not see."""
        # In a backward torch itself ties what was saved to its node again.
        if made_by_function(obj) and self.recorder.at_function_level and not self.recorder.applies:
            raise self.recorder.refuse(refusals.unseen_apply(obj, nearest_line()))
        return self.register(obj, Value(value.hint, value.root))

    def result(self, obj: torch.Tensor, hint: str, settled: bool = False) -> Value:
        """The value of a tensor that an operation returned; settled if no user code has run since."""
        value = self.known(obj)
        if value is not None:
            if value.cls is not None:
                return value if settled and value.requires_grad is obj.requires_grad else self.sync(obj)
            return value if self.looks_same(obj, value) else self.register(obj, Value(value.hint, value.root))
        if (waiting := self.pending.pop(id(obj), None)) is not None:
            return self.complete(obj, waiting)
        if is_wrapper_type(type(obj)):
            return self.adopt(obj)
        return self.register(obj, Value(hint))

    def register(self, obj: torch.Tensor, value: Value) -> Value:
        """Tie a plain tensor to a value, for as long as the tensor lives."""
        value.ref = weakref.ref(obj)
        value.order = self.built
        self.values[id(obj)] = value
        return describe(value, obj)

    def known(self, obj: Any) -> Value | None:
        """The value of an object as it was last seen; None for an object that has the id of one that went."""
        value = self.values.get(id(obj))
        return value if value is not None and value.ref() is obj else None

    def gone(self, ref: _Seen) -> None:
        """A wrapper has gone: let go of its inner tensors too, as happens without the recorder."""
        if (value := self.values.get(ref.key)) is not None and value.ref is ref:
            del self.values[ref.key], self.states[ref.key]

    def looks_same(self, obj: torch.Tensor, value: Value) -> bool:
        """Whether a tensor still has the geometry and the flag of its value."""
        return (
            value.requires_grad == obj.requires_grad
            and value.shape == obj.shape
            and (value.stride == () or value.stride == obj.stride())
        )

    # --------------------------------------------------------------------------------- wrappers

    def pend(self, obj: Any, scope: list[Event], args: tuple, kwargs: dict, source: Source | None) -> None:
        """Remember a new wrapper object and the scope it was built in."""
        self.pending[id(obj)] = waiting = Pending(obj, scope, args, kwargs, source)
        self.built += 1
        waiting.order = self.built

    def settle(self, scope: list[Event], wrappers: list[Any], function: bool) -> None:
        """At the end of a scope: complete the wrappers built in it, and look at its arguments again.

        A function leaves wrappers as its ops left them, unless a class handles functions itself.
        """
        if self.pending:
            for key, waiting in list(self.pending.items()):
                if waiting.scope is scope and is_wrapper_type(type(waiting.obj)):
                    del self.pending[key]
                    self.complete(waiting.obj, waiting)
        for obj in wrappers:
            if not function or handles_functions(type(obj)):
                self.sync(obj)

    def settle_holders(self, written: set[int] | None) -> None:
        """Complete the pending wrappers that hold a tensor which is about to be written.

        Args:
            written: The ids of the tensors; None for all wrappers of the open scope that are built to the end.
        """
        for key, waiting in list(self.pending.items()):
            if written is None and waiting.scope is not self.recorder.scopes[-1]:
                continue
            try:
                names, _ = flat_parts(waiting.obj)
                held = [id(getattr(waiting.obj, name)) for name in names]
            except Exception:  # its constructor has not come to its end
                continue
            if written is None or not written.isdisjoint(held):
                del self.pending[key]
                self.recorder.scopes.append(waiting.scope)
                self.complete(waiting.obj, waiting)
                self.recorder.scopes.pop()

    def complete(self, obj: torch.Tensor, waiting: Pending) -> Value:
        """Write the constructor of a pending wrapper into the scope where it was built."""
        if lacks_protocol(type(obj)):
            raise self.recorder.refuse(no_protocol(type(obj), waiting.source))
        value, names, inner = self.read(obj, Value(type(obj).__name__), waiting.source)
        map_tree(guard_number, value.metadata)
        self.check_sound(obj, names, inner, value.metadata)
        event = Event(constructor_symbol(type(obj)), (value,), {}, waiting.source)
        event.kwargs = {"given": (waiting.args, waiting.kwargs), "requires_grad": waiting.requires_grad}
        event.out = value
        waiting.insert(event)
        if waiting.scope is self.recorder.top:
            value.born = event
        more = [self.attribute(symbol, value, *args) for symbol, *args in self.extras(obj, names, waiting.order)]
        waiting.insert_after(event, more)
        return value

    def extras(self, obj: Any, names: list[str], order: int) -> list[tuple[Any, ...]]:
        """Python attributes that a wrapper has and `__tensor_unflatten__` does not give it."""
        state = self.states[id(obj)]
        unlisted = hidden(obj, names, lambda tensor: self.is_older(tensor, order))
        if not differing(state, self.sound[type(obj)], names) and not unlisted:
            return []
        self.sound[type(obj)] = now = self.rebuilt(obj, names)
        lost = [(ops.SETATTR, n, item) for n, item in unlisted if now.attributes.get(n) is not item]
        found = differing(state, now, names)
        return [*found, *(step for step in lost if not any(step[1] == other[1] for other in found))]

    def is_older(self, tensor: torch.Tensor, order: int) -> bool:
        """Whether a tensor was there before a wrapper was built: the class did not make it for the wrapper."""
        value = self.known(tensor)
        return value is None or value.root.order < order

    def attribute(self, symbol: Symbol, value: Value, name: str, *item: Any) -> Event:
        """The event that sets or deletes an attribute."""
        event = Event(symbol, (value, name, *(self.map_in(i, []) for i in item)), {}, nearest_line())
        event.writes = True
        return event

    def adopt(self, obj: torch.Tensor) -> Value:
        """Take in a wrapper that appeared without a watched constructor call."""
        flag = obj.requires_grad and obj.is_leaf
        waiting = Pending(obj, self.recorder.scopes[-1], (), {}, nearest_line())
        waiting.requires_grad = flag
        return self.complete(obj, waiting)

    def made_here(self, obj: Any) -> bool:
        """Whether an unknown wrapper holds tensors that this program computed."""
        _, inner, _ = flatten(obj)
        known = [self.known(t) for t in inner]
        return any(v is not None and not v.outside for v in known)

    def read(self, obj: Any, value: Value, source: Source | None) -> tuple[Value, list[str], list[torch.Tensor]]:
        """Fill a value from the flatten protocol of its object."""
        names, inner, value.metadata = flatten(obj, source)
        describe(value, obj)
        value.cls = type(obj)
        value.born = self.recorder.latest()
        parts = []
        for name, tensor in zip(names, inner, strict=True):
            part = self.value(tensor)
            part.owners = (*part.owners, (value, name))
            parts.append((name, part))
        value.inner = tuple(parts)
        if value.root is value:
            value.ref = ref = _Seen(obj, self.forget_one)
            ref.key = id(obj)
        else:
            value.ref = value.root.ref
        self.values[id(obj)] = value
        self.states[id(obj)] = read_state(obj)
        return value, names, inner

    def sync(self, obj: Any) -> Value:
        """The value of a known wrapper; where its attributes changed, write that down first."""
        value = self.values[id(obj)]
        state = self.states[id(obj)]
        for name, part in value.inner:
            if part.cls is not None and self.known(inner := getattr(obj, name, None)) is not None:
                self.sync(inner)
        if is_unchanged(obj, state):
            return value if self.looks_same(obj, value) else self.restride(obj, value)
        now = read_state(obj)
        changed, gone = changes(state, now)
        self.states[id(obj)] = now
        for name, item in changed.items():
            self.write_attribute(ops.SETATTR, (value, name, self.map_in(item, [])))
        for name in gone:
            self.write_attribute(ops.DELATTR, (value, name))
        return self.refresh(obj, value)

    def restride(self, obj: Any, value: Value) -> Value:
        """A wrapper whose outer geometry or flag an op has changed in place."""
        new = self.refresh(obj, value)
        if (new.shape, new.stride) != (value.shape, value.stride):
            self.write_attribute(ops.RESTRIDE, (new, new.shape, new.stride, new.offset))
        return new

    def refresh(self, obj: Any, value: Value) -> Value:
        return self.read(obj, Value(value.hint, value.root), None)[0]

    def write_attribute(self, symbol: Symbol, args: tuple) -> None:
        event = Event(symbol, args, {}, nearest_line())
        event.writes = True
        self.recorder.emit(event)

    def check_sound(self, obj: Any, names: list[str], inner: list[torch.Tensor], metadata: Any) -> None:
        """Build one object of each class again, so that a broken rule is found now."""
        if type(obj) not in self.sound:
            with torch.no_grad():
                self.sound[type(obj)] = read_state(try_unflatten(obj, names, inner, metadata))

    def rebuilt(self, obj: Any, names: list[str]) -> State:
        """The Python attributes that `__tensor_unflatten__` gives a wrapper."""
        _, inner, metadata = flatten(obj)
        with torch.no_grad():
            return read_state(try_unflatten(obj, names, inner, metadata))

    # --------------------------------------------------------------------------------- captures

    def add_input(self, obj: torch.Tensor, hint: str) -> Value:
        """Tie an argument of the program, and the tensors inside it, to values."""
        if (known := self.known(obj)) is not None:
            return known
        self.outside(obj)
        value = Value(hint)
        value.outside = True
        self.outside_values.append(value)
        if not is_wrapper_type(type(obj)):
            if lacks_protocol(type(obj)):
                raise no_protocol(type(obj), None)
            value.lazy = (obj.is_conj(), obj.is_neg())
            return self.register(obj, value)
        names, inner, _ = flatten(obj)
        for name, tensor in zip(names, inner, strict=True):
            self.add_input(tensor, f"{hint}_{name}")
        value, names, inner = self.read(obj, value, None)
        # A part that was changed in place before the wrapper came into sight: the wrapper came in with it as it was.
        value.inner = tuple((name, part.root if part.root.outside else part) for name, part in value.inner)
        value.born = None
        return value

    def capture(self, obj: torch.Tensor, hint: str = "captured") -> Value:
        """Take in a tensor that the program finds outside: a parameter, a closed-over tensor.

        The program may have changed Python attributes of a wrapper before its first use: it is taken in
        as it was, and what has changed is written down.
        """
        if (holder := self.holds_as_gradient(obj)) is not None:
            return self.take_gradient(obj, holder)
        now: list[tuple[Any, State]] = []
        self.rewind(obj, now)
        if id(obj) not in self.recorder.places.tensors:
            self.check_listed(obj)
        places = self.recorder.find_places(obj, hint)
        value = self.add_input(obj, hint)
        self.captures.append((value, places))
        for wrapper, state in now:
            write_state(wrapper, state)
        return self.sync(obj) if now else value

    def holds_as_gradient(self, obj: torch.Tensor) -> Value | None:
        """The tensor from outside whose gradient a tensor is."""
        if id(obj) in self.recorder.places.tensors:
            return None
        holder = self.recorder.snapshot.leaf_with(obj)
        value = None if holder is None else self.known(holder)
        return value if value is not None and value.root.outside else None

    def find_gradient(self, obj: torch.Tensor) -> None:
        """Take in the gradient that a tensor from outside had before the program."""
        value = self.value(obj)
        gradient = obj.grad if obj.is_leaf else None
        if gradient is not None and self.known(gradient) is None and self.holds_as_gradient(gradient) is value:
            self.take_gradient(gradient, value)

    def take_gradient(self, obj: torch.Tensor, holder: Value) -> Value:
        """Take in a gradient from before the program: read from the tensor that has it at the start of each run."""
        self.recorder.gradients[id(holder.root)] = holder.root
        value = self.add_input(obj, "grad")
        read = Event(ops.function_symbol(_READ_GRADIENT), (holder.root,), {}, nearest_line())
        read.out, read.context = value, global_context(self.recorder.base_modes)
        value.born = read
        self.recorder.top.insert(0, read)
        self.recorder.properties.add(value.root)
        return value

    def check_listed(self, obj: torch.Tensor) -> None:
        """Refuse a tensor that is only found as an attribute of another one from outside."""
        around = [value.ref() for value in self.values.values() if value.root.outside]
        error = holder_of(obj, [other for other in around if other is not None], nearest_line())
        if error is not None:
            raise self.recorder.refuse(error)

    def rewind(self, obj: Any, now: list[tuple[Any, State]]) -> None:
        """Give a wrapper, and those inside it, the attributes from before the program; present ones go to `now`."""
        if not is_wrapper_type(type(obj)):
            return
        before = self.recorder.snapshot.state_before(obj)
        if before is not None and not is_unchanged(obj, before):
            now.append((obj, read_state(obj)))
            write_state(obj, before)
        for tensor in flatten(obj)[1]:
            self.rewind(tensor, now)

    def capture_changed(self, wrappers: list[Any]) -> None:
        """Take in the wrappers from outside that the program has changed without using them in an op."""
        for obj in wrappers:
            before = self.recorder.snapshot.state_before(obj)
            if before is not None and self.known(obj) is None and not is_unchanged(obj, before):
                self.capture(obj)

    def constant(self, obj: torch.Tensor, remade: bool) -> None:
        """The data of a `torch.tensor(...)`: kept, unless the function that made it runs again at each run."""
        if self.known(obj) is None and remade:
            self.register(obj, Value("tensor"))
        elif self.known(obj) is None:
            self.captures.append((self.add_input(obj, "constant"), [Place("constant", lambda: obj)]))

    def outside_ids(self) -> frozenset[int]:
        """The ids of the tensors from before the program, by which two runs can be compared."""
        return frozenset(key for key, value in self.values.items() if value.root.outside)

    def sync_outside(self) -> None:
        """See what changed about the wrappers from outside."""
        for obj in self.outside_wrappers:
            self.sync(obj)

    def outside(self, obj: torch.Tensor) -> None:
        snapshot = self.recorder.snapshot
        snapshot.watch_leaf(obj)
        if is_wrapper_type(type(obj)):
            snapshot.watch_object(obj)
            self.outside_wrappers.append(obj)
        else:
            snapshot.watch_memory(obj)

    def closes_over(self, functions: tuple) -> bool:
        """Whether a Python function holds a tensor that the program computed."""
        held = {key for function in functions for key in Surroundings(function).tensors}
        return any(key in held and not value.root.outside for key, value in self.values.items())
