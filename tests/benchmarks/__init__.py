"""How long things take: the kit beside eager and torch.compile, in one process, on one thread.

usage: python -m tests.benchmarks [--n 1 10 100] [--rounds 21] [--train] [--inductor] [--json FILE]

programs.py, classes.py -> variants.py: the same program as floor, eager, torch.compile and jit, checked against eager
timing.py               -> medians of interleaved rounds
parts.py                -> what one call of jit is made of
tables.py               -> the figures as text

The files bench_*.py hold the same for pytest-benchmark: pytest tests/benchmarks --benchmark-enable
"""
