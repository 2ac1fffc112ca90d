"""Proxies: frozen records of values."""

import dataclasses

import pytest
import torch
from kinds import Slotted

import subtrace_kit
from subtrace_kit.proxies import NumberProxy, SubclassTensorProxy, TensorProxy, proxy_kind

CPU = torch.device("cpu")
PLAIN = TensorProxy("x", (2, 3), (3, 1), torch.float32, CPU)
WRAPPED = proxy_kind(Slotted)("t", (2, 3), (3, 1), torch.float32, CPU, cls=Slotted, inner=(("body", PLAIN),))


def test_a_proxy_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PLAIN.shape = (1,)


def test_equal_fields_are_equal_proxies():
    assert PLAIN.replace() == PLAIN
    assert PLAIN.replace(name="y") != PLAIN
    assert hash(PLAIN.replace()) == hash(PLAIN)


@pytest.mark.parametrize("proxy", [PLAIN, WRAPPED, NumberProxy("n", float, 1.5)])
def test_replace_keeps_the_kind(proxy):
    assert type(proxy.replace(name="other")) is type(proxy)


def test_replace_takes_a_change_before_like_before_self():
    like = torch.ones(4, dtype=torch.float64, requires_grad=True)
    made = PLAIN.replace(like=like, dtype=torch.int8)
    assert (made.name, made.shape, made.stride, made.dtype, made.requires_grad) == ("x", (4,), (1,), torch.int8, True)


def test_replace_like_a_proxy_takes_all_but_the_name():
    other = TensorProxy("y", (5,), (1,), torch.int64, CPU, storage_offset=2)
    assert PLAIN.replace(like=other) == other.replace(name="x")


def test_replace_like_a_plain_proxy_leaves_class_and_inner_tensors():
    made = WRAPPED.replace(like=PLAIN.replace(shape=(9,)))
    assert (made.cls, made.inner, made.shape) == (Slotted, WRAPPED.inner, (9,))


def test_replace_like_a_number_takes_nothing_a_tensor_has_not():
    assert PLAIN.replace(like=NumberProxy("n", float, 2.0)) == PLAIN


@pytest.mark.parametrize("change", ["size", "inner", "value"])
def test_replace_refuses_a_field_of_another_kind(change):
    with pytest.raises(TypeError, match=rf"TensorProxy has no field '{change}'"):
        PLAIN.replace(**{change: 1})


def test_each_class_has_one_kind_named_after_it():
    class Local(Slotted):
        pass

    assert proxy_kind(Local) is proxy_kind(Local)
    assert proxy_kind(Local) is not proxy_kind(Slotted)
    assert proxy_kind(Local).__name__ == "LocalProxy"
    assert issubclass(proxy_kind(Local), SubclassTensorProxy)


def test_leaves_at_any_depth_come_with_their_path():
    other = PLAIN.replace(name="z")
    outer = WRAPPED.replace(name="o", inner=(("w", WRAPPED), ("z", other)))
    assert list(outer.leaves()) == [(("w", "body"), PLAIN), (("z",), other)]


def test_making_a_proxy_does_not_show_in_a_recording():
    def program(x):
        TensorProxy("q", tuple(x.shape), x.stride(), x.dtype, x.device).replace(like=x)
        return x + 1

    trace = subtrace_kit.trace(program)(torch.ones(2))
    assert [b.symbol.name for b in trace.bound_symbols] == ["torch.Tensor.add"]


def test_recorded_proxies_say_what_the_tensor_was():
    base = torch.arange(12.0).reshape(3, 4)
    trace = subtrace_kit.trace(lambda x: x + 1)(base[1:, ::2].requires_grad_())
    (x,) = trace.inputs
    facts = (x.shape, x.stride, x.storage_offset, x.dtype, x.device, x.requires_grad, x.lazy)
    assert facts == ((2, 2), (4, 2), 4, torch.float32, CPU, True, (False, False))


def test_a_lazy_conjugate_is_part_of_the_record():
    trace = subtrace_kit.trace(lambda z: z * 2)(torch.ones(2, dtype=torch.complex64).conj())
    assert trace.inputs[0].lazy == (True, False)
