from collections.abc import Callable

import pytest
import torch
from torch import nn

from subtrace_kit.zoo import ScaleTensor, from_scale, to_scale

Op = Callable[[torch.Tensor], torch.Tensor]
close = torch.testing.assert_close


def make(*shape: int, scale: float = 0.3) -> ScaleTensor:
    return ScaleTensor(torch.randn(shape), torch.tensor(scale))


def value(x: object) -> object:
    return x.dequantize() if isinstance(x, ScaleTensor) else x


PLAIN = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
KEPT: dict[str, Op] = {
    "mul": lambda x: x * 3,
    "mul_left": lambda x: 0.5 * x,
    "t": lambda x: x.t(),
    "reshape": lambda x: x.t().reshape(-1),
    "view": lambda x: x.contiguous().view(3, 8),
    "slice": lambda x: x[1:, ::2],
    "select": lambda x: x[:, 2],
    "unsqueeze": lambda x: x.unsqueeze(1).expand(-1, 2, -1).squeeze(0),
    "permute": lambda x: x.permute(1, 0).movedim(0, 1),
    "diagonal": lambda x: x.diagonal(),
    "unfold": lambda x: x.unfold(1, 2, 2),
    "as_strided": lambda x: x.contiguous().as_strided((2, 2), (6, 2), 1),
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),
    "double": lambda x: x.double(),
    "chunk": lambda x: x.chunk(3, dim=1)[1],
    "unbind": lambda x: x.unbind(1)[4],
}
PLAIN_RESULT: dict[str, Op] = {
    "add": lambda x: x + 1,
    "mul_tensor": lambda x: x * PLAIN,
    "mul_self": lambda x: x * x,
    "mul_complex": lambda x: x * 2j,
    "matmul": lambda x: x @ PLAIN.t(),
    "linear": lambda x: nn.functional.linear(PLAIN, x),
    "sum": lambda x: x.sum(0),
    "neg": lambda x: -x,
    "compare": lambda x: x > 0.1,
    "int": lambda x: (x * 100).int(),
    "zeros_like": lambda x: torch.zeros_like(x),
    "cat": lambda x: torch.cat([x, PLAIN]),
}


@pytest.mark.parametrize("name", [*KEPT, *PLAIN_RESULT])
@pytest.mark.parametrize("layout", ["dense", "transposed", "sliced", "expanded"])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_ops_are_those_of_the_values(name: str, layout: str, mode: Callable[[], object]) -> None:
    op = {**KEPT, **PLAIN_RESULT}[name]
    with mode():
        x = {
            "dense": lambda: make(4, 6),
            "transposed": lambda: make(6, 4).t(),
            "sliced": lambda: make(8, 9)[::2, 3:],
            "expanded": lambda: make(1, 6).expand(4, 6),
        }[layout]()
        result = op(x)
        # The values laid out as x is, so that strides can be compared.
        same = value(x).expand(4, 6) if layout != "expanded" else value(x[:1]).expand(4, 6)
        want = op(same if layout != "sliced" else torch.zeros(8, 9)[::2, 3:].copy_(same))
    assert type(result) is (ScaleTensor if name in KEPT else torch.Tensor)
    close(value(result), want)
    if name != "diagonal" or layout == "dense":
        assert result.stride() == want.stride()
    if type(result) is ScaleTensor:
        assert result.raw.stride() == result.stride()
        assert result.raw.storage_offset() == result.storage_offset()


def test_channels_last() -> None:
    x = make(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert x.raw.is_contiguous(memory_format=torch.channels_last)
    assert (x * 2).stride() == (x + 1).stride() == x.stride() == x.raw.stride()


def test_multiplication_by_a_number_touches_the_scale_only() -> None:
    x = make(3)
    y = x * 4
    assert torch.equal(y.raw, x.raw)
    assert y.scale == x.scale * 4
    assert y.raw.data_ptr() != x.raw.data_ptr()
    y.zero_()
    assert x.raw.abs().sum() > 0


@pytest.mark.parametrize("number", [0, 0.0, False, float("inf"), float("nan")])
def test_a_number_that_is_no_scale_goes_into_raw(number: float) -> None:
    x = make(3, scale=-0.3)
    y = x * number
    assert type(y) is ScaleTensor
    assert torch.equal(y.scale, x.scale)
    close(y.dequantize(), x.dequantize() * number, equal_nan=True)
    close(y.fill_(2.0).dequantize(), torch.full((3,), 2.0))


@pytest.mark.parametrize("raw", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [torch.bfloat16, torch.float32, torch.float64])
def test_the_dtype_is_that_of_raw_also_without_dimensions(raw: torch.dtype, scale: torch.dtype) -> None:
    x = ScaleTensor(torch.ones(2, dtype=raw), torch.tensor(0.5, dtype=scale))
    for y in (x, x[0], to_scale(torch.ones((), dtype=raw), torch.tensor(0.5, dtype=scale))):
        assert y.dtype == y.raw.dtype == y.dequantize().dtype == from_scale(y).dtype == (y + 1).dtype == raw


IN_PLACE: dict[str, Op] = {
    "add_": lambda x: x.add_(PLAIN, alpha=2),
    "add_self": lambda x: x.add_(x),
    "sub_": lambda x: x.sub_(1),
    "mul_": lambda x: x.mul_(3),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(2.5),
    "copy_": lambda x: x.copy_(PLAIN),
    "relu_": lambda x: x.relu_(),
    "setitem": lambda x: x.__setitem__((slice(None), 1), 7.0) or x,
    "setitem_mask": lambda x: x.__setitem__(PLAIN > 0, -1.0) or x,
    "foreach": lambda x: torch._foreach_mul_([x], 3)[0],
    "out": lambda x: torch.sin(PLAIN, out=x),
}


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("transposed", [False, True])
def test_in_place_ops_write_raw_and_return_their_argument(name: str, transposed: bool) -> None:
    x = make(6, 4).t() if transposed else make(4, 6)
    raw, scale, before = x.raw, x.scale, x.scale.clone()
    want = IN_PLACE[name](x.dequantize())
    assert IN_PLACE[name](x) is x
    assert x.raw is raw
    assert x.scale is scale
    assert scale == before
    close(x.dequantize(), want)


def test_a_write_to_a_view_is_seen_by_the_base_and_nowhere_else() -> None:
    raw = torch.ones(3, 4)
    base = ScaleTensor(raw, torch.tensor(0.5))
    base[1].mul_(4)
    assert raw[1].tolist() == [4] * 4
    close(base.dequantize(), torch.tensor([[0.5], [2.0], [0.5]]).expand(3, 4))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_of_another_size_is_refused_and_not_written() -> None:
    for out in (make(0), make(4, 3)):
        before = out.dequantize()
        with pytest.raises(NotImplementedError, match=r"ScaleTensor has no rule for aten.add.out that resizes"):
            torch.add(torch.ones(1, 3), 1, out=out)
        assert torch.equal(out.dequantize(), before)


def test_views_share_the_scale() -> None:
    base = make(3, 4)
    view = base.t()
    base.scale.fill_(2.0)
    close(view.dequantize(), base.dequantize().t())


def test_a_lazily_negated_tensor_is_seen_as_such() -> None:
    raw = torch.randn(3, dtype=torch.complex64).conj().imag
    assert raw.is_neg()
    close(ScaleTensor(raw, torch.tensor(2.0)) + 1, raw * 2 + 1)


def test_copy_converts_values_between_scales() -> None:
    x, y = make(3, scale=0.5), make(3, scale=2.0)
    want = y.dequantize()
    x.copy_(y)
    assert x.scale == 0.5
    close(x.dequantize(), want)
    plain = torch.zeros(3)
    assert plain.copy_(y) is plain
    close(plain, want)
    assert plain.add_(y) is plain
    close(plain, 2 * want)


def test_ops_without_a_rule_say_so() -> None:
    for op in (lambda x: x.t_(), lambda x: x.unsqueeze_(0), lambda x: x.view(torch.int32)):
        with pytest.raises(NotImplementedError, match="ScaleTensor has no rule for aten"):
            op(make(2, 3))


@pytest.mark.parametrize(
    ("raw", "scale", "message"),
    [
        (torch.ones(2), torch.ones(1), r"scale must be 0-dim, got shape \(1,\)"),
        (torch.ones(2, dtype=torch.int32), torch.ones(()), "floating point, got torch.int32"),
        (torch.ones(2), torch.tensor(1), "floating point, got torch.float32, torch.int64"),
        (torch.ones(2, device="meta"), torch.ones(()), "raw is on meta, scale on cpu"),
    ],
)
def test_bad_arguments(raw: torch.Tensor, scale: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=f"ScaleTensor: .*{message}"):
        ScaleTensor(raw, scale)


def test_the_constructor_makes_a_new_leaf() -> None:
    raw = torch.ones(2, requires_grad=True)
    x = ScaleTensor(raw * 1, torch.tensor(2.0))
    assert x.is_leaf
    assert x.requires_grad
    (x * 3).sum().backward()
    assert raw.grad is None
    close(x.grad, torch.full((2,), 3.0))


def test_gradients_pass_in_and_out() -> None:
    x, w = torch.randn(2, 3, requires_grad=True), torch.randn(3, 4, requires_grad=True)
    y = to_scale(x, torch.tensor(0.5)) * 3
    assert type(y) is ScaleTensor
    loss = (from_scale(y.t()).t() @ w).square().sum() + (y @ w).sum()
    got = torch.autograd.grad(loss, (x, w))
    want = torch.autograd.grad(((3 * x) @ w).square().sum() + (3 * x @ w).sum(), (x, w))
    close(got, want)
    assert [type(g) for g in got] == [torch.Tensor] * 2


def test_a_gradient_of_the_class_is_made_plain_for_a_plain_input() -> None:
    x = torch.ones(2, requires_grad=True)
    to_scale(x, torch.tensor(4.0)).backward(ScaleTensor(torch.ones(2), torch.tensor(5.0)))
    assert type(x.grad) is torch.Tensor
    close(x.grad, torch.full((2,), 5.0))


def test_double_backward() -> None:
    x = torch.randn(3, requires_grad=True)
    (dx,) = torch.autograd.grad((to_scale(x, torch.tensor(2.0)) ** 3).sum(), x, create_graph=True)
    close(torch.autograd.grad(dx.sum(), x)[0], 6 * x)


def test_backward_through_a_written_view() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:, 1].mul_(3)
        return y.sin().sum()

    x = make(2, 3).requires_grad_()
    plain = x.dequantize().requires_grad_()
    run(x).backward()
    run(plain).backward()
    close(x.grad, plain.grad)


def test_a_parameter_takes_a_step_of_sgd() -> None:
    weight = nn.Parameter(make(3, 4))
    raw, x = weight.raw, torch.randn(2, 4)
    plain = nn.Parameter(weight.dequantize())
    for parameter in (weight, plain):
        optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.linear(x, parameter).square().sum().backward()
            optimizer.step()
    assert isinstance(weight, nn.Parameter)
    assert weight.raw is raw
    close(weight.dequantize(), plain.detach())
