"""The recorder: listens while a program runs, and writes down events.

    trace() -> watch(recorder): the program runs
                 function()     a torch function the user called      -> Event, open scope
                   dispatch()     an ATen op that reaches torch       -> Event, open scope
                     dispatch()     an op of a wrapper's handler      -> Event
                     constructed()  a wrapper object appears          -> pending
                 apply()        autograd.Function.apply               -> Event, open scope

Objects are tied to values by identity, so every object seen is kept alive until the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import NoneType
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from . import ops, refusals
from .errors import TraceError
from .fake import fails_without_data
from .intercept import (
    FROM_OUTSIDE,
    RANDOM_STATE,
    RECLASSED,
    FakeTensor,
    Modes,
    OpOverload,
    base_of,
    context_of,
    dispatch_depth,
    flatten_tree,
    global_context,
    handles_functions,
    handles_ops,
    hold_compiler,
    hooks_of_saved_tensors,
    is_wrapper_type,
    lacks_protocol,
    no_torch_function,
    with_memory,
)
from .module_paths import ModulePaths
from .node_lines import NodeLines
from .numbers import INSIDE, moved, perturbed, perturbed_text
from .ops import OpInfo, function_symbol, op_info
from .protocol import no_protocol
from .roots import Place
from .seen import Watch
from .snapshot import Snapshot
from .source import Source, building_line, located, nearest_line
from .store import Store
from .symbols import Kind, Symbol
from .traced_number import traced
from .twins import leaf_ancestors, needs_twins
from .values import Event, Value

__all__ = ["Recorder"]

TOP, FUNCTION, ATEN, APPLY = range(4)
_COMPILE = torch.compile
_PRINT = print  # as it was before it was watched
_BY_DATA = (RuntimeError, ValueError, ArithmeticError, LookupError)
"""Errors that an op may raise because of its data."""
CHECKPOINT = Symbol("torch.utils.checkpoint.checkpoint", Kind.FUNCTION, checkpoint)


class _Bookkeeping:
    """Context manager: torch runs unrecorded, for the recorder's own questions and for printing."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.before: list[tuple[bool, Any]] = []

    def __enter__(self) -> None:
        guard = no_torch_function()
        guard.__enter__()
        self.before.append((self.recorder.paused, guard))
        self.recorder.paused = True

    def __exit__(self, *error: object) -> None:
        self.recorder.paused, guard = self.before.pop()
        guard.__exit__(*error)


class Recorder:
    """Answers to the watched events of one program run; see `intercept.Listener`.

    Args:
        snapshot: Remembers what the program overwrites.
        modules: Knows which module runs.
        perturb: "numbers" to change what the program takes out of tensors on the way, "up" or "down" to change
            what handlers take out, and texts of tensors.
        backward: Whether ops that a backward sends are put under the line of their forward op.
        watch: Writes down the values that tensors have, or None.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        modules: ModulePaths,
        backward: bool = False,
        perturb: str = "",
        watch: Watch | None = None,
    ) -> None:
        self.watch = watch
        self.top: list[Event] = []
        self.scopes: list[list[Event]] = [self.top]
        self.kinds = [TOP]
        self.open_events: list[Event] = []
        self.snapshot = snapshot
        self.store = Store(self)
        self.nodes = NodeLines() if backward else None
        self.modes = Modes(self)
        self.base_modes = dispatch_depth() + 1
        self.passing: Any = None
        self.generators: dict[int, Any] = {}  # those that were there before the program
        self.states: dict[int, torch.Tensor] = {}  # the states that ops have left them in
        self.handed_out = 0  # how many numbers from data the program has been given
        self.perturb = perturb
        self.out_of_sight: list[Source | None] = []  # where data left torch inside a handler, or as a text
        self.data_dependent = 0  # how many ops so far had a result whose shape depends on data
        self.backward_ran = False
        self.gradients: dict[int, Value] = {}  # tensors from outside of whose gradients the program has asked
        self.properties: set[Value] = set()  # what was read from properties
        self.default_dtype = torch.get_default_dtype()
        self.saved_hooks = hooks_of_saved_tensors()
        self.tick: Callable[[], object] = bool  # called for each operation of the top level
        self.paused = False
        self.just_opened = False  # whether a function was opened and nothing has run in it yet
        self.bookkeeping = _Bookkeeping(self)
        self.places: Any = None  # where the program keeps tensors: a Surroundings
        self.modules = modules
        self.failures: list[tuple[BaseException, Event]] = []
        self.refusal: TraceError | None = None

    # ------------------------------------------------------------------------------- listening

    def function(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """A torch function or method."""
        kind = self.kinds[-1]
        if self.paused:
            return func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if func is _PRINT:
            with self.bookkeeping:  # another run, to see what depends on data, prints nothing
                return None if self.perturb else func(*args, **kwargs)
        if func is _COMPILE:
            with self.bookkeeping:
                out = func(*args, **kwargs)
                hold_compiler()
                return out
        if name in RANDOM_STATE:
            event = Event(Symbol(f"torch.{name}", Kind.FUNCTION, func), None, None, nearest_line())
            event.writes = True
            return self.run(event, FUNCTION, func, args, kwargs)
        if name in FROM_OUTSIDE:
            if id(args[0]) not in self.places.seen and self.at_function_level:
                raise self.refuse(refusals.from_outside(name, nearest_line()))
            if not self.at_function_level:
                self.emit(self.escape(f"torch.{name}"))
            event = Event(Symbol(f"torch.{name}", Kind.FUNCTION, func), None, None, nearest_line())
            return self.run(event, FUNCTION, func, args, kwargs)
        if name in RECLASSED:
            if any(isinstance(a, type) and handles_ops(a) for a in args):
                return func(*args, **kwargs)  # it is built in several steps: not ready to be looked at
            return self.run(Event(function_symbol(func), None, None, nearest_line()), FUNCTION, func, args, kwargs)
        if kind in (FUNCTION, ATEN):
            if name in ops.LEAVES_TORCH:
                return self.read_inside(name, func, args, kwargs)
            return func(*args, **kwargs)
        if name == "__get__" and func.__self__.__name__ not in ops.TENSOR_PROPERTIES:
            return self.answer(func, args, kwargs)
        source, printing = located(_run_program_code)
        if printing or name in ops.PRINTING:
            with self.bookkeeping:
                return self.text(func(*args, **kwargs))
        if (refusal := refusals.of_function(func, name, args, source, self.store)) is not None:
            raise self.refuse(refusal)
        event = Event(function_symbol(func), None, None, source)
        call = func
        if name in ops.BACKWARD:
            self.backward_ran = True
            call = self.through_outside(func)
        if name == "__set__" and func.__self__.__name__ == "data":
            with self.bookkeeping:
                self.store.value(args[0])
                self.snapshot.remember(args[0])
        if name in ops.GRAPH_CHANGES and args[0].requires_grad:
            self.keep_graph(args[0])
        if self.store.pending:
            with self.bookkeeping:
                self.store.settle_holders(None)
        gradient = name == "__get__" and func.__self__.__name__ == "grad"
        if gradient and not self.backward_ran:
            with self.bookkeeping:
                self.store.find_gradient(args[0])
        out = self.run(event, FUNCTION, call, args, kwargs)
        if gradient:
            self.note_gradient(event, args[0], out)
        if name in ops.HOOKS:
            self.watch_hook(out)
        return out

    def watch_hook(self, handle: Any) -> None:
        """A hook of a tensor: it is taken away after the recording, and the program must not do so itself."""
        self.snapshot.watch_handle(handle)
        if not self.applies:  # there the code runs again
            handle.remove = self.refuse_removal

    def text(self, out: Any) -> Any:
        """A text of a tensor; another one where the recorder looks for what depends on it."""
        if not isinstance(out, str):
            return out
        self.out_of_sight.append(nearest_line())
        return perturbed_text(out) if self.perturb in INSIDE else out

    def note_gradient(self, event: Event, tensor: torch.Tensor, out: Any) -> None:
        """A gradient that is there or not, as the program may ask: so it must be at each run."""
        value = self.store.known(tensor)
        if value is not None and value.root.outside and not self.backward_ran:
            self.gradients[id(value.root)] = value.root  # known before the run, so the guard looks
        elif out is None:
            event.out = self.store.numbers.new(None, "grad", guarded=True)
            self.emit(event)

    def answer(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """A question about a tensor; where its kind does not tell the answer, each run must give the same."""
        out = func(*args, **kwargs)
        if func.__self__.__name__ in ops.QUESTIONS:
            with self.bookkeeping:
                event = Event(function_symbol(func), self.store.map_in(args, []), {}, nearest_line())
                event.context = global_context(self.base_modes)
                event.out = self.store.numbers.new(out, func.__self__.__name__, guarded=True)
            self.emit(event)
        return out

    def read_inside(self, name: str, func: Any, args: tuple, kwargs: dict) -> Any:
        """Data taken out of torch inside a handler: a list is compared at each run, the rest is noted."""
        out = func(*args, **kwargs)
        event = self.escape(ops.LEAVES_TORCH[name])
        if name == "tolist":
            with self.bookkeeping:
                event = Event(function_symbol(func), self.store.map_in(args, []), {}, event.source)
            event.out = self.store.numbers.new(out, "list", guarded=True)
        self.emit(event)
        self.data_dependent += 1
        return out

    def escape(self, how: str) -> Event:
        """The event that keeps a handler from being lowered."""
        event = Event(ops.ESCAPE, (how,), {}, nearest_line())
        event.writes = True
        return event

    def apply(self, cls: type, call: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """`cls.apply` of an autograd.Function."""
        if self.paused:
            return call(*args, **kwargs)
        event = Event(Symbol(f"{cls.__name__}.apply", Kind.APPLY, cls), None, None, located(_run_program_code)[0])
        with self.bookkeeping:
            self.store.sync_outside()
        return self.run(event, APPLY, call, args, kwargs)

    def checkpoint(self, call: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """`checkpoint(function, *args)`: the function runs again in the backward, so it is called as it is."""
        if self.paused or not self.at_function_level:
            return call(*args, **kwargs)
        source = located(_run_program_code)[0]
        if self.store.closes_over(args[:1]):
            raise self.refuse(refusals.checkpoint_closure(source))
        return self.run(Event(CHECKPOINT, None, None, source), APPLY, call, args, kwargs)

    def dispatch(self, func: OpOverload, types: Any, args: tuple, kwargs: dict) -> Any:
        """An ATen op."""
        if self.passing is func:
            self.passing = None
            return NotImplemented
        if self.paused:
            return func(*args, **kwargs)
        wrapped = False
        for cls in types:
            if is_wrapper_type(cls):
                wrapped = True
            elif lacks_protocol(cls):
                raise self.refuse(no_protocol(cls, nearest_line()))
        info = op_info(func)
        kind = self.kinds[-1]
        if wrapped and func.overloadpacket is ops.aten.set_:
            raise self.refuse(refusals.moved_wrapper(nearest_line()))
        if info.takes_storage and kind in (TOP, APPLY) and any(isinstance(a, torch.UntypedStorage) for a in args):
            raise self.refuse(refusals.raw_storage(nearest_line()))
        # Directly inside a function the nearest line is the function's own, unless a class handles functions.
        known = kind == FUNCTION and not self.open_events[-1].handled
        event = Event(info.symbol, None, None, self.open_events[-1].source if known else nearest_line())
        if kind == TOP:  # sent by no function that was seen, as under DisableTorchFunction
            event.context = context_of(torch.is_grad_enabled(), torch.is_inference_mode_enabled())
            self.check_beside_functions(event, args)
        if self.nodes is not None:
            self.nodes.credit(event)
        if func is ops.LIFT:
            self.store.constant(args[0], remade=kind == FUNCTION and not self.open_events[-1].unrolls)
        event.writes = info.mutable or info.random or info.check
        if wrapped:
            return self.run(event, ATEN, self.send_to_class, args, kwargs, func)
        return self.run_plain(event, info, args, kwargs)

    def check_beside_functions(self, event: Event, args: tuple) -> None:
        """Refuse ops of a mode whose own op no function has sent: autograd follows that op, and not these."""
        if event.source is None or event.source.function != "__torch_dispatch__" or not torch.is_grad_enabled():
            return
        if any(isinstance(a, torch.Tensor) and a.requires_grad for a in args):
            raise self.refuse(refusals.mode_beside_functions(event.source))

    def run_plain(self, event: Event, info: OpInfo, args: tuple, kwargs: dict) -> Any:
        """Run an op on plain tensors: nothing inside it reaches the modes, so it needs no scope."""
        self.just_opened = False
        with no_torch_function():
            self.open_plain(event, info, args, kwargs)
        try:
            given = with_memory(args, kwargs) if self.nodes is not None or self.backward_ran else (args, kwargs)
            out = event.symbol.fn(*given[0], **given[1])
        except BaseException as error:
            event.doubtful = isinstance(error, _BY_DATA) and not self.fails_without_data(event, args, kwargs)
            self.failures.append((error, event))
            raise
        if info.reads and ATEN in self.kinds and isinstance(out, (bool, float)):
            self.out_of_sight.append(event.source)
            out = moved(out, self.perturb) if self.perturb in INSIDE else out
        with no_torch_function():
            event.out = self.results(event, info, args, out)
            if self.watch is not None:
                self.watch.end(event)
            if info.random:
                self.note_generators()
        event.checked = info.dynamic or info.reads
        if event.writes or self.store.has_value(event.out):
            self.emit(event)
        return out

    def fails_without_data(self, event: Event, args: tuple, kwargs: dict) -> bool:
        """Whether an op fails for the kind of its arguments, whatever their data are."""
        with self.bookkeeping:
            return fails_without_data(event.symbol.fn, args, kwargs)

    def open_plain(self, event: Event, info: OpInfo, args: tuple, kwargs: dict) -> None:
        """Write down the arguments of an op on plain tensors."""
        map_in = self.store.map_in
        event.args = tuple([map_in(item, []) for item in args])
        event.kwargs = map_in(kwargs, []) if kwargs else kwargs
        if self.watch is not None:
            self.watch.begin(event)
        if info.mutable:
            self.before_write(args, kwargs, info)

    def before_write(self, args: tuple, kwargs: dict, info: OpInfo) -> None:
        """See to what an op is about to write: its data are remembered, wrappers that hold it are completed."""
        written = ops.written(args, kwargs, info)
        for tensor in written:
            if self.snapshot.is_lost(tensor):
                raise self.refuse(refusals.sparse_write(tensor, nearest_line()))
        if self.snapshot.fragile and self.kinds[-1] != ATEN and (self.applies or torch.is_grad_enabled()):
            tensors = flatten_tree((args, kwargs))[0]
            if any(isinstance(t, torch.Tensor) and t.requires_grad for t in tensors):
                for tensor in written:
                    self.keep_graph(tensor)
        self.snapshot.before_write(written)
        if self.store.pending:
            with self.bookkeeping:
                self.store.settle_holders({id(tensor) for tensor in written})

    def send_to_class(self, func: OpOverload, args: tuple, kwargs: dict) -> Any:
        self.passing = func
        try:
            out = self.modes.call_inside(func, args, kwargs)
        finally:
            self.passing = None
        if out is None and op_info(func).returns and not op_info(func).mutable:
            raise self.refuse(refusals.returned_nothing(func, args, kwargs, nearest_line()))
        return out

    def constructed(self, obj: torch.Tensor, args: tuple, kwargs: dict) -> None:
        """`_make_wrapper_subclass` has made an object; its inner tensors are not set yet."""
        if self.paused:
            return
        with no_torch_function():
            self.paused = True
            self.store.pend(obj, self.scopes[-1], args, kwargs, building_line())
            self.paused = False

    def through_outside(self, func: Any) -> Any:
        """A function that runs a backward, made such that it leaves the graphs and gradients outside as they are.

        It may reach wrappers without taking them: what changed about any is written down first.
        """
        with self.bookkeeping:
            for key in list(self.store.states):
                if (obj := self.store.values[key].ref()) is not None:
                    self.store.sync(obj)
            known = [value.ref() for value in self.store.outside_values]
            outside = [obj for obj in known if obj is not None and not obj.is_leaf]
            for leaf in leaf_ancestors(outside):
                self.snapshot.watch_leaf(leaf)
        return (lambda *args, **kwargs: func(*args, **{**kwargs, "retain_graph": True})) if outside else func

    def keep_graph(self, tensor: torch.Tensor) -> None:
        """Do not let the program change the graph behind a tensor from outside."""
        for fragile in self.snapshot.fragile:
            if base_of(fragile) is base_of(tensor):
                raise self.refuse(needs_twins(fragile, nearest_line()))

    def forget(self) -> None:
        """Let go of every object seen: the recorder may live on in the numbers it handed out."""
        self.store.forget()
        self.failures.clear()
        self.top = []
        self.scopes = [self.top]
        del self.modes

    # --------------------------------------------------------------------------------- running

    def run(self, event: Event, kind: int, call: Any, args: tuple, kwargs: dict, op: Any = None) -> Any:
        """Run an operation inside a scope of its own and write the event down."""
        wrappers: list[Any] = []
        with no_torch_function():
            self.paused = True
            try:
                self.open(event, kind, args, kwargs, op, wrappers)
            finally:
                self.paused = False
        self.just_opened = kind == FUNCTION
        event.subs = []
        self.scopes.append(event.subs)
        self.kinds.append(kind)
        self.open_events.append(event)
        before = self.data_dependent
        try:
            out = call(*args, **kwargs) if op is None else call(op, args, kwargs)
            with no_torch_function():
                self.paused = True
                self.store.settle(event.subs, wrappers, kind == FUNCTION)
                event.out = self.results(event, op_info(op) if op else None, args, out)
                if self.watch is not None:
                    self.watch.end(event)
            event.checked = self.data_dependent > before
        except BaseException as error:
            first = not self.failures or self.failures[-1][0] is not error
            if first and kind == FUNCTION and isinstance(error, _BY_DATA):
                event.doubtful = not self.fails_without_data(event, args, kwargs)
            self.failures.append((error, event))
            raise
        finally:
            self.paused = self.just_opened = False
            self.scopes.pop()
            self.kinds.pop()
            self.open_events.pop()
        return self.close(event, kind, out)

    def open(self, event: Event, kind: int, args: tuple, kwargs: dict, op: Any, wrappers: list[Any]) -> None:
        """Write down the arguments and the global state; collect the wrapper objects among the arguments."""
        event.args = self.store.map_in(args, wrappers)
        event.kwargs = self.store.map_in(kwargs, wrappers) if kwargs else kwargs
        if self.watch is not None:
            self.watch.begin(event)
        if kind != ATEN:
            event.context = global_context(self.base_modes)
            event.module = self.modules.now
            if torch.get_default_dtype() is not self.default_dtype:
                raise self.refuse(refusals.changed_default(nearest_line()))
            if self.kinds[-1] == TOP and hooks_of_saved_tensors() != self.saved_hooks:
                raise self.refuse(refusals.saved_hooks(event.source))
            event.handled = any(handles_functions(type(obj)) for obj in wrappers)
            event.unrolls = bool(wrappers or event.context.modes)
        elif op_info(op).mutable:
            self.before_write(args, kwargs, op_info(op))

    def results(self, event: Event, info: OpInfo | None, args: tuple, out: Any) -> Any:
        """The result of an operation, with values in place of tensors and of numbers from data."""
        hint = event.symbol.name
        if info is not None:
            if out is None and info.writes and info.returns:
                out = args[0]  # what torch hands back when a handler of an in-place op returns None
            if info.dynamic or info.reads:
                self.data_dependent += 1
                if info.reads and not isinstance(out, torch.Tensor):
                    return self.store.numbers.read_by(event, out)
        if isinstance(out, torch.Tensor):
            last = event.subs[-1].out if len(event.subs) == 1 else None
            return self.store.result(out, hint, info is not None or last is self.store.values.get(id(out), self))
        return self.store.map_out(out, hint)

    def close(self, event: Event, kind: int, out: Any) -> Any:
        """Keep the event if it matters, and give numbers taken from tensors a memory of it."""
        taken = False
        if kind == FUNCTION and event.checked and out is not None and not self.store.has_value(event.out):
            taken = self.store.numbers.take(event, out)
        if self.nodes is not None:
            self.nodes.remember(event, out)
        if type(event.out) is Value and getattr(event.symbol.fn, "__name__", "") == "__get__":
            if event.out.root in self.properties:
                return out  # `x.grad` read a second time is the same object
            self.properties.add(event.out.root)
        out_kind = type(event.out)
        if (
            event.writes
            or out_kind is Value
            or kind == APPLY
            or (out_kind is not NoneType and self.store.has_value(event.out))
            or (kind == FUNCTION and getattr(event.symbol.fn, "__name__", "") in ops.EFFECTS)
            or (self.nodes is not None and kind == FUNCTION and event.symbol.fn is torch.autograd.grad)  # None arrives
        ):
            self.emit(event)
        return self.hand_out(out, event.out, getattr(event.symbol.fn, "__name__", "")) if taken else out

    def hand_out(self, number: Any, value: Value, name: str) -> Any:
        """A number with a memory; a changed one where the recorder looks for what depends on it."""
        self.handed_out += 1
        number = perturbed(number) if self.perturb == "numbers" else number
        return number if name == "__float__" else traced(self, number, value)

    @property
    def at_function_level(self) -> bool:
        """Whether the open scope is the program's own or that of an autograd.Function."""
        return self.kinds[-1] in (TOP, APPLY)

    @property
    def applies(self) -> bool:
        """Whether an autograd.Function runs."""
        return APPLY in self.kinds

    def check_generator(self, generator: torch.Generator) -> None:
        """Refuse a generator whose state something else than a recorded op has set."""
        if (known := self.states.get(id(generator))) is not None and not torch.equal(known, generator.get_state()):
            raise self.refuse(refusals.set_generator(nearest_line()))

    def note_generators(self) -> None:
        """Remember the states of the generators that an op may have drawn from."""
        for key in self.states:
            self.states[key] = self.generators[key].get_state()

    @property
    def shown(self) -> list[Event]:
        """The events whose constants a trace shows; of a backward that is recorded also those inside it."""
        return [*self.top, *(self.top[-1].subs if self.nodes is not None and self.top else ())]

    def latest(self) -> Event | None:
        """The top-level event that goes on, or the last one."""
        if self.open_events:
            return self.open_events[0]
        return self.top[-1] if self.top else None

    def emit(self, event: Event) -> None:
        """Write an event into the open scope."""
        self.scopes[-1].append(event)
        if not self.open_events:
            self.tick()
        elif event.writes:
            self.open_events[-1].writes = True

    def number_op(self, name: str, args: tuple, value: Any) -> Any:
        """Arithmetic on a number that was taken out of a tensor."""
        with self.bookkeeping:
            number = self.store.numbers.new(value, name.strip("_"), guarded=False)
            event = Event(
                Symbol(f"operator.{name}", Kind.PRIM), self.store.map_in(args, []), {}, located(_run_program_code)[0]
            )
        event.out = number
        event.context = global_context(self.base_modes)
        self.emit(event)
        return traced(self, value, number)

    # -------------------------------------------------------------------------------- refusing

    def refuse(self, error: TraceError) -> TraceError:
        """Remember a refusal, so that a program which catches it is refused all the same."""
        self.refusal = self.refusal or error
        return error

    def refuse_removal(self) -> None:
        """Stands in for the `remove` of a handle."""
        raise self.refuse(refusals.removed_hook(located(_run_program_code)[0]))

    def find_places(self, obj: torch.Tensor, name: str) -> list[Any]:
        """Where a tensor from outside is kept; if nowhere that is known, the functions that run are looked through.

        A backward finds what autograd keeps: that alone may be held without a place.
        """
        if id(obj) not in self.places.tensors:
            self.places.add_frame(sys._getframe(1), _run_program_code)
        if places := self.places.find(obj):
            return places
        if (leaf := self.snapshot.leaf_with(obj)) is not None:
            return [Place("gradient", lambda: leaf.grad)]
        shape_only = isinstance(obj, FakeTensor) or obj.is_meta  # a class may compute shapes with such
        if self.nodes is None and not shape_only:
            raise self.refuse(refusals.unknown_origin(obj, nearest_line()))
        return [Place(name, lambda: obj)]

    def branch_on_number(self) -> TraceError:
        """Refuse a comparison or truth test of a number that was taken out of a tensor."""
        return self.refuse(refusals.branch_on_number(located(_run_program_code)[0]))


def run_program(fn: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
    """Call the program. Frames above this one are the user's."""
    return fn(*args, **kwargs)


_run_program_code = run_program.__code__
