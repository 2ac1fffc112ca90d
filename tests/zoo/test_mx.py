import pytest
import torch
from torch import nn

import subtrace_kit
from subtrace_kit.zoo import MXTensor, from_mx, to_mx

close = torch.testing.assert_close
E4M3 = torch.float8_e4m3fn


def make(*shape: int, axis: int = -1) -> MXTensor:
    return MXTensor.from_float(torch.randn(shape), axis)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rounding_is_off_by_a_sixteenth_at_most(axis: int, dtype: torch.dtype) -> None:
    x = torch.randn(33, 64, 3).to(dtype)
    w = MXTensor.from_float(x, axis)
    assert (w.shape, w.dtype, w.elements.dtype, w.axis) == (x.shape, dtype, torch.float8_e4m3fn, axis % 3)
    scale = torch.exp2(w.exponents.float() - 127).repeat_interleave(32, axis).narrow(axis, 0, x.shape[axis])
    values, found = x.float(), w.dequantize().float()
    cut = values.abs() > 448 * scale
    assert ((found - values).abs() <= values.abs() / 16 + scale * 2.0**-10)[~cut].all()
    assert torch.equal(found[cut].abs(), (448 * scale)[cut])


def test_the_scale_of_a_block_is_a_power_of_two_from_its_largest_number() -> None:
    x = torch.cat([torch.full((32,), 3.0), torch.full((32,), 0.01)])
    w = MXTensor.from_float(x)
    assert w.exponents.tolist() == [127 + 1 - 8, 127 - 7 - 8]
    close(w.dequantize()[:32], x[:32], rtol=0, atol=0)
    assert w.elements[0].item() == 384.0


def test_numbers_of_the_format_come_back_as_they_were() -> None:
    x = torch.arange(-16, 16).float() * 2**5
    close(MXTensor.from_float(x).dequantize(), x, rtol=0, atol=0)
    assert MXTensor.from_float(torch.zeros(2, 40)).dequantize().tolist() == [[0] * 40] * 2


def test_what_exceeds_the_largest_element_is_cut() -> None:
    assert MXTensor.from_float(torch.tensor([1.99])).dequantize().item() == 1.75


def test_a_last_block_may_be_short() -> None:
    w = make(2, 70)
    assert w.exponents.shape == (2, 3)
    assert w.dequantize().shape == (2, 70)


PROGRAMS = {
    "linear": lambda x, w: nn.functional.linear(x, w),
    "bias": lambda x, w: nn.functional.linear(x, w, torch.arange(5.0)),
    "matmul": lambda x, w: x @ w.t(),
    "left": lambda x, w: w @ x.t(),
    "vector": lambda x, w: w @ x[0],
    "rows": lambda x, w: nn.functional.linear(x, w[1:4]),
    "columns": lambda x, w: nn.functional.linear(x[:, 32:], w[:, 32:]),
    "copies": lambda x, w: x @ w.clone().detach().t(),
    "bfloat16": lambda x, w: x.bfloat16() @ w.to(torch.bfloat16).t(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_are_those_of_the_values_traced_and_lowered_too(name: str) -> None:
    program = PROGRAMS[name]
    x, w = torch.randn(3, 64), make(5, 64)
    wanted = program(x, w.dequantize())
    trace = subtrace_kit.trace(program)(torch.randn(3, 64), make(5, 64))
    for run in (program, trace, subtrace_kit.lower(trace)):
        close(run(x, w), wanted)


def test_views_share_memory() -> None:
    w = make(4, 64)
    with torch.no_grad():
        w[1:3].copy_(torch.ones(2, 64))
    assert w.dequantize()[1:3].tolist() == [[1.0] * 64] * 2
    assert w.t().axis == 0
    assert w.t().elements.data_ptr() == w.elements.data_ptr()


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (lambda w: w + 1, "no rule for aten.add.Tensor"),
        (lambda w: w[:, 1:], "cuts a block of 32"),
        (lambda w: w.to(torch.int8), "no rule for aten._to_copy.default to torch.int8"),
        (lambda w: w.view(-1), "no rule for aten.view"),
    ],
)
def test_other_ops_are_refused(op, text: str) -> None:
    with pytest.raises(NotImplementedError, match=text):
        op(make(4, 64))


@pytest.mark.parametrize(
    ("elements", "exponents", "axis", "dtype", "text"),
    [
        (torch.zeros(2, 32), torch.ones(2, 1, dtype=torch.uint8), 1, torch.float32, "needs float8_e4m3fn"),
        (torch.zeros(2, 32).to(E4M3), torch.ones(2, 1), 1, torch.float32, "needs float8_e4m3fn"),
        (
            torch.zeros(2).to(torch.float8_e4m3fn),
            torch.ones(1, dtype=torch.uint8),
            0,
            torch.int8,
            "floating point dtype",
        ),
        (torch.zeros(2).to(torch.float8_e4m3fn), torch.ones(1, dtype=torch.uint8), 1, torch.float32, "no axis 1"),
        (torch.zeros(2).to(torch.float8_e4m3fn), torch.ones(2, dtype=torch.uint8), 0, torch.float32, "must have shape"),
    ],
)
def test_wrong_parts_are_told(elements, exponents, axis, dtype, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        MXTensor(elements, exponents, axis, dtype)


def test_gradients_go_straight_through() -> None:
    w = torch.randn(4, 64, requires_grad=True)
    x = torch.randn(3, 64)
    nn.functional.linear(x, to_mx(w)).sum().backward()
    close(w.grad, x.sum(0).expand(4, 64))
    w.grad = None
    (from_mx(to_mx(w)) * 2).sum().backward()
    close(w.grad, torch.full((4, 64), 2.0))


def test_a_small_network_is_trained_as_in_eager() -> None:
    def net():
        torch.manual_seed(0)
        return [torch.randn(32, 32).mul(0.2).requires_grad_(), torch.randn(1, 32).mul(0.2).requires_grad_()]

    def loss(x, first, second):
        hidden = torch.relu(nn.functional.linear(x, to_mx(first)))
        return (nn.functional.linear(hidden, to_mx(second)) - x.sum(1, keepdim=True)).pow(2).mean()

    trace = subtrace_kit.trace(loss)(torch.randn(8, 32), *net())
    losses = []
    for run in (loss, trace, subtrace_kit.lower(trace)):
        weights, found = net(), []
        optimizer = torch.optim.SGD(weights, 0.02)
        for _ in range(20):
            torch.manual_seed(5)
            optimizer.zero_grad()
            value = run(torch.randn(8, 32), *weights)
            value.backward()
            optimizer.step()
            found.append(value.item())
        losses.append(found)
    assert losses[1] == losses[0]
    assert losses[2] == losses[0]
    assert losses[0][-1] < losses[0][0] / 4
