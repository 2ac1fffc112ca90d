"""Copies of arguments: sharing, layout, flags and autograd are those of the originals."""

import pytest
import torch
from classes import Base
from verified import assert_agrees, two

import subtrace_kit
from subtrace_kit import verify
from subtrace_kit.copies import Copies, copy_arguments
from subtrace_kit.zoo import TwoTensor


def copied(*values, keep=()):
    """Copies of values, made together."""
    copies = Copies(list(keep))
    return [copies.value(value) for value in values]


def facts(tensor):
    """What a copy must have in common with its original."""
    return (
        type(tensor), tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.is_conj(),
        tensor.is_neg(), tensor.requires_grad, tensor.is_leaf, tensor.is_inference(), tensor._is_view(),
    )  # fmt: skip


def computable(tensor):
    """The tensor in a dtype that torch can reckon with."""
    return tensor.float() if tensor.itemsize == 1 else tensor


def inference_tensor():
    with torch.inference_mode():
        return torch.ones(2)


KINDS = {
    "negative bit": lambda: torch.randn(3, dtype=torch.complex64).conj().imag,
    "conjugate and negative bit": lambda: torch.randn(3, dtype=torch.complex64).conj()._neg_view(),
    "view of a base that is no argument": lambda: torch.randn(4, 4)[1:3].t(),
    "expanded": lambda: torch.randn(1, 3).expand(4, 3),
    "overlapping": lambda: torch.arange(6.0).as_strided((3, 3), (1, 1)),
    "channels last": lambda: torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "no dimension": lambda: torch.tensor(2.0),
    "empty": lambda: torch.empty(0, 3),
    "inference": inference_tensor,
    "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "buffer": lambda: torch.nn.Buffer(torch.ones(2)),
    "no leaf": lambda: torch.ones(2, requires_grad=True) * 2,
    "real view of complex": lambda: torch.view_as_real(torch.randn(3, dtype=torch.complex64)),
    "eight bits": lambda: torch.randn(3).to(torch.float8_e4m3fn),
}


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_a_copy_is_of_the_original_s_kind(make):
    original = make()
    (copy,) = copied(original)
    assert copy is not original
    assert copy.untyped_storage().data_ptr() != original.untyped_storage().data_ptr() or not original.numel()
    assert facts(copy)[:-1] == facts(original)[:-1]
    assert facts(copy)[-1] or not facts(original)[-1]
    assert torch.equal(
        copy.float() if copy.itemsize == 1 else copy, original.float() if copy.itemsize == 1 else original
    )


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_programs_on_every_kind_agree(make):
    assert_agrees(lambda x: (computable(x) * 2, x), make())


def test_copies_share_memory_as_the_originals_do():
    z = torch.randn(4, dtype=torch.complex64)
    whole, part, lazy = copied(z, z[1:], z.conj().imag)
    whole.zero_()
    assert not part.any()
    assert not lazy.any()
    assert part._base is whole
    inner = torch.randn(3)
    wrapper, plain, again = copied(TwoTensor(inner, inner), inner, inner)
    assert wrapper.a is wrapper.b is plain is again


def test_kept_tensors_stand_for_themselves():
    kept = torch.randn(4)
    one, other, wrapper = copied(kept, kept[1:].view(3), TwoTensor(kept, torch.randn(4)), keep=[kept])
    assert one is kept
    assert other.untyped_storage().data_ptr() == kept.untyped_storage().data_ptr()
    assert wrapper.a is kept


def test_gradients_and_attributes_are_copied_too():
    x = torch.ones(2, requires_grad=True)
    x.grad, x.note, x.me = torch.full((2,), 3.0), [1, {"k": torch.ones(1)}], x
    (copy,) = copied(x)
    assert torch.equal(copy.grad, x.grad)
    assert copy.grad is not x.grad
    assert copy.me is copy
    assert copy.note is not x.note
    assert copy.note[1]["k"] is not x.note[1]["k"]


class NoWayBack(Base):
    """Its unflatten fails."""

    @staticmethod
    def __tensor_unflatten__(inner, metadata, size, stride):
        raise RuntimeError("no way back")


def test_a_class_that_cannot_be_built_anew_is_refused():
    x = NoWayBack(torch.ones(2))
    trace = subtrace_kit.trace(lambda x: x.inner * 2)(x)
    with pytest.raises(subtrace_kit.TraceError, match="a NoWayBack cannot be copied: RuntimeError: no way back"):
        verify(trace, x)


class Forgets(Base):
    """Its unflatten gives another dtype."""

    @staticmethod
    def __tensor_unflatten__(inner, metadata, size, stride):
        return Forgets(inner["inner"].double())


def test_an_untrue_copy_is_refused():
    x = Forgets(torch.ones(2))
    trace = subtrace_kit.trace(lambda x: x.inner * 2)(x)
    with pytest.raises(subtrace_kit.TraceError, match="cannot be copied truly: argument x: dtype"):
        copy_arguments(trace, ((x,), {}), [])


def test_meta_tensors_are_compared_without_values():
    x = torch.empty(3, device="meta")
    assert verify(subtrace_kit.trace(lambda x: x * 2)(x), x).ok


def test_made_up_arguments_have_lazy_bits_too():
    for make in (KINDS["negative bit"], KINDS["conjugate and negative bit"]):
        assert verify(subtrace_kit.trace(lambda x: x * 2)(make())).ok


def test_one_object_twice_and_views_of_one_memory():
    x, base = two(2), torch.randn(4)
    assert_agrees(lambda a, b, c: (a.add_(1), b is c[0], c), x, x, [x])
    assert_agrees(lambda a, b: (a.mul_(2), b + 1), *base.split(2))
    assert_agrees(lambda a, v: (v.mul_(2), a + 1), x, x[1:])
