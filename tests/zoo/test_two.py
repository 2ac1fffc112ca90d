from collections.abc import Callable

import pytest
import torch
from torch import nn

from subtrace_kit.zoo import ScaleTensor, TwoTensor, from_two, to_two

Op = Callable[[torch.Tensor], torch.Tensor]


def make(*shape: int) -> TwoTensor:
    return TwoTensor(torch.randn(shape), torch.randn(shape))


def same(result: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
    """`result` holds `a` and `b`, and looks like both."""
    assert type(result) is TwoTensor
    for half, want in ((result.a, a), (result.b, b)):
        torch.testing.assert_close(half, want, rtol=0, atol=0)
        assert half.stride() == want.stride() == result.stride()
    assert (result.dtype, result.shape) == (a.dtype, a.shape)


PLAIN = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
OPS: dict[str, Op] = {
    "add": lambda x: x + x,
    "plain_left": lambda x: PLAIN * x,
    "plain_right": lambda x: x * PLAIN,
    "matmul": lambda x: x @ PLAIN.t(),
    "linear": lambda x: nn.functional.linear(x, PLAIN),
    "sum": lambda x: x.sum(0),
    "compare": lambda x: x > 0,
    "where": lambda x: torch.where(x > 0, x, 0),
    "to": lambda x: x.double(),
    "reshape": lambda x: x.t().reshape(-1),
    "cat": lambda x: torch.cat([x, PLAIN, x], dim=1),
    "index": lambda x: x[torch.tensor([2, 0])],
    "zeros_like": lambda x: torch.zeros_like(x),
    "new_ones": lambda x: x.new_ones(3),
    "layer_norm": lambda x: nn.functional.layer_norm(x, (6,)),
    "pad": lambda x: nn.functional.pad(x, (1, 2)),
}


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("layout", ["dense", "transposed", "sliced", "expanded"])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_every_op_is_done_on_both_halves(name: str, layout: str, mode: Callable[[], object]) -> None:
    with mode():
        x = {
            "dense": lambda: make(4, 6),
            "transposed": lambda: make(6, 4).t(),
            "sliced": lambda: make(8, 9)[::2, 3:],
            "expanded": lambda: make(4, 1).expand(4, 6),
        }[layout]()
        same(OPS[name](x), OPS[name](x.a), OPS[name](x.b))


def test_several_results() -> None:
    x = make(4, 6)
    values, indices = x.topk(2)
    same(values, x.a.topk(2).values, x.b.topk(2).values)
    same(indices, x.a.topk(2).indices, x.b.topk(2).indices)
    assert [type(part) for part in x.unbind()] == [TwoTensor] * 4


def test_python_results_must_agree() -> None:
    ones, two = torch.ones(()), torch.ones(()) * 2
    assert TwoTensor(ones, ones.clone()).item() == 1
    assert torch.equal(make(2), make(2)) is False
    assert torch.equal(TwoTensor(ones, two), TwoTensor(ones, two)) is True
    assert torch.equal(TwoTensor(ones, two), TwoTensor(ones, ones)) is False
    nan = TwoTensor(ones * torch.nan, ones * torch.nan).item()
    assert nan != nan
    with pytest.raises(RuntimeError, match=r"TwoTensor: .*1.0 for the first half and 2.0 for the second"):
        TwoTensor(ones, two).item()


def test_channels_last() -> None:
    x = TwoTensor(*(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last) for _ in "ab"))
    assert x.is_contiguous(memory_format=torch.channels_last)
    same(x + 1, x.a + 1, x.b + 1)
    assert (x * x).is_contiguous(memory_format=torch.channels_last)
    same(x.contiguous(), x.a.contiguous(), x.b.contiguous())
    back = x.contiguous().to(memory_format=torch.channels_last)
    same(back, x.a, x.b)


IN_PLACE: dict[str, Op] = {
    "add_": lambda x: x.add_(x, alpha=2),
    "mul_": lambda x: x.mul_(3),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(PLAIN[:2, :3]),
    "setitem": lambda x: x.__setitem__((slice(None), 1), 7.0) or x,
    "t_": lambda x: x.t_(),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "foreach": lambda x: torch._foreach_add_([x], [x])[0],
    "out": lambda x: torch.sin(x.clone(), out=x),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_ops_write_the_halves_and_return_their_argument(name: str) -> None:
    x = make(2, 3)
    a, b = x.a, x.b
    want = IN_PLACE[name](a.clone()), IN_PLACE[name](b.clone())
    assert IN_PLACE[name](x) is x
    assert x.a is a
    assert x.b is b
    same(x, *want)


def test_a_write_to_a_view_is_seen_by_the_base_and_by_the_halves_given() -> None:
    a, b = torch.zeros(3, 4), torch.zeros(3, 4)
    base = TwoTensor(a, b)
    base.t()[1].add_(TwoTensor(torch.ones(3), torch.ones(3) * 2))
    assert a[:, 1].tolist() == [1, 1, 1]
    assert b.sum() == 6
    same(base[:, 1], torch.ones(12)[::4], torch.full((12,), 2.0)[::4])


def test_lazy_conjugation_of_the_halves_is_seen() -> None:
    z, w = torch.randn(2, dtype=torch.complex64), torch.randn(2, dtype=torch.complex64)
    x = TwoTensor(z, w)
    same(x.conj() + 1, z.conj() + 1, w.conj() + 1)
    same(TwoTensor(z.conj(), w.conj()) * 2, z.conj() * 2, w.conj() * 2)
    x.conj().add_(1j)
    same(x, z, w)


def test_as_strided_reads_the_halves() -> None:
    x = make(4, 6)[1:]
    same(x.as_strided((2, 2), (6, 1), 7), x.a.as_strided((2, 2), (6, 1), 7), x.b.as_strided((2, 2), (6, 1), 7))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_out_of_no_size_is_resized_outside_as_inside(transposed: bool, nested: bool) -> None:
    def build(*shape: int) -> TwoTensor:
        x = TwoTensor(make(*shape), make(*shape)) if nested else make(*shape)
        return x.t() if transposed and len(shape) == 2 else x

    x, out = build(2, 3), build(0)
    assert torch.add(x, 1, out=out) is out
    assert (out.shape, out.stride()) == (x.shape, x.stride())
    for half, given in ((out.a, x.a), (out.b, x.b)):
        assert (half.shape, half.stride()) == (x.shape, x.stride())
        assert torch.equal(half, given + 1) is True
    assert (out + 1).shape == x.shape


def test_resize_and_set_change_the_outer_tensor_too() -> None:
    x, y = make(2, 3), make(5)
    a, b = x.a.flatten()[:4].clone(), x.b.flatten()[:4].clone()
    assert x.resize_(4) is x
    same(x, a, b)
    assert x.set_(y) is x
    same(x, y.a, y.b)
    assert x.a.data_ptr() == y.a.data_ptr()


def test_a_plain_tensor_cannot_take_both_results() -> None:
    plain = torch.zeros(2)
    with pytest.raises(NotImplementedError, match=r"TwoTensor has no rule for aten.copy_.default into a plain"):
        plain.copy_(make(2))
    with pytest.raises(NotImplementedError, match="cannot hold both"):
        torch.add(make(2), 1, out=plain)
    assert plain.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("b", "what"),
    [
        (torch.zeros(3, 2), "shape"),
        (torch.zeros(2, 3, dtype=torch.float64), "dtype"),
        (torch.zeros(2, 3, device="meta"), "device"),
        (torch.zeros(3, 2).t(), "stride"),
        (torch.zeros(3, 3)[1:], "storage_offset"),
    ],
)
def test_halves_must_be_alike(b: torch.Tensor, what: str) -> None:
    with pytest.raises(ValueError, match=f"TwoTensor: inner tensors differ in {what}"):
        TwoTensor(torch.zeros(2, 3), b)


def test_the_constructor_makes_a_new_leaf() -> None:
    a = torch.ones(2, requires_grad=True)
    x = TwoTensor(a * 1, torch.ones(2))
    assert x.is_leaf
    assert x.requires_grad
    (x * 3).backward(make(2))
    assert a.grad is None
    assert type(x.grad) is TwoTensor


def test_gradients_pass_in_and_out() -> None:
    a, b = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3, requires_grad=True)
    w = torch.randn(3, 3, requires_grad=True)
    first, second = from_two((to_two(a, b) @ w).tanh())
    (first * second).sum().backward()
    got = a.grad, b.grad, w.grad
    want = torch.autograd.grad(((a @ w).tanh() * (b @ w).tanh()).sum(), (a, b, w))
    torch.testing.assert_close(got[0], want[0])
    torch.testing.assert_close(got[1], want[1])
    # The plain weight met both halves: its gradient has a part from each.
    torch.testing.assert_close(got[2].a + got[2].b, want[2])


def test_a_plain_gradient_counts_for_both_halves() -> None:
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    to_two(a, b).backward(torch.tensor([1.0, 2.0]))
    assert a.grad.tolist() == b.grad.tolist() == [1, 2]


def test_gradients_of_one_memory_are_not_added_twice() -> None:
    x = make(2).requires_grad_()
    for _ in range(3):
        a, b = from_two(x)
        (a + b).backward(torch.ones(2))
    assert x.grad.a.tolist() == x.grad.b.tolist() == [3, 3]


def test_double_backward() -> None:
    a, b = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    first, second = from_two(to_two(a, b) ** 3)
    (da,) = torch.autograd.grad((first + second).sum(), a, create_graph=True)
    torch.testing.assert_close(torch.autograd.grad(da.sum(), a)[0], 6 * a)


def test_backward_through_a_written_view() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:, 1].mul_(3)
        return y.sin()

    x = make(2, 3).requires_grad_()
    a, b = x.a.clone().requires_grad_(), x.b.clone().requires_grad_()
    ones = torch.ones(2, 3)
    run(x).backward(TwoTensor(ones, ones.clone()))
    run(a).backward(ones)
    run(b).backward(ones)
    torch.testing.assert_close(x.grad.a, a.grad)
    torch.testing.assert_close(x.grad.b, b.grad)


@pytest.mark.parametrize("foreach", [False, True])
def test_a_parameter_takes_a_step_of_sgd(foreach: bool) -> None:
    weight = nn.Parameter(make(3, 4))
    a, b = weight.a, weight.b
    x = torch.randn(2, 4)
    plain = [nn.Parameter(half.clone()) for half in (a, b)]
    for parameter in (weight, *plain):
        optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9, foreach=foreach)
        for _ in range(2):
            optimizer.zero_grad()
            y = nn.functional.linear(x, parameter).square()
            sum(map(torch.sum, from_two(y) if isinstance(y, TwoTensor) else [y])).backward()
            optimizer.step()
    assert isinstance(weight, nn.Parameter)
    assert weight.a is a
    torch.testing.assert_close(a, plain[0].detach())
    torch.testing.assert_close(b, plain[1].detach())


def test_nested_to_two_levels() -> None:
    x = TwoTensor(make(2, 3), make(2, 3))
    out = (x.t() @ x).relu()
    for half, given in ((out.a, x.a), (out.b, x.b)):
        same(half, (given.a.t() @ given.a).relu(), (given.b.t() @ given.b).relu())
    x.a.add_(1)
    x.add_(x)
    assert x.t()[0].a.untyped_storage()._cdata == x.a.untyped_storage()._cdata


def test_halves_of_another_class() -> None:
    x = TwoTensor(*(ScaleTensor(torch.randn(2, 3), torch.tensor(s)) for s in (0.5, 2.0)))
    doubled = x.t() * 2
    assert type(doubled.a) is type(doubled.b) is ScaleTensor
    same(x + 1, x.a.dequantize() + 1, x.b.dequantize() + 1)
    want = x.a.dequantize() * 3
    assert x.mul_(3) is x
    torch.testing.assert_close(x.a.dequantize(), want)


def test_with_another_class() -> None:
    x, s = make(2, 3), ScaleTensor(torch.randn(2, 3), torch.tensor(0.5))
    same(x * s, x.a * s, x.b * s)
    same(s * x, s * x.a, s * x.b)


def test_a_subclass_stays_one() -> None:
    class Pair(TwoTensor):
        pass

    x = Pair(torch.randn(2, 3), torch.randn(2, 3))
    assert type(x.t() + 1) is Pair
    assert repr(x).startswith("Pair(a=tensor(")
