import copy
import io
from collections.abc import Callable

import pytest
import torch
from same import trace_and_lower
from torch import nn
from verified import assert_agrees

import subtrace_kit
from subtrace_kit.zoo import RaggedTensor, TwoTensor, from_ragged, to_ragged

Op = Callable[[torch.Tensor], torch.Tensor]
close = torch.testing.assert_close
LENGTHS = (3, 0, 5, 1)
TOTAL, LONGEST = sum(LENGTHS), max(LENGTHS)


def make(*rest: int, lengths: tuple[int, ...] = LENGTHS) -> RaggedTensor:
    return to_ragged([torch.randn(n, *rest) for n in lengths])


def rows_of(x: torch.Tensor) -> list[torch.Tensor]:
    """The rows of a ragged tensor, or of a plain one of its padded size."""
    if isinstance(x, RaggedTensor):
        return list(x.packed.split(x.offsets.diff().tolist()))
    return [row[:n] for row, n in zip(x, LENGTHS, strict=True)]


def same(found: torch.Tensor, padded: torch.Tensor) -> None:
    """`found` has the rows of `padded`, and looks like it."""
    assert type(found) is RaggedTensor
    close(rows_of(found), rows_of(padded), rtol=0, atol=0)
    assert (found.dtype, found.shape) == (padded.dtype, padded.shape)
    assert found.offsets.tolist() == [0, 3, 3, 8, 9]
    assert found.stride() == (LONGEST * found.packed.stride(0), *found.packed.stride())
    assert found.storage_offset() == found.packed.storage_offset()


SEED = torch.Generator().manual_seed(1)
BY_COLUMN, BY_ROW, BY_PLACE, PADDED, BY_POSITION = (
    torch.randn(shape, generator=SEED) for shape in ((2,), (4, 1, 1), (4, 5, 1), (4, 5, 2), (5, 2))
)
POINTWISE: dict[str, Op] = {
    "neg": lambda x: -x,
    "relu": lambda x: x.relu(),
    "add": lambda x: x + x.exp(),
    "number": lambda x: 1 - x,
    "by_column": lambda x: BY_COLUMN * x,
    "by_row": lambda x: x / BY_ROW,
    "by_place": lambda x: x + BY_PLACE,
    "by_position": lambda x: x - BY_POSITION,
    "padded": lambda x: PADDED * x,
    "where": lambda x: torch.where(x > 0, x, PADDED),
    "compare": lambda x: x > BY_ROW,
    "double": lambda x: x.double(),
    "clone": lambda x: x.clone(),
    "zeros_like": lambda x: torch.zeros_like(x),
}
VIEWS: dict[str, Op] = {
    "detach": lambda x: x.detach(),
    "slice": lambda x: x[..., 1:],
    "select": lambda x: x[:, :, 0],
    "last": lambda x: x.select(-1, -1),
}


@pytest.mark.parametrize("name", [*POINTWISE, *VIEWS])
@pytest.mark.parametrize("layout", ["dense", "sliced"])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_rows_are_those_of_the_padded_tensor(name: str, layout: str, mode: Callable[[], object]) -> None:
    op = {**POINTWISE, **VIEWS}[name]
    with mode():
        x = make(2) if layout == "dense" else make(4)[..., 1:3]
        same(op(x), op(x.to_padded()))


MATRIX, VECTOR = torch.randn(2, 3, generator=SEED), torch.randn(2, generator=SEED)
PRODUCTS: dict[str, Op] = {
    "matmul": lambda x: x @ MATRIX,
    "vector": lambda x: torch.matmul(x, other=VECTOR),
    "linear": lambda x: nn.functional.linear(x, weight=MATRIX.t(), bias=MATRIX[0]),
    "linear_one": lambda x: nn.functional.linear(x, VECTOR),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_products_are_those_of_the_rows(name: str, mode: Callable[[], object]) -> None:
    with mode():
        x = make(2)
        found, wanted = PRODUCTS[name](x), PRODUCTS[name](x.to_padded())
        assert type(found) is RaggedTensor
        assert found.shape == wanted.shape
        assert found.offsets is x.offsets
        close(rows_of(found), rows_of(wanted))


def test_a_layer_is_trained_as_on_the_rows() -> None:
    parts = [torch.randn(n, 2, requires_grad=True) for n in LENGTHS]
    layer = nn.Linear(2, 3)
    operands = *parts, *layer.parameters()
    found = torch.autograd.grad(layer(to_ragged(parts)).tanh().row_sums().square().sum(), operands)
    loss = sum(layer(part).tanh().sum(0).square().sum() for part in parts)
    close(found, torch.autograd.grad(loss, operands))


def test_a_wider_plain_operand_widens_the_rows() -> None:
    x = make(1)
    same(x * PADDED, x.to_padded() * PADDED)
    same(x + BY_COLUMN, x.to_padded() + BY_COLUMN)


def test_rows_of_numbers_and_of_nothing() -> None:
    x = make()
    same(x * BY_ROW[..., 0], x.to_padded() * BY_ROW[..., 0])
    assert x.row_sums().shape == (4,)
    empty = make(2, lengths=(0, 0))
    assert empty.shape == (2, 0, 2)
    assert (empty + 1).to_padded().shape == (2, 0, 2)
    assert empty.row_sums().tolist() == [[0, 0], [0, 0]]
    assert [len(row) for row in empty.rows()] == [0, 0]


def test_in_and_out() -> None:
    parts = [torch.randn(n, 2) for n in LENGTHS]
    x = to_ragged(parts)
    assert x.shape == (4, 5, 2)
    close(x.rows(), parts)
    close(from_ragged(x), torch.cat(parts))
    close(x.row_sums(), torch.stack([part.sum(0) for part in parts]))
    close(x.to_padded(7)[0], torch.cat([parts[0], torch.full((2, 2), 7.0)]))
    wanted = nn.utils.rnn.pad_sequence(parts, batch_first=True)
    close(x.to_padded(), wanted)


def test_rows_must_match() -> None:
    x, other = make(2), make(2, lengths=(3, 1, 4, 1))
    same(x + make(2) * 0, x.to_padded())
    for op in (torch.add, torch.Tensor.mul_):
        with pytest.raises(RuntimeError, match=r"RaggedTensor: rows differ in aten|must match the size"):
            op(x, other)
    with pytest.raises(RuntimeError, match="must match the size"):
        x + make(2, lengths=(3, 5, 1))
    with pytest.raises(RuntimeError, match="expanded size"):
        x + torch.zeros(3, 1, 1)


def test_views_alias_and_results_do_not() -> None:
    x = make(2)
    for view in (x.detach(), x[..., 1:], x[..., 0]):
        assert view.untyped_storage()._cdata == x.untyped_storage()._cdata
        assert view.packed.untyped_storage()._cdata == x.packed.untyped_storage()._cdata
        assert view.offsets is x.offsets
    assert x.clone().packed.data_ptr() != x.packed.data_ptr()
    x[..., 1].zero_()
    assert x.packed[:, 1].tolist() == [0] * TOTAL


IN_PLACE: dict[str, Op] = {
    "add_": lambda x: x.add_(x, alpha=2),
    "mul_": lambda x: x.mul_(PADDED),
    "relu_": lambda x: x.relu_(),
    "fill_": lambda x: x.fill_(3),
    "copy_": lambda x: x.copy_(BY_ROW),
    "view": lambda x: x[..., 0].mul_(3) is None or x,
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_ops_write_the_rows_and_return_their_argument(name: str) -> None:
    x = make(2)
    packed, want = x.packed, IN_PLACE[name](x.to_padded())
    assert IN_PLACE[name](x) is x
    assert x.packed is packed
    same(x, want)


def test_a_ragged_tensor_is_copied_into_one() -> None:
    x, other = make(2), make(2)
    x.copy_(other)
    same(x, other.to_padded())


REFUSED: dict[str, tuple[Op, str]] = {
    "mm": (lambda x: x.mm(x), "aten.mm.default"),
    "of_rows": (lambda x: x[..., 0] @ torch.ones(5, 2), "aten.mm.default"),
    "of_two": (lambda x: x @ x, "aten.expand.default"),
    "view": (lambda x: x.view(-1), "aten.view.default"),
    "row": (lambda x: x[0], "aten.select.int along dimension 0"),
    "columns": (lambda x: x[:, 1:], "aten.slice.Tensor along dimension 1"),
    "mean": (lambda x: x.mean(1), "aten.mean.dim"),
    "sum": (lambda x: x.requires_grad_().sum(1), r"aten.sum.dim_IntList with a gradient; row_sums\(\) has one"),
    "dimensions": (lambda x: x + make(), "aten.add.Tensor of 3 and 2 dimensions"),
    "larger": (lambda x: x + PADDED[None], "aten.add.Tensor of 3 and 4 dimensions"),
    "into_plain": (lambda x: torch.zeros(4, 5, 2).copy_(x), "aten.copy_.default into another tensor"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_rule_is_refused_by_name(name: str) -> None:
    op, text = REFUSED[name]
    with pytest.raises(NotImplementedError, match=f"RaggedTensor has no rule for {text}"):
        op(make(2))


@pytest.mark.parametrize(
    ("packed", "offsets"),
    [
        (torch.zeros(()), torch.tensor([0, 1])),
        (torch.zeros(2), torch.tensor([0, 2], dtype=torch.int32)),
        (torch.zeros(2), torch.tensor([[0, 2]])),
        (torch.zeros(2), torch.tensor([], dtype=torch.int64)),
        (torch.zeros(2, device="meta"), torch.tensor([0, 2])),
    ],
)
def test_wrong_parts_are_told(packed: torch.Tensor, offsets: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"RaggedTensor: needs \[total, ...\] and int64 \[n \+ 1\] on one device, got"):
        RaggedTensor(packed, offsets, 2)


def test_flatten_unflatten_deepcopy_and_save_are_exact() -> None:
    file = io.BytesIO()
    for x in (make(2), make(4)[..., 1:3]):
        names, metadata = x.__tensor_flatten__()
        inner = {name: getattr(x, name) for name in names}
        found = [RaggedTensor.__tensor_unflatten__(inner, metadata, x.size(), x.stride()), copy.deepcopy(x)]
        for again in found:
            same(again, x.to_padded())
            assert again.stride() == x.stride()
            assert again.longest == LONGEST
    torch.save(make(2), file)
    file.seek(0)
    with torch.serialization.safe_globals([RaggedTensor]):
        assert torch.load(file).shape == (4, 5, 2)


def test_the_constructor_makes_a_new_leaf() -> None:
    packed = torch.ones(3, requires_grad=True)
    x = RaggedTensor(packed * 1, torch.tensor([0, 2, 3]), 2)
    assert x.is_leaf
    (x * 3).row_sums().sum().backward()
    assert packed.grad is None
    assert from_ragged(x.grad).tolist() == [3, 3, 3]


@pytest.mark.parametrize("out", ["row_sums", "rows", "to_padded", "cut", "packed"])
def test_gradients_are_those_of_the_rows(out: str) -> None:
    parts = [torch.randn(n, 2, requires_grad=True) for n in LENGTHS]
    column, row, place = (torch.randn(shape, requires_grad=True) for shape in ((2,), (4, 1, 2), (4, 5, 1)))

    def loss(x: RaggedTensor) -> torch.Tensor:
        y = (x * column).exp() + row * place
        values = {
            "row_sums": lambda: [y.row_sums()],
            "rows": lambda: y.rows(),
            "to_padded": lambda: [y.to_padded(0)],
            "cut": lambda: [from_ragged(y[..., :1]), from_ragged(y[..., 0]).sin(), from_ragged(y)],
            "packed": lambda: [from_ragged(y)],
        }[out]()
        return sum(value.square().sum() for value in values)

    def plain() -> torch.Tensor:
        rows = [(x * column).exp() + (row * place)[i, : len(x)] for i, x in enumerate(parts)]
        if out == "row_sums":
            return sum(r.sum(0).square().sum() for r in rows)
        if out == "cut":
            return sum(r.square().sum() + r[:, 0].square().sum() + r[:, 0].sin().square().sum() for r in rows)
        return sum(r.square().sum() for r in rows)

    operands = (*parts, column, row, place)
    found = torch.autograd.grad(loss(to_ragged(parts)), operands)
    for ours, others in zip(found, torch.autograd.grad(plain(), operands), strict=True):
        close(ours.to_padded() if isinstance(ours, RaggedTensor) else ours, others)


def test_the_gradient_of_a_plain_operand_of_padded_size_is_ragged() -> None:
    x, plain = make(2), PADDED.clone().requires_grad_()
    (x * plain).row_sums().sum().backward()
    same(plain.grad, x.to_padded())


def test_a_plain_gradient_is_as_large_as_the_rows_are_padded() -> None:
    parts = [torch.zeros(n, requires_grad=True) for n in (2, 1)]
    to_ragged(parts).backward(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    assert [part.grad.tolist() for part in parts] == [[1, 2], [3]]


def test_double_backward() -> None:
    parts = [torch.randn(n, 2, requires_grad=True) for n in LENGTHS]
    first = torch.autograd.grad((to_ragged(parts) ** 3).row_sums().sum(), parts, create_graph=True)
    second = torch.autograd.grad(sum(part.sum() for part in first), parts)
    for ours, part in zip(second, parts, strict=True):
        close(ours, 6 * part)


def test_backward_through_a_written_view() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[..., 1].mul_(3)
        return y.sin()

    parts = [torch.randn(n, 2, requires_grad=True) for n in LENGTHS]
    found = torch.autograd.grad(run(to_ragged(parts)).row_sums().sum(), parts)
    close(found, torch.autograd.grad(sum(run(part).sum() for part in parts), parts))


def test_gradients_of_one_memory_are_not_added_twice() -> None:
    x = make(2).detach().requires_grad_()
    for _ in range(3):
        from_ragged(x).backward(torch.ones(TOTAL, 2))
    assert from_ragged(x.grad).unique().tolist() == [3]


def test_a_parameter_takes_a_step_of_sgd() -> None:
    weight = nn.Parameter(make(2).detach())
    packed, plain = weight.packed, nn.Parameter(weight.packed.clone())
    for parameter in (weight, plain):
        optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
        for _ in range(2):
            optimizer.zero_grad()
            square = parameter.square()
            (from_ragged(square) if isinstance(square, RaggedTensor) else square).sum().backward()
            optimizer.step()
    assert weight.packed is packed
    close(packed, plain.detach())


def test_with_another_class() -> None:
    x = TwoTensor(make(2), make(2))
    same((x * 2).a, x.a.to_padded() * 2)


def in_and_out(a: torch.Tensor, b: torch.Tensor, w: torch.Tensor, p: torch.Tensor) -> object:
    x = to_ragged([a, b])
    y = (x * w).tanh() + p * x @ (w[:, None] * w)
    return y.row_sums(), y.to_padded(-1), from_ragged(y[..., 0]), from_ragged(y.exp() + x)


def write(x: RaggedTensor, y: RaggedTensor) -> object:
    z = x * 2
    z[..., 1].add_(1)
    x.copy_(y + z)
    return x, z, z.detach()


@pytest.mark.parametrize("grad", [False, True])
def test_traced_and_lowered_equal_eager(grad: bool) -> None:
    def args(seed: int) -> tuple:
        torch.manual_seed(seed)
        shapes = (3, 4), (1, 4), (4,), (2, 3, 1)
        return tuple(torch.randn(shape).requires_grad_(grad) for shape in shapes)

    assert_agrees(in_and_out, *args(0))
    trace_and_lower(in_and_out, args)


def test_writes_traced_and_lowered_equal_eager() -> None:
    def args(seed: int) -> tuple:
        torch.manual_seed(seed)
        return make(2), make(2)

    assert_agrees(write, *args(0))
    trace_and_lower(write, args)


def views_in_place(x: RaggedTensor, w: torch.Tensor) -> object:
    view = x[..., 1:]
    view.mul_(2)
    view[..., 0].zero_()
    return x, view, x.select(2, 0), x.to_padded(), x @ w


def backward(x: RaggedTensor, w: torch.Tensor) -> object:
    y = x * 2
    y[..., 1].mul_(3)
    ((y @ w).tanh().row_sums().sum() + from_ragged(x * w[:, 0]).sum()).backward()
    return x.grad, w.grad


@pytest.mark.parametrize(("program", "grad"), [(views_in_place, False), (backward, True)])
def test_views_and_backward_traced_and_lowered_equal_eager(program: Op, grad: bool) -> None:
    def args(seed: int) -> tuple:
        torch.manual_seed(seed)
        return make(3).detach().requires_grad_(grad), torch.randn(3, 2).requires_grad_(grad)

    assert_agrees(program, *args(0))
    trace_and_lower(program, args)


def test_a_trace_fits_other_lengths_of_the_same_size() -> None:
    program = lambda x: (x * 2).row_sums()  # noqa: E731
    trace = subtrace_kit.trace(program)(make(2))
    other = make(2, lengths=(2, 5, 1, 1))
    for run in (trace, subtrace_kit.lower(trace)):
        close(run(other), program(other))


def test_rows_cannot_be_traced() -> None:
    with pytest.raises(subtrace_kit.TraceError, match="takes the data of a Tensor out of torch"):
        subtrace_kit.trace(RaggedTensor.rows)(make(2))
