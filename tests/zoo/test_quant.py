from collections.abc import Callable

import pytest
import torch
from torch import nn

from subtrace_kit.zoo import QuantTensor, TwoTensor, from_quant, to_quant

close = torch.testing.assert_close


def make(*shape: int, axis: int = 0) -> QuantTensor:
    return QuantTensor.from_float(torch.randn(shape), axis)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_from_float_is_off_by_half_a_scale_at_most(axis: int, dtype: torch.dtype) -> None:
    x = torch.randn(5, 7, 3).to(dtype)
    w = QuantTensor.from_float(x, axis)
    assert (w.shape, w.dtype, w.q.dtype, w.axis) == (x.shape, dtype, torch.int8, axis % 3)
    slack = 1 if dtype == torch.bfloat16 else 1e-5  # Its own rounding is coarser than the scale.
    assert ((w.dequantize() - x).abs() <= w.scale * (0.5 + slack)).all()
    others = [dim for dim in range(3) if dim != axis % 3]
    assert (w.q.abs().amax(others) == 127).all()


def test_from_float_of_zeros_and_of_one_dimension() -> None:
    assert QuantTensor.from_float(torch.zeros(2, 3)).dequantize().tolist() == [[0] * 3] * 2
    x = torch.randn(4)
    close(QuantTensor.from_float(x).dequantize(), x)


def test_strides_of_the_source_are_kept() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    w = QuantTensor.from_float(x)
    assert w.stride() == w.q.stride() == x.stride()
    expanded = QuantTensor(torch.ones(3, 1, dtype=torch.int8).expand(3, 4), torch.rand(3, 1), 0)
    assert expanded.stride() == (1, 0)
    assert expanded.clone().stride() == expanded.clone().q.stride()


def test_from_float_makes_a_leaf_without_graph() -> None:
    w = QuantTensor.from_float(torch.ones(2, 2, requires_grad=True))
    assert not w.requires_grad
    assert not w.scale.requires_grad


Program = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
PRODUCTS: dict[str, Program] = {
    "linear": lambda x, w: nn.functional.linear(x, w),
    "linear_bias": lambda x, w: nn.functional.linear(x, w, torch.arange(5.0)),
    "matmul": lambda x, w: x @ w.t(),
    "matmul_3d": lambda x, w: torch.stack([x, 2 * x]) @ w.t(),
    "left": lambda x, w: w @ x.t(),
    "vector": lambda x, w: w @ x[0],
    "addmm": lambda x, w: torch.addmm(torch.ones(5), x, w.t(), alpha=2),
    "sliced": lambda x, w: nn.functional.linear(x, w[1:4]),
    "columns": lambda x, w: nn.functional.linear(x[:, 2:], w[:, 2:]),
    "chunk": lambda x, w: x @ w.chunk(2)[0].t(),
    "both": lambda x, w: w @ w.t(),
    "transposed": lambda x, w: x @ w.transpose(-1, 0),
    "half_precision": lambda x, w: x.to(torch.float16) @ w.to(torch.float16).t(),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_products_are_those_of_the_values(name: str, axis: int, mode: Callable[[], object]) -> None:
    with mode():
        x, w = torch.randn(3, 7), make(5, 7, axis=axis)
        result, want = PRODUCTS[name](x, w), PRODUCTS[name](x, w.dequantize())
    assert type(result) is torch.Tensor
    close(result, want)


VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "t": lambda w: w.t(),
    "transpose": lambda w: w.transpose(0, -1),
    "rows": lambda w: w[1:3],
    "step": lambda w: w[::2],
    "columns": lambda w: w[:, 2:],
    "narrow": lambda w: w.narrow(1, 1, 3),
    "split": lambda w: w.split(2)[1],
    "split_sizes": lambda w: w.split([3, 4], dim=1)[1],
    "chunk": lambda w: w.chunk(2, dim=1)[0],
    "detach": lambda w: w.detach(),
    "several": lambda w: w[1:].t()[2:, 1:],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("axis", [0, 1])
def test_views_are_those_of_the_values_and_share_memory(name: str, axis: int) -> None:
    w = make(5, 7, axis=axis)
    view, want = VIEWS[name](w), VIEWS[name](w.dequantize())
    assert type(view) is QuantTensor
    close(view.dequantize(), want)
    assert (view.stride(), view.storage_offset()) == (want.stride(), want.storage_offset())
    assert (view.q.stride(), view.q.storage_offset()) == (want.stride(), want.storage_offset())
    for x in ("q", "scale"):
        assert getattr(view, x).untyped_storage()._cdata == getattr(w, x).untyped_storage()._cdata
    w.scale.mul_(2)
    close(view.dequantize(), 2 * want)


def test_metadata_is_kept() -> None:
    w = make(5, 7)
    assert w.t().axis == 1
    assert w.t().t().axis == w[1:].axis == w[:, 1:].axis == w.clone().axis == w.double().axis == 0
    assert [w.whole, w.t().whole, w[1:].whole, w.split(2)[0].whole] == [True] * 4
    assert [w[:, 1:].whole, w.t()[1:].whole, w[:, 1:][1:].whole, w[:, 1:].detach().whole] == [False] * 4
    assert w[:, 1:].clone().whole
    assert QuantTensor.from_float(torch.randn(2, 3, 4), axis=1).transpose(1, 2).axis == 2


def test_dtype_is_that_of_the_scale() -> None:
    w = make(5, 7)
    half = w.to(torch.float16)
    assert (half.dtype, half.scale.dtype, half.q.dtype) == (torch.float16, torch.float16, torch.int8)
    assert half.q.data_ptr() != w.q.data_ptr()
    with pytest.raises(NotImplementedError, match=r"QuantTensor has no rule for aten._to_copy.default to torch.int"):
        w.int()


def test_copy_of_a_whole_tensor_takes_the_scales_too() -> None:
    w, source = make(5, 7), make(5, 7)
    q, scale = w.q, w.scale
    source.scale.mul_(10)
    assert w.copy_(source) is w
    assert w.q is q
    assert w.scale is scale
    assert torch.equal(w.dequantize(), source.dequantize())
    w.copy_(torch.full((7,), 3.0))
    close(w.dequantize(), torch.full((5, 7), 3.0))
    w.copy_(make(5, 7, axis=1))
    assert w.axis == 0


def test_copy_into_rows_leaves_the_others() -> None:
    w = make(5, 7)
    before, source = w.dequantize(), make(2, 7)
    source.scale.mul_(10)
    w[1:3].copy_(source)
    assert torch.equal(w.dequantize()[1:3], source.dequantize())
    assert torch.equal(w.dequantize()[[0, 3, 4]], before[[0, 3, 4]])


def test_copy_into_columns_keeps_the_scales_of_the_rows() -> None:
    w = make(5, 7)
    before, scale = w.dequantize(), w.scale.clone()
    w[:, 2:4].copy_(torch.full((5, 2), 0.1))
    assert torch.equal(w.scale, scale)
    assert torch.equal(w.dequantize()[:, 4:], before[:, 4:])
    assert ((w.dequantize()[:, 2:4] - 0.1).abs() <= scale / 2 + 1e-6).all()


def test_copy_to_a_plain_tensor() -> None:
    w, plain = make(5, 7), torch.zeros(5, 7)
    assert plain.copy_(w) is plain
    assert torch.equal(plain, w.dequantize())


def test_other_ops_are_refused() -> None:
    for op in (lambda w: w + 1, lambda w: w.sin(), lambda w: w[0], lambda w: w.mul_(2), lambda w: w.view(-1)):
        with pytest.raises(NotImplementedError, match="QuantTensor has no rule for aten"):
            op(make(2, 3))


@pytest.mark.parametrize(
    ("q", "scale", "axis", "message"),
    [
        (torch.ones(2, 3), torch.ones(2, 1), 0, "needs int8 and floating point, got torch.float32"),
        (torch.ones(2, 3, dtype=torch.int8), torch.ones(2, 1).int(), 0, "got torch.int8, torch.int32"),
        (torch.ones(2, 3, dtype=torch.int8), torch.ones(2, 1), 2, r"no axis 2 in shape \(2, 3\)"),
        (torch.ones((), dtype=torch.int8), torch.ones(()), 0, r"no axis 0 in shape \(\)"),
        (torch.ones(2, 3, dtype=torch.int8), torch.ones(2), 0, r"must have shape \(2, 1\), got \(2,\)"),
        (torch.ones(2, 3, dtype=torch.int8), torch.ones(2, 1, device="meta"), 0, "q is on cpu, scale on"),
    ],
)
def test_bad_arguments(q: torch.Tensor, scale: torch.Tensor, axis: int, message: str) -> None:
    with pytest.raises(ValueError, match=f"QuantTensor: .*{message}"):
        QuantTensor(q, scale, axis)


@pytest.mark.parametrize(("x", "axis"), [(torch.ones(2), 1), (torch.ones(()), 0), (torch.ones(2).int(), 0)])
def test_bad_arguments_of_from_float(x: torch.Tensor, axis: int) -> None:
    with pytest.raises(ValueError, match=f"QuantTensor: no axis {axis} in"):
        QuantTensor.from_float(x, axis)


def test_gradients_reach_the_activation() -> None:
    x, w = torch.randn(3, 7, requires_grad=True), make(5, 7)
    nn.functional.linear(x, w).square().sum().backward()
    want = torch.autograd.grad(nn.functional.linear(x, w.dequantize()).square().sum(), x)[0]
    close(x.grad, want)


def test_gradients_pass_straight_through_rounding() -> None:
    x, w = torch.randn(3, 7), torch.randn(5, 7, requires_grad=True)
    rounded = QuantTensor.from_float(w).dequantize().requires_grad_()
    nn.functional.linear(x, to_quant(w)).square().sum().backward()
    nn.functional.linear(x, rounded).square().sum().backward()
    close(w.grad, rounded.grad)
    w.grad = None
    from_quant(to_quant(w, axis=1)[1:]).sum().backward()
    assert w.grad.sum(1).tolist() == [0, 7, 7, 7, 7]


def test_as_a_frozen_parameter() -> None:
    layer = nn.Linear(7, 5)
    layer.weight = nn.Parameter(QuantTensor.from_float(layer.weight), requires_grad=False)
    x = torch.randn(3, 7)
    close(layer(x), nn.functional.linear(x, layer.weight.dequantize(), layer.bias))
    assert [name for name, p in layer.named_parameters() if p.requires_grad] == ["bias"]
    other = nn.Linear(7, 5)
    other.weight = nn.Parameter(make(5, 7), requires_grad=False)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))


def test_with_another_class() -> None:
    x, w = TwoTensor(torch.randn(3, 7), torch.randn(3, 7)), make(5, 7)
    y = nn.functional.linear(x, w)
    close(y.a, nn.functional.linear(x.a, w.dequantize()))
    with pytest.raises(NotImplementedError, match=r"TwoTensor has no rule for aten.copy_"):
        w.copy_(TwoTensor(torch.zeros(5, 7), torch.zeros(5, 7)))
