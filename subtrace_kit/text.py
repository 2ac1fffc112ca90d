"""The printed trace: Python source with types, source lines and the levels below as comments."""

from __future__ import annotations

import dataclasses
from typing import Any

from .codegen import Line, Program, generate
from .collecting import no_collection
from .intercept import constructor_arguments
from .options import expect_level
from .progress import Stage, counted
from .proxies import Proxy, SubclassTensorProxy
from .shown import shown
from .statements import statement
from .symbols import BoundSymbol, Kind, type_text
from .trace import Trace

__all__ = ["to_text"]

_COLUMN = 56


def to_text(trace: Trace, *, levels: int | None = None, comments: bool = True, device: bool = True) -> str:
    """Print a trace.

    Args:
        trace: What to print.
        levels: How many levels to show; None shows all.
        comments: Whether types and source lines are shown.
        device: Whether devices are named.

    Returns:
        Text that compiles as Python.

    Raises:
        TraceError: `levels` is no number of levels.
    """
    expect_level(levels, "to_text", "levels")
    with no_collection(), Stage("writing out"):
        return _text(trace, levels, comments, device)


def _text(trace: Trace, levels: int | None, comments: bool, device: bool) -> str:
    program = generate(trace if device else _without_devices(trace))
    printer = _Printer(program, levels, comments, device)
    head = [f"# {line}" for line in trace.provenance]
    head += [*program.header(), *printer.unwritable(), "", "", program.signature]
    if comments:
        head += [
            f"    # {p.name}: {', '.join([type_text(p, device=device), *_metadata(p)])}" for p in _parameters(trace)
        ]
    lines = [*head, *(text for line in counted(program.lines) for text in printer.print(line))]
    if trace.failure:
        lines.insert(-1, f"    # ^ failed: {trace.failure}")
    return "\n".join(lines)


def _parameters(trace: Trace) -> list[Proxy]:
    return [*trace.inputs, *(capture.proxy for capture in trace.captures)]


def _without_devices(trace: Trace) -> Trace:
    """The same trace with device arguments left out, to print alike on every machine."""
    return trace.replace(bound_symbols=tuple(_drop_device(b) for b in trace.bound_symbols))


def _drop_device(bound: BoundSymbol) -> BoundSymbol:
    kwargs = {k: v for k, v in bound.kwargs.items() if k != "device"}
    return dataclasses.replace(bound, kwargs=kwargs, subsymbols=tuple(_drop_device(b) for b in bound.subsymbols))


def _what(obj: Any) -> str:
    """What an object is, in a few words and the same from run to run."""
    if isinstance(obj, type):
        return f"class {obj.__name__}, which no import brings"
    name = getattr(obj, "__name__", "")
    return f"{type(obj).__name__} {name}".rstrip()


def _metadata(proxy: Proxy) -> list[str]:
    """The metadata of a wrapper, where there are any."""
    metadata = proxy.metadata if isinstance(proxy, SubclassTensorProxy) else None
    if metadata is None or (isinstance(metadata, (tuple, dict, list)) and not metadata):
        return []
    return [f"metadata={text if len(text := shown(metadata)) <= 60 else '...'}"]


def _brief(bound: BoundSymbol) -> str:
    """A constructor as the reader thinks of it: this class with these inner tensors and this metadata."""
    parts = [f"{name}={part.name}" for name, part in bound.output.inner]
    parts += _metadata(bound.output)
    return f"{bound.output.name} = {bound.symbol.name}({', '.join(parts)})"


class _Printer:
    """Prints lines with comments."""

    def __init__(self, program: Program, levels: int | None, comments: bool, device: bool) -> None:
        self.program, self.comments, self.device = program, comments, device
        self.levels = 1000 if levels is None else levels
        self.place = ""

    def unwritable(self) -> list[str]:
        """Lines for the objects that text cannot say."""
        objects = self.program.literals.objects
        note = "# Objects that cannot be written as text; set them before running this as a file:"
        return ["", note, *(f"{name} = None  # {_what(obj)}" for name, obj in objects.items())] if objects else []

    def print(self, line: Line) -> list[str]:
        indent = "    " * line.indent
        if line.bound is None:
            return [f"{indent}{line.text}"]
        printed = [*self.source(line.bound, indent), self.annotated(f"{indent}{line.text}", line.bound)]
        for sub in line.bound.subsymbols:
            printed += self.nested(sub, indent, 1)
        return printed

    def source(self, bound: BoundSymbol, indent: str) -> list[str]:
        """A comment with the user's line, where it is another one than for the line before."""
        if not self.comments or bound.source is None:
            return []
        where = f"{bound.source.place}  {bound.source.text}".rstrip()
        where = f"[{bound.module}] {where}" if bound.module else where
        if where == self.place:
            return []
        self.place = where
        return [f"{indent}# {where}"]

    def annotated(self, text: str, bound: BoundSymbol) -> str:
        if not self.comments:
            return text
        types = ", ".join(type_text(proxy, device=self.device) for proxy in bound.results)
        if bound.symbol.kind is Kind.CONSTRUCTOR and (ignored := constructor_arguments(*bound.kwargs["given"])[1]):
            types += f"; torch ignores {', '.join(ignored)}"
        if bound.handler is not None:
            types = f"{types}  {bound.handler.place}".strip()
        return f"{text:<{_COLUMN}}  # {types}".rstrip() if types else text

    def nested(self, bound: BoundSymbol, indent: str, depth: int) -> list[str]:
        """The level below, as comments."""
        if depth >= self.levels:
            return []
        text = _brief(bound) if bound.symbol.kind is Kind.CONSTRUCTOR else statement(bound, self.program.literals)
        place = f"  {bound.source.place}" if self.comments and bound.source is not None else ""
        printed = [self.annotated(f"{indent}#{'  ' * depth} {text}", bound) + place]
        for sub in bound.subsymbols:
            printed += self.nested(sub, indent, depth + 1)
        return printed
