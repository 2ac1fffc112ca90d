"""All tables, one after the other."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

import subtrace_kit

from . import __doc__ as usage
from .first_calls import first_calls, scale
from .guards import CHECKS, GUARDED, guard
from .parts import breakdown
from .programs import SUBJECTS
from .tables import Figure, listing, table
from .timing import medians, timer
from .variants import INDUCTOR, VARIANTS, calls, has_compiler, steps

TITLES = {
    "calls": "us a call (x floor), no gradients",
    "training": "us a step, forward and backward (x floor)",
    "first calls": "us of the first call of a new program",
    "scale": "us for each op of long programs, by stage (a straight line where both rows are alike)",
    "guards": "us of a check of the input that says yes",
    "parts": "what one call of jit costs (us, and of the call)",
}


def figures_of_calls(sizes: Iterable[int], variants: Iterable[str], rounds: int) -> list[Figure]:
    """Calls without gradients, all checked and then interleaved."""
    keys = [(subject, n, variant) for subject in SUBJECTS for n in sizes for variant in variants]
    runs = {key: calls(*key) for key in keys}
    us = medians({key: timer(run.call, *run.args) for key, run in runs.items()}, rounds)
    return [Figure("calls", *key, time) for key, time in us.items()]


def figures_of_training(sizes: Iterable[int], variants: Iterable[str], rounds: int) -> list[Figure]:
    """Forward and backward, all checked and then interleaved."""
    keys = [(n, variant) for n in sizes for variant in variants]
    us = medians({key: timer(steps(*key)) for key in keys}, rounds)
    return [Figure("training", "Pair", *key, time) for key, time in us.items()]


def figures_of_guards(rounds: int) -> list[Figure]:
    """Checks of the input by themselves."""
    found = {(name, check): guard(name, check) for name in GUARDED for check in CHECKS}
    us = medians({key: timer(call, *args) for key, (call, args) in found.items()}, rounds)
    return [Figure("guards", name, 0, variant, time) for (name, variant), time in us.items()]


def all_figures(options: argparse.Namespace) -> Iterable[tuple[str, list[Figure]]]:
    """The tables in their order, each when it is measured."""
    variants = VARIANTS + (INDUCTOR if options.inductor else ())
    yield "calls", figures_of_calls(options.n, variants, options.rounds)
    if options.train:
        yield "training", figures_of_training(options.n, variants, options.rounds)
    yield "first calls", [f for n in options.n for f in first_calls(n, variants)]
    if options.scale:
        yield "scale", scale(options.scale)
    yield "guards", figures_of_guards(options.rounds)
    modes = (False, True) if options.train else (False,)
    yield "parts", [f for mode in modes for n in options.n for f in breakdown(n, options.rounds, mode)]


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print each table when it is ready."""
    parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, nargs="+", default=[1, 10, 100], help="ops of the programs")
    parser.add_argument("--rounds", type=int, default=21, help="interleaved rounds, of which medians are taken")
    parser.add_argument("--scale", type=int, nargs="*", default=[1_000, 10_000], help="ops of the long programs")
    parser.add_argument("--train", action="store_true", help="forward and backward too")
    parser.add_argument("--inductor", action="store_true", help="compiled by inductor too; needs a C++ compiler")
    parser.add_argument("--json", type=Path, help="a file for the figures")
    options = parser.parse_args(arguments)
    if options.inductor and not has_compiler():
        parser.error("--inductor: there is no C++ compiler on the PATH (g++ or clang++)")
    warnings.simplefilter("ignore")  # torch's own, about inductor and leaves
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"subtrace_kit {subtrace_kit.__version__}, torch {torch.__version__}, one thread, {options.rounds} rounds")
    found = _printed(all_figures(options))
    if options.json:
        options.json.write_text(json.dumps(_record(found, options.rounds), indent=1), "utf-8")
    return 0


_LAYOUT: dict[str, Callable[[Iterable[Figure]], str]] = {"parts": listing}


def _printed(tables: Iterable[tuple[str, list[Figure]]]) -> list[Figure]:
    found, begin = [], time.perf_counter()
    for name, figures in tables:
        print(f"\n{TITLES[name]}\n{_LAYOUT.get(name, table)(figures)}", flush=True)
        found += figures
    print(f"\n{time.perf_counter() - begin:.0f} s in all")
    return found


def _record(figures: list[Figure], rounds: int) -> dict[str, object]:
    """What goes into the file."""
    versions = {"subtrace_kit": subtrace_kit.__version__, "torch": torch.__version__}
    return {**versions, "rounds": rounds, "figures": [dataclasses.asdict(figure) for figure in figures]}


if __name__ == "__main__":
    sys.exit(main())
