"""Constants of generated code are looked up once; tracebacks name the same lines."""

import traceback

import pytest
import torch

import subtrace_kit
from subtrace_kit.quick_calls import with_constants
from subtrace_kit.zoo import TwoTensor

SOURCE = """import torch
aten = torch.ops.aten

def f(x, size):
    y = aten.neg.default(x)
    z = torch.ops.aten.abs.default(y)
    z = aten.view.default(z, torch.Size([1, 2]))
    n = torch.Size([size])
    return aten.neg.default(z), n
"""


def test_overloads_and_sizes_are_constants():
    code, constants = with_constants(SOURCE, "f.py", "f")
    assert torch.Size([1, 2]) in constants.values()
    assert len(constants) == 5  # torch.Size is one
    space = dict(constants)
    exec(code, space)
    out, n = space["f"](torch.ones(2), 3)
    assert out.tolist() == [[-1, -1]]
    assert n == torch.Size([3])


def test_tracebacks_name_the_lines_of_the_text():
    code, constants = with_constants(SOURCE, "f.py", "f")
    space = dict(constants)
    exec(code, space)
    with pytest.raises(RuntimeError) as caught:
        space["f"](torch.ones(3), 3)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == 7


def test_a_failing_op_of_a_lowered_trace_names_the_line_of_the_user():
    def two():
        return TwoTensor(torch.ones(2), torch.ones(2))

    low = subtrace_kit.lower(subtrace_kit.trace(lambda t, i: t.a[i] * 2)(two(), torch.tensor([1])))
    with pytest.raises(subtrace_kit.TraceError, match=r"test_quick_calls\.py"):
        low(two(), torch.tensor([7]))


def test_names_of_a_program_that_are_those_of_the_text():
    def program(aten, torch_):
        return aten.neg() * torch_

    low = subtrace_kit.lower(subtrace_kit.trace(program)(torch.ones(2), torch.ones(2)))
    assert low(torch.ones(2), torch.full((2,), 3.0)).tolist() == [-3, -3]
