"""A whole training step as one program: forward, loss, backward, optimizer, run 20 times as eager runs it."""

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import subtrace_kit

OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "SGD foreach": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, foreach=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "AdamW fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
}


def two(plain):
    return TwoTensor(plain.detach().clone(), plain.detach().clone() * 2)


def model(wrapped):
    torch.manual_seed(0)
    made = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    for layer in (made[0], made[2]) if wrapped else ():
        layer.weight = torch.nn.Parameter(two(layer.weight))
    return made


def trained(wrapped, optimizer, jit):
    """Losses and parameters after 20 steps, and the number of traces."""
    made = model(wrapped)
    optim = OPTIMIZERS[optimizer](made.parameters())

    def step(x, y):
        optim.zero_grad()
        loss = (made(x) - y).square().mean()
        loss.backward()
        optim.step()
        return loss.detach()

    run = subtrace_kit.jit(step) if jit else step
    losses = []
    for _ in range(20):
        x, y = torch.randn(3, 4), torch.randn(3, 2)
        losses.append(run(two(x), two(y)) if wrapped else run(x, y))
    values = [*losses, *(p.detach() for p in made.parameters())]
    return [(v.a, v.b) if isinstance(v, TwoTensor) else (v, v) for v in values], len(getattr(run, "traces", ()))


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_twenty_steps_are_those_of_eager(optimizer, wrapped):
    expected, _ = trained(wrapped, optimizer, jit=False)
    found, traces = trained(wrapped, optimizer, jit=True)
    assert traces == 2  # the first step finds no gradients, and no state of the optimizer
    for (a, b), (c, d) in zip(expected, found, strict=True):
        assert torch.equal(a, c)
        assert torch.equal(b, d)
