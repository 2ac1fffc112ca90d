"""Record programs on tensor wrapper subclasses as traces; lower, run, verify and draw them."""

__version__ = "0.1.0"

from .backends import register_backend
from .backward import backward
from .check import check
from .draw import draw
from .errors import TraceError
from .explore import explore
from .jit import jit
from .page import save_html
from .passes import lower
from .to_fx import to_fx
from .trace import Trace
from .tracing import trace
from .verify import verify

__all__ = [
    "Trace", "TraceError", "backward", "check", "draw", "explore", "jit", "lower", "register_backend", "save_html",
    "to_fx", "trace", "verify",
]  # fmt: skip
