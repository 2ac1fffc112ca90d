"""Wrapper classes of other people, unchanged: trace and lowered trace equal eager."""

import pytest
import torch
from same import trace_and_lower
from torch.testing._internal.two_tensor import TwoTensor

import subtrace_kit


class MLP(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.second = torch.nn.Linear(32, 8)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def jagged(seed):
    torch.manual_seed(seed)
    rows = [torch.randn(2, 4), torch.randn(3, 4)]
    return torch.nested.nested_tensor(rows, layout=torch.jagged), torch.randn(4, 4)


def same_ragged(found, wanted):
    return torch.equal(found.values(), wanted.values()) and torch.equal(found.offsets(), wanted.offsets())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("grad", [False, True])
def test_torchao_int8_weight_only(grad):
    quantization = pytest.importorskip("torchao.quantization")
    model = MLP().eval()
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    with torch.set_grad_enabled(grad):
        trace = subtrace_kit.trace(model)(torch.randn(4, 16))
        fresh = torch.randn(4, 16)
        assert torch.equal(trace(fresh), model(fresh))
        low = subtrace_kit.lower(trace)
        assert torch.equal(low(fresh), model(fresh))
    assert [c.path for c in trace.captures] == ["first.weight", "first.bias", "second.weight", "second.bias"]


@pytest.mark.filterwarnings("ignore")
def test_jagged_nested_tensor():
    def program(t, w):
        return torch.relu(torch.nn.functional.linear(t, w) * 2)

    trace = subtrace_kit.trace(program)(*jagged(0))
    for run in (trace, subtrace_kit.lower(trace)):
        assert same_ragged(run(*jagged(1)), program(*jagged(1)))


@pytest.mark.filterwarnings("ignore")
def test_rows_of_a_jagged_nested_tensor():
    def program(t, w):
        return sum((row @ w).sum() for row in t.unbind())

    trace = subtrace_kit.trace(program)(*jagged(0))
    for run in (trace, subtrace_kit.lower(trace)):
        assert torch.equal(run(*jagged(1)), program(*jagged(1)))


@pytest.mark.parametrize("grad", [False, True])
def test_the_two_tensor_of_torch(grad):
    def make(seed):
        torch.manual_seed(seed)
        return (TwoTensor(torch.randn(3, 3), torch.randn(3, 3)).requires_grad_(grad),)

    trace_and_lower(lambda t: (t * 2).sin() @ t.t(), make)


@pytest.mark.filterwarnings("ignore")
def test_torchao_float8_training_step():
    float8 = pytest.importorskip("torchao.float8")

    def model():
        torch.manual_seed(0)
        layers = torch.nn.Linear(16, 32, bias=False), torch.nn.ReLU(), torch.nn.Linear(32, 16, bias=False)
        made = torch.nn.Sequential(*layers)
        return float8.convert_to_float8_training(made, config=float8.Float8LinearConfig(emulate=True))

    def step(module, run, x):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        out = run(x)
        (out**2).mean().backward()
        gradients = [p.grad.clone() for p in module.parameters()]
        optimizer.step()
        return [out.detach(), *gradients, *(p.detach().clone() for p in module.parameters())]

    x, other = torch.randn(16, 16), torch.randn(16, 16)
    eager, written, lowered = model(), model(), model()
    wanted = step(eager, eager, x)
    trace = subtrace_kit.trace(written)(other)
    low = subtrace_kit.lower(subtrace_kit.trace(lowered)(other))
    for found in (step(written, trace, x), step(lowered, low, x)):
        assert all(torch.equal(one, two) for one, two in zip(found, wanted, strict=True))
