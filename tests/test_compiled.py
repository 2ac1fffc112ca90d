"""Functions that torch.compile has wrapped are recorded as they are written."""

import warnings

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import subtrace_kit


def double(x):
    return x * 2


def names(trace):
    return [b.symbol.name for b in trace.bound_symbols]


def counting():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    return graphs, backend


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_compiled_function_is_recorded_as_written(fullgraph):
    graphs, backend = counting()
    compiled = torch.compile(double, backend=backend, fullgraph=fullgraph)
    x = TwoTensor(torch.ones(2), torch.ones(2))
    trace = subtrace_kit.trace(lambda x: compiled(x) + 1)(x)
    assert names(trace) == names(subtrace_kit.trace(lambda x: double(x) + 1)(x))
    assert not graphs
    compiled(torch.ones(3))
    assert len(graphs) == 1


def test_a_program_that_compiles_is_recorded_as_written():
    def program(x):
        return torch.compile(double, backend="eager")(x)

    trace = subtrace_kit.trace(program)(torch.ones(2))
    assert names(trace) == ["torch.Tensor.mul"]
    assert torch.equal(trace(torch.full((2,), 3.0)), torch.full((2,), 6.0))


def test_a_compiled_module_keeps_its_parameters_by_reference():
    module = torch.nn.Linear(2, 2)
    compiled = torch.compile(module, backend="eager")
    x = torch.randn(1, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch says that it calls the hooks of all modules twice
        trace = subtrace_kit.trace(lambda x: compiled(x))(x)
    with torch.no_grad():
        module.weight.mul_(2)
    assert torch.equal(trace(x), module(x))
    assert torch.equal(subtrace_kit.lower(trace)(x), module(x))
