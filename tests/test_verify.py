"""verify: right traces agree with eager, and no run leaves a mark."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from verified import Child, Counting, assert_agrees, scale, two, wrong

import subtrace_kit
from subtrace_kit import verify
from subtrace_kit.report import Check
from subtrace_kit.zoo import ComplexTensor, QuantTensor, TwoTensor, from_scale, to_scale, to_two


def test_views_copies_and_results_that_are_arguments():
    assert_agrees(lambda x: (x, x.t(), [x * 2, x.a], {"k": x.b[0]}), two(2, 3))
    assert_agrees(lambda s: (s * 2, s + 1, s.t()), scale(2, 3))
    assert_agrees(lambda z: (z.conj(), z * 1j, z.abs()), ComplexTensor(torch.randn(2), torch.randn(2)))
    assert_agrees(lambda q: (q.t(), q[0:1]), QuantTensor.from_float(torch.randn(2, 3)))
    assert_agrees(lambda t: (t * 2, t.t()), TwoTensor(scale(2, 3), scale(2, 3)))
    assert_agrees(lambda z: z * 2, torch.randn(2, dtype=torch.complex64).conj())


def test_writes_to_arguments_that_share_memory():
    base, pair = torch.randn(4), two(3)
    assert_agrees(lambda x, y: (x.mul_(2), y + 1, x[0]), base, base[1:])
    assert_agrees(lambda x, y: (x.mul_(2), y + 1, x is y), pair, pair)
    assert_agrees(lambda x: x[0].mul_(2), two(3, 3))


def test_gradients_also_of_another_class_and_of_tensors_that_are_no_leaves():
    x = torch.randn(3, requires_grad=True)
    assert_agrees(lambda t, w: (t @ w).sin(), two(2, 3, grad=True), two(3, 4, grad=True))
    assert_agrees(lambda x: from_scale(to_scale(x, torch.tensor(0.5)) * 3), x)
    assert_agrees(lambda x: (to_two(x, x) * 3).a, x)
    assert_agrees(lambda x: torch.autograd.grad((x**3).sum(), x, create_graph=True)[0], x)
    x.grad = torch.ones(3)
    report = verify(assert_agrees(lambda x: x * 2, x), x)
    assert torch.equal(x.grad, torch.ones(3))
    assert report.row("gradients").note == ""


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_leaves_behind_captured_tensors_keep_their_gradients():
    leaf, unused = torch.randn(2, requires_grad=True), torch.randn(2, requires_grad=True)
    middle = leaf.exp()
    trace = assert_agrees(lambda x: x * middle, torch.randn(2))
    assert leaf.grad is None
    report = verify(trace.replace(program=lambda x: x * middle.detach() * unused / unused))
    assert (
        "leaf 0 behind captured tensors.grad: class Tensor instead of NoneType" in report.row("gradients").differences
    )
    assert leaf.grad is None
    middle.sum().backward()


def test_an_inherited_unflatten_that_names_the_parent():
    child = Child(torch.randn(2))
    assert verify(subtrace_kit.trace(lambda x: x.inner + 1)(child), child).ok


def test_questions_about_sizes_are_not_compared():
    trace = subtrace_kit.trace(lambda x, y: x.is_same_size(y))(two(2), two(2))
    assert verify(trace).row("ops") == Check("ops", "same", (), "there are none")


def test_ragged_sizes():
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)
    trace = assert_agrees(lambda x: (x * 2, x.sin()), nested)
    assert verify(trace, nested).row("gradients").note == ""
    assert wrong(trace.replace(program=lambda x: (x * 3, x.sin())), nested) == ["values", "gradients"]


def test_layouts_without_strides():
    x = torch.eye(3).to_sparse()
    trace = subtrace_kit.trace(lambda x: x * 2)(x)
    assert verify(trace, x).ok
    assert "values" in wrong(trace.replace(program=lambda x: x * 3), x)


def test_random_numbers():
    assert_agrees(lambda t: (torch.nn.functional.dropout(t.a, 0.5), torch.randn(2)), two(8))


def test_a_module_keeps_its_buffers_and_gradients():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    net[0].weight.grad = torch.ones(3, 3)
    trace = assert_agrees(net, torch.randn(4, 3))
    assert torch.equal(net[0].weight.grad, torch.ones(3, 3))
    assert net[1].num_batches_tracked == 0
    assert torch.equal(net[1].running_mean, torch.zeros(3))
    report = verify(trace)
    assert report.row("captured").note == ""


def test_wrapper_parameters_and_a_step_of_an_optimizer():
    lin = torch.nn.Linear(3, 2)
    lin.weight, lin.bias = torch.nn.Parameter(two(2, 3)), torch.nn.Parameter(two(2))
    assert_agrees(lin, two(4, 3))
    plain = torch.nn.Linear(3, 2)
    opt = torch.optim.SGD(plain.parameters(), lr=0.1)
    before = plain.weight.detach().clone()

    def step(x):
        plain(x).sum().backward()
        opt.step()
        opt.zero_grad()

    assert_agrees(step, torch.randn(4, 3))
    assert torch.equal(plain.weight, before)
    assert plain.weight.grad is None


def test_python_attributes_of_arguments():
    c = Counting(torch.randn(2), torch.randn(2))
    trace = assert_agrees(lambda c: c * 2 + c, c)
    assert c.count == 0
    assert wrong(trace.replace(program=lambda c: (c + c) * 2 + c * 0), c)[-2:] == ["arguments", "ops"]


def test_inputs_are_made_up_where_none_are_given():
    assert verify(
        subtrace_kit.trace(lambda x, q, n=3: (x * n, q.t()))(two(2), QuantTensor.from_float(torch.randn(2, 2)))
    ).ok
    assert verify(subtrace_kit.trace(lambda: torch.rand(2))()).ok
    base = torch.randn(4)
    trace = subtrace_kit.trace(lambda x, y: x + y)(base[:2], base[2:])
    with pytest.raises(subtrace_kit.TraceError, match=r"no arguments can be made up .* share memory"):
        verify(trace)
    assert verify(trace, base[:2], base[2:]).ok


def test_keyword_arguments_and_containers():
    trace = subtrace_kit.trace(lambda xs, *, w: {"sum": xs["k"][0] + w})({"k": [two(2)]}, w=two(2))
    assert verify(trace, {"k": [two(2)]}, w=two(2)).ok


def test_values_within_the_tolerance_are_close():
    x = torch.ones(3, dtype=torch.float64)
    trace = subtrace_kit.trace(lambda x: x * 1.0000001)(x).replace(program=lambda x: x * 1)
    assert verify(trace, x).row("values").verdict == "differs"
    report = verify(trace, x, rtol=1e-5)
    assert report.ok
    assert report.row("values").verdict == "close"
    assert report.row("values").differences == ("out: 3 of 3 values differ, by 1e-07 at most",)


def test_nan_equals_nan_and_integers_are_exact():
    assert verify(subtrace_kit.trace(lambda x: x / 0)(torch.zeros(2)), torch.zeros(2)).ok
    big = torch.tensor([2**60])
    trace = subtrace_kit.trace(lambda x: x + 1)(big).replace(program=lambda x: x + 2)
    assert verify(trace, big).row("values").verdict == "differs"


def test_a_difference_raises_on_demand():
    x = two(2)
    trace = subtrace_kit.trace(lambda x: x * 2)(x)
    assert verify(trace, x, raises=True).ok
    with pytest.raises(subtrace_kit.TraceError, match=r"values +differs +out\.a: 2 of 2"):
        verify(trace.replace(program=lambda x: x * 3), x, raises=True)


def test_what_cannot_be_compared_is_refused():
    x = two(2)
    trace = subtrace_kit.trace(lambda x: x * 2)(x)
    with pytest.raises(subtrace_kit.TraceError, match="no program to compare"):
        verify(trace.replace(program=None), x)
    with pytest.raises(subtrace_kit.TraceError, match="argument x: shape"):
        verify(trace, two(3))
    failing = trace.replace(program=lambda x: 1 / 0)
    assert verify(failing, x).row("run").differences == (
        "the trace gives a result where eager raises ZeroDivisionError: division by zero",
    )
    with pytest.raises(subtrace_kit.TraceError, match="fails in eager: ZeroDivisionError"):
        verify(failing)


def leaf(*shape, grad=None):
    made = torch.randn(*shape, requires_grad=True)
    made.grad = grad
    return made


def backward_inside(x):
    (x * x).sum().backward()
    return x.grad


@torch.no_grad()
def without_gradients(x):
    return x * 2


VARIED = {
    "dicts, lists, None, numbers": (
        lambda a, b, c: (a["x"], b[0] * 2, c, 3),
        lambda: ({"x": two(2)}, [two(2), 5], None),
    ),
    "wrappers in wrappers": (lambda t: (t * 2, t.a, t.t().a.t()), lambda: (TwoTensor(two(2, 3), two(2, 3)),)),
    "one inner tensor twice": (lambda t, a: (a.mul_(2), t + 1), lambda: ((t := TwoTensor(*[torch.ones(3)] * 2)), t.a)),
    "wrapper of expanded tensors": (lambda t: (t * 2, t), lambda: (TwoTensor(*[torch.ones(1, 3).expand(2, 3)] * 2),)),
    "wrapper without dimension": (lambda t: (t * 2, t.a.sum()), lambda: (two(),)),
    "empty wrapper": (lambda t: (t * 2, t.sum()), lambda: (two(0, 3),)),
    "integers and booleans": (
        lambda a, b: (a & b, a.long() + 1),
        lambda: (torch.tensor([True]), torch.tensor([False])),
    ),
    "results that are no tensors": (lambda x: (x.shape[0], x.dim(), x.dtype, x.shape, "s", None), lambda: (two(2, 3),)),
    "several results": (lambda x: torch.max(x, 0), lambda: (torch.randn(3, 4),)),
    "views of inputs": (lambda x: (x[0], x[1:], x.unsqueeze(0), x), lambda: (torch.randn(3, 3),)),
    "writes with index": (lambda x: (x.__setitem__(0, 5.0), x)[1], lambda: (torch.randn(3),)),
    "writes with out": (lambda x, o: torch.sin(x, out=o), lambda: (torch.randn(3), torch.empty(3))),
    "another size": (lambda x: x.resize_(5).zero_(), lambda: (torch.randn(2),)),
    "transposed in place": (lambda x: x.t_(), lambda: (torch.randn(2, 3),)),
    "other data": (lambda x: setattr(x, "data", torch.ones(3)), lambda: (torch.randn(3),)),
    "flag set": (lambda x: (x.requires_grad_(), x * 2)[1], lambda: (torch.randn(2),)),
    "backward inside": (backward_inside, lambda: (leaf(3),)),
    "backward onto a gradient": (backward_inside, lambda: (leaf(3, grad=torch.ones(3)),)),
    "gradient set": (lambda x: setattr(x, "grad", torch.ones(2)), lambda: (leaf(2),)),
    "gradient used": (lambda x: x.grad.mul_(2) + x, lambda: (leaf(2, grad=torch.ones(2)),)),
    "hook on an argument": (lambda x: (x.register_hook(lambda g: g * 2), x * 3)[1], lambda: (leaf(2),)),
    "checkpoint": (lambda x: checkpoint(torch.sin, x, use_reentrant=False), lambda: (leaf(3),)),
    "without gradients": (without_gradients, lambda: (leaf(3),)),
    "complex gradients": (
        lambda z: (z * z.conj()).real,
        lambda: (torch.ones(3, dtype=torch.complex64).requires_grad_(),),
    ),
    "no leaf": (lambda x: x.mul_(2), lambda: (leaf(3) * 2,)),
    "many random draws": (lambda x: (torch.bernoulli(x.sigmoid()), x.normal_()), lambda: (torch.randn(4),)),
    "lists of operands": (lambda a, b: torch._foreach_add([a, b], 1), lambda: (two(2), two(2))),
}


@pytest.mark.parametrize(("fn", "make"), VARIED.values(), ids=VARIED)
def test_varied_programs(fn, make):
    assert_agrees(fn, *make())


def test_only_traces_are_taken():
    with pytest.raises(subtrace_kit.TraceError, match=r"verify\(\) takes a trace, not a function"):
        verify(lambda x: x, torch.ones(2))
