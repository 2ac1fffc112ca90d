from collections.abc import Callable

import pytest
import torch
from same import trace_and_lower
from torch import nn
from verified import assert_agrees

import subtrace_kit
from subtrace_kit.zoo import LoggingTensor, TwoTensor, from_log, logged, to_log

Op = Callable[[torch.Tensor], torch.Tensor]
close = torch.testing.assert_close


@pytest.fixture(autouse=True)
def log():
    with logged() as lines:
        yield lines


def same(found: torch.Tensor, elem: torch.Tensor) -> None:
    """`found` holds `elem`, and looks like it."""
    assert type(found) is LoggingTensor
    close(found.elem, elem, rtol=0, atol=0)
    assert (found.dtype, found.shape, found.stride()) == (elem.dtype, elem.shape, elem.stride())
    assert found.storage_offset() == found.elem.storage_offset()


PLAIN = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
OPS: dict[str, tuple[Op, list[str]]] = {
    "add": (lambda x: x + x, ["aten.add.Tensor(float32[4, 6], float32[4, 6])"]),
    "alpha": (lambda x: torch.add(x, 1, alpha=2), ["aten.add.Tensor(float32[4, 6], 1, alpha=2)"]),
    "plain": (lambda x: PLAIN * x, ["aten.mul.Tensor(float32[4, 6], float32[4, 6])"]),
    "sum": (lambda x: x.sum(0), ["aten.sum.dim_IntList(float32[4, 6], [0])"]),
    "where": (lambda x: torch.where(x > 0, x, PLAIN), ["aten.gt.Scalar(float32[4, 6], 0)", "aten.where.self(bool[4"]),
    "cat": (lambda x: torch.cat([x, PLAIN]), ["aten.cat.default([float32[4, 6], float32[4, 6]])"]),
    "index": (lambda x: x[torch.tensor([2, 0])], ["aten.index.Tensor(float32[4, 6], [int64[2]])"]),
    "double": (lambda x: x.double(), ["aten._to_copy.default(float32[4, 6], dtype=torch.float64)"]),
    "softmax": (lambda x: x.softmax(1), ["aten._softmax.default(float32[4, 6], 1, False)"]),
    "select": (lambda x: x[1], ["aten.select.int(float32[4, 6], 0, 1)"]),
    "topk": (lambda x: x.topk(2)[0], ["aten.topk.default(float32[4, 6], 2)"]),
}


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("layout", ["dense", "transposed", "sliced", "expanded"])
def test_any_op_passes_and_is_logged(name: str, layout: str, log: list[str]) -> None:
    x = {
        "dense": lambda: torch.randn(4, 6),
        "transposed": lambda: torch.randn(6, 4).t(),
        "sliced": lambda: torch.randn(8, 9)[::2, 3:],
        "expanded": lambda: torch.randn(4, 1).expand(4, 6),
    }[layout]()
    op, lines = OPS[name]
    same(op(LoggingTensor(x)), op(x))
    assert len(log) == len(lines)
    assert all(found.startswith(line) for found, line in zip(log, lines, strict=True))


def test_ops_that_come_whole_are_taken_apart(log: list[str]) -> None:
    with torch.inference_mode():
        x = torch.randn(4, 6)
        same(LoggingTensor(x).t().reshape(-1), x.t().reshape(-1))
    assert [line.split("(")[0] for line in log] == [
        "aten.t.default",
        "aten.clone.default",
        "aten._unsafe_view.default",
    ]


def test_python_values_pass(log: list[str]) -> None:
    assert LoggingTensor(torch.tensor(2.5)).item() == 2.5
    assert torch.equal(LoggingTensor(PLAIN), PLAIN) is True
    assert log == ["aten._local_scalar_dense.default(float32[])", "aten.equal.default(float32[4, 6], float32[4, 6])"]


def test_an_op_that_fails_is_the_last_line(log: list[str]) -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        LoggingTensor(PLAIN).mm(PLAIN)
    assert log == ["aten.mm.default(float32[4, 6], float32[4, 6])"]


IN_PLACE: dict[str, Op] = {
    "add_": lambda x: x.add_(x, alpha=2),
    "copy_": lambda x: x.copy_(PLAIN[:2, :3]),
    "setitem": lambda x: x.__setitem__((slice(None), 1), 7.0) or x,
    "t_": lambda x: x.t_(),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "resize_": lambda x: x.resize_(2, 2),
    "foreach": lambda x: torch._foreach_add_([x], [x]) and x,
    "out": lambda x: torch.sin(x.clone(), out=x),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_ops_write_the_inner_tensor_and_return_their_argument(name: str) -> None:
    x = LoggingTensor(torch.randn(2, 3))
    elem = x.elem
    want = IN_PLACE[name](elem.clone())
    assert IN_PLACE[name](x) is x
    assert x.elem is elem
    same(x, want)


def test_out_of_no_size_is_resized_outside_as_inside() -> None:
    out = LoggingTensor(torch.empty(0))
    assert torch.add(LoggingTensor(PLAIN), 1, out=out) is out
    same(out, PLAIN + 1)


def test_a_plain_tensor_takes_the_numbers() -> None:
    plain = torch.zeros(4, 6)
    assert plain.copy_(LoggingTensor(PLAIN)) is plain
    assert type(plain) is torch.Tensor
    assert torch.equal(plain, PLAIN)


def test_views_share_memory() -> None:
    elem = torch.zeros(3, 4)
    x = LoggingTensor(elem)
    x.t()[1].add_(1)
    assert elem[:, 1].tolist() == [1, 1, 1]
    assert x.t().untyped_storage()._cdata == x.untyped_storage()._cdata


def test_lazy_conjugation_is_seen() -> None:
    z = torch.randn(2, dtype=torch.complex64)
    same(LoggingTensor(z).conj() + 1, z.conj() + 1)
    same(LoggingTensor(z.conj()) * 2, z.conj() * 2)


def test_lines_are_printed_unless_collected(log: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    kept, LoggingTensor.emit = LoggingTensor.emit, print
    try:
        x = LoggingTensor(torch.ones(2)) * 3
        with logged() as lines:
            x.neg()
        x.exp()
    finally:
        LoggingTensor.emit = kept
    assert capsys.readouterr().out == "aten.mul.Tensor(float32[2], 3)\naten.exp.default(float32[2])\n"
    assert lines == ["aten.neg.default(float32[2])"]
    assert log == []


def test_an_error_gives_the_printing_back() -> None:
    before = LoggingTensor.emit
    with pytest.raises(ValueError, match="stop"), logged():
        raise ValueError("stop")
    assert LoggingTensor.emit is before


def test_the_constructor_makes_a_new_leaf() -> None:
    elem = torch.ones(2, requires_grad=True)
    x = LoggingTensor(elem * 1)
    assert x.is_leaf
    (x * 3).sum().backward()
    assert elem.grad is None
    same(x.grad, torch.full((2,), 3.0))


def test_gradients_are_those_of_plain_tensors_and_the_backward_is_logged(log: list[str]) -> None:
    x, w = torch.randn(2, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    loss = from_log((to_log(x) @ w).exp()).sum()
    del log[:]
    found = torch.autograd.grad(loss, (x, w))
    computed = [line.split("(")[0] for line in log if not line.startswith(("aten.detach", "aten.t."))]
    assert computed == ["aten.mul.Tensor", "aten.mm.default", "aten.mm.default"]
    wanted = torch.autograd.grad((x @ w).exp().sum(), (x, w))
    close(found[0], wanted[0])
    same(found[1], wanted[1])


def test_a_plain_gradient_is_handed_on() -> None:
    x = torch.ones(2, requires_grad=True)
    to_log(x).backward(torch.tensor([1.0, 2.0]))
    assert x.grad.tolist() == [1, 2]


def test_gradients_of_one_memory_are_not_added_twice() -> None:
    x = LoggingTensor(torch.randn(2)).requires_grad_()
    for _ in range(3):
        from_log(x).backward(torch.ones(2))
    assert x.grad.elem.tolist() == [3, 3]


def test_double_backward() -> None:
    x = torch.randn(3, requires_grad=True)
    (dx,) = torch.autograd.grad(from_log(to_log(x) ** 3).sum(), x, create_graph=True)
    close(torch.autograd.grad(dx.sum(), x)[0], 6 * x)


def test_backward_through_a_written_view() -> None:
    def run(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[:, 1].mul_(3)
        return y.sin()

    x = torch.randn(2, 3, requires_grad=True)
    from_log(run(to_log(x))).sum().backward()
    close(x.grad, torch.autograd.grad(run(x).sum(), x)[0])


def test_a_module_is_trained_as_on_plain_tensors() -> None:
    plain, other = nn.Linear(3, 2), nn.Linear(3, 2)
    other.load_state_dict(plain.state_dict())
    for name, parameter in list(other.named_parameters()):
        setattr(other, name, nn.Parameter(LoggingTensor(parameter.detach())))
    x = torch.randn(4, 3)
    for module in (plain, other):
        optimizer = torch.optim.Adam(module.parameters())
        for _ in range(2):
            optimizer.zero_grad()
            module(x).square().sum().backward()
            optimizer.step()
    same(other.weight.detach(), plain.weight.detach())


def test_with_another_class() -> None:
    x = TwoTensor(*(LoggingTensor(torch.randn(2, 3)) for _ in "ab"))
    same((x * 2).a, x.a.elem * 2)
    outer = LoggingTensor(TwoTensor(torch.ones(2), torch.zeros(2))) + 1
    assert (outer.elem.a.tolist(), outer.elem.b.tolist()) == ([2, 2], [1, 1])


def in_and_out(x: torch.Tensor, w: torch.Tensor) -> object:
    y = (to_log(x) @ w).tanh()
    return from_log(y), y.t(), y.sum(0)


def write(x: LoggingTensor) -> object:
    y = x * 2
    y[:, 1].add_(1)
    x.t()[0].copy_(y.t()[1])
    return x, y, y[1:]


@pytest.mark.parametrize("grad", [False, True])
def test_traced_and_lowered_equal_eager(grad: bool) -> None:
    def args(seed: int) -> tuple:
        torch.manual_seed(seed)
        return tuple(torch.randn(shape).requires_grad_(grad) for shape in ((4, 6), (6, 3)))

    assert_agrees(in_and_out, *args(0))
    trace_and_lower(in_and_out, args)


def test_writes_traced_and_lowered_equal_eager() -> None:
    def args(seed: int) -> tuple:
        torch.manual_seed(seed)
        return (LoggingTensor(torch.randn(4, 6)),)

    assert_agrees(write, *args(0))
    trace_and_lower(write, args)


def views_in_place(x: LoggingTensor, w: torch.Tensor) -> object:
    view = x.t()[1:]
    view.mul_(2)
    view[0].zero_()
    x.unsqueeze_(0)
    return x, view, x.squeeze(0) @ w


def backward(x: LoggingTensor, w: torch.Tensor) -> object:
    y = x * 2
    y[:, 1].mul_(3)
    from_log((y @ w).exp()).sum().backward()
    return x.grad, w.grad


@pytest.mark.parametrize(("program", "grad"), [(views_in_place, False), (backward, True)])
def test_views_and_backward_traced_and_lowered_equal_eager(program: Op, grad: bool) -> None:
    def args(seed: int) -> tuple:
        torch.manual_seed(seed)
        return LoggingTensor(torch.randn(4, 6)).requires_grad_(grad), torch.randn(6, 3).requires_grad_(grad)

    assert_agrees(program, *args(0))
    trace_and_lower(program, args)


def test_a_trace_logs_as_eager_does_and_a_lowered_one_nothing(log: list[str]) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (LoggingTensor(x) * 2).relu().elem

    x = torch.randn(3)
    lines = ["aten.mul.Tensor(float32[3], 2)", "aten.relu.default(float32[3])"]
    trace = subtrace_kit.trace(program)(x)
    assert log == lines  # Recording runs the program.
    low = subtrace_kit.lower(trace)
    for run, wanted in ((program, lines), (trace, lines), (low, [])):
        with logged() as found:
            close(run(x), program_on_plain(x))
        assert found == wanted


def program_on_plain(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).relu()
