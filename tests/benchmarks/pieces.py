"""The statements of a generated function by what they do, each kind as a timer of its own."""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from subtrace_kit.intercept import as_handler
from subtrace_kit.quick_calls import with_constants
from subtrace_kit.running import Runner

from .timing import Timer

__all__ = ["KINDS", "Pieces"]

KINDS = ("unwrap", "run", "wrap")


@dataclass(frozen=True)
class _Piece:
    kind: str
    text: str
    line: int  # in the generated file
    sets: frozenset[str]
    needs: frozenset[str]


class Pieces:
    """What a runner's function does, one statement after the other, without its frames and its `with` lines.

    Statements of kept ops stand in functions of their own there; here they stand in one row.

    Args:
        runner: What runs a lowered trace.
        args: Arguments that it takes.
        captured: The captured values.

    Raises:
        ValueError: The function does something that this does not know.
    """

    def __init__(self, runner: Runner, args: tuple[Any, ...], captured: dict[str, Any]) -> None:
        self.runner = runner
        tree = ast.parse("".join(linecache.cache[runner.file][2]))
        function = next(p for p in tree.body if isinstance(p, ast.FunctionDef) and p.name == runner.trace.name)
        self.pieces = tuple(_pieces(function.body))
        self.result = next(ast.unparse(p.value) for p in function.body if isinstance(p, ast.Return) and p.value)
        self.parameters = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)]
        given = dict(zip(self.parameters, args, strict=False)) | captured
        names = "".join(f"{name!r}: {name}, " for name in sorted({n for p in self.pieces for n in p.sets}))
        tail = [f"return {self.result}, {{{names}}}"]
        kept = [p for p in self.pieces if p.kind != "drop"]
        self.value, found = self._compiled(kept, self.parameters, tail)(**given)
        self.values: dict[str, Any] = given | found

    def timer(self, kind: str) -> Timer:
        """A timer of the statements of one kind, on the values that they had."""
        chosen: list[_Piece] = []
        own: set[str] = set()
        needed: list[str] = []
        for piece in self.pieces:
            if piece.kind == kind:
                needed += [n for n in sorted(piece.needs - own) if n in self.values and n not in needed]
                own |= piece.sets
                chosen.append(piece)
            elif piece.kind == "drop" and (dropped := piece.needs & own):
                own -= dropped
                chosen.append(replace(piece, text=f"del {', '.join(sorted(dropped))}"))
        measured = self._compiled(chosen, ["rounds", "clock", "repeat", *needed], ["return clock() - begin"], loop=True)
        values = {name: self.values[name] for name in needed}
        return lambda n: measured(n, perf_counter, itertools.repeat, **values)

    def _compiled(self, pieces: Iterable[_Piece], parameters: list[str], tail: list[str], loop: bool = False) -> Any:
        """The statements as a function, with the constants and the quick calls that the runner's own has."""
        lines = [f"def piece({', '.join(parameters)}):", " with as_handler():"]
        lines += ["  begin = clock()", "  for _ in repeat(None, rounds):", "   pass"] if loop else ["  if True:"]
        quick, calls = self.runner.calls(), {}
        for piece in pieces:
            lines.append(f"   {piece.text}")
            if piece.line in quick:
                calls[len(lines)] = quick[piece.line]
        lines += ["   pass", *(f"  {line}" for line in tail), ""]
        code, constants = with_constants("\n".join(lines), "<piece>", "piece", calls)
        space = {**inspect.unwrap(self.runner.function).__globals__, **constants, "as_handler": as_handler}
        exec(code, space)
        return space["piece"]


def _pieces(body: Iterable[ast.stmt]) -> Iterator[_Piece]:
    for part in body:
        if isinstance(part, ast.With):
            yield from _inside(part)
        elif isinstance(part, ast.FunctionDef):
            yield from _pieces(part.body)
        elif isinstance(part, (ast.Assign, ast.Expr, ast.Delete)):
            yield _piece(part)
        elif not isinstance(part, ast.Return):
            raise ValueError(f"a statement of another kind: {ast.unparse(part)}")


def _inside(block: ast.With) -> Iterator[_Piece]:
    """What stands below `with as_handler()`; what a replay answers stands above it as functions."""
    manager = block.items[0].context_expr
    name = manager.func.id if isinstance(manager, ast.Call) and isinstance(manager.func, ast.Name) else ""
    if name == "as_handler":
        yield from _pieces(block.body)
    elif name != "replay":
        raise ValueError(f"another context: {ast.unparse(manager)}")


def _piece(part: ast.Assign | ast.Expr | ast.Delete) -> _Piece:
    names = [node for node in ast.walk(part) if isinstance(node, ast.Name)]
    sets = frozenset(node.id for node in names if isinstance(node.ctx, ast.Store))
    needs = frozenset(node.id for node in names) - sets
    return _Piece(_kind(part), ast.unparse(part), part.lineno, sets, needs)


def _kind(part: ast.Assign | ast.Expr | ast.Delete) -> str:
    if isinstance(part, ast.Delete):
        return "drop"
    if isinstance(part.value, ast.Attribute):
        return "unwrap"
    return "wrap" if "__tensor_unflatten__" in ast.unparse(part.value) else "run"
