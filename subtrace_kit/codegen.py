"""Trace -> Python source -> callable.

The text that is printed and the text that runs are the same statements.
"""

from __future__ import annotations

import linecache
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from . import statements
from .errors import TraceError
from .guards import difference
from .helpers import HELPERS
from .literals import Literals
from .naming import identifier
from .proxies import NumberProxy, Proxy, TensorProxy
from .statements import statement
from .symbols import BoundSymbol, Context, proxies_in
from .trace import Trace

__all__ = ["Line", "Program", "generate", "runner"]


@dataclass(frozen=True)
class Line:
    """One line of a generated function.

    Args:
        indent: How deep it stands, in steps of four spaces.
        text: The statement.
        bound: The operation it runs, or None.
    """

    indent: int
    text: str
    bound: BoundSymbol | None = None


@dataclass
class Program:
    """A generated function and what it needs.

    Args:
        signature: Its `def` line.
        lines: Its body.
        literals: Imports, and objects that the text cannot say.
    """

    signature: str
    lines: list[Line] = field(default_factory=list)
    literals: Literals = field(default_factory=Literals)

    def helpers(self) -> list[str]:
        """Source of the helper functions that the body calls."""
        text = "\n".join(line.text for line in self.lines)
        return [source for name, source in HELPERS.items() if f"{name}(" in text]

    def header(self) -> list[str]:
        """Import lines and helpers."""
        imports = ["import torch", *self.literals.imports]
        text = "\n".join(line.text for line in self.lines)
        if "operator." in text:
            imports.insert(0, "import operator")
        lines = sorted(set(imports), key=lambda line: (line.startswith("from"), line))
        if re.search(r"(?<![\w.])aten\.", text):
            lines += ["", "aten = torch.ops.aten"]
        for source in self.helpers():
            lines += ["", "", *source.splitlines()]
        return lines


def generate(trace: Trace) -> Program:
    """The function of a trace, as lines."""
    outside = (*trace.inputs, *(capture.proxy for capture in trace.captures))
    values = {p.name for p in outside} | {p.name for b in trace.bound_symbols for p in b.outputs}
    program = Program("", literals=Literals(values | set(trace.guard.positional) | set(trace.guard.keywords)))
    writer = _Writer(program, trace)
    writer.unpack_arguments()
    for bound in trace.bound_symbols:
        writer.write(bound)
    writer.finish(trace.output)
    return program


class _Writer:
    """Writes statements, opening and closing `with` blocks as the global state asks for."""

    def __init__(self, program: Program, trace: Trace) -> None:
        self.program, self.trace = program, trace
        self.literals = program.literals
        self.context = trace.context
        self.depth = 0
        self.steps = count()

    def unpack_arguments(self) -> None:
        """The signature, and a line for each tensor that lies inside a container."""
        guard = self.trace.guard
        keywords = [*guard.keywords, *(c.proxy.name for c in self.trace.captures)]
        parameters = [*guard.positional, *(["*", *keywords] if keywords else [])]
        self.program.signature = f"def {self.trace.name}({', '.join(parameters)}):"
        seen = set(guard.positional) | set(guard.keywords)
        for argument in guard.arguments:
            if argument.proxy is not None and argument.proxy.name not in seen:
                seen.add(argument.proxy.name)
                self.line(f"{argument.proxy.name} = {self.access(argument.path)}")

    def access(self, path: str) -> str:
        try:
            compile(path, "", "eval")
        except SyntaxError:
            head, index = path.split("[", 1)[0], "".join(ch for ch in path.rsplit(" ", 1)[-1] if ch.isdigit())
            return f"torch.utils._pytree.tree_leaves({head})[{index or 0}]"
        return path

    def line(self, text: str, bound: BoundSymbol | None = None) -> None:
        self.program.lines.append(Line(1 + (self.context != self.trace.context) + self.depth, text, bound))

    def write(self, bound: BoundSymbol) -> None:
        """The statements of one operation, under its global state."""
        self.enter(bound.context or self.trace.context)
        if bound.replayed and bound.subsymbols:
            steps = [self.step(step) for step in bound.subsymbols]
            self.line(f"with replay({', '.join(steps)}):")
            self.depth += 1
            self.statement(bound)
            self.depth -= 1
        else:
            self.statement(bound)

    def statement(self, bound: BoundSymbol) -> None:
        """One statement, and the checks of its results."""
        self.line(statement(bound, self.literals), bound)
        for proxy in bound.results:
            if isinstance(proxy, NumberProxy) and proxy.guarded:
                self.line(f"expect({proxy.name}, {self.literals.text(proxy.value)})")
            elif bound.checked and isinstance(proxy, TensorProxy):
                self.line(f"expect(tuple({proxy.name}.shape), {self.literals.text(proxy.shape)})")

    def step(self, step: BoundSymbol) -> str:
        """A function that answers one op in place of a class's handler."""
        name = f"step_{next(self.steps)}"
        seen: set[str] = set()
        parameters: list[str] = []
        for proxy in proxies_in((step.args, step.kwargs)):
            if isinstance(proxy, TensorProxy):
                parameters.append(f"_{len(parameters)}" if proxy.name in seen else proxy.name)
                seen.add(proxy.name)
        self.line(f"def {name}({', '.join(parameters)}):", step.replace(subsymbols=()))
        self.depth += 1
        for inner in step.subsymbols:
            self.statement(inner)
        self.line(f"return {self.returned(step.output)}")
        self.depth -= 1
        return f"({statements.op_text(step, self.literals)}, {name})"

    def enter(self, context: Context) -> None:
        if context == self.context:
            return
        self.context = self.trace.context
        if context != self.trace.context:
            self.line(f"with {', '.join(self.managers(context))}:")
        self.context = context

    def managers(self, context: Context) -> list[str]:
        """The context managers that lead from the trace's global state to another one."""
        base, found = self.trace.context, []
        if context.handler:
            found = ["as_handler()"]
            return ["torch.inference_mode()", *found] if context.inference != base.inference else found
        if context.inference != base.inference:
            found.append(f"torch.inference_mode({'' if context.inference else 'False'})")
        if context.grad != base.grad and not context.inference:
            found.append("torch.enable_grad()" if context.grad else "torch.no_grad()")
        for kind, dtype, cached in context.autocast:
            cache = "" if cached else ", cache_enabled=False"
            found.append(f"torch.autocast({kind!r}, dtype={dtype}{cache})")
        still_on = {kind for kind, _, _ in context.autocast}
        found += [f"torch.autocast({k!r}, enabled=False)" for k, _, _ in base.autocast if k not in still_on]
        found += [self.literals.named(mode, identifier(type(mode).__name__).lower()) for mode in context.modes]
        return found

    def finish(self, output: Any) -> None:
        self.context = self.trace.context
        self.line(f"return {self.returned(output)}")

    def returned(self, value: Any) -> str:
        """Text for a result: natural for lists, tuples and dicts."""
        if isinstance(value, Proxy) or not _is_custom_node(value):
            if isinstance(value, (list, tuple)) and not hasattr(value, "_fields") and type(value) in (list, tuple):
                inner = ", ".join(self.returned(item) for item in value)
                comma = "," if isinstance(value, tuple) and len(value) == 1 else ""
                return f"[{inner}]" if isinstance(value, list) else f"({inner}{comma})"
            if type(value) is dict:
                return "{" + ", ".join(f"{self.literals.text(k)}: {self.returned(v)}" for k, v in value.items()) + "}"
            return self.literals.text(value)
        leaves, spec = torch.utils._pytree.tree_flatten(value)
        inner = ", ".join(self.literals.text(leaf) for leaf in leaves)
        return f"torch.utils._pytree.tree_unflatten([{inner}], {self.literals.named(spec, 'spec')})"


def _is_custom_node(value: Any) -> bool:
    kind = type(value)
    return kind not in (list, tuple, dict) and kind in torch.utils._pytree.SUPPORTED_NODES


# ------------------------------------------------------------------------------------------- running

_numbers = count()
_runners: weakref.WeakValueDictionary[int, Runner]


class Runner:
    """A compiled trace.

    Args:
        trace: What to run.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        program = generate(trace)
        self.file = f"<subtrace {trace.name} {next(_numbers)}>"
        head = program.header()
        body = [f"{'    ' * line.indent}{line.text}" for line in program.lines]
        source = "\n".join([*head, "", "", program.signature, *body, ""])
        self.first = len(head) + 4
        self.lines = program.lines
        linecache.cache[self.file] = (len(source), None, source.splitlines(True), self.file)
        weakref.finalize(self, linecache.cache.pop, self.file, None)
        space: dict[str, Any] = dict(program.literals.objects)
        exec(compile(source, self.file, "exec"), space)
        self.function: Callable[..., Any] = space[trace.name]

    def __call__(self, args: tuple, kwargs: dict) -> Any:
        """Check the arguments and run."""
        self.check(args, kwargs)
        return self.run(args, kwargs)

    def check(self, args: tuple, kwargs: dict) -> None:
        """Make sure that arguments and captured tensors are of the recorded kind."""
        self.trace.guard.check(args, kwargs)
        check_captures(self.trace, self.captured())

    def fits(self, args: tuple, kwargs: dict) -> bool:
        """Whether arguments and captured tensors are of the recorded kind."""
        try:
            self.check(args, kwargs)
        except TraceError:
            return False
        return True

    def captured(self) -> dict[str, Any]:
        """The captured tensors as they are now."""
        return {c.proxy.name: c.fetch() for c in self.trace.captures}

    def run(self, args: tuple, kwargs: dict) -> Any:
        """Run on arguments that were checked."""
        try:
            return self.function(*args, **kwargs, **self.captured())
        except TraceError:
            raise
        except Exception as error:
            raise self.explain(error) from error

    def explain(self, error: Exception) -> TraceError:
        """A TraceError that names the user's line of the operation that failed."""
        bound = None
        step = error.__traceback__
        while step is not None:
            if step.tb_frame.f_code.co_filename == self.file:
                index = step.tb_lineno - self.first
                bound = next((ln.bound for ln in reversed(self.lines[: index + 1]) if ln.bound is not None), None)
            step = step.tb_next
        name = f" in {bound.symbol.name}" if bound else ""
        told = TraceError(
            f"{type(error).__name__}{name} while the trace ran: {error}",
            source=bound.source if bound else None,
            handler=bound.handler if bound else None,
            cause="data of another kind than recorded, or an op that fails on them in eager as well",
            way_out="run the program without the kit on the same input; trace again with such input",
        )
        told.trace = self.trace
        return told


def check_captures(trace: Trace, captured: dict[str, Any]) -> None:
    """Refuse captured tensors and modules that have become another kind."""
    for capture in trace.captures:
        tensor = captured[capture.proxy.name]
        if found := difference(capture.proxy, tensor):
            raise _changed(f"captured tensor {capture.path}: {found}", "a parameter was replaced or cast")
        if any(look() is not tensor for look in capture.others):
            raise _changed(f"captured tensor {capture.path}: no longer shared", "tied weights were untied")
    for flag in trace.flags:
        if flag.module.training != flag.training:
            what = f"module {flag.path or trace.name}: training is {flag.module.training} instead of {flag.training}"
            raise _changed(what, "train() or eval() was called")


def _changed(what: str, cause: str) -> TraceError:
    return TraceError(what, cause=f"{cause} after the recording", way_out="trace again")


def runner(trace: Trace) -> Runner:
    """The compiled form of a trace, made at its first use."""
    found = trace.__dict__.get("_runner")
    if found is None:
        found = Runner(trace)
        object.__setattr__(trace, "_runner", found)
    return found
