"""Views, writes and results that share memory: what a caller sees afterwards is eager's."""

import collections
import contextlib

import pytest
import torch
from compare import assert_same_as_eager
from kinds import KeywordOnly, Optional, Rebinds, SetInInit, Slotted

import subtrace_kit
from subtrace_kit.zoo import ScaleTensor, TwoTensor

Pair = collections.namedtuple("Pair", "left right")


def writes_through_views(x):
    y = x * 1
    y[0].mul_(2)
    v = y.view(-1)
    v[3:5].add_(1)
    return y, v


def unbound_then_copied(x):
    y = x * 1
    y.unbind(0)
    z = y.clone()
    z[:, 1:].copy_(y[:, :3])
    return z


def chunks(x):
    y = x.clone()
    left, right = y.chunk(2, 1)
    return left * right, y


def indexed(x):
    y = x.clone()
    y[torch.tensor([0, 2])] = 1.0
    return y * 2


def masked(x):
    y = x.clone()
    return y.masked_fill_(y > 0, 0.5), y


def scattered(x):
    return x.clone().scatter_(1, torch.tensor([[0], [1], [2]]), 2.0), x.gather(1, torch.tensor([[0], [1], [2]]))


def caught(x):
    with contextlib.suppress(RuntimeError):
        x.view(5, 5)
    return x * 2


def generated(x):
    def parts():
        for i in range(3):
            yield x * i

    return sum(parts())


def channels_last(x):
    y = x.reshape(1, 3, 2, 2).contiguous(memory_format=torch.channels_last)
    return y * 2, y


def sizes_as_numbers(x):
    n = x.shape[0]
    return x.reshape(n * 2, -1), torch.ones(n) * x.sum()


def in_place_on_the_input(x):
    with torch.no_grad():
        x.mul_(2)
        x.t()[0].zero_()
    return x, x[1]


PROGRAMS = {
    "one object twice": lambda x: (x + x * x, x, x),
    "views of the input": lambda x: (x.t(), x.t().t(), x[0], x),
    "expanded": lambda x: (x[:1].expand(5, 4) + 1, x.unsqueeze(0).expand(2, 3, 4)),
    "strided": lambda x: x.as_strided((2, 2), (4, 1)) * 2,
    "foreach": lambda x: (torch._foreach_mul([x, x * 2], 3), torch._foreach_norm([x])),
    "named tuple": lambda x: Pair(x * 2, [x, {"k": x.t()}]),
    "text of a shape": lambda x: x * len(f"{x.shape} {x.dtype}"),
}
PROGRAMS |= {
    f.__name__: f
    for f in (
        writes_through_views,
        unbound_then_copied,
        chunks,
        indexed,
        masked,
        scattered,
        caught,
        generated,
        channels_last,
        sizes_as_numbers,
        in_place_on_the_input,
    )
}
MAKERS = {
    "plain": lambda x: x,
    "two": lambda x: TwoTensor(x, x + 1),
    "two over one": lambda x: TwoTensor(x, x),
    "scale": lambda x: ScaleTensor(x, torch.tensor(0.5)),
    "keyword": lambda x: KeywordOnly(data=x, unit="m"),
    "optional": lambda x: Optional(x, x * 2),
    "rebinds": Rebinds,
    "nested": lambda x: SetInInit(Slotted(x), Slotted(x - 1)),
}


def runs(program, args):
    try:
        program(*args)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_sharing_is_eager_s(name, kind, gradient):
    def make(seed):
        torch.manual_seed(seed)
        return (MAKERS[kind](torch.randn(3, 4)).requires_grad_(gradient),)

    if runs(PROGRAMS[name], make(0)):  # a class may have no rule for the op
        assert_same_as_eager(PROGRAMS[name], make, text=False)


def test_most_programs_run_on_most_classes():
    made = [(p, make(torch.randn(3, 4))) for p in PROGRAMS.values() for make in MAKERS.values()]
    assert sum(runs(program, (x,)) for program, x in made) > 0.8 * len(made)


def test_the_refusal_names_the_two_tensors():
    def two():
        return TwoTensor(torch.ones(2), torch.ones(2))

    def refusal(t, *args):
        with pytest.raises(subtrace_kit.TraceError) as told:
            t(*args)
        return str(told.value).splitlines()[0]

    pair, half = two(), torch.ones(2)
    apart = subtrace_kit.trace(lambda p, x: (p + x).a)(two(), half)
    assert refusal(apart, pair, pair.a) == "p.a and x: one tensor now, two when recorded"
    assert (
        refusal(apart, TwoTensor(torch.ones(2), half), half.view(2))
        == "p.b and x: in one memory now, apart when recorded"
    )
    one = subtrace_kit.trace(lambda p, q: p + q)(pair, pair)
    assert refusal(one, pair, two()) == "p and q: two now, one tensor when recorded"
