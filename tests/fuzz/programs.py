"""Random programs: each line is tried in eager as it is written."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .grammar import ALIKE, BLOCKS, CAPTURED, INPUTS, KINDS, NAMES, PLAIN, RESULTS, SHARED, STEPS
from .stage import renew


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
        double: Whether the gradients of gradients are taken too.
    """

    makes: tuple[Line, ...]
    arguments: tuple[str, ...]
    nested: bool
    steps: tuple[Line, ...]
    results: tuple[str, ...]
    shape: str
    like: bool = True
    twice: bool = False
    double: bool = False

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
            dice() < 0.75, dice() < 0.2, dice() < 0.15,
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
