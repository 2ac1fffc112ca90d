"""Backends: parts of lowered traces, compiled, give what eager gives; what cannot be compiled is told."""

import threading

import pytest
import torch
from compare import ties
from same import assert_same, outcome
from torch.autograd import forward_ad

import subtrace_kit
from subtrace_kit import TraceError, backends
from subtrace_kit.zoo import QuantTensor, ScaleTensor, TwoTensor

LINEAR = torch.nn.Linear(3, 3)


def two(*shape):
    return TwoTensor(torch.randn(shape), torch.randn(shape))


def op_by_op(part):
    """A backend of the kind that the docstring shows."""
    return subtrace_kit.to_fx(part)


@pytest.fixture(params=["op by op", "inductor"])
def backend(request):
    if request.param == "op by op":
        subtrace_kit.register_backend("op by op", op_by_op)
    return request.param


def numbers(x):
    return x * x.sum().item()


def writes(t, x):
    y = x * 2 + 1
    x.add_(y)
    t.mul_(2)
    return x + y, t


def views(x):
    y = x * 2
    z = y + 1
    return y, y.t(), z[0], y.t()[1], x.t(), z.view(9).view(3, 3)


def under_modes(x):
    with torch.no_grad():
        a = (x * 2).sin()
    with torch.inference_mode():
        b = (x * 3).cos() + 1
    return a, b, x.detach() * 2 + 1


def random(x):
    y = torch.nn.functional.dropout(x * 2 + 1, 0.5)
    return y * 2 + torch.rand(3, 3)


def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x + 1
    return y, (y * 2).float() + 1


PROGRAMS = {
    "elementwise": (lambda t: (t * 2).relu() + t, lambda: (two(3, 3),)),
    "several results": (
        lambda t, x: [(t * 2).sum(0), {"k": (x @ x).softmax(-1)}, 3],
        lambda: (two(2, 3), torch.randn(3, 3)),
    ),
    "views": (views, lambda: (torch.randn(3, 3),)),
    "strides": (lambda x: ((x.t() * 2) + 1, x[:, ::2] * 2 + 1), lambda: (torch.randn(3, 4),)),
    "offset": (lambda x: x * 2 + x[0], lambda: (torch.randn(5, 3)[2:],)),
    "writes": (writes, lambda: (two(3), torch.randn(3))),
    "module": (lambda x: torch.nn.functional.gelu(LINEAR(x) * 2), lambda: (torch.randn(2, 3),)),
    "numbers": (numbers, lambda: (torch.rand(3),)),
    "a number in a size": (lambda x: torch.full((3,), x.sum()) * 2 + x, lambda: (torch.rand(3),)),
    "data": (lambda x: x[x > -9] * 2 + 1, lambda: (torch.randn(3),)),
    "random": (random, lambda: (torch.randn(3, 3),)),
    "modes": (under_modes, lambda: (torch.randn(3, 3, requires_grad=True),)),
    "autocast": (autocast, lambda: (torch.randn(3, 3),)),
    "gradient": (lambda t, x: (t * 2 + x).relu(), lambda: (two(3).requires_grad_(), torch.randn(3))),
    "plain gradient": (lambda x: (x * 2).sin() + 1, lambda: (torch.randn(3, requires_grad=True),)),
    "some gradient": (
        lambda x, w: ((x * 2).sin() + 1) * w,
        lambda: (torch.randn(3), torch.randn(3, requires_grad=True)),
    ),
    "comparison": (lambda w: (w > 0).float() * 2, lambda: (torch.randn(3, requires_grad=True),)),
    "quantized": (
        lambda q, x: x @ q.dequantize() + 1,
        lambda: (QuantTensor.from_float(torch.ones(3, 3)), torch.randn(2, 3)),
    ),
    "scale": (lambda s: (-(s * 1.5)).abs(), lambda: (ScaleTensor(torch.randn(3), torch.tensor(2.0)),)),
    "half": (lambda x: (x * 2 + 1).to(torch.bfloat16) * 2, lambda: (torch.randn(3),)),
    "whole numbers": (lambda x: (x // 2 * 3 % 5, x >> 1, x.sum()), lambda: (torch.randint(-9, 9, (3, 3)),)),
    "returns its argument": (lambda x: (x.to(x.dtype) * 2 + 1, x.contiguous()), lambda: (torch.randn(3),)),
    "constant": (lambda x: ((x + 1) * torch.tensor([1.0, 2.0]) + 1, torch.tensor(3)), lambda: (torch.randn(2),)),
    "complex": (lambda x: (x * 2).abs() + 1, lambda: (torch.randn(3, dtype=torch.cfloat),)),
    "many results of one op": (lambda x: torch.topk(x * 2, 2), lambda: (torch.randn(5),)),
    "nothing in it": (lambda x: (x.new_zeros(0) + 1, x * 2), lambda: (torch.randn(2),)),
    "the input": (lambda x: (x, x * 2 + 1), lambda: (torch.randn(2),)),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_programs_give_what_eager_gives(backend, name):
    program, make = PROGRAMS[name]
    jitted = subtrace_kit.jit(program, backend=backend)
    for seed in range(3):
        runs = []
        for fn in (jitted, program):
            torch.manual_seed(seed)
            args = make()
            seen = outcome(fn, args)
            torch.manual_seed(seed)
            again = make()
            runs.append((seen, ties((again, fn(*again)))))
        assert runs[0][1] == runs[1][1]
        assert_same(runs[0][0], runs[1][0], 1e-2 if name in ("half", "autocast") else 1e-5)
    assert jitted.cache_info().misses == 1


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_results_are_of_the_mode_of_the_caller(backend, mode):
    jitted = subtrace_kit.jit(lambda t: (t * 2).relu() + 1, backend=backend)
    t = TwoTensor(torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True))
    with mode():
        for _ in range(2):
            out = jitted(t)
            assert not out.a.requires_grad
            assert out.a.is_inference() is (mode is torch.inference_mode)
            assert out.a.tolist() == [3, 3]


def lines(jitted):
    return list(jitted.explain().entries[0].notes)


def test_explain_says_what_is_compiled_and_what_is_not():
    jitted = subtrace_kit.jit(writes, backend="inductor")
    jitted(two(3), torch.randn(3))
    assert lines(jitted) == [
        "inductor runs 3 ops in 2 parts",
        "eager: torch.Tensor.add_ writes into a tensor",
        "eager: aten.mul_.Tensor writes into a tensor (2 times)",
        "eager: torch.autograd.graph.increment_version works on wrapper objects",
    ]
    jitted = subtrace_kit.jit(lambda t: t * 2 + 1, backend="inductor")
    assert jitted(two(3).requires_grad_()).requires_grad
    assert lines(jitted) == [
        "inductor runs nothing",
        "eager: torch.Tensor.mul stays on wrapper objects: autograd follows it, or its class takes a number",
        "eager: torch.Tensor.add stays on wrapper objects: autograd follows it, or its class takes a number",
    ]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch's rules for derivatives use it
def test_a_transform_or_a_mode_of_the_caller_sees_every_op(backend):
    jitted = subtrace_kit.jit(lambda x: x.sin() * 2, backend=backend)
    x = torch.randn(4, 3)
    jitted(x[0])
    assert torch.allclose(torch.vmap(jitted)(x), x.sin() * 2)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(jitted(forward_ad.make_dual(x[0], torch.ones(3)))).tangent
        assert torch.allclose(tangent, x[0].cos() * 2)
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        subtrace_kit.jit(lambda x: x @ x + 1, backend=backend)(torch.randn(3, 3))
    assert counter.get_total_flops() > 0


def test_parts_change_with_their_parameters(backend):
    net = torch.nn.Linear(3, 2)
    jitted = subtrace_kit.jit(net, backend=backend)
    x = torch.randn(4, 3)
    with torch.no_grad():
        for _ in range(3):
            assert torch.allclose(jitted(x), net(x), atol=1e-6)
            net.weight.add_(1)
    assert jitted.cache_info().misses == 1


def test_results_stay_what_they_are(backend):
    jitted = subtrace_kit.jit(lambda x: x * 2 + 1, backend=backend)
    first = jitted(torch.ones(3))
    jitted(torch.zeros(3))
    assert first.tolist() == [3, 3, 3]


def test_threads_share_what_is_compiled(backend):
    jitted = subtrace_kit.jit(lambda t: (t * 2).relu() + 1, backend=backend)
    wrong = []

    def work(i):
        for _ in range(20):
            out = jitted(TwoTensor(torch.full((3,), float(i)), torch.ones(3)))
            wrong.extend([out] if out.a.tolist() != [2 * i + 1] * 3 else [])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert jitted.cache_info().entries == 1


# --------------------------------------------------------------------------------------- the registry


@pytest.fixture
def registered(monkeypatch):
    """Register a backend for one test."""
    monkeypatch.setattr(backends, "_backends", dict(backends._backends))
    return lambda compile: subtrace_kit.register_backend("mine", compile)


def test_a_backend_is_given_plain_parts_and_its_options(registered):
    parts = []

    def compile_part(part, *, level):
        parts.append((part, level))
        return op_by_op(part)

    registered(compile_part)
    jitted = subtrace_kit.jit(lambda t: (t * 2).relu(), backend="mine", level=3)
    assert jitted(two(2)).shape == (2,)
    ((part, level),) = parts
    assert level == 3
    assert [b.symbol.name for b in part.bound_symbols] == ["aten.mul.Tensor"] * 2 + ["aten.relu.default"] * 2
    assert [p.shape for p in (*part.inputs, *part.results)] == [(2,)] * 4
    a, b = part(torch.ones(2), -torch.ones(2))
    assert (a.tolist(), b.tolist()) == ([2, 2], [0, 0])
    with pytest.raises(TraceError, match="takes the function alone, and got depth="):
        subtrace_kit.jit(lambda x: x, backend="mine", depth=2)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (lambda x: (x * 2).t(), "class, shape, strides"),
        (lambda x: (x * 2).double(), "class, shape, strides"),
        (lambda x: x.detach(), "in memory that is not its own"),
        (lambda x: None, "other than a tuple of 1 results"),
    ],
)
def test_a_backend_with_other_results_is_left_out(registered, result, told):
    def compile_part(part):
        return lambda x: None if result(x) is None else (result(x),)

    registered(compile_part)
    jitted = subtrace_kit.jit(lambda x: x.clone() * 2, backend="mine")
    for _ in range(2):
        assert jitted(torch.ones(2, 3)).equal(torch.full((2, 3), 2.0))
    assert any(told in line for line in lines(jitted))


def test_a_backend_may_decline_and_may_fail(registered):
    def declines(part):
        raise NotImplementedError("too small for mine")

    registered(declines)
    jitted = subtrace_kit.jit(lambda x: x * 2 + 1, backend="mine")
    assert jitted(torch.ones(1)).tolist() == [3]
    assert lines(jitted) == ["mine runs nothing", "eager: too small for mine (2 times)"]

    def fails(part):
        raise ValueError("no such register")

    registered(fails)
    with pytest.raises(TraceError, match=r"cannot compile a part of 2 ops \(aten.mul.Tensor.*ValueError: no such reg"):
        subtrace_kit.jit(lambda x: x * 2 + 1, backend="mine")(torch.ones(1))


def test_names_of_backends():
    with pytest.raises(TraceError, match="no backend 'indutcor'") as caught:
        subtrace_kit.jit(lambda x: x, backend="indutcor")
    assert "'eager', 'inductor', 'cudagraphs'" in caught.value.way_out
    with pytest.raises(TraceError, match="'eager' is a backend of the kit"):
        subtrace_kit.register_backend("eager", op_by_op)
    with pytest.raises(TraceError, match="takes a name and a function"):
        subtrace_kit.register_backend(op_by_op, "mine")


def test_inductor_without_a_compiler_says_so(monkeypatch):
    from torch._inductor import cpp_builder

    def missing():
        raise RuntimeError("No working C++ compiler found")

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", missing)
    with pytest.raises(TraceError, match="found no C\\+\\+ compiler that works") as caught:
        subtrace_kit.jit(lambda x: x * 2 + 1, backend="inductor")(torch.ones(2))
    assert "install g++" in caught.value.way_out


def test_options_of_inductor():
    jitted = subtrace_kit.jit(lambda x: x * 2 + 1, backend="inductor", options={"epilogue_fusion": False})
    assert jitted(torch.ones(2)).tolist() == [3, 3]
    with pytest.raises(TraceError, match="inductor has no option 'epilog'"):
        subtrace_kit.jit(lambda x: x * 2, backend="inductor", options={"epilog": False})(torch.ones(2))
    with pytest.raises(TraceError, match="results that the next run overwrites"):
        subtrace_kit.jit(lambda x: x * 2, backend="inductor", options={"triton.cudagraphs": True})(torch.ones(2))


def test_what_inductor_made_is_called_itself():
    for _ in range(2):  # the second time it comes from the cache on disk
        jitted = subtrace_kit.jit(lambda x: x * 2 + 7, backend="inductor")
        assert jitted(torch.ones(2)).tolist() == [9, 9]
        (part,) = jitted._entries[0].program.bound_symbols
        assert part.symbol.fn.call.__module__ == "subtrace_kit.inductor"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cudagraphs_without_a_device_says_so():
    with pytest.raises(TraceError, match="needs a CUDA device, and there is none"):
        subtrace_kit.jit(lambda x: x * 2 + 1, backend="cudagraphs")(torch.ones(2))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("backend", ["cudagraphs", "inductor"])
def test_compiled_programs_on_a_device(backend):
    jitted = subtrace_kit.jit(lambda t, x: ((t * 2).relu(), x @ x + 1), backend=backend)
    kept = []
    for seed in range(3):
        torch.manual_seed(seed)
        t, x = TwoTensor(*torch.randn(2, 3, device="cuda")), torch.randn(3, 3, device="cuda")
        kept.append((jitted(t, x), ((t * 2).relu(), x @ x + 1)))
    for found, wanted in kept:
        assert torch.allclose(found[0].a, wanted[0].a)
        assert torch.allclose(found[1], wanted[1], atol=1e-5)
    assert "runs" in lines(jitted)[0]
    assert "nothing" not in lines(jitted)[0]
