"""Symbols, bound symbols and how values are walked and shown."""

import collections

import pytest
import torch
from kinds import SetInInit, Slotted

import subtrace_kit
from subtrace_kit.proxies import NumberProxy, TensorProxy, proxy_kind
from subtrace_kit.symbols import BoundSymbol, Kind, Symbol, constructor_symbol, map_tree, proxies_in, type_text

X, Y, Z = (TensorProxy(name, (2,), (1,), torch.float32, torch.device("cpu")) for name in "xyz")
ADD = Symbol("torch.add", Kind.FUNCTION, torch.add)
Pair = collections.namedtuple("Pair", "left right")


def test_a_constructor_symbol_is_made_once_for_a_class():
    symbol = constructor_symbol(Slotted)
    assert symbol is constructor_symbol(Slotted)
    assert (symbol.name, symbol.kind, symbol.fn) == ("Slotted", Kind.CONSTRUCTOR, Slotted)


def test_proxies_are_found_in_nested_values_in_order():
    assert list(proxies_in([X, (1, {"k": Y}), slice(None, Z), "x"])) == [X, Y, Z]


def test_arguments_and_results_are_told_apart():
    bound = BoundSymbol(ADD, (X, [Y]), {"out": Z}, (Z, X))
    assert bound.arguments == [X, Y, Z]
    assert bound.outputs == [Z, X]
    assert bound.results == []
    assert BoundSymbol(ADD, (X,), {}, (Y, Y)).results == [Y]


def test_walk_goes_outermost_first_with_depths():
    leaf = BoundSymbol(ADD, (X,), {}, Y)
    tree = BoundSymbol(ADD, (X,), {}, Z, subsymbols=(leaf.replace(subsymbols=(leaf,)), leaf))
    assert [depth for depth, _ in tree.walk()] == [0, 1, 2, 1]


def test_a_wrapper_is_noticed_at_any_depth():
    wrapped = proxy_kind(Slotted)(
        "t", (2,), (1,), torch.float32, torch.device("cpu"), cls=Slotted, inner=(("body", X),)
    )
    inside = BoundSymbol(ADD, (wrapped,), {}, Y)
    assert inside.has_wrapper
    assert BoundSymbol(ADD, (X,), {}, Y, subsymbols=(inside,)).has_wrapper
    assert not BoundSymbol(ADD, (X,), {}, Y).has_wrapper


def test_mapping_keeps_the_containers():
    value = [Pair(1, (2,)), {"k": slice(3, None)}]
    assert map_tree(lambda v: v and v * 10, value) == [Pair(10, (20,)), {"k": slice(30, None)}]
    assert isinstance(map_tree(lambda v: v, value)[0], Pair)


def test_a_size_is_one_leaf():
    assert map_tree(lambda v: type(v), [torch.Size([1, 2])]) == [torch.Size]


@pytest.mark.parametrize(
    ("dtype", "short"),
    [
        (torch.float32, "f32"),
        (torch.bfloat16, "bf16"),
        (torch.int8, "i8"),
        (torch.uint8, "u8"),
        (torch.complex64, "c64"),
        (torch.bool, "bool"),
        (torch.float8_e4m3fn, "f8_e4m3fn"),
    ],
)
def test_dtypes_are_shown_short(dtype, short):
    assert type_text(X.replace(dtype=dtype)) == f"{short}[2]"


def test_devices_other_than_the_cpu_are_named_unless_left_out():
    there = X.replace(device=torch.device("cuda:1"))
    assert type_text(there) == "f32[2] cuda:1"
    assert type_text(there, device=False) == "f32[2]"


def test_numbers_are_shown_by_their_type():
    assert type_text(NumberProxy("n", int, 3)) == "int"


def test_wrappers_are_shown_with_class_and_inner_tensors_at_any_depth():
    t = SetInInit(Slotted(torch.ones(2, 3)), Slotted(torch.ones(2, 3)))
    trace = subtrace_kit.trace(lambda t: t + 1)(t)
    inner = "Slotted f32[2, 3] {body: f32[2, 3]}"
    assert type_text(trace.inputs[0]) == f"SetInInit f32[2, 3] {{low: {inner}, high: {inner}}}"


def test_three_levels_of_one_call():
    trace = subtrace_kit.trace(lambda t: torch.add(t, 1))(Slotted(torch.ones(2)))
    levels = [(depth, b.symbol.name, b.symbol.kind) for depth, b in trace.bound_symbols[0].walk()]
    assert levels == [
        (0, "torch.add", Kind.FUNCTION),
        (1, "aten.add.Tensor", Kind.ATEN),
        (2, "aten.add.Tensor", Kind.ATEN),
        (2, "Slotted", Kind.CONSTRUCTOR),
    ]
