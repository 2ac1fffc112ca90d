"""to_fx: lowered traces as FX graphs, which torch.export takes; what such a graph cannot say is refused."""

import pytest
import torch
from kinds import KeywordOnly

import subtrace_kit
from subtrace_kit import TraceError
from subtrace_kit.zoo import ScaleTensor, TwoTensor


def lowered(fn, *args):
    return subtrace_kit.lower(subtrace_kit.trace(fn)(*args))


def two(seed, *shape):
    torch.manual_seed(seed)
    return TwoTensor(torch.randn(shape), torch.randn(shape))


LINEAR = torch.nn.Linear(3, 3)


def mixed(t, x, d):
    y = torch.nn.functional.gelu(LINEAR(x))
    t = (t * 2).relu()
    x.add_(1)
    return {"t": t, "y": [y, y.t()], "n": 3}, d["k"].split(1)[1], x


def arguments(seed):
    return two(seed, 3), torch.randn(3, 3), {"k": torch.randn(2, 2)}


def test_a_graph_gives_what_the_program_gives():
    with torch.no_grad():
        module = subtrace_kit.to_fx(lowered(mixed, *arguments(0)))
        assert module.meta["inputs"] == ("t.a", "t.b", "x", "d['k']")
        ours, eager = arguments(1), arguments(1)
        (found, part, x), (wanted, other, _) = module(*module.meta["flatten"](*ours)), mixed(*eager)
    assert torch.equal(found["t"]["a"], wanted["t"].a)
    assert torch.equal(found["t"]["b"], wanted["t"].b)
    assert all(map(torch.equal, found["y"], wanted["y"]))
    assert found["y"][1]._base is found["y"][0]
    assert found["n"] == 3
    assert x is ours[1]
    assert torch.equal(x, eager[1])
    assert torch.equal(part, other)
    assert part._base is ours[2]["k"]


def test_a_graph_is_differentiable_and_its_parameters_are_those_of_the_program():
    net = torch.nn.Linear(3, 2)
    module = subtrace_kit.to_fx(lowered(lambda x: net(x).relu().sum(), torch.randn(4, 3)))
    assert {id(p) for p in module.parameters()} == {id(p) for p in net.parameters()}
    x = torch.randn(4, 3)
    module(x).backward()
    found = net.weight.grad.clone()
    net.zero_grad()
    net(x).relu().sum().backward()
    assert torch.equal(found, net.weight.grad)


def test_torch_export_takes_a_graph():
    t = two(0, 2, 3)
    module = subtrace_kit.to_fx(lowered(lambda t, x: (t * 2 + x).sum(0), t, torch.ones(3)))
    inputs = module.meta["flatten"](t, torch.ones(3))
    exported = torch.export.export(module, inputs)
    found, wanted = exported.module()(*inputs), (t * 2 + torch.ones(3)).sum(0)
    assert torch.allclose(found["a"], wanted.a)
    assert torch.allclose(found["b"], wanted.b)


def test_nodes_know_the_line_of_the_user():
    module = subtrace_kit.to_fx(lowered(lambda t: t * 2, two(0, 2)))
    traces = [node.stack_trace for node in module.graph.nodes if node.op == "call_function"]
    assert all("test_to_fx.py" in trace for trace in traces)


def test_autograd_is_off_where_a_class_works():
    class Weight(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            with torch.no_grad():
                factor = self.scale * 3
            return x * factor * self.scale

    net = Weight()
    module = subtrace_kit.to_fx(lowered(net, torch.ones(2)))
    module(torch.ones(2)).sum().backward()
    assert net.scale.grad.item() == 12
    assert torch.is_grad_enabled()


def test_nested_wrappers_and_captured_ones():
    held = KeywordOnly(data=torch.ones(2), unit="m")
    nested = TwoTensor(two(0, 2), two(1, 2))
    module = subtrace_kit.to_fx(lowered(lambda t: (t * 2, held + 1), nested))
    assert module.meta["inputs"] == ("t.a.a", "t.a.b", "t.b.a", "t.b.b")
    found, also = module(*module.meta["flatten"](nested))
    assert torch.equal(found["b"]["a"], nested.b.a * 2)
    assert also["data_"].tolist() == [2, 2]
    held.data_.add_(1)
    assert module(*module.meta["flatten"](nested))[1]["data_"].tolist() == [3, 3]


def test_a_number_that_is_returned_is_computed_anew():
    module = subtrace_kit.to_fx(lowered(lambda x: (x * 2).sum().item(), torch.ones(2)))
    assert module(torch.full((2,), 3.0)) == 12


def grad(*shape):
    return torch.ones(shape, requires_grad=True)


@pytest.mark.parametrize(
    ("fn", "args", "told", "way_out"),
    [
        (lambda t: t * 2, (two(0, 2).requires_grad_(),), "torch.Tensor.mul stays on wrapper objects", "no_grad"),
        (lambda x: x[x > 0], (torch.ones(2),), "has a result that the trace compares", "0-dim tensors"),
        (lambda x: x * x.sum().item(), (torch.ones(2),), "Tensor.mul computes with a number from data", "0-dim tensor"),
        (
            lambda x: x.sum().item() + 1,
            (torch.ones(2),),
            "operator.add computes with a number from data",
            "0-dim tensor",
        ),
        (
            lambda x: torch.full((2,), x.sum()),
            (torch.ones(2),),
            "full has a result that the trace compares",
            "0-dim tensor",
        ),
        (lambda x: (x * 2).requires_grad_(), (torch.ones(2),), "requires_grad_ does what no ATEN op shows", "itself"),
        (lambda x: (x * 2).sum().backward(), (grad(2),), "backward does what no ATEN op shows", "itself"),
        (lambda x: (x, torch.nn.Linear), (torch.ones(2),), "the program returns a type", "itself"),
    ],
)
def test_what_a_graph_cannot_say_is_refused(fn, args, told, way_out):
    low = lowered(fn, *args)
    with pytest.raises(TraceError) as caught:
        subtrace_kit.to_fx(low)
    assert told in caught.value.what
    assert way_out in caught.value.way_out


def test_a_trace_that_is_not_lowered_is_refused():
    with pytest.raises(TraceError, match="a TwoTensor") as caught:
        subtrace_kit.to_fx(subtrace_kit.trace(lambda t: t * 2)(two(0, 2)))
    assert caught.value.way_out == "subtrace_kit.to_fx(lower(t))"
    with pytest.raises(TraceError, match=r"to_fx\(\) takes a trace"):
        subtrace_kit.to_fx(mixed)


def test_a_constant_is_new_at_each_run():
    module = subtrace_kit.to_fx(lowered(lambda x: (torch.tensor([1.0, 2.0]), x * torch.tensor(2.0)), torch.ones(2)))
    module(torch.ones(2))[0].add_(5)
    constant, doubled = module(torch.ones(2))
    assert constant.tolist() == [1, 2]
    assert doubled.tolist() == [2, 2]


def test_a_scaled_tensor():
    scaled = ScaleTensor(torch.ones(3), torch.tensor(2.0))
    module = subtrace_kit.to_fx(lowered(lambda t: t.dequantize() + 1, scaled))
    assert module(*module.meta["flatten"](scaled)).tolist() == [3, 3, 3]
