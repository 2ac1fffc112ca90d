"""The backward as a trace: it runs, lowers, verifies, and says where no gradient arrives and what fails."""

import pytest
import torch
from torch.autograd import Function

import subtrace_kit
from subtrace_kit import TraceError, backward, trace
from subtrace_kit.checker import check_trace
from subtrace_kit.zoo import TwoTensor


class Wrap(Function):
    """Builds a wrapper whose gradient comes as one."""

    @staticmethod
    def forward(ctx, x):
        return TwoTensor(x, x * 2)

    @staticmethod
    def backward(ctx, grad):
        return grad.a + grad.b * 2


class GivesNone(Wrap):
    """Has no gradient to give."""

    @staticmethod
    def backward(ctx, grad):
        return None


class Raises(Wrap):
    """Fails in its backward, after an op that does not."""

    @staticmethod
    def backward(ctx, grad):
        wide = grad.a * 2
        raise ValueError(f"no gradient of {wide.dim()} dimensions")


def leaf(seed=0):
    torch.manual_seed(seed)
    return torch.randn(3, requires_grad=True)


PROGRAMS = {
    "plain": lambda x: x.sin() * x,
    "saves its result": lambda x: x.exp().relu(),
    "hands the gradient on": lambda x: x + 1,
    "a Function": lambda x: Wrap.apply(x.sin()),
    "ops on wrappers": lambda x: (Wrap.apply(x) * 3).sin(),
    "through a wrapper argument": lambda x: TwoTensor(x.detach(), x.detach() + 1) * x,
    "two results": lambda x: (x * 2, Wrap.apply(x)),
}


def forms(t):
    b = backward(t)
    return b, subtrace_kit.lower(b), backward(subtrace_kit.lower(t))


def ones(tensor):
    return TwoTensor(torch.ones(3), torch.ones(3)) if isinstance(tensor, TwoTensor) else torch.ones(3)


def saved_values(t, names, x):
    """What the forward of a trace saves, by its names in the trace."""
    known = {p.name: p for p in (*t.inputs, *(p for b in t.bound_symbols for p in b.outputs))}
    saved = dict(zip(names, t.replace(output=[known[name] for name in names])(x), strict=True))
    return saved


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "saves its result"])
@pytest.mark.parametrize("detached", [False, True])
def test_a_backward_can_be_called_with_what_its_signature_shows(name, detached):
    program, x = PROGRAMS[name], leaf(1)
    out = program(x)
    results = out if isinstance(out, tuple) else (out,)
    (wanted,) = torch.autograd.grad(results, x, [ones(r) for r in results])
    t = trace(program)(leaf())
    for form in forms(t):
        names = [p.name for p in form.inputs]
        saved = saved_values(t, [n for n in names if not n.startswith("grad_out")], x)
        tangents = dict(zip(("grad_out", "grad_out_1"), map(ones, results), strict=False))
        given = [{**saved, **tangents}[n] for n in names]
        (grad,) = form(*([g.detach() for g in given] if detached else given))
        assert repr(grad) == repr(wanted)
        assert not grad.requires_grad


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_backward_is_a_trace_like_any_other(name):
    for form in forms(trace(PROGRAMS[name])(leaf())):
        check_trace(form)
        compile(str(form), "backward.py", "exec")
        assert subtrace_kit.draw(form).source
        subtrace_kit.verify(form, raises=True)


def test_a_backward_refuses_values_of_another_kind():
    b = backward(trace(lambda x: x.sin())(leaf()))
    with pytest.raises(TraceError, match="argument x: shape"):
        b(torch.ones(4), torch.ones(3))
    with pytest.raises(TraceError, match="is a backward already"):
        backward(b)


def test_a_backward_with_a_number_from_data_is_refused():
    with pytest.raises(TraceError, match="number that was taken out of a tensor"):
        backward(trace(lambda x: x * x.detach().sum().item())(leaf()))
    assert backward(trace(lambda x: x + x.detach().sum().item())(leaf()))(torch.ones(3))[0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("program", [GivesNone.apply, lambda x: GivesNone.apply(x) * 2], ids=["alone", "then an op"])
def test_no_gradient_arrives(program):
    b = backward(trace(program)(leaf()))
    assert b(*[ones(TwoTensor(torch.ones(3), torch.ones(3))) for _ in b.inputs]) == (None,)
    assert "# no gradient arrives" in str(b)


def with_no_grad(x):
    with torch.no_grad():
        y = x * 2
    return y + 1


@pytest.mark.parametrize(
    ("program", "cut"),
    [
        (lambda x: TwoTensor(x.sin(), x) * 2, "TwoTensor is called directly"),
        (lambda x: x.detach() * 2, "torch.Tensor.detach has no gradient"),
        (lambda x: x > 0, "torch.Tensor.gt has no gradient"),
        (with_no_grad, "mul runs under no_grad"),
    ],
    ids=["constructor", "detach", "comparison", "no_grad"],
)
def test_a_graph_that_is_cut_is_told_where(program, cut):
    try:
        told = str(backward(trace(program)(leaf())))
    except TraceError as error:
        told = str(error)
    assert cut in told
    assert "test_backward.py:" in told


def test_the_forward_runs_under_the_state_that_it_was_recorded_under():
    with torch.autocast("cpu", torch.bfloat16):
        t = trace(lambda x: x[None] @ x[:, None])(leaf())
    b = backward(t)
    assert {p.dtype for p in b.inputs} == {torch.bfloat16}
    assert subtrace_kit.verify(b).ok
    with torch.no_grad():
        t = trace(lambda x: x * 2)(leaf())
    with pytest.raises(TraceError, match=r"the graph is cut at torch\.Tensor\.mul"):
        backward(t)


class SavesItsResult(Wrap):
    """Uses its own result in the backward."""

    @staticmethod
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


def test_a_function_that_saves_its_result():
    for form in forms(trace(lambda x: SavesItsResult.apply(x))(leaf())):
        subtrace_kit.verify(form, raises=True)
        assert len(form.inputs) == 2
        assert form(torch.full((3,), 2.0), torch.full((3,), 5.0))[0].tolist() == [10, 10, 10]


def test_nothing_requires_a_gradient():
    with pytest.raises(TraceError, match="nothing in program requires a gradient"):
        backward(trace(lambda x: x * 2)(torch.ones(3)))


def test_the_gradient_of_the_program_itself_is_no_backward_of_it():
    def program(x):
        (grad,) = torch.autograd.grad((x * x).sum(), x)
        return grad.detach()

    with pytest.raises(TraceError, match="no gradient reaches"):
        backward(trace(program)(leaf()))


def test_a_fault_in_the_backward_of_a_function_is_told_with_its_line():
    t = trace(lambda x: Raises.apply(x.sin()) * 3)(leaf())
    with pytest.raises(TraceError, match=r"Raises\.backward fails: ValueError: no gradient of 1 dim") as caught:
        backward(t)
    assert caught.value.handler.text.startswith("raise ValueError")
    assert "Raises.apply" in caught.value.source.text
    assert "add a rule" not in str(caught.value)
    subtrace_kit.lower(t)  # the forward is sound


def test_a_fault_in_a_hook_is_not_blamed_on_an_op():
    def program(x):
        y = x * 2
        y.register_hook(lambda grad: grad.no_such_method())
        return y.sin()

    with pytest.raises(TraceError, match=r"the backward fails after .*no_such_method") as caught:
        backward(trace(program)(leaf()))
    assert "no_such_method" in caught.value.handler.text


def test_a_recording_keeps_a_backward_in_its_thread():
    class Looks(Wrap):
        @staticmethod
        def backward(ctx, grad):
            assert torch._C._is_multithreading_enabled() is wanted
            return grad.a

    wanted = False
    t = trace(lambda x: Looks.apply(x))(leaf())
    for threads in (True, False):
        with torch.autograd.set_multithreading_enabled(threads):
            wanted = False
            backward(t)
            assert torch._C._is_multithreading_enabled() is threads


class Inside(Function):
    """Builds wrappers in its forward, and gives a plain tensor back."""

    @staticmethod
    def forward(ctx, x):
        pair = TwoTensor(x * 2, x * 3)
        double = pair * 2
        return double.a + double.b

    @staticmethod
    def backward(ctx, grad):
        return grad * 10


def test_wrappers_that_a_replayed_function_builds():
    t = trace(lambda x: Inside.apply(x.sin()) + 1)(leaf())
    low = subtrace_kit.lower(t)
    assert [(c.kept, c.reason) for c in low.ledger] == [(True, "Inside.apply builds it")] * 2
    assert "elide constructors: 0 of 2 elided" in str(low)
    source = subtrace_kit.draw(low).source
    assert "unknown_" not in source
    assert "in_0 -> op_0" in source
    assert "op_0 -> op_1_0" in source
    subtrace_kit.verify(low, raises=True)


def test_zeros_without_memory_in_a_backward():
    def program(x, w):
        return torch.sgn(torch.add(w * 1, torch.cat([w, x])[:3], alpha=2))

    x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    b = backward(trace(program)(x, w))
    assert [g.tolist() for g in b(*[torch.ones(p.shape) for p in b.inputs])] == [[[0.0] * 3] * 3] * 2
