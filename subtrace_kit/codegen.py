"""Trace -> Python source. The text that is printed and the text that runs are the same statements."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from . import statements
from .helpers import HELPERS
from .intercept import flatten_tree, is_custom_node
from .last_use import last_uses
from .literals import Literals
from .naming import TEXT_BUILTINS, TEXT_NAMES, identifier
from .progress import counted
from .proxies import NumberProxy, Proxy, TensorProxy
from .statements import statement
from .symbols import BoundSymbol, Context, proxies_in
from .trace import Trace

__all__ = ["Line", "Program", "generate"]


@dataclass(frozen=True)
class Line:
    """One line of a generated function.

    Args:
        indent: How deep it stands, in steps of four spaces.
        text: The statement.
        bound: The operation it runs, or None.
        free: The names that nothing needs after it: a run deletes them, the printed text leaves that out.
    """

    indent: int
    text: str
    bound: BoundSymbol | None = None
    free: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The line as it is run."""
        return f"{'    ' * self.indent}{self.text}{'; del ' + ', '.join(self.free) if self.free else ''}"


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
    program = Program("", literals=Literals({trace.name, *values, *trace.guard.positional, *trace.guard.keywords}))
    writer = _Writer(program, trace)
    writer.unpack_arguments()
    for bound, free in counted(list(zip(trace.bound_symbols, last_uses(trace), strict=True))):
        writer.write(bound)
        if free:
            last = program.lines[-1]
            program.lines[-1] = Line(last.indent, last.text, last.bound, tuple(free))
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
        self.renamed: dict[str, str] = {}  # parameters whose names the text needs for something else

    def unpack_arguments(self) -> None:
        """The signature, and a line for each tensor that lies inside a container."""
        guard = self.trace.guard
        captured = [*(c.proxy.name for c in self.trace.captures), *(owner.name for owner in self.trace.owners)]
        keywords = [*guard.keywords, *captured]
        needed = TEXT_NAMES | TEXT_BUILTINS
        self.renamed = {name: self.literals.fresh(name) for name in guard.positional if name in needed}
        positional = [self.renamed.get(name, name) for name in guard.positional]
        parameters = [*positional, *(["*", *keywords] if keywords else [])]
        self.program.signature = f"def {self.trace.name}({', '.join(parameters)}):"
        seen = set(guard.positional) | set(guard.keywords)
        for argument in guard.arguments:
            if argument.proxy is not None and argument.proxy.name not in seen:
                seen.add(argument.proxy.name)
                self.line(f"{argument.proxy.name} = {self.access(argument.path)}")

    def access(self, path: str) -> str:
        head = re.match(r"\w*", path)[0]  # type: ignore[index]
        path = self.renamed.get(head, head) + path[len(head) :]
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
        context = bound.context or self.trace.context
        if bound.replayed and bound.steps:
            self.enter(dataclasses.replace(context, modes=()))
            self.replay(bound, self.modes(context))
        else:
            self.enter(context)
            self.statement(bound)

    def replay(self, bound: BoundSymbol, modes: list[str]) -> None:
        """A replayed operation: what reaches a class is answered below the modes of the program."""
        managers = [f"replay({', '.join([self.step(step) for step in bound.steps])})", *modes]
        for manager in managers:
            self.line(f"with {manager}:")
            self.depth += 1
        self.statement(bound)
        self.depth -= len(managers)

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
        name = self.literals.fresh(f"step_{next(self.steps)}")
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
        given = [leaf for leaf in flatten_tree((step.args, step.kwargs))[0] if not isinstance(leaf, TensorProxy)]
        return f"({', '.join([statements.op_text(step, self.literals), name, *map(self.literals.text, given)])})"

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
        return found + self.modes(context)

    def modes(self, context: Context) -> list[str]:
        """The dispatch modes of the program, by name."""
        return [self.literals.named(mode, identifier(type(mode).__name__).lower()) for mode in context.modes]

    def finish(self, output: Any) -> None:
        self.context = self.trace.context
        self.line(f"return {self.returned(output)}")

    def returned(self, value: Any) -> str:
        """Text for a result: natural for lists, tuples and dicts."""
        if isinstance(value, Proxy) or not is_custom_node(value):
            if isinstance(value, (list, tuple)) and not hasattr(value, "_fields") and type(value) in (list, tuple):
                inner = ", ".join(self.returned(item) for item in value)
                comma = "," if isinstance(value, tuple) and len(value) == 1 else ""
                return f"[{inner}]" if isinstance(value, list) else f"({inner}{comma})"
            if type(value) is dict:
                return "{" + ", ".join(f"{self.literals.text(k)}: {self.returned(v)}" for k, v in value.items()) + "}"
            return self.literals.text(value)
        leaves, spec = flatten_tree(value)
        inner = ", ".join(self.literals.text(leaf) for leaf in leaves)
        return f"torch.utils._pytree.tree_unflatten([{inner}], {self.literals.named(spec, 'spec')})"
