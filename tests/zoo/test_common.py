import copy
import doctest
import importlib
import io

import pytest
import torch
from torch import nn

from subtrace_kit.zoo import ComplexTensor, LoggingTensor, MaskedTensor, QuantTensor, ScaleTensor, TwoTensor
from subtrace_kit.zoo.common import aten, functions, is_pointwise, op_name, overloads, take_apart, written


def make(name: str) -> torch.Tensor:
    a, b = torch.randn(4, 6), torch.randn(4, 6)
    if name == "scale":
        return ScaleTensor(a, torch.tensor(0.5))
    if name == "quant":
        return QuantTensor.from_float(a)
    if name == "log":
        return LoggingTensor(a)
    if name == "masked":
        return MaskedTensor(a, b > 0)
    if name == "nested":
        return TwoTensor(ScaleTensor(a, torch.tensor(0.5)), ScaleTensor(b, torch.tensor(2.0)))
    return {"two": TwoTensor, "complex": ComplexTensor}[name](a, b)


def leaves(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The plain tensors inside, at any depth."""
    if type(tensor) in (torch.Tensor, nn.Parameter):
        return [tensor]
    return [leaf for name in tensor.__tensor_flatten__()[0] for leaf in leaves(getattr(tensor, name))]


def looks(tensor: torch.Tensor) -> tuple[object, ...]:
    inner = [(leaf.shape, leaf.stride(), leaf.storage_offset()) for leaf in leaves(tensor)]
    return type(tensor), tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, inner


NAMES = ["two", "scale", "quant", "complex", "log", "masked", "nested"]


@pytest.mark.parametrize("name", ["common", "complex", "log", "masked", "mx", "nested", "quant", "scale", "two"])
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(f"subtrace_kit.zoo.{name}")
    assert doctest.testmod(module).failed == 0


def views(tensor: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.t(), tensor[1:3], tensor[:, 2:], tensor.detach(), *tensor.split(3, dim=1)]


@pytest.mark.parametrize("name", NAMES)
def test_views_share_memory_inside_and_outside(name: str) -> None:
    base = make(name)
    for view in views(base):
        assert type(view) is type(base)
        assert view.untyped_storage()._cdata == base.untyped_storage()._cdata
        shared = [x.untyped_storage()._cdata for x in leaves(base)]
        assert [x.untyped_storage()._cdata for x in leaves(view)] == shared


@pytest.mark.parametrize("name", NAMES)
def test_views_under_inference_mode_are_of_the_kind_of_their_base(name: str) -> None:
    base = make(name)
    with torch.inference_mode():
        assert not any(view.is_inference() for view in views(base))
        assert base.clone().is_inference()
        assert make(name).t().is_inference()


@pytest.mark.parametrize("name", NAMES)
def test_outer_strides_and_offset_are_the_inner_ones(name: str) -> None:
    for view in views(make(name)):
        leaf = leaves(view)[0]
        assert (view.shape, view.stride()) == (leaf.shape, leaf.stride())
        assert view.storage_offset() == leaf.storage_offset()


@pytest.mark.parametrize("name", NAMES)
def test_flatten_and_unflatten_are_exact(name: str) -> None:
    for tensor in (make(name), *views(make(name))):
        names, metadata = tensor.__tensor_flatten__()
        inner = {n: getattr(tensor, n) for n in names}
        again = type(tensor).__tensor_unflatten__(inner, metadata, tensor.size(), tensor.stride())
        assert looks(again) == looks(tensor)
        assert all(getattr(again, n) is inner[n] for n in names)
        assert again.__tensor_flatten__() == (names, metadata)


@pytest.mark.parametrize("name", NAMES)
def test_detach_and_clone_require_no_grad_though_inner_tensors_may(name: str) -> None:
    tensor = make(name)
    for leaf in leaves(tensor):
        if leaf.is_floating_point():
            leaf.requires_grad_()
    for out in (tensor.detach(), tensor.clone().detach(), tensor[1:].detach()):
        assert not out.requires_grad
        assert not any(leaf.requires_grad for leaf in leaves(out))


@pytest.mark.parametrize("name", NAMES)
def test_clone_shares_nothing(name: str) -> None:
    tensor = make(name)
    before = [leaf.data_ptr() for leaf in leaves(tensor)]
    assert not set(before) & {leaf.data_ptr() for leaf in leaves(tensor.clone())}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("index", range(7))
def test_deepcopy_keeps_the_layout_of_views(name: str, index: int) -> None:
    tensor = [make(name), *views(make(name))][index]
    again = copy.deepcopy(tensor)
    assert looks(again) == looks(tensor)
    for ours, others in zip(leaves(again), leaves(tensor), strict=True):
        assert torch.equal(ours, others)
        assert ours.data_ptr() != others.data_ptr()


def test_deepcopy_of_expanded_and_shared_tensors() -> None:
    x = TwoTensor(torch.randn(3, 1), torch.randn(3, 1)).expand(3, 4)
    first, second = copy.deepcopy([x, x])
    assert first is second
    assert looks(first) == looks(x)


@pytest.mark.parametrize("name", NAMES)
def test_deepcopy_of_a_parameter_is_one(name: str) -> None:
    parameter = nn.Parameter(make(name))
    parameter.grad = make(name)
    again = copy.deepcopy(nn.ParameterList([parameter]))[0]
    assert isinstance(again, nn.Parameter)
    assert again.requires_grad
    assert looks(again) == looks(parameter)
    assert looks(again.grad) == looks(parameter.grad)
    assert leaves(again.grad)[0].data_ptr() != leaves(parameter.grad)[0].data_ptr()


def test_deepcopy_refuses_a_result_of_autograd() -> None:
    with pytest.raises(RuntimeError, match="TwoTensor: only leaves can be deep-copied"):
        copy.deepcopy(make("two").requires_grad_() * 2)


# Torch cannot save a view with an offset: it asks `data_ptr() == 0` to know a wrapper by.
@pytest.mark.parametrize("name", NAMES)
def test_save_and_load(name: str) -> None:
    for tensor in (make(name), make(name).t(), nn.Parameter(make(name))):
        file = io.BytesIO()
        torch.save(tensor, file)
        file.seek(0)
        with torch.serialization.safe_globals(
            [ComplexTensor, LoggingTensor, MaskedTensor, QuantTensor, ScaleTensor, TwoTensor]
        ):
            again = torch.load(file)
        assert looks(again) == looks(tensor)
        assert again.requires_grad == tensor.requires_grad
        assert again.__tensor_flatten__() == tensor.__tensor_flatten__()
        for ours, others in zip(leaves(again), leaves(tensor), strict=True):
            assert torch.equal(ours, others)


def values(tensor: torch.Tensor) -> list[torch.Tensor]:
    """What is inside, with scales multiplied out: a ScaleTensor that is written to keeps its own."""
    if isinstance(tensor, TwoTensor):
        return [*values(tensor.a), *values(tensor.b)]
    return [tensor.dequantize()] if isinstance(tensor, ScaleTensor) else leaves(tensor)


@pytest.mark.parametrize("name", NAMES)
def test_load_state_dict_writes_the_parameter_there_is(name: str) -> None:
    ours, others = (nn.ParameterList([nn.Parameter(make(name))]) for _ in range(2))
    kept, memory = ours[0], [leaf.data_ptr() for leaf in leaves(ours[0])]
    ours.load_state_dict(others.state_dict())
    assert ours[0] is kept
    assert [leaf.data_ptr() for leaf in leaves(kept)] == memory
    torch.testing.assert_close(values(kept), values(others[0]))


@pytest.mark.parametrize("name", NAMES)
def test_repr_is_stable_and_names_class(name: str) -> None:
    tensor = make(name)
    assert repr(tensor) == repr(copy.deepcopy(tensor))
    assert repr(tensor).startswith(type(tensor).__name__ + "(")
    assert " at 0x" not in repr(tensor)


def test_written_lists_every_tensor_written() -> None:
    x, y, out = torch.zeros(2), torch.zeros(2), torch.zeros(2)
    assert [t is x for t in written(aten.add_.Tensor, (x, y), {})] == [True]
    assert [t is out for t in written(aten.add.out, (x, y), {"out": out})] == [True]
    assert len(list(written(aten._foreach_add_.List, ([x, y], [y, x]), {}))) == 2
    assert list(written(aten.add.Tensor, (x, y), {})) == []


def test_overloads_and_take_apart() -> None:
    assert overloads("mm add.Tensor") == [aten.mm.default, aten.add.Tensor]
    x = torch.randn(2, 3)
    assert take_apart(TwoTensor, aten.reshape.default, (x, (3, 2)), {}).shape == (3, 2)
    with pytest.raises(NotImplementedError, match=r"TwoTensor has no rule for aten.sin.default"):
        take_apart(TwoTensor, aten.sin.default, (x,), {})


def test_functions_and_names_of_ops() -> None:
    assert functions("sum linear") == [torch.sum, torch.Tensor.sum, nn.functional.linear]
    names = {
        "add": torch.add,
        "eq": torch.Tensor.__eq__,
        "mul_": torch.Tensor.mul_,
        "bitwise_and": torch.Tensor.__and__,
    }
    assert {name: op_name(func) for name, func in names.items()} == {name: name for name in names}
    assert all(map(is_pointwise, names.values()))
    assert not any(
        map(
            is_pointwise,
            (torch.matmul, torch.Tensor.copy_, aten.add.Tensor, nn.functional.pad, torch.Tensor.shape.__get__),
        )
    )
