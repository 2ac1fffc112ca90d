"""Random programs over the zoo's classes and plain tensors: eager against trace against lowered.

usage: python -m tests.fuzz [--programs 20000] [--seed 0] [--jobs 1] [--seconds S] [--examples 3] [--refusals 0]

make_program() -> Writer: input lines and steps, each tried in eager as it is written
judge()        -> run eager, trace and lowered on fresh inputs -> Sight.take: facts by path -> Verdict
shrink()       -> drop steps, inputs and results while the verdict stays
"""

import torch
from torch.utils.checkpoint import checkpoint

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

from .grammar import AddInto, Cube, F, hooked, linear, two_linear
from .judge import Verdict, judge, quiet, script, tell
from .programs import Program, make_program
from .shrink import shrink

__all__ = [
    "AddInto", "ComplexTensor", "Cube", "F", "Program", "QuantTensor", "ScaleTensor", "TwoTensor", "Verdict",
    "checkpoint", "from_complex", "from_quant", "from_scale", "from_two", "hooked", "judge", "linear", "make_program",
    "quiet", "script", "shrink", "tell", "to_complex", "to_quant", "to_scale", "to_two", "torch", "two_linear",
]  # fmt: skip
