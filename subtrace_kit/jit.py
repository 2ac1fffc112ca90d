"""jit: a trace for each kind of input, made when it is first met."""

from __future__ import annotations

import copy
import functools
import pickle
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

from .backends import Backend, find_backend
from .called import expect_program, name_of
from .collecting import no_collection
from .compiled_parts import with_compiled_parts
from .errors import TraceError
from .graph_node import GraphNode, wants_node
from .intercept import current_listener, in_functorch
from .jit_entries import Entry
from .jit_report import CacheInfo, JitReport
from .passes import lower
from .repeatable import draws
from .running import is_changed_data, runner
from .snapshot import random_state
from .too_many_kinds import too_many_kinds
from .trace import Trace
from .tracing import trace

__all__ = ["jit"]

LIMIT = 64
"""Kinds of input after which a program is taken to have too many."""

_TOLD = 3  # how many of the latest kinds a refusal names


def jit(
    fn: Callable[..., Any], *given: Any, backend: str = "eager", limit: int = LIMIT, **options: Any
) -> Callable[..., Any]:
    """Run a program through lowered traces, one for each kind of input.

    Where autograd follows wrappers, the first call makes the graph that eager makes. From the second call on,
    forward and backward run on inner tensors, and the graph has one node for the program. They are recorded for the
    kinds of gradients that arrive (the program's Python runs once more for that); gradients of a new kind and
    `create_graph=True` run the program again in the backward. What one node cannot stand for keeps eager's graph,
    and `explain()` says why: views of arguments that are returned, hooks, writes into what comes in.

    Args:
        fn: A function or an nn.Module.
        *given: Nothing: the program's arguments belong into the second call.
        backend: What runs the lowered ops: "eager" one by one, "inductor" compiled by torch's compiler,
            "cudagraphs" replayed on a CUDA device, or a name that was given to `register_backend`.
        limit: How many kinds of input it takes.
        **options: Options of the backend.

    Returns:
        A function that is called like `fn`, by any number of threads, and pickled like it. `cache_info()` counts,
        `explain()` says which kinds of input it has met and what made each new, `traces` lists the lowered
        traces, `halves` forward and backwards where they run on inner tensors. Of a module it has the attributes
        too (`parameters()`, `eval()`), but it is none: put the module into other modules. Inside a program that is
        recorded, and on what a transform of torch.func hands it, it is `fn` itself.

    Raises:
        TraceError: The program cannot be traced or lowered, or meets too many kinds of input; there is no such
            backend, or it cannot work on this machine.

    Example:
        >>> import torch, subtrace_kit
        >>> f = subtrace_kit.jit(lambda x: x * 2)
        >>> f(torch.ones(2)), f(torch.ones(3)), f.cache_info().misses
        (tensor([2., 2.]), tensor([2., 2., 2.]), 2)
        >>> f.explain()
        jit(fn), backend eager: 2 of 64 kinds of input, hits 0, misses 2
          1. ran 1 time
             x: f32[2]
             new because: the first call
          2. ran 1 time
             x: f32[3]
             new because: argument x: shape (3,) instead of (2,) (f32[2])
    """
    found = find_backend(backend)
    expect_program(fn, jit, given, found.unknown(options))
    return _Jitted(fn, found, limit, options)


class _Jitted:
    def __init__(self, fn: Callable[..., Any], backend: Backend, limit: int, options: dict[str, Any]) -> None:
        self.fn = fn
        self._backend, self._limit, self._options = backend, limit, options
        self._entries: tuple[Entry, ...] = ()  # the latest first; replaced as a whole, so that no reader waits
        self._lock = threading.RLock()
        self._misses = 0
        functools.update_wrapper(self, fn, updated=())

    def __repr__(self) -> str:
        return f"jit({self._name}): call it like the program; {len(self._entries)} traces so far, see explain()"

    def __getattr__(self, name: str) -> Any:
        if name == "fn" or not isinstance(self.fn, torch.nn.Module):
            raise AttributeError(f"a jitted function has no attribute {name!r}")
        return getattr(self.fn, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arguments of any kind."""
        if current_listener() is not None:
            return self.fn(*args, **kwargs)  # the outer recording takes it in
        for entry in self._entries:
            if (captured := entry.fits(args, kwargs)) is not None:
                give_back = random_state() if entry.draws else None
                entry.start()
                try:
                    return entry.run(args, kwargs, captured)
                except TraceError as error:
                    return self._other(args, kwargs, self._retried(entry, error, give_back))
        return self._other(args, kwargs, {})

    def _other(self, args: tuple, kwargs: dict, refused: dict[Entry, TraceError]) -> Any:
        """Run where no quick check has said yes, or where its entry was refused for its data."""
        if in_functorch():
            return self.fn(*args, **kwargs)  # a transform sends each op in its own way
        while (found := self._fitting(args, kwargs, refused)) is not None:
            entry, captured = found
            give_back = random_state() if entry.draws else None
            try:
                return entry.answer(args, kwargs, captured)
            except TraceError as error:
                refused |= self._retried(entry, error, give_back)
        made = self._made(args, kwargs, refused)
        if made is None:
            return self._other(args, kwargs, refused)
        return made.answer(args, kwargs, made.check(args, kwargs))

    def _fitting(
        self, args: tuple, kwargs: dict, refused: dict[Entry, TraceError]
    ) -> tuple[Entry, dict[str, Any]] | None:
        """An entry for these arguments, with captured values; the others go among those that refused them."""
        for entry in self._entries:
            if entry not in refused:
                try:
                    return entry, entry.check(args, kwargs)
                except TraceError as error:
                    refused[entry] = error
        return None

    def _made(self, args: tuple, kwargs: dict, refused: dict[Entry, TraceError]) -> Entry | None:
        """A new entry; None where another thread has made one that fits meanwhile."""
        with self._lock:
            if self._fitting(args, kwargs, refused) is not None:
                return None
            self._misses += 1
            newest_first = {known: refused[known] for known in self._entries}
            if len(self._entries) >= self._limit:
                raise self._full(newest_first, args, kwargs)
            with no_collection():  # most of what is recorded goes again when it is lowered
                recorded = trace(self.fn)(*args, **kwargs)
                lowered = lower(recorded)
            program, notes = with_compiled_parts(lowered, self._backend, self._options)
            node = self._node(recorded, lowered, program) if wants_node(lowered) else None
            entry = Entry(lowered, program, newest_first, notes, node)
            self._entries = (entry, *self._entries)
            return entry

    def _node(self, recorded: Trace, lowered: Trace, program: Trace) -> GraphNode:
        compiled = functools.partial(with_compiled_parts, backend=self._backend, options=self._options)
        return GraphNode(recorded, runner(program).run, compiled, draws(lowered))

    def _retried(
        self, entry: Entry, error: TraceError, give_back: Callable[[], None] | None
    ) -> dict[Entry, TraceError]:
        """The entry among those that refused a call, where only its data were to blame; else the error is raised."""
        if not (is_changed_data(error) and entry.repeatable):
            raise error
        if give_back is not None:
            give_back()
        with self._lock:
            entry.broken_off += 1
        return {entry: error}

    def _full(self, refused: dict[Entry, TraceError], args: tuple, kwargs: dict) -> TraceError:
        latest = self._entries[:_TOLD]
        differences = [next((error.what for error in refused.values()), "")]
        differences += [entry.differences[0] for entry in latest[: _TOLD - 1] if entry.differences]
        guards = [entry.trace.guard for entry in latest]
        return too_many_kinds(self._name, self._limit, guards, tuple(dict.fromkeys(differences)), args, kwargs)

    # ------------------------------------------------------------------------------------ what users ask

    @property
    def _name(self) -> str:
        return name_of(self.fn) if not isinstance(self.fn, torch.nn.Module) else type(self.fn).__name__

    @property
    def traces(self) -> list[Trace]:
        """The lowered traces, the latest first."""
        return [entry.trace for entry in self._entries]

    @property
    def halves(self) -> list[tuple[Trace, tuple[Trace, ...]]]:
        """Forward and backwards of the kinds of input that are one node in autograd's graph, the latest first."""
        splits = [entry.node.split for entry in self._entries if entry.node is not None]
        return [(split.forward, tuple(back.trace for back in split.backwards)) for split in splits if split is not None]

    def cache_info(self) -> CacheInfo:
        """How often a trace was there for a call.

        Returns:
            A CacheInfo: hits, misses, entries, limit, backend.
        """
        with self._lock:
            runs = sum(entry.runs for entry in self._entries)
            hits = max(0, runs - len(self._entries))  # the first run of each is the miss that made it
            return CacheInfo(hits, self._misses, len(self._entries), self._limit, self._backend.name)

    def explain(self) -> JitReport:
        """Which kinds of input there were, how often each ran, and what made each new.

        Returns:
            A report that prints, and shows itself in a notebook.
        """
        entries = tuple(entry.report() for entry in self._entries[::-1])
        return JitReport(self._name, self.cache_info(), entries)

    # ------------------------------------------------------------------------------------------- copies

    def __reduce__(self) -> tuple[Any, ...]:
        rest = (self._backend.name, self._limit, self._options)
        module, name = getattr(self.fn, "__module__", None), getattr(self.fn, "__qualname__", "")
        if _found(module, name) is self:  # a decorator: by its name a pickle would find the jitted function
            return _decorated_again, (module, name, *rest)
        if not isinstance(self.fn, torch.nn.Module):
            self._expect_picklable()
        return _jitted_again, (self.fn, *rest)

    def _expect_picklable(self) -> None:
        try:
            pickle.dumps(self.fn)
        except Exception as error:
            raise TraceError(
                f"jit({self._name}) cannot be pickled, because {self._name} cannot: {error}",
                cause="a lambda, or a function that is defined inside another one",
                way_out="define it at the top level of a module",
            ) from error

    def __copy__(self) -> _Jitted:
        return _Jitted(self.fn, self._backend, self._limit, self._options)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Jitted:
        return _Jitted(copy.deepcopy(self.fn, memo), self._backend, self._limit, copy.deepcopy(self._options, memo))


def _found(module: str | None, name: str) -> Any:
    """What is there by a name."""
    found: Any = sys.modules.get(module or "")
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _jitted_again(fn: Any, backend: str, limit: int, options: dict[str, Any]) -> _Jitted:
    """What a pickle of a jitted function calls."""
    return _Jitted(fn, find_backend(backend), limit, options)


def _decorated_again(module: str, name: str, backend: str, limit: int, options: dict[str, Any]) -> _Jitted:
    """What the pickle of a function calls that is jitted where it is defined."""
    __import__(module)
    found = _found(module, name)
    return _jitted_again(found.fn if isinstance(found, _Jitted) else found, backend, limit, options)
