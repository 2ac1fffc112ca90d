"""trace: run a program once and record it."""

from __future__ import annotations

import enum
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch

from . import __version__, ops
from .attached import attribute_guards
from .called import Tracer, expect_program
from .collecting import no_collection
from .errors import TraceError
from .facts import answer
from .freeze import Freezer
from .global_state import GlobalState, state_changed
from .guards import Argument, Guard, argument_paths, identity, parts, sharing
from .handler_state import HandlerState, shown
from .intercept import (
    FakeTensor,
    current_listener,
    flatten_tree,
    global_context,
    hooks_of_all_modules,
    in_functorch,
    is_wrapper_type,
    no_torch_function,
    unflatten_tree,
    watch,
)
from .module_paths import ModulePaths
from .naming import TEXT_NAMES, Names, identifier
from .numbers import INSIDE, constants
from .owners import MISSING, Change, Owner, map_changed, module_hooks
from .program_errors import (
    as_trace_error,
    changed_class,
    changed_owner,
    depends_on_handlers,
    left_changed,
    not_looked_at,
    unknown_result,
    went_on,
    written_out_of_sight,
)
from .progress import Stage
from .protocol import expect_protocol
from .recorder import Recorder, run_program
from .roots import is_simple
from .seen import Watch
from .snapshot import Snapshot
from .surroundings import Surroundings
from .tensor_facts import asked, gradient_kind
from .trace import Attribute, Capture, Constant, Tie, Trace, TrainingFlag
from .traced_number import TracedNumber
from .twins import NeedsTwins, with_twins
from .values import Event, Value

__all__ = ["record", "trace"]


def trace(
    fn: Callable[..., Any], *given: Any, fake: bool = False, values: bool = False, **named: Any
) -> Callable[..., Trace]:
    """Record one run of a program as a trace.

    The program runs for real: its wrapper objects are real instances of the user's classes. What it
    writes (arguments, captured tensors, gradients, random state) is given back afterwards.

    Args:
        fn: A function or an nn.Module.
        *given: Nothing: the program's arguments belong into the second call.
        fake: Run on fake tensors: shapes only, no memory, and devices that are not there.
        values: Keep, for the explorer, what each tensor's values were: least, greatest, mean, how
            many are NaN and infinite, a histogram, and small tensors in full.
        **named: Nothing, likewise.

    Returns:
        A function that takes the program's arguments, any pytree, and returns the Trace.

    Raises:
        TraceError: The program cannot be traced, or fails; `error.trace` is the trace up to there.

    Example:
        >>> import torch, subtrace_kit
        >>> t = subtrace_kit.trace(lambda x: x.sin() + 1)(torch.zeros(2))
        >>> t(torch.zeros(2))
        tensor([1., 1.])
    """
    expect_program(fn, trace, given, named)
    if fake and values:
        raise TraceError("fake tensors have no values to keep", way_out="trace(fn, values=True), without fake=True")

    def start(*args: Any, **kwargs: Any) -> Trace:
        if current_listener() is not None:
            raise TraceError(
                "a trace inside a program that is being traced",
                cause="the traced program calls subtrace_kit.trace itself, or a library that it calls does",
                way_out="trace the inner program first, and call its trace in the outer one",
            )
        if in_functorch():
            raise TraceError(
                "a trace inside a transform of torch.func (vmap, grad, jvp, ...)",
                cause="tensors that a transform hands on are not those of the caller, and have no memory",
                way_out="trace a program that calls the transform, if it hands on no wrapper; or trace outside of it",
            )
        if fake:
            from .fake import on_fake_tensors

            with on_fake_tensors((args, kwargs)) as (args, kwargs):
                return record(fn, args, kwargs)
        return record(fn, args, kwargs, values=values)

    return Tracer(start, fn)


def record(
    fn: Any, args: tuple, kwargs: dict, *, places: Any = None, backward: bool = False, values: bool = False
) -> Trace:
    """Run a program once under a recorder.

    Args:
        fn: The program.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        places: Where to look for captured tensors, if not in `fn`.
        backward: Whether ops that autograd's backward sends go under the line of their forward.
        values: Whether to keep what the values of tensors were.
    """
    places = fn if places is None else places
    with no_collection():
        try:
            return recording(fn, args, kwargs, places, backward, values=values).run()
        except NeedsTwins as error:
            return recording(fn, *with_twins(args, kwargs, error), places, backward, twins=True, values=values).run()


def recording(*args: Any, **options: Any) -> _Recording:
    """A recording that is about to begin; no class is asked through `__torch_function__` meanwhile."""
    with no_torch_function():
        return _Recording(*args, **options)


class _Recording:
    """One run of one program."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple,
        kwargs: dict,
        places: Any,
        backward: bool,
        perturb: str = "",
        twins: bool = False,
        values: bool = False,
    ) -> None:
        self.again = lambda perturb: recording(fn, args, kwargs, places, backward, perturb, twins)
        self.twins = twins  # whether arguments are stand-ins for those of the caller
        self.fn, self.args, self.kwargs = fn, args, kwargs
        self.positional = _parameter_names(fn, args)
        expect_free_names(kwargs)
        self.leaves, self.spec = flatten_tree((args, kwargs))
        for leaf in self.leaves:
            expect_protocol(leaf)
        self.paths = argument_paths(args, kwargs, self.positional)
        self.context = global_context(1 << 30)
        self.kind = (identity(self.leaves), sharing(self.leaves))
        self.snapshot = Snapshot()
        self.state = GlobalState()
        self.recorder = Recorder(self.snapshot, ModulePaths(fn), backward, perturb, Watch() if values else None)
        self.places = self.recorder.places = Surroundings(places, zip(self.paths, self.leaves, strict=True))
        self.recorder.store.numbers.exact = self.places.looks_at_classes
        given = [leaf for leaf in self.leaves if isinstance(leaf, torch.Generator)]
        self.recorder.generators = {id(g): g for g in (*given, *self.places.generators)}
        for key, generator in self.recorder.generators.items():
            if generator is not torch.default_generator:
                self.snapshot.watch_generator(generator)
                self.recorder.states[key] = generator.get_state()
        self.flags = tuple(training_flag(place, module) for place, module in self.places.modules)
        self.constants = tuple(Constant(place.path, value, place) for place, value in self.places.constants)
        self.ties = tuple(self.find_ties())
        self.remember()
        names = self.places.user_names, self.handlers.found.user_names, self.handlers.found.asking
        self.attributes = tuple(attribute_guards(self.leaves, *names))
        self.output: Any = None
        self.owners: list[Owner] = []
        self.tied: dict[int, float] = {}  # floats among the results that were taken for numbers from data

    def find_ties(self) -> Iterator[Tie]:
        """The tensors among the arguments, at any depth, that the program also finds elsewhere."""
        for index, leaf in enumerate(self.leaves):
            for attributes, tensor in parts(leaf) if isinstance(leaf, torch.Tensor) else ():
                for place in self.places.tensors.get(id(tensor), ()):
                    yield Tie(index, attributes, place.path, place)

    def remember(self) -> None:
        """Remember what the program may change besides tensor data: Python objects it was given or finds."""
        owners = self.snapshot.owners
        for name, argument in zip((*self.positional, *self.kwargs), (*self.args, *self.kwargs.values()), strict=True):
            owners.watch_argument(name, argument)
        for path, leaf in zip(self.paths, self.leaves, strict=True):
            if isinstance(leaf, torch.Tensor) and not is_wrapper_type(type(leaf)):
                owners.watch(Owner(path, None, path), leaf)
        for place, obj in self.places.owners:
            owners.watch(Owner(place.path, place), obj)
        for place, *binding in self.places.bindings:
            owners.watch_binding(place.path, *binding)
        for wrapper in self.places.wrappers:
            self.snapshot.watch_object(wrapper)
        self.handlers = HandlerState(self.places)

    def run(self) -> Trace:
        recorder = self.recorder
        values = self.take_inputs()
        try:
            self.run_watched()
            if recorder.out_of_sight:
                self.snapshot.restore()
                self.handlers.owners.restore()
                self.refuse_what_handlers_decide()
            if recorder.handed_out:
                self.snapshot.restore()
                self.guard_what_numbers_reach()
            return self.finish(values)
        except Exception as error:
            raise self.explain(error, values) from error
        finally:
            self.restore()
            if self.snapshot.left:
                raise left_changed(self.snapshot.left[0], self.fn)

    def restore(self) -> None:
        """Give back all that the program has changed, and let go of its objects."""
        self.snapshot.restore()
        self.handlers.owners.restore()
        self.state.restore()
        self.recorder.forget()

    def take_inputs(self) -> list[Any]:
        """The leaves of the arguments with values in place of tensors."""
        take = self.take_input
        leaves = zip(self.leaves, self.paths, strict=True)
        with no_torch_function():
            values = [take(leaf, path) if isinstance(leaf, torch.Tensor) else leaf for leaf, path in leaves]
        if self.twins:
            self.snapshot.fragile.clear()
        return values

    def take_input(self, leaf: torch.Tensor, path: str) -> Any:
        """A value for a tensor among the arguments; its class may be asked for its facts."""
        try:
            return self.recorder.store.add_input(leaf, identifier(path))
        except TraceError:
            raise
        except Exception as error:
            raise not_looked_at(leaf, path, error) from error

    def run_watched(self) -> None:
        """Run the program with everything watched."""
        recorder = self.recorder
        with Stage("recording") as stage, watch(recorder, recorder.modes), recorder.modules.follow(recorder):
            recorder.tick = stage.tick
            out = run_program(self.fn, self.args, self.kwargs)
            with recorder.bookkeeping:
                self.output = self.take_output(out)
        if recorder.refusal is not None:
            raise recorder.refusal
        for error, event in recorder.failures:
            if event.doubtful:
                raise went_on(error, event)
        if (change := self.handlers.read_by_program(self.handlers.writes())) is not None:
            raise changed_owner(change, self.fn)
        if (written := self.snapshot.written_unseen()) is not None:
            raise written_out_of_sight(written, self.fn)
        for key in recorder.states:
            recorder.check_generator(recorder.generators[key])
        for told in self.state.changed():
            raise state_changed(told)

    def guard_what_numbers_reach(self) -> None:
        """Guard the numbers from data if the program computes with them where no op shows it.

        The program runs once more with other numbers: where a Python constant of the trace then
        differs (`math.sqrt(x.item())`), the trace fits only the numbers it was recorded with.
        """
        if not self.does_the_same(self.again("numbers"), failed=False):
            self.recorder.store.numbers.guard_all()

    def refuse_what_handlers_decide(self) -> None:
        """Refuse a program that depends on data which left torch in a handler, or as a text.

        The program runs once more; what handlers read, and texts of tensors, are others then. A trace calls
        the handlers again at each run, but not the program, which would go on with what it was told first.
        """
        for way in INSIDE:  # across whatever bound a handler compares with
            if not self.does_the_same(self.again(way), failed=True):
                raise depends_on_handlers(self.recorder.out_of_sight[0], self.fn)

    def does_the_same(self, again: _Recording, failed: bool) -> bool:
        """Whether another run does the same operations with the same Python constants; `failed` if it fails."""
        try:
            again.take_inputs()
            again.run_watched()
            for index, leaf in self.tied.items():
                if index not in again.tied and again.output[index] == leaf:
                    self.output[index] = leaf  # a constant that was equal by chance
            known = self.recorder.store.outside_ids() & again.recorder.store.outside_ids()
            one, other = (constants(r.recorder.shown, known, r.output, repr(r.spec_out)) for r in (self, again))
            return one == other
        except Exception:
            return failed
        finally:
            again.restore()

    def take_output(self, out: Any) -> Any:
        """The result with values in place of tensors; every wrapper in it is completed."""
        leaves, spec = flatten_tree(out, is_leaf=lambda item: isinstance(item, torch.Size))
        store = self.recorder.store
        taken = []
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                taken.append(store.value(leaf))
            elif isinstance(leaf, TracedNumber):
                taken.append(leaf.value)
            else:
                number = store.numbers.behind(leaf, self.recorder.perturb == "numbers") if type(leaf) is float else None
                taken.append(leaf if number is None else number)
                self.tied |= {} if number is None else {len(taken) - 1: leaf}
        self.write_owners()
        store.settle(self.recorder.top, [], True)
        store.capture_changed(self.places.wrappers)
        for obj in [*leaves, *store.outside_wrappers]:
            if id(obj) in store.states:
                store.sync(obj)
        for obj in leaves:
            if isinstance(obj, torch.Tensor) and not is_wrapper_type(type(obj)):
                self.write_attributes(obj)
        for obj, cls in self.snapshot.reclassed():
            raise changed_class(obj, cls, self.fn)
        self.spec_out = spec
        for leaf in taken:
            if not isinstance(leaf, _PLAIN_RESULTS) and not any(leaf is given for given in self.leaves):
                raise unknown_result(leaf, self.fn)
        return taken

    def write_owners(self) -> None:
        """Write down what the program put into objects, lists and dicts that were there before."""
        for change in self.snapshot.owners.changes():
            value = change.value if change.value is MISSING else map_changed(change.value, self.recorder.store.value)
            if value is MISSING and change.value is not MISSING:
                raise changed_owner(change, self.fn)
            if change.owner.fetch is not None and change.owner not in self.owners:
                self.owners.append(change.owner)
            event = Event(ops.STORE, (change.owner, change.how, change.key, value), {}, None)
            event.writes = True
            self.recorder.emit(event)

    def write_attributes(self, obj: torch.Tensor) -> None:
        """Write down the Python attributes that the program has given to a plain tensor of its own."""
        value = self.recorder.store.value(obj)
        own = value.root.outside or isinstance(obj, FakeTensor)  # there torch keeps what it needs itself
        for name, item in () if own else vars(obj).items():
            mapped = item if is_simple(item) else map_changed(item, self.recorder.store.value)
            if mapped is MISSING:
                raise changed_owner(Change(Owner("a result", None), "attribute", name, item), self.fn)
            self.recorder.store.write_attribute(ops.SETATTR, (value, name, mapped))

    def finish(self, values: list[Any], failure: str = "") -> Trace:
        freezer = Freezer()
        arguments = [self.argument(freezer, p, v) for p, v in zip(self.paths, values, strict=True)]
        freezer.names.reserve((*self.positional, *self.kwargs))
        captures = self.captures(freezer)
        for owner in self.owners:
            owner.name = freezer.names.new(identifier(owner.path or _program_name(self.fn)))
        output = [] if failure else self.output
        bound = freezer.freeze(list(self.recorder.top), output)
        leaves = [freezer.proxy(leaf) if isinstance(leaf, Value) else leaf for leaf in output]
        writes = self.handlers.writes()
        guard = Guard(self.positional, tuple(self.kwargs), self.spec, tuple(arguments), *self.kind, self.context)
        return Trace(
            _program_name(self.fn),
            guard,
            bound,
            None if failure else unflatten_tree(leaves, self.spec_out),
            (f"recorded by subtrace_kit {__version__} from {_program_name(self.fn)}",),
            captures,
            context=self.context,
            failure=failure,
            flags=self.flags,
            constants=(
                *self.constants,
                *self.facts_of_captures(),
                *self.handlers.constants(writes),
                *self.hooks_of_all(),
            ),
            handler_writes=tuple(dict.fromkeys(shown(c) for c in writes if not self.handlers.is_log(c))),
            handler_logs=tuple(dict.fromkeys(shown(c) for c in writes if self.handlers.is_log(c))),
            owners=tuple(self.owners),
            ties=self.ties,
            attributes=(*self.attributes, *self.gradients_of_arguments(values)),
            program=self.fn,
            seen=self.recorder.watch.seen() if self.recorder.watch else (),
        )

    def more_constants(self, writes: tuple[Change, ...]) -> Iterator[Constant]:
        """What the trace depends on, as far as only the run has shown."""
        yield from self.facts_of_captures()
        yield from self.handlers.constants(writes)
        yield from self.hooks_of_all()

    def hooks_of_all(self) -> Iterator[Constant]:
        """The hooks of all modules, where only modules have run that the program makes."""
        if self.recorder.modules.called and not self.places.modules:
            yield Constant("hooks of all modules", hooks_of_all_modules(), hooks_of_all_modules)

    def facts_of_captures(self) -> Iterator[Constant]:
        """What the program asks of captured tensors: their gradients are there or not, as it found them."""
        names = frozenset(self.places.user_names)
        for value, (place, *_) in self.recorder.store.captures:
            tensor = value.root.ref()
            for told, ask in asked(tensor, names) if tensor is not None else ():
                yield Constant(f"{told} of {place.path}", ask(tensor), functools.partial(answer, ask, place))
            if id(value.root) in self.recorder.gradients:
                recorded = self.snapshot.gradient_before(tensor)
                yield Constant(f"{place.path}.grad", recorded, functools.partial(answer, gradient_kind, place))

    def gradients_of_arguments(self, values: list[Any]) -> Iterator[Attribute]:
        """Tensors among the arguments whose gradients must be there or not, as the program found them."""
        for index, (value, leaf) in enumerate(zip(values, self.leaves, strict=True)):
            for way, tensor in parts(leaf) if isinstance(value, Value) else ():
                known = self.recorder.store.known(tensor)
                if known is not None and id(known.root) in self.recorder.gradients:
                    recorded = self.snapshot.gradient_before(tensor)
                    yield Attribute(index, way, recorded, ask=gradient_kind, fact="gradient")

    def argument(self, freezer: Freezer, path: str, value: Any) -> Argument:
        if not isinstance(value, Value):
            return Argument(path, None, value)
        freezer.name(value, identifier(path).rstrip("_") or "x")
        freezer.defined.add(value.root)
        return Argument(path, freezer.proxy(value))

    def captures(self, freezer: Freezer) -> tuple[Capture, ...]:
        found = []
        for value, (place, *others) in self.recorder.store.captures:
            freezer.name(value, identifier(place.path))
            freezer.defined.add(value.root)
            found.append(Capture(freezer.proxy(value), place.path, place, tuple(others)))
        return tuple(found)

    def explain(self, error: Exception, values: list[Any]) -> TraceError:
        """A TraceError for whatever ended the program, with the trace up to there."""
        recorder = self.recorder
        told = recorder.refusal if recorder.refusal is not None else as_trace_error(error, recorder, self.fn)
        top = recorder.top
        failing = [event for seen, event in recorder.failures if seen is error]
        if failing:
            for inner, outer in itertools.pairwise(failing):
                outer.subs = [*outer.subs, inner]
            for event in failing:
                event.args = () if event.args is None else event.args
                event.kwargs = event.kwargs or {}
            top.append(failing[-1])
        try:
            told.trace = self.finish(values, failure=str(told).splitlines()[0])
        except TraceError:
            told.trace = None
        return told


def training_flag(place: Any, module: torch.nn.Module) -> TrainingFlag:
    """The training flag and the hooks of a module as they are now."""
    return TrainingFlag(place.path, module, module.training, place, module_hooks(module))


def expect_free_names(kwargs: dict[str, Any]) -> None:
    """Make sure that no argument has the name of what the text of a trace needs: by position it may."""
    if taken := [name for name in kwargs if name in TEXT_NAMES]:
        raise TraceError(
            f"an argument that is given by the name {taken[0]}",
            cause="the text of a trace calls something else by this name",
            way_out="give it by position, or give the parameter another name",
        )


def _parameter_names(fn: Any, args: tuple) -> tuple[str, ...]:
    """The names of the parameters that take the positional arguments."""
    target = fn.forward if isinstance(fn, torch.nn.Module) else fn
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for index in range(len(args)):
        if index < len(parameters) and parameters[index].kind in (0, 1):
            names.append(parameters[index].name)
        else:
            star = next((p.name for p in parameters if p.kind == 2), "arg")
            names.append(f"{star}_{index}")
    return tuple(names)


def _program_name(fn: Any) -> str:
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return "program" if name == "<lambda>" else Names().new(identifier(name))


_PLAIN_RESULTS = (
    type(None), bool, int, float, complex, str, bytes, slice, range, type, enum.Enum, FunctionType, BuiltinFunctionType,
    torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.Generator, torch.nn.Module, Value,
)  # fmt: skip
