"""A run lets go of values after their last use."""

import weakref

import torch

import subtrace_kit
from subtrace_kit.codegen import generate
from subtrace_kit.last_use import last_uses
from subtrace_kit.zoo import TwoTensor


def chain(x, y):
    pair = TwoTensor(x, y)
    for _ in range(4):
        pair = pair + 1
    return pair.a


def test_the_names_that_no_later_operation_needs():
    low = subtrace_kit.lower(subtrace_kit.trace(lambda x: ((x + 1) * 2).sum())(torch.ones(2)))
    assert [b.output.name for b in low.bound_symbols] == ["add", "mul", "sum_1"]
    assert last_uses(low) == [[], ["add"], ["mul"]]
    assert [line.source.strip() for line in generate(low).lines][-3:-1] == [
        "mul = add.mul(2); del add",
        "sum_1 = mul.sum(); del mul",
    ]
    assert "del" not in str(low)


def test_no_more_values_live_at_a_time_than_the_program_needs():
    alive, most = set(), [0]

    class Counted(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            out = super().__torch_function__(func, types, args, kwargs or {})
            if isinstance(out, Counted):
                key = object()
                alive.add(key)
                weakref.finalize(out, alive.discard, key)
                most[0] = max(most[0], len(alive))
            return out

    low = subtrace_kit.lower(subtrace_kit.trace(chain)(torch.ones(2), torch.ones(2)))
    assert low(torch.ones(2), torch.zeros(2)).tolist() == [5.0, 5.0]
    x = torch.ones(2).as_subclass(Counted)
    t = subtrace_kit.trace(lambda x: (((x + 1) * 2) + 3) * 4)(x)
    alive.clear()
    most[0] = 0
    assert t(x).tolist() == [28.0, 28.0]
    assert most[0] == 2
