from collections.abc import Callable

import pytest
import torch
from same import trace_and_lower
from torch import nn
from verified import assert_agrees

from subtrace_kit.zoo import MaskedTensor, TwoTensor, from_masked, to_masked

Op = Callable[[torch.Tensor], torch.Tensor]
close = torch.testing.assert_close


def make(*shape: int, seed: int = 0) -> MaskedTensor:
    """NaN stands where nothing is specified: it would show in any result that it came into."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(shape, generator=generator) > 0.3
    return MaskedTensor(torch.randn(shape, generator=generator).where(mask, torch.nan), mask)


def same(found: torch.Tensor, raw: torch.Tensor, mask: torch.Tensor) -> None:
    """`found` has these elements where `mask` is set, and looks like its parts."""
    assert type(found) is MaskedTensor
    assert torch.equal(found.mask, mask)
    close(found.raw[mask], raw[mask], rtol=0, atol=0)
    assert (found.dtype, found.shape) == (found.raw.dtype, found.raw.shape)
    assert found.stride() == found.raw.stride() == found.mask.stride()
    assert found.storage_offset() == found.raw.storage_offset() == found.mask.storage_offset()


PLAIN = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
POINTWISE: dict[str, Op] = {
    "neg": lambda x: -x,
    "exp": lambda x: x.exp(),
    "clamp": lambda x: x.clamp(-0.5, 0.5),
    "gelu": lambda x: nn.functional.gelu(x),
    "add": lambda x: x + x.exp(),
    "add_number": lambda x: 1 - x,
    "plain_left": lambda x: PLAIN * x,
    "plain_right": lambda x: x / PLAIN[:, 1:2],
    "power": lambda x: x**2,
    "compare": lambda x: x > 0,
    "where": lambda x: torch.where(x > 0, x, PLAIN),
    "double": lambda x: x.double(),
    "clone": lambda x: x.clone(),
    "zeros_like": lambda x: torch.zeros_like(x),
    "full_like": lambda x: torch.ones_like(x) * 3,
}
VIEWS: dict[str, Op] = {
    "t": lambda x: x.t(),
    "reshape": lambda x: x.t().reshape(-1),
    "slice": lambda x: x[1:, ::2],
    "select": lambda x: x[:, 2],
    "expand": lambda x: x.unsqueeze(1).expand(-1, 2, -1),
    "permute": lambda x: x.permute(1, 0),
    "diagonal": lambda x: x.diagonal(),
    "as_strided": lambda x: x.contiguous().as_strided((2, 2), (6, 2), 1),
    "chunk": lambda x: x.chunk(3, dim=1)[1],
}
LAYOUTS: dict[str, Callable[[], MaskedTensor]] = {
    "dense": lambda: make(4, 6),
    "transposed": lambda: make(6, 4).t(),
    "sliced": lambda: make(8, 9)[::2, 3:],
    "expanded": lambda: make(4, 1).expand(4, 6),
}


@pytest.mark.parametrize("name", [*POINTWISE, *VIEWS])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_elements_are_those_of_plain_ops_and_masks_go_with_them(
    name: str, layout: str, mode: Callable[[], object]
) -> None:
    op = {**POINTWISE, **VIEWS}[name]
    with mode():
        x = LAYOUTS[layout]()
        same(op(x), op(x.raw), VIEWS[name](x.mask) if name in VIEWS else x.mask)


def test_a_plain_operand_may_be_the_larger() -> None:
    x = make(6)
    same(x + PLAIN, x.raw + PLAIN, x.mask.expand(4, 6))
    same(PLAIN * x, PLAIN * x.raw, x.mask.expand(4, 6))


COMBINED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": lambda x, y: x + y,
    "function": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "keyword": lambda x, y: torch.mul(x, other=y),
    "compare": lambda x, y: x == y,
    "and": lambda x, y: (x > 0) & (y > 0),
    "where": lambda x, y: torch.where(PLAIN > 0, x, y),
    "lerp": lambda x, y: torch.lerp(x, PLAIN, y),
}


@pytest.mark.parametrize("name", COMBINED)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_a_pointwise_result_is_specified_where_all_operands_are(name: str, mode: Callable[[], object]) -> None:
    with mode():
        x, y = make(4, 6), make(4, 6, seed=2)
        same(COMBINED[name](x, y), COMBINED[name](x.raw, y.raw), x.mask & y.mask)


def test_masks_broadcast() -> None:
    x, row, column = make(4, 6), make(6, seed=2), make(4, 1, seed=3)
    same(x + row, x.raw + row.raw, x.mask & row.mask)
    same(column * row, column.raw * row.raw, column.mask & row.mask)
    wide, narrow = make(4, 1).expand(4, 6).clone(), make(4, 1)
    same(wide + narrow, wide.raw * 2, wide.mask)


@pytest.mark.parametrize("specified", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_0_dim_operand_does_not_widen_the_result(specified: bool, dtype: torch.dtype) -> None:
    x = make(4, 6).nan_to_num().to(dtype)
    one = MaskedTensor(torch.tensor(0.5, dtype=torch.float64), torch.tensor(specified))
    same(x + one, x.raw + one.raw, x.mask & one.mask)


def test_in_place_an_operand_is_specified_wherever_the_target_is() -> None:
    x, y = make(4, 6), make(4, 6, seed=2)
    some = x * y
    want, mask = some.raw * x.raw, some.mask.clone()
    assert some.mul_(x) is some
    same(some, want, mask)
    with pytest.raises(RuntimeError, match=r"MaskedTensor: masks differ in aten.mul_.Tensor"):
        x.mul_(y)


def test_views_alias_both_parts_and_results_neither() -> None:
    x = make(4, 6)
    for view in (x.t(), x[1:], x[:, 2], x.view(-1), x.detach(), *x.split(3, dim=1)):
        assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
        for part in ("raw", "mask"):
            assert getattr(view, part).untyped_storage()._cdata == getattr(x, part).untyped_storage()._cdata
    for result in (x + 1, x.clone(), x.exp()):
        assert result.mask.data_ptr() != x.mask.data_ptr()


IN_PLACE: dict[str, Op] = {
    "add_": lambda x: x.add_(x, alpha=2),
    "mul_": lambda x: x.mul_(PLAIN),
    "relu_": lambda x: x.relu_(),
    "zero_": lambda x: x.zero_(),
    "setitem": lambda x: x.__setitem__((slice(None), 1), 7.0) or x,
    "copy_plain": lambda x: x.copy_(PLAIN),
    "view": lambda x: x.t()[1].mul_(3) is None or x,
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_ops_write_the_elements_and_leave_the_mask(name: str) -> None:
    x = make(4, 6)
    raw, mask = x.raw, x.mask
    want, kept = IN_PLACE[name](raw.clone()), mask.clone()
    assert IN_PLACE[name](x) is x
    assert x.raw is raw
    assert x.mask is mask
    same(x, want, kept)


@pytest.mark.parametrize("name", ["t_", "unsqueeze_", "squeeze_", "transpose_"])
def test_views_in_place_change_both_parts(name: str) -> None:
    x = make(4, 6)[:, :1]
    raw, mask = x.raw, x.mask
    dims = {"t_": (), "unsqueeze_": (0,), "squeeze_": (1,), "transpose_": (0, 1)}[name]
    want = [getattr(part.detach(), name)(*dims) for part in (raw, mask)]
    assert getattr(x, name)(*dims) is x
    assert x.raw is raw
    assert x.mask is mask
    same(x, *want)


def test_a_copy_takes_the_mask_too() -> None:
    x, other = make(4, 6), make(4, 6, seed=2)
    x[1:].copy_(other[1:])
    same(x[1:], other.raw[1:], other.mask[1:])
    same(x[:1], make(4, 6).raw[:1], make(4, 6).mask[:1])


REDUCTIONS = ["sum", "mean", "prod", "amax", "amin"]
PRODUCTS: dict[str, Op] = {
    "matmul": lambda x: x @ PLAIN.t(),
    "left": lambda x: PLAIN.t() @ x,
    "both": lambda x: torch.mm(x, x.t()),
    "bmm": lambda x: torch.bmm(x[None], PLAIN.t()[None]),
    "vector": lambda x: x.mv(PLAIN[0]),
    "linear": lambda x: nn.functional.linear(x, weight=PLAIN, bias=x[:, 0]),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, PLAIN),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_are_over_what_is_specified(name: str) -> None:
    x, of_plain = make(4, 6), getattr(torch, name)
    for found in (getattr(x, name)((0, 1)) if name != "prod" else x.prod(), of_plain(x.flatten(), 0)):
        assert type(found) is torch.Tensor
        close(found, of_plain(x.raw[x.mask], 0))
    rows = [of_plain(row[keep], 0) for row, keep in zip(x.raw, x.mask, strict=True)]
    close(of_plain(x, 1, keepdim=True), torch.stack(rows)[:, None])


def test_reductions_take_a_dtype_and_give_truth_values() -> None:
    x = make(4, 6)
    assert x.sum(0, dtype=torch.float64).dtype == x.mean(0, dtype=torch.float64).dtype == torch.float64
    assert (x == x).all().item() is True
    assert (x != x).any().item() is False
    assert (x == x).sum().item() == x.mask.sum().item()
    assert from_masked(x == x).dtype == torch.bool


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_count_what_is_not_specified_as_zero(name: str) -> None:
    x = make(4, 6)
    found = PRODUCTS[name](x)
    assert type(found) is torch.Tensor
    close(found, PRODUCTS[name](x.raw.where(x.mask, 0)))


@pytest.mark.parametrize("softmax", [torch.softmax, torch.Tensor.softmax, nn.functional.softmax])
def test_softmax_is_over_what_is_specified(softmax: Callable[..., torch.Tensor]) -> None:
    x = make(4, 6)
    same(softmax(x, dim=1), x.raw.where(x.mask, -torch.inf).softmax(1), x.mask)


def test_reductions_of_nothing_and_of_integers() -> None:
    nothing = MaskedTensor(torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.bool))
    assert nothing.sum(1).tolist() == [0, 0]
    assert nothing.mean(1).isnan().all()
    assert nothing.amax(1).tolist() == [-torch.inf] * 2
    whole = MaskedTensor(torch.tensor([-3, -5, 9]), torch.tensor([True, True, False]))
    assert (whole.sum().item(), whole.mean().item(), whole.amax().item(), whole.amin().item()) == (-8, -4, -3, -5)


REFUSED: dict[str, tuple[Op, str]] = {
    "cumsum": (lambda x: x.cumsum(0), "no rule for aten.cumsum.default"),
    "std": (lambda x: x.std(), "no rule for aten.std"),
    "cat": (lambda x: torch.cat([x, x]), "no rule for aten.cat.default"),
    "into_plain": (lambda x: torch.zeros(4, 6).copy_(x), "no rule for copy_ into a plain tensor"),
    "item": (lambda x: torch.zeros(4, 6).__setitem__(0, x[0]), "no rule for __setitem__ into a plain tensor"),
    "add_to_plain": (lambda x: torch.zeros(4, 6).add_(x), r"no rule for aten.add_.Tensor into another tensor"),
    "out": (lambda x: torch.add(x, 1, out=x.clone()), r"no rule for aten.add.out into another tensor"),
    "hidden_sum": (lambda x: x.requires_grad_().sum_to_size(1, 6), "no rule for aten.sum.dim_IntList with a grad"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused_by_name(name: str) -> None:
    op, text = REFUSED[name]
    with pytest.raises(NotImplementedError, match=f"MaskedTensor has {text}"):
        op(make(4, 6))


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        (torch.ones(2, 3), "mask must be bool, got torch.float32"),
        (torch.ones(3, 2).bool(), "inner tensors differ in shape"),
        (torch.ones(3, 2).bool().t(), "inner tensors differ in stride"),
        (torch.ones(3, 3).bool()[1:], "inner tensors differ in storage_offset"),
        (torch.ones(2, 3, device="meta").bool(), "inner tensors differ in device"),
    ],
)
def test_the_mask_must_fit(mask: torch.Tensor, text: str) -> None:
    with pytest.raises(ValueError, match=f"MaskedTensor: {text}"):
        MaskedTensor(torch.zeros(2, 3), mask)


def test_the_constructor_makes_a_new_leaf() -> None:
    raw = torch.ones(2, requires_grad=True)
    x = MaskedTensor(raw * 1, torch.tensor([True, False]))
    assert x.is_leaf
    (x * 3).sum().backward()
    assert raw.grad is None
    assert x.grad.tolist() == [3, 0]


def mask_of(x: torch.Tensor) -> torch.Tensor:
    return make(*x.shape).mask


LOSSES: dict[str, tuple[Op, Op]] = {
    "sum": (lambda y: y.sum(), lambda x, m: x[m].sum()),
    "mean": (lambda y: y.mean(), lambda x, m: x[m].mean()),
    "mean_dim": (
        lambda y: y.mean(1).sum(),
        lambda x, m: sum(row[keep].mean() for row, keep in zip(x, m, strict=True)),
    ),
    "amax": (lambda y: y.amax(), lambda x, m: x[m].amax()),
    "prod": (lambda y: y.prod(), lambda x, m: x[m].prod()),
    "product": (lambda y: (y @ y.t()).sin().sum(), lambda x, m: (x.where(m, 0) @ x.where(m, 0).t()).sin().sum()),
    "softmax": (
        lambda y: from_masked(y.softmax(1)).square().sum(),
        lambda x, m: x.where(m, -torch.inf).softmax(1).square().sum(),
    ),
    "values": (lambda y: from_masked(y).square().sum(), lambda x, m: x[m].square().sum()),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_those_of_the_specified_elements(loss: str) -> None:
    masked, plain = LOSSES[loss]
    x, w, b = (torch.randn(shape, requires_grad=True) for shape in ((4, 6), (4, 6), (6,)))
    mask = mask_of(x)
    masked((to_masked(x, mask) * w).exp() + b).backward()
    found = [from_masked(t.grad) if isinstance(t.grad, MaskedTensor) else t.grad for t in (x, w, b)]
    wanted = torch.autograd.grad(plain((x * w).exp() + b, mask), (x, w, b))
    for ours, others in zip(found, wanted, strict=True):
        close(ours, others)
    assert not x.grad[~mask].any()


def test_gradients_of_operands_of_which_the_masks_differ() -> None:
    """What one use leaves out, another may have: gradients are added up over all uses."""
    x, y, z = (torch.randn(shape, requires_grad=True) for shape in ((4, 6), (6,), (4, 6)))
    m, n, o = make(4, 6).mask, make(6, seed=2).mask, make(4, 6, seed=3).mask
    a, b, c = to_masked(x, m), to_masked(y, n), to_masked(z, o)
    (a.exp().sum() + (a / b).sum() + (a * c).mean() + (b - c).square().sum() + (a @ c.t()).sin().sum()).backward()
    parts = (
        x.exp()[m], (x / y)[m & n], (x * z)[m & o] / (m & o).sum(), (y - z).square()[n & o],
        (x.where(m, 0) @ z.where(o, 0).t()).sin(),
    )  # fmt: skip
    for ours, others in zip((x, y, z), torch.autograd.grad(sum(part.sum() for part in parts), (x, y, z)), strict=True):
        close(ours.grad, others)


def test_gradients_of_an_operand_in_place() -> None:
    x, y = torch.randn(4, 6, requires_grad=True), torch.randn(4, 6, requires_grad=True)
    m, n = make(4, 6).mask, make(4, 6, seed=2).mask
    a, b = to_masked(x, m & n), to_masked(y, n)
    (a.sin().mul_(b).sum() + b.exp().sum()).backward()
    wanted = torch.autograd.grad((x.sin() * y)[m & n].sum() + y.exp()[n].sum(), (x, y))
    close((x.grad, y.grad), wanted)


def test_a_mask_that_is_written_later_does_not_reach_the_backward() -> None:
    x, m = torch.randn(4, 6, requires_grad=True), make(4, 6).mask
    y = to_masked(x, m)
    z = y * 1
    total = z.sum()
    z.copy_(make(4, 6, seed=2))
    total.backward()
    close(x.grad, m.float())


def test_a_plain_gradient_is_zero_where_nothing_is_specified() -> None:
    x = torch.ones(3, requires_grad=True)
    to_masked(x, torch.tensor([True, False, True])).backward(torch.ones(3))
    assert x.grad.tolist() == [1, 0, 1]


def test_unspecified_elements_do_not_spoil_gradients() -> None:
    x = torch.tensor([4.0, -1.0], requires_grad=True)
    (to_masked(x, torch.tensor([True, False])).sqrt() * 2).sum().backward()
    assert x.grad.tolist() == [0.5, 0]


def test_double_backward() -> None:
    x, mask = torch.randn(4, 6, requires_grad=True), make(4, 6).mask
    (dx,) = torch.autograd.grad((to_masked(x, mask) ** 3).sum(), x, create_graph=True)
    close(torch.autograd.grad(dx.sum(), x)[0], (6 * x).where(mask, 0))


def test_backward_through_a_written_view() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:, 1].mul_(3)
        return y.sin().sum()

    x, mask = torch.randn(4, 6, requires_grad=True), make(4, 6).mask
    run(to_masked(x, mask)).backward()
    (wanted,) = torch.autograd.grad(run(x), x)
    close(x.grad, wanted.where(mask, 0))


def test_backward_through_a_view_written_with_a_mask() -> None:
    x, w, m = torch.randn(4, 6, requires_grad=True), torch.randn(4, 6, requires_grad=True), make(4, 6).mask
    y = to_masked(x, m) * 2
    y[:, 1].mul_(to_masked(w, m)[:, 1])
    (y @ PLAIN.t()).sin().sum().backward()
    plain = x * 2
    plain[:, 1].mul_(w[:, 1])
    wanted = torch.autograd.grad((plain.where(m, 0) @ PLAIN.t()).sin().sum(), (x, w))
    close((x.grad, w.grad), wanted)


def test_a_cut_and_the_whole_have_one_gradient() -> None:
    x, mask = torch.randn(4, 6, requires_grad=True), make(4, 6).mask
    y = to_masked(x, mask)
    (y[1].exp().sum() + y[:, :2].exp().sum() + y.exp().sum()).backward()
    (wanted,) = torch.autograd.grad(x[1].exp()[mask[1]].sum() + x[:, :2].exp()[mask[:, :2]].sum() + x.exp().sum(), x)
    close(x.grad, wanted.where(mask, 0))


def test_a_parameter_takes_a_step_of_sgd() -> None:
    weight = nn.Parameter(make(3, 4))
    raw, plain = weight.raw, nn.Parameter(weight.raw.nan_to_num())
    for parameter in (weight, plain):
        optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            parameter.square().sum().backward()
            optimizer.step()
    assert isinstance(weight, nn.Parameter)
    assert weight.raw is raw
    close(raw[weight.mask], plain.detach()[weight.mask])


def test_a_narrower_mask_is_put_on_what_is_masked() -> None:
    x, mask = make(4, 6).requires_grad_(), make(4, 6, seed=2).mask
    narrow = to_masked(x, mask)
    same(narrow.detach(), x.raw, x.mask & mask)
    narrow.sum().backward()
    close(x.grad, (x.mask & mask).float())


def test_with_another_class() -> None:
    x = TwoTensor(make(2, 3), make(2, 3))
    same((x * 2).a, x.a.raw * 2, x.a.mask)


def in_and_out(x: torch.Tensor, w: torch.Tensor, mask: torch.Tensor) -> object:
    y, v = to_masked(x, mask), to_masked(w, mask[0])
    z = (y * w + y.exp() * v).relu()
    return z.sum(), z.mean(0), z.amax(1), z[1:].t(), from_masked(z, -1), z.softmax(1), y @ w, torch.where(y > 0, y, v)


def write(y: MaskedTensor, other: MaskedTensor) -> object:
    z = y * other
    z[:, 1].add_(1)
    z.mul_(y)
    y.t()[0].copy_(other.t()[1])
    return y, z, y[1:], z.sum(0)


@pytest.mark.parametrize("grad", [False, True])
def test_traced_and_lowered_equal_eager(grad: bool) -> None:
    def args(seed: int) -> tuple:
        torch.manual_seed(seed)
        x, w = torch.randn(4, 6), torch.randn(6)
        return x.requires_grad_(grad), w.requires_grad_(grad), torch.rand(4, 6) > 0.3

    assert_agrees(in_and_out, *args(0))
    trace_and_lower(in_and_out, args)


def test_writes_traced_and_lowered_equal_eager() -> None:
    def args(seed: int) -> tuple:
        torch.manual_seed(seed)
        return tuple(MaskedTensor(torch.randn(4, 6), torch.rand(4, 6) > 0.3) for _ in "ab")

    assert_agrees(write, *args(0))
    trace_and_lower(write, args)


def views_in_place(x: MaskedTensor, y: MaskedTensor) -> object:
    view = x.t()[1:]
    view.mul_(2)
    view[0].zero_()
    x.unsqueeze_(0)
    return x, view, x.squeeze(0)[1].exp() + y[1]


def backward(x: MaskedTensor, y: MaskedTensor) -> object:
    z = x * 2
    z[:, 1].mul_(y[:, 1] * 0)
    (x.exp().sum() + (x * y).sum() + (z @ y.t()).sum()).backward()
    return x.grad, y.grad


@pytest.mark.parametrize(("program", "grad"), [(views_in_place, False), (backward, True)])
def test_views_and_backward_traced_and_lowered_equal_eager(program: Op, grad: bool) -> None:
    mask = make(4, 6).mask

    def args(seed: int) -> tuple:
        torch.manual_seed(seed)
        wide = torch.rand(4, 6) > 0.3
        return tuple(MaskedTensor(torch.randn(4, 6), m | mask).requires_grad_(grad) for m in (mask, wide))

    assert_agrees(program, *args(0))
    trace_and_lower(program, args)
