"""What a program comes to through other objects, and settings that it asks for."""

import collections
import contextvars
import functools
import itertools
import operator
import os
import threading
import types
import weakref

import numpy as np
import pytest
import torch

import subtrace_kit


class Holder:
    value = 1.0


class Meta(type):
    @property
    def scale(cls):
        return cls.kept


class Config(metaclass=Meta):
    kept = 1.0


SCALE = 1.0
NAME, GET = "value", operator.attrgetter("value")
HELD, ITEMS, BOX, RAW = Holder(), {"a": 1.0}, [np.bool_(True)], bytearray([1])
REF, PROXY, VALUES = weakref.ref(HELD), types.MappingProxyType(ITEMS), ITEMS.values()
LOCAL, CONTEXT = threading.local(), contextvars.ContextVar("context", default=1.0)
ONE, SEVEN = torch.ones(1), torch.full((1,), 7.0)
WEAK = weakref.WeakValueDictionary(k=ONE)
LOCAL.value = HELD.value = 1.0


def set_local(value):
    LOCAL.value = value


def set_threads(value):
    torch.set_num_threads(1 if value == 1.0 else 2)


READ = {
    "computed name": (lambda x: x * getattr(HELD, NAME), lambda v: setattr(HELD, "value", v)),
    "attrgetter": (lambda x: x * GET(HELD), lambda v: setattr(HELD, "value", v)),
    "globals": (lambda x: x * globals()["SCALE"], lambda v: globals().update(SCALE=v)),
    "environment": (lambda x: x * float(os.environ["KIND"]), lambda v: os.environ.update(KIND=str(v))),
    "context": (lambda x: x * CONTEXT.get(), CONTEXT.set),
    "local": (lambda x: x * LOCAL.value, set_local),
    "scalar": (lambda x: x * (1 if BOX[0] else 7), lambda v: BOX.__setitem__(0, np.bool_(v == 1.0))),
    "bytes": (lambda x: x * RAW[0], lambda v: RAW.__setitem__(0, int(v))),
    "proxy": (lambda x: x * PROXY["a"], lambda v: ITEMS.update(a=v)),
    "view": (lambda x: x * sum(VALUES), lambda v: ITEMS.update(a=v)),
    "reference": (lambda x: x * REF().value, lambda v: setattr(HELD, "value", v)),
    "metaclass": (lambda x: x * Config.scale, lambda v: setattr(Config, "kept", v)),
    "threads": (
        lambda x: x * (1 if torch.get_num_threads() == 1 else 7),
        set_threads,
    ),
    "anomaly": (
        lambda x: x * (7 if torch.is_anomaly_enabled() else 1),
        lambda v: torch.autograd.set_detect_anomaly(v != 1.0, check_nan=False),
    ),
    "seed": (lambda x: x * (1 + torch.initial_seed()), lambda v: torch.manual_seed(int(v) - 1)),
}


@pytest.mark.filterwarnings("ignore:Anomaly")
@pytest.mark.parametrize(("program", "change"), READ.values(), ids=READ)
def test_another_value_is_refused(program, change):
    threads = torch.get_num_threads()
    try:
        change(1.0)
        t = subtrace_kit.trace(program)(ONE)
        assert t(ONE).item() == 1.0
        change(7.0)
        assert program(ONE).item() == 7.0
        with pytest.raises(subtrace_kit.TraceError):
            t(ONE)
        change(1.0)
        assert t(ONE).item() == 1.0
    finally:
        change(1.0)
        torch.set_num_threads(threads)
        os.environ.pop("KIND", None)


def test_the_default_dtype_is_compared():
    t = subtrace_kit.trace(lambda x: x + torch.ones(1))(ONE)
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(subtrace_kit.TraceError, match="the default dtype"):
            t(ONE)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_tensor_behind_weak_references_is_that_of_each_run():
    x = torch.ones(1)
    t = subtrace_kit.trace(lambda x: x * WEAK["k"])(x)
    WEAK["k"] = SEVEN
    try:
        assert t(x).item() == 7.0
    finally:
        WEAK["k"] = ONE


def test_a_bound_method_of_a_list_writes_the_list():
    log = []
    push = log.append

    def program(x):
        push(x * 2)
        return x + 1

    t = subtrace_kit.trace(program)(ONE)
    assert log == []
    t(SEVEN)
    assert [item.item() for item in log] == [14.0]


STEPS = {
    "count": lambda: itertools.count(1),
    "list": lambda: iter([1, 2, 3]),
    "generator": lambda: (k for k in range(5)),
    "zip": lambda: zip([1, 2], [3, 4], strict=True),
    "map": lambda: map(float, [1, 2, 3]),
    "enumerate": lambda: enumerate([4, 5]),
}


@pytest.mark.parametrize("make", STEPS.values(), ids=STEPS)
def test_drawing_from_an_iterator_is_refused(make):
    steps = make()
    with pytest.raises(subtrace_kit.TraceError, match="the program draws from steps"):
        subtrace_kit.trace(lambda x: x * 1 if next(steps) is not None else x)(ONE)
    if "list" in type(steps).__name__:
        assert next(steps) == 1


def test_a_cache_that_is_filled_by_the_program_is_refused_and_emptied():
    @functools.lru_cache
    def table(n):
        return torch.arange(float(n))

    program = lambda x: x + table(2)  # noqa: E731
    x = torch.zeros(2)
    with pytest.raises(subtrace_kit.TraceError, match="the program draws from table"):
        subtrace_kit.trace(program)(x)
    assert table.cache_info().currsize == 0
    program(x)
    t = subtrace_kit.trace(program)(x)
    assert t(x).tolist() == [0.0, 1.0]
    table.cache_clear()
    with pytest.raises(subtrace_kit.TraceError, match="cache of table"):
        t(x)


def test_an_entry_that_a_default_makes():
    log, total = collections.defaultdict(list), collections.defaultdict(lambda: torch.zeros(1))

    def program(x):
        log["loss"].append(x.sum())
        total["a"] += x
        return total["a"] * 1

    jitted = subtrace_kit.jit(program)
    assert [jitted(ONE).item() for _ in range(4)] == [1.0, 2.0, 3.0, 4.0]
    assert len(log["loss"]) == 4


def test_a_context_variable_with_a_default_is_told_by_it():
    fresh = contextvars.ContextVar("fresh", default=1.0)
    t = subtrace_kit.trace(lambda x: x * fresh.get())(torch.ones(2))
    fresh.set(3.0)
    with pytest.raises(subtrace_kit.TraceError, match=r"fresh.get\(\): 3.0 instead of 1.0"):
        t(torch.ones(2))
