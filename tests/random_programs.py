"""Random programs over the zoo's classes and plain tensors: eager against trace against lowered.

usage: python tests/random_programs.py [--programs 20000] [--seed 0]
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from same import assert_same, outcome, pictures

import subtrace_kit
from subtrace_kit.checker import check_trace
from subtrace_kit.zoo import ScaleTensor, TwoTensor, from_scale, from_two, to_scale, to_two

LINEAR = torch.nn.Linear(3, 3)
NAMES = {
    "torch": torch, "ScaleTensor": ScaleTensor, "TwoTensor": TwoTensor, "to_scale": to_scale, "from_scale": from_scale,
    "to_two": to_two, "from_two": from_two, "linear": LINEAR, "scale": torch.tensor(0.5),
}  # fmt: skip

STEPS = [
    "{a} + {b}", "{a} * {b}", "{a} - 1.5", "{a} * 2", "{a}.sin()", "{a}.relu()", "-{a}", "{a} @ {b}", "{a}.t()",
    "{a}.view(-1).view(3, 3)", "{a}.transpose(0, 1)", "{a}[0:3]", "{a}[:, 0:3]", "{a}.clone()", "{a}.detach()",
    "{a}.sum()", "{a}.sum(0, keepdim=True) + {b}", "torch.cat([{a}, {b}], 0)[0:3]", "torch.stack([{a}, {b}])[1]",
    "TwoTensor({p}, {q})", "to_two({p}, {q})", "from_two({t})[0]", "{t}.a", "{t}.b + {p}", "TwoTensor({t}, {u})",
    "ScaleTensor({p}, scale)", "to_scale({p}, scale)", "from_scale({s})", "linear({p})", "{p} * {q}.mean().item()",
    "{a}.split(1)[0].expand(3, 3)", "{a}.chunk(3)[1] + {b}", "{a}.max(0)[0] + {b}", "torch.rand(3, 3) * {a}",
    "torch.where({p} > 0, {p}, {q})", "torch.nn.functional.dropout({a}, 0.5)", "{a}.unsqueeze(0).squeeze(0)",
]  # fmt: skip
WRITES = ["{a}.add_(1)", "{a}.mul_(2)", "{a}.copy_({b})", "{a}[0].mul_(3)", "{a}.t().add_({b})", "{a}.zero_()"]
KINDS = {"p": "plain", "q": "plain", "t": "two", "u": "two", "s": "scale"}


class Maker:
    """One random program and its inputs."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.kinds = [self.dice.choice(["plain", "two", "two", "scale"]) for _ in range(self.dice.randint(1, 3))]
        self.grads = [self.dice.random() < 0.4 for _ in self.kinds]
        self.shared = self.dice.random() < 0.15
        self.strided = self.dice.random() < 0.3
        self.known = [(f"x{i}", kind) for i, kind in enumerate(self.kinds)]
        self.lines = [self.step(i) for i in range(self.dice.randint(2, 9))]
        results = [name for name, _ in self.known]
        chosen = self.dice.sample(results, min(len(results), self.dice.randint(1, 4)))
        head = f"def program({', '.join(f'x{i}' for i in range(len(self.kinds)))}):"
        self.source = "\n".join([head, *self.lines, f"    return [{', '.join(chosen)}], {{'last': {results[-1]}}}"])

    def step(self, index: int) -> str:
        """One statement; a new name where it gives one."""
        if self.dice.random() < 0.15:
            guard = "    with torch.no_grad(): " if self.dice.random() < 0.7 else "    "
            return guard + self.filled(self.dice.choice(WRITES))
        text = self.filled(self.dice.choice(STEPS))
        self.known.append((f"v{index}", self.kind_of(text)))
        if self.dice.random() < 0.1:
            return f"    with torch.no_grad(): v{index} = {text}"
        return f"    v{index} = {text}"

    def kind_of(self, text: str) -> str:
        if text.startswith(("TwoTensor", "to_two")):
            return "two"
        if text.startswith(("ScaleTensor", "to_scale")):
            return "scale"
        first = next((kind for name, kind in self.known if text.lstrip("-").startswith(name)), "plain")
        return "plain" if text.endswith((".a", ".b")) or "linear" in text or first == "scale" else first

    def filled(self, text: str) -> str:
        """The statement with names of fitting kinds; any name where there is none."""
        chosen = {}
        for letter in "abpqtus":
            fitting = [name for name, kind in self.known if KINDS.get(letter, kind) == kind]
            chosen[letter] = self.dice.choice(fitting or [name for name, _ in self.known])
        return text.format(**chosen)

    def inputs(self, seed: int) -> tuple[torch.Tensor, ...]:
        """Inputs of the program's kind, other values for each seed."""
        torch.manual_seed(seed)
        one = self.plain()
        made = [self.build(kind, one if self.shared else self.plain()) for kind in self.kinds]
        return tuple(t.requires_grad_(grad) for t, grad in zip(made, self.grads, strict=True))

    def plain(self) -> torch.Tensor:
        return torch.randn(3, 3).t() if self.strided else torch.randn(3, 3)

    def build(self, kind: str, inner: torch.Tensor) -> torch.Tensor:
        if kind == "two":
            return TwoTensor(inner, self.plain())
        return ScaleTensor(inner, torch.tensor(0.5)) if kind == "scale" else inner

    def program(self) -> Callable[..., Any]:
        """The program, compiled."""
        space = dict(NAMES)
        exec(compile(self.source, "<random program>", "exec"), space)
        return space["program"]


def judge(seed: int) -> str:
    """'same', 'skipped' (eager refuses), 'refused' (the kit does, clearly), or what is wrong."""
    maker = Maker(seed)
    fn = maker.program()
    try:
        wanted, again = seen(fn, maker.inputs(1)), seen(fn, maker.inputs(1))
        assert_same(again, wanted)
        fn(*maker.inputs(0))
    except Exception:
        return "skipped"
    try:
        args = maker.inputs(0)
        before, state = pictures(args), torch.get_rng_state()
        trace = subtrace_kit.trace(fn)(*args)
        assert_same(pictures(args), before)
        assert torch.equal(torch.get_rng_state(), state), "random state"
        for run in (check_trace(trace), check_trace(subtrace_kit.lower(trace))):
            assert_same(seen(run, maker.inputs(1)), wanted)
    except subtrace_kit.TraceError as error:
        return f"refused: {str(error).splitlines()[0].split(':')[0][:90]}"
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]}"
    return "same"


def seen(run: Callable[..., Any], args: tuple) -> dict[str, Any]:
    """What a caller sees of a run, gradients of the parameters included."""
    LINEAR.zero_grad()
    found = outcome(run, args)
    return found | {"parameters": pictures([p.grad for p in LINEAR.parameters()])}


def main() -> int:
    """Judge many programs; print what is wrong, and counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    started, counts = time.time(), collections.Counter[str]()
    for seed in range(options.seed, options.seed + options.programs):
        verdict = judge(seed)
        counts[verdict] += 1
        if verdict not in ("same", "skipped") and counts[verdict] == 1:
            print(f"\n# seed {seed}: {verdict}\n{Maker(seed).source}")
    wrong = sum(n for verdict, n in counts.items() if not verdict.startswith(("same", "skipped", "refused")))
    print(f"\n{time.time() - started:.0f} s", dict(counts.most_common(12)))
    print(f"{counts['same']} same, {counts['skipped']} skipped, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
