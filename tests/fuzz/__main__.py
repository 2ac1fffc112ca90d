"""The long run."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import multiprocessing
import sys
import time
from collections.abc import Iterator

from . import __doc__ as usage
from .judge import Verdict, _message, judge, quiet, script
from .programs import make_program
from .shrink import shrink


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


def _verdicts(seeds: range, jobs: int) -> Iterator[tuple[int, Verdict]]:
    if jobs == 1:
        yield from map(_judge_seed, seeds)
        return
    with multiprocessing.Pool(jobs, initializer=quiet) as pool:
        yield from pool.imap_unordered(_judge_seed, seeds, chunksize=16)


def main(arguments: list[str] | None = None) -> int:
    """Judge many programs; print each new fault, shrunk, and the counts."""
    parser = argparse.ArgumentParser(description=usage, formatter_class=argparse.RawDescriptionHelpFormatter)
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
