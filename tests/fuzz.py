"""Random programs over the zoo's classes and plain tensors: eager against trace against lowered.

usage: python -m tests.fuzz [--programs 20000] [--seed 0] [--jobs 1] [--seconds S] [--examples 3] [--refusals 0]

make_program() -> Writer: input lines and steps, each tried in eager as it is written
judge()        -> run eager, trace and lowered on fresh inputs -> Sight.take: facts by path -> Verdict
shrink()       -> drop steps, inputs and results while the verdict stays
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import itertools
import multiprocessing
import random
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

import subtrace_kit
from subtrace_kit.checker import check_trace
from subtrace_kit.zoo import (
    ComplexTensor,
    QuantTensor,
    ScaleTensor,
    TwoTensor,
    from_complex,
    from_quant,
    from_scale,
    from_two,
    to_complex,
    to_quant,
    to_scale,
    to_two,
)

__all__ = [
    "AddInto", "ComplexTensor", "Cube", "F", "Program", "QuantTensor", "ScaleTensor", "TwoTensor", "Verdict",
    "checkpoint", "from_complex", "from_quant", "from_scale", "from_two", "hooked", "judge", "linear", "make_program",
    "quiet", "script", "shrink", "tell", "to_complex", "to_quant", "to_scale", "to_two", "torch",
]  # fmt: skip

Facts = dict[str, Any]


class Cube(torch.autograd.Function):
    """x ** 3 with a backward of its own; saves its input, whatever class it has."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * x * x * 3


class AddInto(torch.autograd.Function):
    """Adds into its first argument and says so."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.add_(y)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return grad, grad * 1


def hooked(x: torch.Tensor) -> torch.Tensor:
    """x * 2 with a hook on it that halves the gradient."""
    y = x * 2
    y.register_hook(lambda grad: grad / 2)
    return y


F = torch.nn.functional
linear = LINEAR = torch.nn.Linear(3, 3)
NAMES: dict[str, Any] = {
    "torch": torch, "F": F, "checkpoint": checkpoint, "Cube": Cube, "AddInto": AddInto,
    "ComplexTensor": ComplexTensor, "QuantTensor": QuantTensor, "ScaleTensor": ScaleTensor, "TwoTensor": TwoTensor,
    "from_complex": from_complex, "from_quant": from_quant, "from_scale": from_scale, "from_two": from_two,
    "hooked": hooked, "to_complex": to_complex, "to_quant": to_quant, "to_scale": to_scale, "to_two": to_two,
    "linear": LINEAR,
}  # fmt: skip
CAPTURED = ("weight", "table", "half")

# What a letter in a step stands for.
KINDS: dict[str, Callable[[Any], bool]] = {
    "a": lambda v: isinstance(v, torch.Tensor),
    "p": lambda v: type(v) in (torch.Tensor, torch.nn.Parameter) and v.is_floating_point(),
    "t": lambda v: isinstance(v, TwoTensor),
    "s": lambda v: isinstance(v, ScaleTensor),
    "k": lambda v: isinstance(v, QuantTensor),
    "z": lambda v: isinstance(v, ComplexTensor),
    "c": lambda v: type(v) is torch.Tensor and v.is_complex(),
    "g": lambda v: isinstance(v, torch.Tensor) and v.requires_grad,
    "l": lambda v: isinstance(v, torch.Tensor) and v.requires_grad and v.is_leaf,
    "m": lambda v: isinstance(v, torch.Tensor) and v.dim() == 2,
    "n": lambda v: isinstance(v, float),
    "h": lambda v: isinstance(v, ScaleTensor) and isinstance(v.raw, TwoTensor),
}
# A second letter of the same kind prefers the shape of the first.
ALIKE = {"b": "a", "q": "p", "u": "t", "v": "s", "y": "z"}

# Groups of steps: weight, then the steps. `=` marks one that gives no value.
STEPS: list[tuple[int, list[str]]] = [
    (14, ["{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} * 2", "{a} * 0.5", "{a} + 1", "{a} / 2", "-{a}", "{a} - 1.5",
          "2 * {a}", "1 - {a}", "{a} / {b}.abs().add(1)", "{a} ** 2", "torch.add({a}, {b}, alpha=2)"]),
    (8, ["{a}.sin()", "{a}.relu()", "{a}.exp()", "{a}.abs()", "torch.tanh({a})", "{a}.sigmoid()", "F.gelu({a})",
         "F.softmax({a}, -1)", "torch.where({a} > 0, {a}, {b})", "{a}.clamp(-1, 1)", "F.silu({p})",
         "torch.where({p} > 0, {p}, {q})", "{p}.masked_fill({p} > 0, 0.5)", "{a}.sgn()", "{z}.conj()", "{z}.angle()"]),
    (12, ["{a}.t()", "{a}.view(-1)", "{a}.reshape(-1)", "{a}[0]", "{a}[:, 1]", "{a}[1:]", "{a}[:, ::2]", "{a}[None]",
          "{a}.unsqueeze(-1)", "{a}.squeeze()", "{a}.expand(2, *{a}.shape)", "{a}[0].expand_as({a})", "{a}.mT",
          "{a}.transpose(0, -1)", "{a}.permute(1, 0)", "{a}.diagonal()", "{a}.view_as({a})", "{a}.flatten()",
          "{a}.narrow(0, 0, 1)", "{a}.select(-1, 0)", "{z}.real", "{c}.real", "{z}.conj()",
          "{a}.as_strided((2,), (1,))", "{a}.view({a}.shape)", "{a}.movedim(0, -1)", "{a}.unfold(0, 2, 1)",
          "{a}[..., :1]"]),
    (6, ["{a}.clone()", "{a}.contiguous()", "{a}.detach()", "{a}.detach()", "{a}.clone().requires_grad_()",
         "{a}.detach().requires_grad_()", "{a}.to(torch.float64)", "{a}.to({b}.dtype)", "torch.zeros_like({a})",
         "{a}.new_ones(2)", "torch.ones_like({a})", "{p}.half().float()", "{a}.float()", "torch.full_like({a}, 2)"]),
    (7, ["{m} @ {m}", "{m} @ {m}.t()", "torch.mm({m}.t(), {m})", "F.linear({m}, {m})", "torch.addmm({a}, {m}, {m})",
         "{m}.t() @ {m}", "torch.matmul({a}, {b})", "F.linear({p}, {k})", "{p} @ {k}.t()", "torch.outer({p}, {q})"]),
    (7, ["{a}.sum()", "{a}.mean()", "{a}.sum(0)", "{a}.sum(-1, keepdim=True)", "{a}.amax(0)", "{p}.std()", "{a}.prod()",
         "{a}.norm()", "{a}.cumsum(0)", "{a}.sum(0, keepdim=True) + {b}", "{a}.argmax()", "{a}.var(0)",
         "{a}.logsumexp(0)"]),
    (6, ["{a}.split(1)", "{a}.chunk(2)", "{a}.unbind(0)", "{a}.max(0)", "{a}.split([1, 1], -1)", "{a}.unbind(-1)",
         "{a}.sort(-1)", "{a}.topk(1)", "torch.var_mean({a})", "{a}.chunk(2, -1)", "torch.aminmax({p})",
         "{a}.min(-1)"]),
    (4, ["torch.cat([{a}, {b}])", "torch.stack([{a}, {b}])", "torch.cat([{a}, {a}], -1)", "torch.stack([{a}, {b}], -1)",
         "torch.cat([{a}[:1], {b}])", "torch.hstack([{a}, {b}])"]),
    (10, ["TwoTensor({p}, {q})", "TwoTensor({p}, {p}.clone())", "TwoTensor({p}, {p}.detach())", "TwoTensor({p}, {p})",
          "ScaleTensor({p}, half)", "ScaleTensor({p}, {p}.sum().detach().abs() + 1)", "ComplexTensor({p}, {q})",
          "QuantTensor.from_float({p})", "QuantTensor.from_float({p}, -1)", "TwoTensor({t}, {u})",
          "TwoTensor({s}, {v})", "ScaleTensor({t}, half)", "TwoTensor({z}, {y})", "TwoTensor({a}, {a}.clone())",
          "TwoTensor({p}.detach(), {q})", "ScaleTensor({p}, half.clone())", "ComplexTensor({p}, {p}.clone())",
          "TwoTensor({p}, {q}).requires_grad_()"]),
    (10, ["to_two({p}, {q})", "to_two({p}, {p})", "to_scale({p}, half)", "to_quant({p})", "to_quant({p}, -1)",
          "to_complex(torch.complex({p}, {q}))", "from_two({t})", "from_two({t})[0]", "from_scale({s})",
          "from_quant({k})", "from_complex({z})", "from_complex({z}).real", "to_scale({p}, {p}.detach().abs().mean())",
          "Cube.apply({a})", "Cube.apply({t})", "Cube.apply({p})", "from_two(to_two({p}, {q}))", "from_scale({h})"]),
    (7, ["{t}.a", "{t}.b", "{t}.a + {t}.b", "{s}.raw", "{s}.scale", "{k}.scale", "{z}.re", "{z}.im", "{k}.q",
         "{k}.dequantize()", "{s}.dequantize()", "{t}.a.detach()", "{h}.raw.a"]),
    (4, ["linear({p})", "F.linear({p}, weight)", "{a} * weight", "{a} + table", "table * 2", "linear({t})",
         "linear({p}).relu()", "table.a * 2", "{a} @ weight", "linear.weight * {a}", "weight.t()"]),
    (4, ["{p}.sum().item()", "{p}.mean().item() * 2", "{s}.sum().item()", "{a}.mean().item()"]),
    (4, ["{a} * {n}", "{a} + {n}", "torch.full_like({a}, {n})", "{a}.add({b}, alpha={n})", "{n} * {a}", "{a} - {n} / 3",
         "torch.tensor({n})", "{n} * 2 + 1", "torch.full((2, 3), {n})"]),
    (3, ["torch.rand(3)", "torch.randn_like({a})", "torch.rand(3, 3) * {a}", "F.dropout({a})", "F.dropout({p}, 0.5)",
         "{p}.bernoulli(0.5)", "{a} + torch.randn(())"]),
    (3, ["torch.tensor([1.0, 2.0, 3.0])", "torch.arange(3.0)", "torch.eye(3)", "torch.ones(3, 3)", "torch.tensor(2.0)",
         "torch.zeros(2, 3, requires_grad=True)", "{a} * torch.tensor(3.0)", "{a} + torch.ones(3)"]),
    (3, ["torch.autograd.grad({g}.sum(), {l}, retain_graph=True)[0]", "{l}.grad", "{l}.grad * 2",
         "torch.autograd.grad({g}, {l}, torch.ones_like({g}), retain_graph=True)[0]",
         "torch.autograd.grad({g}.sum(), {l}, create_graph=True)[0] * 2",
         "checkpoint(torch.sin, {a}, use_reentrant=False)",
         "checkpoint(lambda x: (x * 2).sin(), {a}, use_reentrant=False)"]),
    (3, ["={g}.sum().backward(retain_graph=True)", "={g}.backward(torch.ones_like({g}), retain_graph=True)",
         "={l}.register_hook(lambda g: g * 2)", "hooked({g})", "={g}.retain_grad()", "={l}.grad = None"]),
    (14, ["={a}.add_(1)", "={a}.mul_(2)", "={a}.copy_({b})", "={a}.add_({b})", "={a}[0].mul_(3)", "={a}.t().add_({b})",
          "={a}.zero_()", "={a}.sub_({b})", "={a}[:, 0] = 1", "={a}[0] = {b}[0]", "={a}.fill_(0.5)", "={t}.a.add_(1)",
          "={t}.b.mul_(2)", "={s}.raw.add_(1)", "={s}.scale.mul_(2)", "={z}.re.mul_(2)", "={a}.relu_()",
          "={p}.add_({p})", "={a}.view(-1).mul_(2)", "={a}.detach().mul_(2)", "={t}.copy_({p})", "={p}.copy_({k})",
          "={k}.copy_({p})", "={a}.add_({n})", "={a}.div_(2)", "={p}.uniform_()", "={a}.clamp_(-1, 1)",
          "={h}.raw.a.add_(1)", "={a}.unsqueeze_(0)", "={a}.t_()", "={a}.squeeze_()"]),
    (7, ["{a}.add_(1)", "{a}.mul_(2)", "{a}.copy_({b})", "{a}[0].add_(1)", "{a}.add_({b})", "AddInto.apply({a}, {b})",
         "AddInto.apply({a}.clone(), {b})", "{a}.clone().mul_(2)", "(x0).add_(1)", "{a}.detach_()", "{a}.relu_()",
         "F.relu({a}, inplace=True)", "{a}.requires_grad_()", "torch._foreach_add([{a}, {b}], 1)"]),
    (3, ["={t}.a = {t}.a * 2", "={t}.b = {t}.b.detach().clone()", "={s}.scale = {s}.scale * 2", "={t}.note = 3",
         "={t}.a = {t}.a.clone()", "=torch._foreach_mul_([{a}, {b}], 2)", "=torch._foreach_add_([{a}], [{b}])",
         "={z}.im = {z}.im.clone()"]),
]  # fmt: skip
BLOCKS = [
    (80, ""), (12, "torch.no_grad()"), (4, "torch.enable_grad()"), (2, "torch.inference_mode()"),
    (2, "torch.autocast('cpu', dtype=torch.bfloat16)"),
]  # fmt: skip
PLAIN = [
    (6, "torch.randn({n}, {m})"), (2, "torch.randn({m}, {n}).t()"), (1, "torch.randn({n} + 1, {m})[1:]"),
    (1, "torch.randn({n}, {m} * 2)[:, ::2]"), (1, "torch.randn({n}, 1).expand({n}, {m})"), (1, "torch.randn({m})"),
    (1, "torch.randn({n}, {m}, dtype=torch.float64)"), (1, "torch.randn(())"), (1, "torch.randn(2, {n}, {m})"),
    (1, "torch.randn({n}, {m}, requires_grad=True)"),
]  # fmt: skip
INPUTS = [
    (12, "{e}"), (8, "TwoTensor({e}, {e})"), (6, "ScaleTensor({e}, torch.rand(()) + 0.5)"),
    (4, "ComplexTensor({e}, {e})"), (4, "QuantTensor.from_float({e})"), (1, "QuantTensor.from_float({e}, -1)"),
    (2, "TwoTensor({e}, {e}.clone())"),
    (2, "TwoTensor(ScaleTensor({e}, torch.rand(()) + 0.5), ScaleTensor({e}, torch.rand(()) + 0.5))"),
    (2, "ScaleTensor(TwoTensor({e}, {e}), torch.rand(()) + 0.5)"), (1, "torch.complex({e}, {e})"),
    (1, "TwoTensor(TwoTensor({e}, {e}), TwoTensor({e}, {e}))"), (1, "TwoTensor({k}, {k})"),
    (1, "TwoTensor(ComplexTensor({e}, {e}), ComplexTensor({e}, {e}))"),
]  # fmt: skip
SHARED = [
    "{old}", "TwoTensor({old}, torch.randn({n}, {m}))", "TwoTensor({old}, {old})",
    "ScaleTensor({old}, torch.rand(()) + 0.5)", "{old}.detach()", "{old}[0]", "{old}.view(-1)",
    "TwoTensor({old}.a, {old}.b)", "ScaleTensor({old}.raw, {old}.scale)", "TwoTensor({old}, {old}.clone())",
    "{old} * 2", "{old}.a", "ScaleTensor({old}.a, torch.rand(()) + 0.5)",
]  # fmt: skip
RESULTS = [
    "{0}", "[{0}, {1}]", "({0}, {{'k': {1}}})", "{{'x': [{0}], 'y': ({1}, {2})}}", "({0}, {1}, {2}, {3})",
    "[{0}, None, 3]",
]  # fmt: skip


def is_wrapper(value: Any) -> bool:
    """Whether a value holds inner tensors."""
    return hasattr(value, "__tensor_flatten__")


# ------------------------------------------------------------------------------------------- programs


@dataclasses.dataclass(frozen=True)
class Line:
    """One statement: what it defines, its text, the names it uses, and the block it stands in."""

    defines: tuple[str, ...]
    text: str
    uses: frozenset[str]
    block: str = ""

    @property
    def statement(self) -> str:
        """The text with its assignment."""
        return f"{', '.join(self.defines)} = {self.text}" if self.defines else self.text


@dataclasses.dataclass(frozen=True)
class Program:
    """A random program: how its inputs are made, its steps, and what it returns.

    Args:
        makes: The lines that make the inputs.
        arguments: The names of the inputs.
        nested: Whether the inputs after the first come in a list with a dict.
        steps: The lines of the program.
        results: The names it returns.
        shape: The structure of what it returns, with places for names.
        like: Whether gradients of results are of the class of the result, or plain.
        twice: Whether the backward is run twice.
    """

    makes: tuple[Line, ...]
    arguments: tuple[str, ...]
    nested: bool
    steps: tuple[Line, ...]
    results: tuple[str, ...]
    shape: str
    like: bool = True
    twice: bool = False

    @property
    def source(self) -> str:
        """The program and the function that makes its inputs, as Python."""
        first, *rest = self.arguments
        packed = f"{first}, [{', '.join(rest[:-1])}{', ' * bool(rest[:-1])}{{'k': {rest[-1]}}}]" if self._packs else ""
        makes = [f"    {line.statement}" for line in self.makes]
        head = f"def program({f'{first}, pack' if self._packs else ', '.join(self.arguments)}):"
        unpack = [f"    {name} = pack[{i}]" for i, name in enumerate(rest[:-1])] if self._packs else []
        unpack += [f"    {rest[-1]} = pack[-1]['k']"] if self._packs else []
        returned = packed or ", ".join(self.arguments) + ","
        last = f"    return {self.returned}"
        return "\n".join(
            ["def inputs():", *makes, f"    return {returned}", "", "", head, *unpack, *_blocks(self.steps), last, ""]
        )

    @property
    def _packs(self) -> bool:
        return self.nested and len(self.arguments) > 1

    @property
    def returned(self) -> str:
        """The expression that it returns."""
        padded = [*self.results, *["None"] * 4]
        return self.shape.format(*padded)


def _blocks(steps: Iterable[Line]) -> Iterator[str]:
    """The lines of the steps; neighbours in the same block stand in one."""
    for block, lines in itertools.groupby(steps, key=lambda line: line.block):
        if block:
            yield f"    with {block}:"
        yield from (f"    {'    ' * bool(block)}{line.statement}" for line in lines)


def chosen(dice: random.Random, weighted: list[tuple[int, Any]]) -> Any:
    """One of the choices, by weight."""
    weights, choices = zip(*weighted, strict=True)
    return dice.choices(choices, weights)[0]


class Writer:
    """Writes one program; each line is tried in eager, so that most programs run."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.space = dict(NAMES)
        self.live: dict[str, Any] = {}
        self.sizes = self.dice.choice([(3, 3), (3, 3), (3, 3), (2, 3)])
        self.count = itertools.count()
        self.refused = 0
        torch.manual_seed(seed)
        renew(self.space)

    def write(self) -> Program:
        """The program."""
        makes: list[Line] = []
        while len(self.live) < self.dice.randint(1, 4):
            makes += self.attempt(self.input_line)
        arguments = tuple(self.live)
        self.live |= {name: self.space[name] for name in CAPTURED}
        steps: list[Line] = []
        for _ in range(self.dice.randint(2, 12)):
            steps += self.attempt(self.step_line)
        names = [name for name, value in self.live.items() if name not in CAPTURED]
        results = self.dice.choices(names, [1 + i for i in range(len(names))], k=4)
        dice = self.dice.random
        return Program(
            tuple(makes), arguments, dice() < 0.2, tuple(steps), tuple(results), self.dice.choice(RESULTS),
            dice() < 0.75, dice() < 0.2,
        )  # fmt: skip

    def attempt(self, make: Callable[[], Line | None]) -> list[Line]:
        """A line that eager runs, or none after some tries."""
        for _ in range(6):
            line = make()
            if line is not None and self.runs(line):
                return [line]
            self.refused += line is not None
        return []

    def runs(self, line: Line) -> bool:
        text = f"with {line.block}: {line.statement}" if line.block else line.statement
        try:
            exec(text, self.space)
        except Exception:
            return False
        made = {name: self.space[name] for name in line.defines}
        if not all(map(_fits, made.values())):
            return False
        self.live |= made
        return True

    def input_line(self) -> Line:
        name = f"x{next(self.count)}"
        sizes = dict(zip("nm", self.sizes, strict=True))
        expression = chosen(self.dice, PLAIN).format(**sizes)
        if self.live and self.dice.random() < 0.2:
            old = self.dice.choice(list(self.live))
            return Line((name,), self.dice.choice(SHARED).format(old=old, **sizes), frozenset([old]))
        text = chosen(self.dice, INPUTS).format(e=expression, k=f"QuantTensor.from_float({expression})")
        grad = ".requires_grad_()" if self.dice.random() < 0.35 and "Quant" not in text else ""
        return Line((name,), text + grad, frozenset())

    def step_line(self) -> Line | None:
        text = self.dice.choice(chosen(self.dice, STEPS))
        block = chosen(self.dice, BLOCKS)
        if (filled := self.filled(text.lstrip("="))) is None:
            return None
        uses = frozenset(re.findall(r"\b[xv]\d+\b", filled))
        if text.startswith("="):
            return Line((), filled, uses, block)
        return Line(self.names_for(filled, block), filled, uses, block)

    def names_for(self, text: str, block: str) -> tuple[str, ...]:
        """One new name, or several for a step that gives a short tuple."""
        parts = {"split(": 2, "chunk(": 2, "max(0)": 2, "sort(": 2, "from_two(to": 2, "var_mean": 2}
        several = next((n for key, n in parts.items() if key in text and not text.endswith(("]", "* 2"))), 0)
        if re.fullmatch(r"from_two\(\w+\)|.*(topk|min|unbind|aminmax|_foreach_add)\(.*\)", text):
            several = 2 if "unbind" not in text else self.sizes[1 if "-1" in text else 0]
        return tuple(f"v{next(self.count)}" for _ in range(several or 1))

    def filled(self, text: str) -> str | None:
        """The text with names of fitting values; None where there is none."""
        letters = dict.fromkeys(re.findall(r"\{(\w)\}", text))
        picked: dict[str, str] = {}
        for letter in letters:
            names = [n for n, v in self.live.items() if _is(ALIKE.get(letter, letter), v)]
            first = picked.get(ALIKE.get(letter, ""))
            shape = getattr(self.live.get(first or ""), "shape", None)
            alike = [n for n in names if shape is not None and self.live[n].shape == shape]
            names = alike if alike and self.dice.random() < 0.8 else names
            if not names:
                return None
            recent = names[-3:] if self.dice.random() < 0.5 else names
            picked[letter] = self.dice.choice(recent)
        return text.format(**picked)


def _is(letter: str, value: Any) -> bool:
    """Whether a value is of the kind of a letter; a view that torch has given up is of none."""
    try:
        return KINDS[letter](value)
    except RuntimeError:
        return False


def _fits(value: Any) -> bool:
    """Small enough to go on with."""
    return isinstance(value, float) or (isinstance(value, torch.Tensor) and 0 < value.numel() <= 64)


def make_program(seed: int) -> Program:
    """The program of a seed."""
    return Writer(seed).write()


# ----------------------------------------------------------------------------------------------- runs


def renew(space: dict[str, Any]) -> None:
    """New captured tensors, where programs look for them."""
    for name in ("weight", "bias"):
        values = torch.randn(getattr(LINEAR, name).shape)
        setattr(LINEAR, name, torch.nn.Parameter(values))
    space["weight"] = torch.nn.Parameter(torch.randn(3, 3))
    space["table"] = TwoTensor(torch.randn(3, 3), torch.randn(3, 3))
    space["half"] = torch.tensor(0.5) + torch.rand(())


class Stage:
    """A program and the world it runs in.

    Args:
        space: Holds `program` and `inputs`; captured tensors are put there.
        like: Whether gradients of results are of the class of the result, or plain.
        twice: Whether the backward is run twice.
    """

    def __init__(self, space: dict[str, Any], like: bool = True, twice: bool = False) -> None:
        self.space, self.fn = space, space["program"]
        self.like, self.twice = like, twice

    @classmethod
    def of(cls, program: Program) -> Stage:
        """The stage of a generated program."""
        space = dict(NAMES)
        exec(compile(program.source, "<program>", "exec"), space)
        return cls(space, program.like, program.twice)

    def inputs(self, seed: int) -> tuple[Any, ...]:
        """New inputs and new captured tensors."""
        torch.manual_seed(seed)
        renew(self.space)
        return self.space["inputs"]()

    def captured(self) -> dict[str, torch.Tensor]:
        """The captured tensors as they are now."""
        return {name: self.space[name] for name in CAPTURED} | dict(LINEAR.named_parameters())

    def run(self, call: Callable[..., Any], seed: int) -> Facts:
        """Run eager or a trace on new inputs, take the backward, and tell all that a caller can see."""
        args = self.inputs(seed)
        given = {"arg": args, "captured": self.captured()}
        before = dict(walk(given))
        torch.manual_seed(5)
        out = call(*args)
        sight = Sight()
        everything = given | {"out": out}
        sight.take(everything)
        sight.facts["out/structure"] = _structure(out)
        sight.facts |= {f"{p}/object kept": before.get(p) is t for p, t in walk(given)}
        sight.partitions(everything)
        sight.facts["random/state"] = torch.get_rng_state()
        self.backward(sight, everything, out)
        return sight.facts

    def backward(self, sight: Sight, everything: dict[str, Any], out: Any) -> None:
        """Gradients of the results that have some, and what they leave in leaves."""
        live = {id(t): t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor) and t.grad_fn is not None}
        outs = list(live.values())
        tensors = dict(walk(everything))
        sight.gradients(tensors, "grad inside")
        try:
            for _ in range(1 + self.twice):
                torch.autograd.backward(outs, [self.tangent(t) for t in outs], retain_graph=True)
        except Exception as error:
            sight.facts["backward/error"] = f"{type(error).__name__}: {error}"[:150]
            return
        sight.facts["backward/error"] = ""
        sight.gradients(tensors, "grad")
        sight.facts["random/state after backward"] = torch.get_rng_state()

    def tangent(self, tensor: torch.Tensor) -> torch.Tensor:
        """The gradient of a result: ones of its class where that can be, or plain ones."""
        if self.like:
            with contextlib.suppress(Exception):
                return torch.ones_like(tensor, requires_grad=False)
        return torch.ones(tensor.shape, dtype=tensor.dtype)


def walk(tree: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors of a tree with their paths, wrappers before what is inside."""
    for keys, leaf in pytree.tree_flatten_with_path(tree)[0]:
        if isinstance(leaf, torch.Tensor):
            path = "".join(map(str, keys)).removeprefix("['")
            yield from inside(path.replace("']", "", 1), leaf)


def inside(path: str, tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """A tensor and those inside it."""
    yield path, tensor
    if is_wrapper(tensor):
        for name in tensor.__tensor_flatten__()[0]:  # type: ignore[attr-defined]
            yield from inside(f"{path}.{name}", getattr(tensor, name))


def _structure(out: Any) -> list[Any]:
    leaves, spec = pytree.tree_flatten(out)
    return [str(spec), *("tensor" if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves)]


class Sight:
    """What can be seen of tensors, as plain facts by `path/fact`."""

    def __init__(self) -> None:
        self.facts: Facts = {}

    def take(self, tree: Any) -> None:
        """The facts of all tensors of a tree."""
        for path, tensor in walk(tree):
            self.tensor(path, tensor)

    def tensor(self, path: str, tensor: torch.Tensor) -> None:
        """The facts of one tensor, apart from what is inside it."""
        facts = self.facts
        facts[f"{path}/class"] = type(tensor)
        facts[f"{path}/shape"] = tuple(tensor.shape)
        facts[f"{path}/dtype"] = tensor.dtype
        facts[f"{path}/strides"] = tensor.stride()
        facts[f"{path}/offset"] = tensor.storage_offset()
        facts[f"{path}/requires_grad"] = tensor.requires_grad
        facts[f"{path}/leaf"] = tensor.is_leaf
        facts[f"{path}/lazy"] = tensor.is_conj(), tensor.is_neg(), tensor.is_inference()
        if is_wrapper(tensor):
            facts[f"{path}/metadata"] = tensor.__tensor_flatten__()[1]  # type: ignore[attr-defined]
            facts[f"{path}/attributes"] = sorted(tensor.__dict__)
        else:
            facts[f"{path}/value"] = tensor.detach().resolve_conj().resolve_neg().clone()

    def partitions(self, tree: Any) -> None:
        """Which tensors are one object, and which share memory."""
        objects: dict[int, str] = {}
        memory: dict[int, str] = {}
        for path, tensor in walk(tree):
            self.facts[f"{path}/same object"] = objects.setdefault(id(tensor), path)
            where = "outer memory" if is_wrapper(tensor) else "memory"
            self.facts[f"{path}/{where}"] = memory.setdefault(tensor.untyped_storage()._cdata, path)

    def gradients(self, tensors: dict[str, torch.Tensor], name: str) -> None:
        """The gradients that tensors hold."""
        for path, tensor in tensors.items():
            grad = tensor.grad if tensor.is_leaf or tensor.retains_grad else None
            self.facts[f"{path}.{name}/there"] = grad is not None
            if grad is not None:
                for inner, part in inside(f"{path}.{name}", grad):
                    self.tensor(inner, part)


def differences(found: Facts, wanted: Facts) -> list[str]:
    """The keys of the facts that differ, in the order that they were taken."""
    keys = dict.fromkeys([*wanted, *found])
    if wanted.get("backward/error"):  # What a failed backward leaves behind is not defined.
        keys = {key: None for key in keys if not re.search(r"^backward|state after|\.grad\b(?! inside)", key)}
    return [key for key in keys if key not in found or key not in wanted or not _equal(found[key], wanted[key])]


def _equal(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, torch.Tensor):
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            return False
        return torch.equal(found, wanted) or torch.allclose(found, wanted, rtol=0, atol=0, equal_nan=True)
    return found == wanted or (found != found and wanted != wanted)


# ------------------------------------------------------------------------------------------- verdicts


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What came of one program: same, skipped, refusal, or fault with its kind and details."""

    what: str
    kind: str = ""
    details: str = ""


def judge(program: Program, seed: int = 0) -> Verdict:
    """Compare eager, trace and lowered trace of one program.

    Args:
        program: The program.
        seed: Its seed; some programs get a second run on other inputs.

    Returns:
        The verdict.
    """
    try:
        stage = Stage.of(program)
        wanted = stage.run(stage.fn, 1)
    except Exception as error:
        return Verdict("skipped", type(error).__name__)
    verdict = _compared(stage, wanted, seed)
    if verdict.what in ("same", "skipped"):
        return verdict
    try:
        for other in (0, 2):
            stage.run(stage.fn, other)
        steady = not differences(stage.run(stage.fn, 1), wanted)
    except Exception as error:
        return Verdict("skipped", type(error).__name__)
    return verdict if steady else Verdict("skipped", "eager differs from itself")


def _compared(stage: Stage, wanted: Facts, seed: int) -> Verdict:
    where = "trace"
    try:
        trace, marks = _traced(stage)
        if marks:
            return Verdict("fault", f"mark: {_kind(marks[0])}", ", ".join(marks[:6]))
        check_trace(trace)
        where = "lower"
        low = check_trace(subtrace_kit.lower(trace))
        for where, run in (("run trace", trace), ("run lowered", low)):
            if verdict := _difference(where, stage.run(run, 1), wanted):
                return verdict
        if seed % 8 == 0:
            compile(str(low), "lowered", "exec")
            where = "second run lowered"
            if verdict := _difference(where, stage.run(low, 2), stage.run(stage.fn, 2)):
                return verdict
    except subtrace_kit.TraceError as error:
        return Verdict("refusal", f"{where}: {_message(error)}", str(error))
    except Exception as error:
        name = type(error).__name__
        return Verdict("fault", f"{where}: {name}: {_message(error)}", f"{name}: {error}")
    return Verdict("same")


def _traced(stage: Stage) -> tuple[Any, list[str]]:
    """The trace, and what tracing left changed."""
    args = stage.inputs(0)
    everything = {"arg": args, "captured": stage.captured()}
    before, state = _marks(everything), torch.get_rng_state()
    trace = None
    try:
        trace = subtrace_kit.trace(stage.fn)(*args)
    except subtrace_kit.TraceError as error:
        failure = error
    after = _marks(everything)
    changed = differences(after, before) + ["random/state"] * (not torch.equal(torch.get_rng_state(), state))
    if trace is None and (not changed or "cannot take such a view out" in str(failure)):
        raise failure
    return trace, changed


def _marks(everything: dict[str, Any]) -> Facts:
    sight = Sight()
    sight.take(everything)
    sight.partitions(everything)
    sight.gradients(dict(walk(everything)), "grad")
    sight.facts |= {f"{p}/object": id(t) for p, t in walk(everything)}
    modes = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack(), torch.is_grad_enabled()
    return sight.facts | {"torch/modes": modes}


def _difference(where: str, found: Facts, wanted: Facts) -> Verdict | None:
    keys = differences(found, wanted)
    if where.endswith("lowered"):  # There a wrapper is built anew: what it shares are its inner tensors.
        keys = [key for key in keys if not key.endswith("/outer memory")]
    if not keys:
        return None
    keys.sort(key=_weight)
    shown = [f"{key}: {_short(found.get(key))} instead of {_short(wanted.get(key))}" for key in keys[:6]]
    return Verdict("fault", f"{where}: {_kind(keys[0])}", "\n".join(shown))


def _weight(key: str) -> bool:
    """Values and classes are told first."""
    return not key.endswith(("/value", "/class", "/there", "/structure"))


def _short(value: Any) -> str:
    return " ".join(str(value).split())[:160]


def _kind(key: str) -> str:
    """`out.a.grad/value` for all results and inner names."""
    path, _, fact = key.rpartition("/")
    section = re.match(r"\w+", path)
    grad = " grad inside" if ".grad inside" in path else " grad" if ".grad" in path else ""
    return f"{section[0] if section else path}{grad} {fact}"


def _message(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0]
    first = re.sub(r"in \S+ while the trace ran", "while the trace ran", first)
    return re.sub(r"0x\w+|-?\d+(\.\d+)?(e-\d+)?", "N", re.sub(r"\b[xv]\d+\b", "NAME", first))[:130]


# ------------------------------------------------------------------------------------------ shrinking


def shrink(program: Program, verdict: Verdict, seed: int = 0) -> Program:
    """The smallest program found that has the same verdict.

    Args:
        program: A program.
        verdict: Its verdict.
        seed: Its seed.

    Returns:
        A program of the same verdict, with fewer steps, inputs and results.
    """
    smaller = True
    while smaller:
        smaller = False
        for candidate in _smaller(program):
            found = judge(candidate, seed)
            if (found.what, found.kind) == (verdict.what, verdict.kind):
                program, smaller = candidate, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with one thing less."""
    for index in reversed(range(len(program.steps))):
        yield from _without(program, index)
    if len(set(program.results)) > 1 or program.shape != "{0}":
        for name in dict.fromkeys(program.results):
            yield dataclasses.replace(program, results=(name,) * 4, shape="{0}")
        if program.shape != "({0}, {1})":
            for pair in itertools.combinations(dict.fromkeys(program.results), 2):
                yield dataclasses.replace(program, results=(*pair, *pair), shape="({0}, {1})")
    for change in ({"nested": False}, {"twice": False}, {"like": True}):
        if any(getattr(program, name) != value for name, value in change.items()):
            yield dataclasses.replace(program, **change)
    yield from _simpler_inputs(program)
    for index, step in enumerate(program.steps):
        if step.block:
            yield _with_step(program, index, dataclasses.replace(step, block=""))


def _with_step(program: Program, index: int, step: Line) -> Program:
    return dataclasses.replace(program, steps=(*program.steps[:index], step, *program.steps[index + 1 :]))


def _without(program: Program, index: int) -> Iterator[Program]:
    """Without one step: what it defined is replaced by what it used, or goes with all that needs it."""
    step = program.steps[index]
    rest = (*program.steps[:index], *program.steps[index + 1 :])
    if not step.defines:
        yield dataclasses.replace(program, steps=rest)
        return
    for name in sorted(step.uses):
        swap = dict.fromkeys(step.defines, name)
        steps = tuple(_renamed(line, swap) for line in rest)
        results = tuple(swap.get(result, result) for result in program.results)
        yield dataclasses.replace(program, steps=steps, results=results)
    gone = set(step.defines)
    kept = []
    for line in rest:
        if line.uses & gone:
            gone |= set(line.defines)
        else:
            kept.append(line)
    results = tuple(name for name in program.results if name not in gone) or program.arguments[:1]
    yield dataclasses.replace(program, steps=tuple(kept), results=(results * 4)[:4])


def _renamed(line: Line, swap: dict[str, str]) -> Line:
    text = re.sub(r"\b[xv]\d+\b", lambda found: swap.get(found[0], found[0]), line.text)
    return dataclasses.replace(line, text=text, uses=frozenset(swap.get(name, name) for name in line.uses))


def _simpler_inputs(program: Program) -> Iterator[Program]:
    used = set(program.results).union(*(line.uses for line in (*program.steps, *program.makes)))
    for name in program.arguments:
        if name not in used and len(program.arguments) > 1:
            makes = tuple(line for line in program.makes if name not in line.defines)
            yield dataclasses.replace(program, makes=makes, arguments=tuple(n for n in program.arguments if n != name))
    for index, line in enumerate(program.makes):
        for old, new in ((r"\.requires_grad_\(\)$", ""), (r"torch\.randn\(.*\)", "torch.randn(3, 3)")):
            text = re.sub(old, new, line.text)
            if text != line.text and text.count("(") <= line.text.count("("):
                changed = dataclasses.replace(line, text=text)
                yield dataclasses.replace(program, makes=(*program.makes[:index], changed, *program.makes[index + 1 :]))


def script(program: Program, verdict: Verdict) -> str:
    """A program that shows a verdict, as a Python file to run from the root of the project."""
    comment = "\n".join(f"# {line}" for line in (f"{verdict.what}: {verdict.kind}", *verdict.details.splitlines()))
    return (
        f"{comment}\nfrom tests.fuzz import *\n\n\n{program.source}\n\n"
        f"tell(globals(), like={program.like}, twice={program.twice})\n"
    )


def tell(space: dict[str, Any], like: bool = True, twice: bool = False) -> None:
    """Print what is the matter with `program` and `inputs` of a namespace."""
    quiet()
    stage = Stage(space, like, twice)
    verdict = _compared(stage, stage.run(stage.fn, 1), 0)
    print(f"{verdict.what}: {verdict.kind}\n{verdict.details}")


# ------------------------------------------------------------------------------------------- long run


@dataclasses.dataclass
class Tally:
    """Counts of verdicts, and one example of each kind that is not `same`."""

    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    kinds: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    examples: dict[str, int] = dataclasses.field(default_factory=dict)

    def add(self, seed: int, verdict: Verdict) -> None:
        """Count one verdict."""
        self.counts[verdict.what] += 1
        if verdict.what != "same":
            key = f"{verdict.what}: {verdict.kind}"
            self.kinds[key] += 1
            self.examples.setdefault(key, seed)


def _judge_seed(seed: int) -> tuple[int, Verdict]:
    try:
        return seed, judge(make_program(seed), seed)
    except Exception as error:
        return seed, Verdict("fault", f"the comparison itself: {type(error).__name__}: {_message(error)}")


def quiet() -> None:
    """One thread and no warnings, as a run of many small programs needs."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)


def _verdicts(seeds: range, jobs: int) -> Iterator[tuple[int, Verdict]]:
    if jobs == 1:
        yield from map(_judge_seed, seeds)
        return
    with multiprocessing.Pool(jobs, initializer=quiet) as pool:
        yield from pool.imap_unordered(_judge_seed, seeds, chunksize=16)


def main(arguments: list[str] | None = None) -> int:
    """Judge many programs; print each new fault, shrunk, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--examples", type=int, default=3, help="shrunk programs for each kind of fault")
    parser.add_argument("--refusals", type=int, default=0, help="and for each kind of refusal")
    options = parser.parse_args(arguments)
    quiet()
    tally, started = Tally(), time.time()
    for seed, verdict in _verdicts(range(options.seed, options.seed + options.programs), options.jobs):
        tally.add(seed, verdict)
        told = tally.kinds[f"{verdict.what}: {verdict.kind}"]
        shown = {"fault": options.examples, "refusal": options.refusals}.get(verdict.what, 0)
        if 0 < told <= shown:
            program = shrink(make_program(seed), verdict, seed)
            print(f"\n# seed {seed}\n{script(program, judge(program, seed))}", flush=True)
        if time.time() - started > options.seconds:
            break
    _print_counts(tally, time.time() - started)
    return 1 if tally.counts["fault"] else 0


def _print_counts(tally: Tally, seconds: float) -> None:
    total = sum(tally.counts.values())
    print(f"\n{total} programs in {seconds:.0f} s ({total / seconds:.0f} per second)")
    print(", ".join(f"{tally.counts[what]} {what}" for what in ("same", "skipped", "refusal", "fault")))
    for key, count in tally.kinds.most_common():
        print(f"{count:7} {key}  (seed {tally.examples[key]})")


if __name__ == "__main__":
    sys.exit(main())
