"""Smaller programs with the same verdict."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator

from .judge import Verdict, judge
from .programs import Line, Program


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
    for change in ({"nested": False}, {"twice": False}, {"double": False}, {"like": True}):
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
