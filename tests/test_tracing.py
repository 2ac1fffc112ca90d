"""Programs of many shapes, recorded, lowered and run on fresh inputs."""

import collections
import math

import pytest
import torch
from same import trace_and_lower

import subtrace_kit
from subtrace_kit.zoo import ComplexTensor, QuantTensor, ScaleTensor, TwoTensor

Point = collections.namedtuple("Point", "x y")


def two(seed, *shape, grad=False):
    torch.manual_seed(seed)
    return TwoTensor(torch.randn(*shape), torch.randn(*shape)).requires_grad_(grad)


def test_the_printed_trace_is_the_one_a_reader_expects():
    def program(x, s):
        t = ScaleTensor(x * 2, s)
        return t.t()

    trace = subtrace_kit.trace(program)(torch.ones(2, 3), torch.tensor(0.5))
    assert trace.to_text(levels=1, comments=False).split("def ")[1] == (
        "program(x, s):\n"
        "    mul = x.mul(2)\n"
        "    scaletensor = ScaleTensor.__tensor_unflatten__("
        "{'raw': mul, 'scale': s}, None, torch.Size([2, 3]), (3, 1))\n"
        "    t = scaletensor.t()\n"
        "    return t"
    )


def test_text_is_the_same_from_run_to_run():
    def program(t):
        return (t * 2).sin() @ t.t()

    texts = {str(subtrace_kit.trace(program)(two(0, 3, 3))) for _ in range(2)}
    assert len(texts) == 1


def test_levels_comments_and_devices_can_be_left_out():
    trace = subtrace_kit.trace(lambda t: t + torch.ones(2, device="cpu"))(two(0, 2))
    assert "aten.add.Tensor" in trace.to_text()
    assert "aten.add.Tensor" not in trace.to_text(levels=1)
    assert "#" not in trace.to_text(levels=1, comments=False).split("def ")[1]
    assert "device=" in trace.to_text(comments=False)
    assert "device=" not in trace.to_text(comments=False, device=False)


def test_nested_structures_go_in_and_come_out():
    def program(ps, *rest, **named):
        total = ps[0]["w"] + rest[0]
        return {"total": total, "point": Point(total, None), "n": (1, "s", [named["q"], total])}

    def make(seed):
        torch.manual_seed(seed)
        return [{"w": two(seed, 2)}], torch.randn(2)

    trace = subtrace_kit.trace(program)(*make(0), q=torch.ones(2))
    fresh = torch.zeros(2)
    for run in (trace, subtrace_kit.lower(trace)):
        out = run(*make(1), q=fresh)
        assert isinstance(out["point"], Point)
        assert out["point"].y is None
        assert out["n"][:2] == (1, "s")
        assert out["n"][2][0] is fresh
        assert out["n"][2][1] is out["total"]


def test_nested_wrappers_two_classes_deep():
    def make(seed):
        torch.manual_seed(seed)
        scale = [ScaleTensor(torch.randn(2, 3), torch.tensor(0.5)) for _ in range(2)]
        return (TwoTensor(*scale),)

    _, low = trace_and_lower(lambda t: (t * 2, t.t() + 1), make)
    assert sum(c.kept for c in low.ledger) < len(low.ledger)


def test_quantized_linear_is_lowered_to_plain_ops():
    def make(seed):
        torch.manual_seed(seed)
        return torch.randn(2, 4), QuantTensor.from_float(torch.randn(3, 4), axis=0)

    _, low = trace_and_lower(torch.nn.functional.linear, make)
    assert not low.ledger or not any(c.kept for c in low.ledger)


def test_complex_arithmetic():
    def make(seed):
        torch.manual_seed(seed)
        return tuple(ComplexTensor(torch.randn(3, 3), torch.randn(3, 3)) for _ in range(2))

    trace_and_lower(lambda p, q: ((p @ q).abs(), (p * q).conj()), make)


@pytest.mark.parametrize("grad", [False, True])
def test_gradients_of_wrapper_leaves(grad):
    trace_and_lower(lambda t: ((t * t).sin() + t, t.sum()), lambda seed: (two(seed, 2, 3, grad=grad),))


def test_writes_reach_the_caller():
    def program(t, u):
        t.add_(1)
        t[0].mul_(2)
        u.copy_(t)
        return u is t, t * u

    trace_and_lower(program, lambda seed: (two(seed, 2, 3), two(seed + 5, 2, 3)))


def test_parameters_are_live_and_named():
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    trace = subtrace_kit.trace(module)(torch.ones(1, 3))
    assert [capture.path for capture in trace.captures] == ["0.weight", "0.bias"]
    with torch.no_grad():
        module[0].weight.zero_()
        module[0].bias.fill_(3)
    assert trace(torch.ones(1, 3)).tolist() == [[3, 3]]
    module[0].weight = torch.nn.Parameter(torch.ones(2, 3, dtype=torch.float64))
    with pytest.raises(subtrace_kit.TraceError, match=r"captured tensor 0\.weight: dtype float64"):
        trace(torch.ones(1, 3))


def test_training_flag_is_part_of_the_kind():
    module = torch.nn.Dropout(0.5)
    trace = subtrace_kit.trace(module)(torch.ones(4))
    module.eval()
    with pytest.raises(subtrace_kit.TraceError, match="training is False instead of True"):
        trace(torch.ones(4))


def test_fake_tensors_need_no_memory_and_no_gpu():
    def program(x):
        big = torch.ones(10**6, 10**6, device="cuda")
        return TwoTensor(big, big) * 2

    text = subtrace_kit.trace(program, fake=True)(torch.ones(1)).to_text(levels=1)
    assert "TwoTensor f32[1000000, 1000000] cuda:0" in text


def test_a_trace_recorded_on_fake_tensors_runs_on_real_ones():
    trace = subtrace_kit.trace(lambda t: t.sin() + 1, fake=True)(two(0, 3))
    fresh = two(1, 3)
    for run in (trace, subtrace_kit.lower(trace)):
        assert torch.equal(run(fresh).b, fresh.b.sin() + 1)


def test_numbers_taken_out_are_computed_anew():
    trace = subtrace_kit.trace(lambda x: x * (x.sum().item() + 1))(torch.ones(3))
    fresh = torch.arange(3.0)
    assert torch.equal(trace(fresh), fresh * 4)


def test_a_branch_on_data_is_refused_with_its_line():
    def program(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(subtrace_kit.TraceError, match=r"branch on the data(.|\n)*if x\.sum\(\) > 0"):
        subtrace_kit.trace(program)(torch.ones(2))


def test_the_error_carries_the_trace_so_far():
    def program(w):
        doubled = w.t()
        return doubled.permute(1, 0)

    with pytest.raises(subtrace_kit.TraceError, match=r"aten\.permute") as caught:
        subtrace_kit.trace(program)(QuantTensor.from_float(torch.ones(2, 2), axis=0))
    assert "# ^ failed" in str(caught.value.trace)
    assert "w.t()" in str(caught.value.trace)
    assert "color" in subtrace_kit.draw(caught.value.trace).source


def test_the_lowered_text_runs_with_torch_alone():
    def program(t):
        return (t * 2).sin()

    low = subtrace_kit.lower(subtrace_kit.trace(program)(two(0, 3)))
    assert "subtrace_kit" not in low.to_text().split("import torch", 1)[1].replace("subtrace_kit.zoo", "")
    space: dict = {}
    exec(str(low), space)
    fresh = two(1, 3)
    assert torch.equal(space["program"](fresh).a, (fresh.a * 2).sin())


def test_backward_stands_under_the_forward_lines():
    trace = subtrace_kit.trace(lambda x: x.sin().exp())(torch.ones(2, requires_grad=True))
    back = subtrace_kit.backward(trace)
    assert [b.module for b in back.bound_symbols if b.symbol.name == "aten.cos.default"] == [
        "backward of torch.Tensor.sin"
    ]
    assert "grad_out" in [proxy.name for proxy in back.inputs]


def test_jit_traces_once_for_each_kind():
    f = subtrace_kit.jit(lambda t: t * 2)
    for shape in ((2,), (3,), (2,)):
        fresh = two(0, *shape)
        assert torch.equal(f(fresh).a, fresh.a * 2)
    assert len(f.traces) == 2


def test_an_op_whose_handler_computes_with_a_number_from_data_stays_with_its_class():
    def program(t, x):
        return t * x.sum().item()

    def make(value):
        return ScaleTensor(torch.ones(3), torch.tensor(2.0)), torch.full((3,), value)

    trace = subtrace_kit.trace(program)(*make(1.0))
    assert trace(*make(5.0)).dequantize().tolist() == [30, 30, 30]
    low = subtrace_kit.lower(trace)
    assert low(*make(1.0)).dequantize().tolist() == [6, 6, 6]
    assert low(*make(5.0)).dequantize().tolist() == [30, 30, 30]
    assert [c.reason for c in low.ledger] == ["it is returned"]


def test_python_arithmetic_that_no_op_shows_is_refused_on_other_data():
    trace = subtrace_kit.trace(lambda x: x * math.sqrt(x.sum().item()))(torch.ones(4))
    assert trace(torch.ones(4)).tolist() == [2, 2, 2, 2]
    with pytest.raises(subtrace_kit.TraceError, match="the data now give 16"):
        trace(torch.full((4,), 4.0))


def test_a_complex_number_taken_out_is_guarded():
    trace = subtrace_kit.trace(lambda x: x * complex(x.sum()))(torch.ones(2))
    with pytest.raises(subtrace_kit.TraceError, match="the data now give 0j"):
        trace(torch.zeros(2))


class doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


early = doubled.apply


@pytest.mark.parametrize("apply", [doubled.apply, early, lambda x: doubled.apply(x)])
def test_a_function_is_seen_however_it_is_called(apply):
    def make(seed):
        torch.manual_seed(seed)
        return (torch.randn(3, requires_grad=True),)

    trace, _ = trace_and_lower(lambda x: apply(x).sin(), make)
    assert trace.bound_symbols[0].symbol.name == "doubled.apply"


def test_modules_that_a_function_finds_have_the_paths_of_their_variables():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    t = subtrace_kit.trace(lambda x: model(x) + 1)(torch.ones(1, 2))
    assert [b.module for b in t.bound_symbols] == ["model.0", "model.1", ""]
