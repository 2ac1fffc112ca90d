"""The backend "cudagraphs": a part of a trace, recorded by the CUDA driver and sent as one piece."""

from __future__ import annotations

import threading
from typing import Any

import torch

from .errors import TraceError
from .running import runner
from .trace import Trace

__all__ = ["compile_with_cudagraphs"]

_WARM_UPS = 3


def compile_with_cudagraphs(part: Trace) -> CudaGraph:
    """Have a part replayed as one CUDA graph.

    Args:
        part: Plain tensors in, a tuple of plain tensors out.

    Raises:
        TraceError: There is no CUDA device.
        NotImplementedError: The part works on other devices too.
    """
    if not torch.cuda.is_available():
        raise TraceError(
            'jit(backend="cudagraphs") needs a CUDA device, and there is none',
            cause="a machine without a GPU, or a torch that was built for CPU alone",
            way_out='jit(fn, backend="eager"), or "inductor", which works on CPU as well',
        )
    devices = {p.device for b in part.bound_symbols for p in (*b.arguments, *b.outputs)}  # type: ignore[attr-defined]
    if len(devices) != 1 or next(iter(devices)).type != "cuda":
        raise NotImplementedError("a part that is not on one CUDA device stays as it is")
    return CudaGraph(part, next(iter(devices)))


class CudaGraph:
    """A part that is recorded at its first call.

    A graph reads and writes the same memory at each run: arguments are copied in, and results are copied out,
    so that they stay what they are.

    Args:
        part: What to run.
        device: Where.
    """

    def __init__(self, part: Trace, device: torch.device) -> None:
        self.run, self.device = runner(part).function, device
        self.lock = threading.Lock()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.given: list[torch.Tensor] = []
        self.found: Any = ()

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with self.lock, torch.cuda.device(self.device):
            if self.graph is None:
                self.record(tensors)
            stream = torch.cuda.current_stream()
            stream.wait_event(self.read)  # another thread's copy, on its own stream
            for kept, tensor in zip(self.given, tensors, strict=True):
                kept.copy_(tensor)
            assert self.graph is not None
            self.graph.replay()
            copies = tuple(tensor.clone() for tensor in self.found)
            self.read.record(stream)
            return copies

    def record(self, tensors: tuple[torch.Tensor, ...]) -> None:
        """Run the part a few times, then once under the eyes of the driver."""
        self.read = torch.cuda.Event()
        self.given = [tensor.detach().clone(memory_format=torch.preserve_format) for tensor in tensors]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UPS):
                self.run(*self.given)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.found = self.run(*self.given)
        self.graph = graph
