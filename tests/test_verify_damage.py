"""verify: each kind of damage to a trace shows in its row."""

import re

import torch
from verified import Counting, changed, dropped, two, wrong

import subtrace_kit
from subtrace_kit import ops, verify
from subtrace_kit.zoo import QuantTensor, TwoTensor


def test_a_missing_write():
    x = two(2)
    trace = subtrace_kit.trace(lambda x: (x.add_(1), torch.zeros(1))[1])(x)
    assert wrong(dropped(trace, "torch.Tensor.add_"), x) == ["arguments", "ops"]
    assert wrong(dropped(subtrace_kit.lower(trace), "aten.add_.Tensor"), x) == ["arguments"]


def test_another_constant():
    x = two(2, grad=True)
    trace = subtrace_kit.trace(lambda x: x * 2)(x)
    (bound,) = trace.bound_symbols
    report = verify(changed(trace, "torch.Tensor.mul", args=(bound.args[0], 3)), x)
    assert [row.name for row in report.rows if row.verdict == "differs"] == ["values", "gradients"]
    assert re.fullmatch(r"out\.a: 2 of 2 values differ, by \d\.\d+ at most", report.row("values").differences[0])
    assert report.row("gradients").differences[0].startswith("x.grad.a: values 2 of 2")


def test_a_missing_operation_fails_the_run():
    trace = subtrace_kit.trace(lambda x: (x * 2) + 1)(two(2))
    report = verify(dropped(trace, "torch.Tensor.mul"))
    assert [row.name for row in report.rows if row.verdict == "differs"] == ["run"]
    assert "the trace raises" in str(report)


def test_results_that_changed_places():
    x = two(2)
    trace = subtrace_kit.trace(lambda x: (x, x * 2, torch.ones(2)))(x)
    one, other, plain = trace.output
    assert wrong(trace.replace(output=(other, one, plain)), x) == ["values", "aliasing", "identity"]
    found = verify(trace.replace(output=(one, plain, other)), x)
    assert found.row("classes").differences == (
        "out[1]: Tensor instead of TwoTensor",
        "out[2]: TwoTensor instead of Tensor",
    )


def test_another_structure():
    x = two(2)
    trace = subtrace_kit.trace(lambda x: [x * 2])(x)
    assert "structure" in wrong(trace.replace(output=tuple(trace.output)), x)
    assert "structure" in wrong(trace.replace(output=trace.output[0]), x)


def test_a_copy_instead_of_a_view():
    x = two(2, 2)
    trace = subtrace_kit.trace(lambda x: x[0])(x)
    program = subtrace_kit.trace(lambda x: x[0].clone())
    report = verify(program(x).replace(program=trace.program), x)
    assert [row.name for row in report.rows if row.verdict == "differs"] == ["aliasing", "ops"]
    assert report.row("aliasing").differences == (
        "out.a: memory of its own instead of memory of x.a",
        "out.b: memory of its own instead of memory of x.b",
    )


def test_wrong_metadata():
    q = QuantTensor.from_float(torch.randn(2, 2))
    low = subtrace_kit.lower(subtrace_kit.trace(lambda q: q.clone()[0:2])(q))
    (made,) = [b for b in low.bound_symbols if b.symbol.name == "QuantTensor"]
    metadata = made.output.metadata | {"whole": not made.output.metadata["whole"]}
    assert wrong(changed(low, "QuantTensor", output=made.output.replace(metadata=metadata)), q) == ["metadata"]


def test_an_extra_draw():
    x = two(2)
    trace = subtrace_kit.trace(lambda x: (x * 2, torch.rand(2)))(x)
    (draw,) = [b for b in trace.bound_symbols if b.symbol.name == "torch.rand"]
    extra = draw.replace(output=draw.output.replace(name="extra"))
    assert wrong(dropped(trace, "torch.rand", (draw, extra)), x) == ["random state"]
    assert wrong(dropped(trace, "torch.rand", (extra, draw)), x) == ["values", "random state"]


def test_dtype_shape_strides_offset_and_flags():
    x = torch.randn(2, 2)
    eager = subtrace_kit.trace(lambda x: x.t())(x)

    def found(other):
        return wrong(subtrace_kit.trace(other)(x).replace(program=eager.program), x)

    assert found(lambda x: x.t().double()) == ["dtype", "aliasing"]
    assert found(lambda x: x.t()[:1]) == ["values", "shape"]
    assert found(lambda x: x.t().contiguous()) == ["strides", "aliasing"]
    assert found(lambda x: x.t().detach().clone().requires_grad_()) == ["requires_grad", "aliasing", "gradients"]
    rows = subtrace_kit.trace(lambda x: x[1] * 0 + x[1])(x).replace(program=lambda x: x[1])
    assert wrong(rows, x) == ["storage offset", "aliasing"]


def test_a_gradient_that_does_not_arrive():
    x = two(2, grad=True)
    trace = subtrace_kit.trace(lambda x: x.detach() * 2)(x)
    report = verify(trace.replace(program=lambda x: x * 2), x)
    assert report.row("gradients").differences[0] == "x.grad: class NoneType instead of TwoTensor"
    assert verify(trace.replace(program=lambda x: x * 2), x, backward=False).row("gradients").verdict == "same"


def test_ops_in_another_order():
    x = two(2)
    trace = subtrace_kit.trace(lambda x: (x.sin(), x.cos()))(x)
    other = trace.replace(bound_symbols=tuple(trace.bound_symbols)[::-1])
    report = verify(other, x)
    assert [row.name for row in report.rows if row.verdict == "differs"] == ["ops"]
    assert report.row("ops").differences[0] == (
        "op 0: aten.cos.default to TwoTensor instead of aten.sin.default to TwoTensor"
    )
    assert verify(subtrace_kit.lower(trace), x).row("ops").verdict == "not compared"


def test_a_missing_attribute_write():
    c = Counting(torch.randn(2), torch.randn(2))
    trace = subtrace_kit.trace(lambda c: torch.ones(c.sin().shape))(c)
    low = subtrace_kit.lower(trace)
    assert verify(low, c).ok
    report = verify(dropped(low, ops.SETATTR.name), c)
    assert report.row("arguments").differences == ("c: attributes {} instead of {'count': 1}",)


def put_first(trace, name, **fields):
    """The trace with a second operation like the one of that name, before it."""
    (bound,) = [b for b in trace.bound_symbols if b.symbol.name == name]
    extra = bound.replace(output=bound.output.replace(name="extra"), **fields)
    return dropped(trace, name, (extra, bound))


def swapped(trace, name, other):
    """The trace with another function in the operations of that name."""
    (model,) = {b.symbol for b in other.bound_symbols}
    return changed(trace, name, symbol=model, subsymbols=other.bound_symbols[0].subsymbols)


def test_another_operation():
    x = two(2)
    trace = subtrace_kit.trace(lambda x: x.sin())(x)
    report = verify(swapped(trace, "torch.Tensor.sin", subtrace_kit.trace(lambda x: x.cos())(x)), x)
    assert [row.name for row in report.rows if row.verdict == "differs"] == ["values", "ops"]
    assert report.row("ops").differences == (
        "op 0: aten.cos.default to TwoTensor instead of aten.sin.default to TwoTensor",
    )


def test_one_more_op_sent_to_a_class():
    x = two(2)
    trace = subtrace_kit.trace(lambda x: x.sin())(x)
    report = verify(put_first(trace, "torch.Tensor.sin"), x)
    assert [row.name for row in report.rows if row.verdict == "differs"] == ["ops"]
    assert report.row("ops").differences == ("op 1: only in the trace: aten.sin.default to TwoTensor",)


def test_a_lost_draw():
    x = two(2)
    trace = subtrace_kit.trace(lambda x: (torch.rand(2), x * 2)[1])(x)
    report = verify(dropped(trace, "torch.rand"), x)
    assert [row.name for row in report.rows if row.verdict == "differs"] == ["random state"]
    assert report.row("random state").differences[0].startswith("cpu: ")


def test_a_lost_draw_from_a_generator_of_the_user():
    generator = torch.Generator().manual_seed(1)
    trace = subtrace_kit.trace(lambda x: (torch.rand(2, generator=generator), x * 2)[1])(torch.ones(2))
    assert verify(trace).ok
    assert verify(dropped(trace, "torch.rand")).row("random state").differences[0].startswith("generator 0: ")


def test_a_missing_write_to_a_captured_tensor():
    held = torch.zeros(2)
    trace = subtrace_kit.trace(lambda x: (held.add_(1), x * 2)[1])(torch.ones(2))
    for damaged in (dropped(trace, "torch.Tensor.add_"), dropped(trace, "torch.Tensor.add_").replace(captures=())):
        assert verify(damaged).row("captured").differences == (
            "captured held: values 2 of 2 values differ, by 1 at most",
        )
    assert torch.equal(held, torch.zeros(2))


def test_a_missing_write_to_memory_that_arguments_share():
    base = torch.zeros(4)
    trace = subtrace_kit.trace(lambda x, y: (x.add_(1), y * 1)[1])(base[:3], base[1:])
    report = verify(dropped(trace, "torch.Tensor.add_"), base[:3], base[1:])
    assert [row.name for row in report.rows if row.verdict == "differs"] == ["values", "arguments"]
    assert len(report.row("arguments").differences) == 2


def test_another_class():
    x = two(2)
    trace = subtrace_kit.trace(lambda x: x * 2)(x)
    plain = subtrace_kit.trace(lambda x: x.a * 2)(x).replace(program=trace.program)
    report = verify(plain, x)
    assert report.row("classes").differences == ("out: Tensor instead of TwoTensor",)


def test_another_order_in_a_dict():
    x = torch.ones(2)
    trace = subtrace_kit.trace(lambda x: {"a": x * 1, "b": x * 2})(x)
    assert wrong(trace.replace(output=dict(reversed(trace.output.items()))), x) == ["structure"]


def test_a_copy_instead_of_the_object():
    x = torch.ones(2)
    trace = subtrace_kit.trace(lambda x: x)(x)
    assert wrong(subtrace_kit.trace(lambda x: x.view(2))(x).replace(program=trace.program), x) == ["identity"]
    assert wrong(subtrace_kit.trace(lambda x: x.clone())(x).replace(program=trace.program), x) == [
        "aliasing",
        "identity",
    ]


def test_empty_tensors_that_share_memory():
    x = torch.empty(0)
    trace = subtrace_kit.trace(lambda x: x.view(0, 1))(x)
    assert verify(trace, x).ok
    assert wrong(subtrace_kit.trace(lambda x: x.clone().view(0, 1))(x).replace(program=trace.program), x) == [
        "aliasing"
    ]


def test_a_gradient_that_is_the_result():
    x = torch.ones(3, requires_grad=True)

    def program(x):
        (x * x).sum().backward()
        return x.grad

    trace = subtrace_kit.trace(program)(x)
    assert verify(trace, x).ok
    copied = subtrace_kit.trace(lambda x: program(x).clone())(x).replace(program=program)
    assert wrong(copied, x) == ["aliasing", "identity"]


class Square(torch.autograd.Function):
    """Its backward cannot be followed."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return 2 * grad * ctx.saved_tensors[0]


def test_gradients_of_gradients():
    x = torch.ones(3, requires_grad=True)
    trace = subtrace_kit.trace(lambda x: x**3)(x)
    report = verify(trace, x)
    assert (report.row("second gradients").verdict, report.row("second gradients").note) == ("same", "")
    once = subtrace_kit.trace(lambda x: Square.apply(x))(x)
    assert verify(once, x).row("second gradients").note.startswith("eager has none: RuntimeError")
    report = verify(once.replace(program=lambda x: x * x), x)
    assert [row.name for row in report.rows if row.verdict == "differs"] == ["second gradients"]
    assert report.row("second gradients").differences[0].startswith("backward: RuntimeError")


def test_a_zero_of_another_sign():
    x = torch.zeros(2)
    trace = subtrace_kit.trace(lambda x: -x)(x)
    assert verify(trace, x).ok
    assert wrong(trace.replace(program=lambda x: x * 1), x) == ["values"]


def test_another_layout():
    indices, values = torch.zeros(2, 2, dtype=torch.int64), torch.ones(2)
    x = torch.sparse_coo_tensor(indices, values, (3, 3), check_invariants=True)
    trace = subtrace_kit.trace(lambda x: x.coalesce())(x)
    assert verify(trace, x).ok
    assert verify(trace.replace(program=lambda x: x * 1), x).row("layout").differences == (
        "out: sparse_coo, coalesced instead of sparse_coo, not coalesced",
    )


def test_another_gradient_of_a_new_leaf():
    def hooked(x):
        new = TwoTensor(x, x + 1).requires_grad_()
        new.register_hook(lambda grad: grad * 3)
        return new

    for program in (hooked, lambda x: (new := hooked(x), new * 2)):
        trace = subtrace_kit.trace(program)(torch.randn(2))
        assert verify(trace).ok
        assert verify(subtrace_kit.lower(trace)).ok
        assert wrong(dropped(trace, "torch.Tensor.register_hook"), torch.randn(2)) == ["gradients", "ops"]
