from collections.abc import Callable

import pytest
import torch
from torch import nn

from subtrace_kit.zoo import ComplexTensor, TwoTensor, from_complex, to_complex

Op = Callable[[torch.Tensor], torch.Tensor]
close = torch.testing.assert_close


def make(*shape: int, dtype: torch.dtype = torch.float64) -> ComplexTensor:
    return ComplexTensor(torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype))


def plain(x: object) -> object:
    return torch.complex(x.re, x.im) if isinstance(x, ComplexTensor) else x


SEED = torch.Generator().manual_seed(1)
REAL = torch.randn(4, 6, dtype=torch.float64, generator=SEED)
COMPLEX = torch.randn(4, 6, dtype=torch.complex128, generator=SEED)
WRAPPED = to_complex(torch.randn(4, 6, dtype=torch.complex128, generator=SEED))


def pick(x: torch.Tensor) -> torch.Tensor:
    """The other operand: a wrapper for a wrapper, its value for a plain tensor."""
    return WRAPPED if isinstance(x, ComplexTensor) else plain(WRAPPED)


KEPT: dict[str, Op] = {
    "add": lambda x: x + pick(x),
    "add_alpha": lambda x: torch.add(x, pick(x), alpha=2 - 1j),
    "add_number": lambda x: 1.5 + x,
    "add_complex": lambda x: x + (1 - 2j),
    "add_real": lambda x: x + REAL,
    "add_broadcast": lambda x: x[0] + REAL,
    "add_plain": lambda x: COMPLEX + x,
    "sub": lambda x: x - pick(x),
    "sub_left": lambda x: 2 - x,
    "sub_left_complex": lambda x: 2j - x,
    "sub_plain": lambda x: REAL - x,
    "mul": lambda x: x * pick(x),
    "mul_number": lambda x: 3 * x,
    "mul_complex": lambda x: x * 2j,
    "mul_real": lambda x: x * REAL,
    "div": lambda x: x / pick(x),
    "div_number": lambda x: x / 3,
    "div_complex": lambda x: x / (1 + 2j),
    "div_real": lambda x: x / REAL,
    "div_left": lambda x: 2 / x,
    "div_plain": lambda x: COMPLEX / x,
    "div_by_plain": lambda x: x / COMPLEX,
    "mm": lambda x: x @ pick(x).t(),
    "mm_plain": lambda x: COMPLEX.t() @ x,
    "mv": lambda x: x @ COMPLEX[0],
    "bmm": lambda x: torch.stack([x, x]) @ COMPLEX.t(),
    "dot": lambda x: torch.dot(x[0], pick(x)[0]),
    "linear": lambda x: nn.functional.linear(x, COMPLEX, COMPLEX[:, 0]),
    "addmm": lambda x: torch.addmm(x[:, :4], x, pick(x).t(), beta=2, alpha=1j),
    "neg": lambda x: -x,
    "conj": lambda x: x.conj() * 1,
    "conj_twice": lambda x: x.conj().conj(),
    "conj_physical": lambda x: torch.conj_physical(x),
    "adjoint": lambda x: x @ x.mH,
    "reciprocal": lambda x: x.reciprocal(),
    "pow0": lambda x: x**0,
    "pow1": lambda x: x**1,
    "pow3": lambda x: x**3,
    "pow4": lambda x: x**4.0,
    "pow_minus_2": lambda x: x**-2,
    "exp": lambda x: x.exp(),
    "sgn": lambda x: x.sgn(),
    "sum": lambda x: x.sum(),
    "sum_dim": lambda x: x.sum(1, keepdim=True),
    "mean": lambda x: x.mean(),
    "mean_dim": lambda x: x.mean(0),
    "zeros_like": lambda x: torch.zeros_like(x),
    "ones_like": lambda x: torch.ones_like(x),
    "new_zeros": lambda x: x.new_zeros(3),
    "to": lambda x: x.to(torch.complex64),
    "clone": lambda x: x.clone(),
    "contiguous": lambda x: x.contiguous(),
    "reshape": lambda x: x.t().reshape(-1),
    "t": lambda x: x.t(),
    "slice": lambda x: x[1:, ::2],
    "expand": lambda x: x.unsqueeze(1).expand(-1, 2, -1),
    "permute": lambda x: x.permute(1, 0),
    "split": lambda x: x.split(2)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "diagonal": lambda x: x.diagonal(),
    "as_strided": lambda x: x.contiguous().as_strided((2, 2), (6, 2), 1),
    "cat": lambda x: torch.cat([x, REAL, pick(x)], dim=1),
    "stack": lambda x: torch.stack([x, COMPLEX], dim=1),
    "where": lambda x: torch.where(REAL > 0, x, pick(x)),
}
REAL_RESULT: dict[str, Op] = {
    "abs": lambda x: x.abs(),
    "angle": lambda x: x.angle(),
    "real": lambda x: x.real,
    "imag": lambda x: x.imag,
    "view_as_real": lambda x: torch.view_as_real(x),
    "eq": lambda x: x == pick(x),
    "eq_self": lambda x: x == x.clone(),
    "eq_number": lambda x: x == 0,
}
OPS = {**KEPT, **REAL_RESULT}
LAYOUTS: dict[str, Callable[[], torch.Tensor]] = {
    "dense": lambda: make(4, 6),
    "transposed": lambda: make(6, 4).t(),
    "sliced": lambda: make(8, 9)[::2, 3:],
    "expanded": lambda: make(4, 1).expand(4, 6),
    "conjugated": lambda: make(4, 6).conj(),
}


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_ops_are_those_of_complex_numbers(name: str, layout: str, mode: Callable[[], object]) -> None:
    with mode():
        x = LAYOUTS[layout]()
        result, want = OPS[name](x), OPS[name](plain(x))
    assert type(result) is (ComplexTensor if name in KEPT else torch.Tensor)
    close(plain(result), want.resolve_conj())
    if type(result) is ComplexTensor:
        assert result.dtype == result.re.dtype.to_complex()
        assert result.stride() == result.re.stride() == result.im.stride()
        assert result.storage_offset() == result.re.storage_offset() == result.im.storage_offset()
    if layout == "dense":
        assert result.stride() == want.stride()


def test_single_precision_and_promotion() -> None:
    x = make(3, dtype=torch.float32)
    assert x.dtype == torch.complex64
    for other in (2, 2.0, 2j, torch.ones(3, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64), x):
        for op in (torch.add, torch.mul, torch.sub):
            assert op(x, other).dtype == op(plain(x), plain(other)).dtype
    scalar = make(dtype=torch.float32)
    assert (scalar + torch.ones(2, dtype=torch.float64)).dtype == torch.complex128


def test_large_and_small_numbers_divide() -> None:
    for size in (1e30, 1e-30):
        x = make(5, dtype=torch.float32) * size
        close(plain(x / x), torch.ones(5, dtype=torch.complex64))
    zero = to_complex(torch.zeros(1, dtype=torch.complex64))
    assert plain(zero.sgn()).tolist() == [0]
    assert plain(zero / zero).isnan().all()


def test_channels_last() -> None:
    x = ComplexTensor(*(torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last) for _ in "ab"))
    assert (x * x).stride() == (x + 1).stride() == x.exp().stride() == x.stride() == x.re.stride()


IN_PLACE: dict[str, Op] = {
    "add_": lambda x: x.add_(pick(x), alpha=2),
    "add_self": lambda x: x.add_(x),
    "sub_": lambda x: x.sub_(1j),
    "mul_": lambda x: x.mul_(pick(x)),
    "mul_conj": lambda x: x.mul_(x.conj()),
    "div_": lambda x: x.div_(COMPLEX),
    "neg_": lambda x: x.neg_(),
    "zero_": lambda x: x.zero_(),
    "copy_": lambda x: x.copy_(pick(x)),
    "copy_real": lambda x: x.copy_(REAL),
    "copy_plain": lambda x: x.copy_(COMPLEX),
    "copy_broadcast": lambda x: x.copy_(COMPLEX[0]),
    "slice": lambda x: x[1:, 2].mul_(3j) is None or x,
    "setitem": lambda x: x.__setitem__(1, COMPLEX[0]) or x,
    "setitem_number": lambda x: x.__setitem__((0, slice(None)), 2) or x,
    "fill_": lambda x: x.fill_(1 - 2j),
    "fill_real": lambda x: x.fill_(REAL[0, 0]),
    "fill_tensor": lambda x: x.fill_(pick(x)[0, 0]),
}


@pytest.mark.parametrize("name", IN_PLACE)
@pytest.mark.parametrize("layout", ["dense", "transposed", "sliced", "conjugated"])
def test_in_place_ops_write_the_parts_and_return_their_argument(name: str, layout: str) -> None:
    x = LAYOUTS[layout]()
    re, im = x.re, x.im
    want = IN_PLACE[name](plain(x).clone())
    assert IN_PLACE[name](x) is x
    assert x.re is re
    assert x.im is im
    close(plain(x), want)


def test_conj_is_a_view() -> None:
    x = make(3)
    before = plain(x).clone()
    x.conj().add_(1j)
    close(plain(x), before - 1j)
    x.copy_(x.conj())
    close(plain(x), (before - 1j).conj().resolve_conj())


def test_a_write_to_a_view_is_seen_by_the_base_and_by_the_parts_given() -> None:
    re, im = torch.zeros(3, 4), torch.zeros(3, 4)
    base = ComplexTensor(re, im)
    base.t()[1].add_(1 + 2j)
    assert re[:, 1].tolist() == [1] * 3
    assert im.sum() == 6


def test_a_plain_target_is_written_as_torch_writes_it() -> None:
    x = make(4, 6)
    for op in (torch.Tensor.add_, torch.Tensor.mul_, torch.Tensor.copy_):
        target = COMPLEX.clone()
        assert op(target, x) is target
        close(target, op(COMPLEX.clone(), plain(x)))
    close(COMPLEX.clone().fill_(x[0, 0]), COMPLEX.clone().fill_(plain(x)[0, 0]))
    with pytest.raises(RuntimeError, match="can't be cast"):
        REAL.clone().add_(x)


def test_in_place_ops_do_not_grow() -> None:
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        make(6).add_(make(4, 6))


def test_ops_without_a_rule_are_refused() -> None:
    for op in (
        lambda x: x.sin(),
        lambda x: x**0.5,
        lambda x: x.to(torch.float32),
        lambda x: x.sum(dtype=torch.float32),
        lambda x: x.view(torch.float64),
        lambda x: x.t_(),
    ):
        with pytest.raises(NotImplementedError, match="ComplexTensor has no rule for aten"):
            op(make(2, 2))


@pytest.mark.parametrize(
    ("re", "im", "message"),
    [
        (torch.zeros(2), torch.zeros(3), "differ in shape"),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64), "differ in dtype"),
        (torch.zeros(2, 3), torch.zeros(3, 2).t(), "differ in stride"),
        (torch.zeros(2).half(), torch.zeros(2).half(), "float32 or float64, got torch.float16"),
        (torch.zeros(2).int(), torch.zeros(2).int(), "float32 or float64, got torch.int32"),
    ],
)
def test_bad_arguments(re: torch.Tensor, im: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=f"ComplexTensor: .*{message}"):
        ComplexTensor(re, im)


def test_to_complex_refuses_real_tensors() -> None:
    with pytest.raises(ValueError, match=r"expected a complex tensor, got torch.float32"):
        to_complex(torch.zeros(2))


def test_entry_and_exit() -> None:
    for x in (COMPLEX, COMPLEX.t(), COMPLEX.conj(), COMPLEX[:, 1:]):
        close(from_complex(to_complex(x)), x.resolve_conj())


def test_the_constructor_makes_a_new_leaf() -> None:
    re = torch.ones(2, requires_grad=True)
    x = ComplexTensor(re * 1, torch.ones(2))
    assert x.is_leaf
    assert x.requires_grad
    (x * 1j).abs().sum().backward()
    assert re.grad is None
    assert x.grad is not None


DIFFERENTIABLE = [name for name in OPS if not name.startswith(("eq", "zeros", "ones", "new_", "pow0", "sgn"))]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_are_those_of_complex_numbers(name: str) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        out = OPS[name](x)
        return (out * out).abs().sum() + out.abs().sum()

    x = make(4, 6).requires_grad_()
    reference = plain(x).clone().requires_grad_()
    loss(x).backward()
    loss(reference).backward()
    close(plain(x.grad), reference.grad.resolve_conj())


def test_gradients_pass_in_and_out() -> None:
    x = torch.randn(3, 3, dtype=torch.complex128, requires_grad=True)
    real = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    y = from_complex((to_complex(x) * real).exp()) * 2
    assert type(y) is torch.Tensor
    got = torch.autograd.grad(y.abs().sum(), (x, real))
    want = torch.autograd.grad(((x * real).exp() * 2).abs().sum(), (x, real))
    close(got, want)
    assert [type(g) for g in got] == [torch.Tensor] * 2


def test_backward_through_a_written_view() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:, 1].mul_(3j)
        return (y * y).abs().sum()

    x = make(2, 3).requires_grad_()
    reference = plain(x).clone().requires_grad_()
    run(x).backward()
    run(reference).backward()
    close(plain(x.grad), reference.grad)


def test_a_parameter_takes_a_step_of_sgd() -> None:
    weight = nn.Parameter(make(3, 4))
    re, x = weight.re, torch.randn(2, 4, dtype=torch.complex128)
    reference = nn.Parameter(plain(weight).clone())
    for parameter in (weight, reference):
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.linear(x, parameter).abs().square().sum().backward()
            optimizer.step()
    assert isinstance(weight, nn.Parameter)
    assert weight.re is re
    close(plain(weight.detach()), reference.detach())


def test_parts_of_another_class() -> None:
    x = ComplexTensor(*(TwoTensor(torch.randn(2, 2), torch.randn(2, 2)) for _ in "ab"))
    y = (x @ x).conj() * 2j
    for half in ("a", "b"):
        z = torch.complex(getattr(x.re, half), getattr(x.im, half))
        got = torch.complex(getattr(y.re, half), getattr(y.im, half))
        close(got, ((z @ z).conj() * 2j).resolve_conj())
