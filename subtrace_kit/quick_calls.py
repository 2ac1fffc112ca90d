"""The generated function with its constants looked up once: overloads, sizes, and classes of torch."""

from __future__ import annotations

import ast
import threading
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

from .intercept import direct_call
from .progress import restart, tick

__all__ = ["with_constants"]

_one_at_a_time = threading.Lock()  # up to Python 3.12, threads that parse at once disturb each other
NO_CALLS: Mapping[int, Callable[..., Any]] = types.MappingProxyType({})


def with_constants(
    source: str, file: str, name: str, calls: Mapping[int, Callable[..., Any]] = NO_CALLS
) -> tuple[Any, dict[str, Any]]:
    """Compile generated source; its text and its lines stay what they are.

    Args:
        source: A module with one function of a trace.
        file: The name of its file, for tracebacks.
        name: The function's name.
        calls: What is called in place of the overload in a line.

    Returns:
        The code, and the constants that it finds among its globals.

    Example:
        >>> source = "import torch\\naten = torch.ops.aten\\ndef f(x):\\n    return aten.neg.default(x)"
        >>> code, constants = with_constants(source, "f.py", "f")
        >>> list(constants)
        ['constant 0']
    """
    with _one_at_a_time:
        return _with_constants(source, file, name, calls)


def _with_constants(
    source: str, file: str, name: str, calls: Mapping[int, Callable[..., Any]]
) -> tuple[Any, dict[str, Any]]:
    tree = ast.parse(source, file)
    writer = _Constants(calls)
    restart(len(calls) or None)
    for part in tree.body:
        if isinstance(part, ast.FunctionDef) and part.name == name:
            writer.visit(part)
    return compile(tree, file, "exec"), writer.found


class _Constants(ast.NodeTransformer):
    """Puts a name that no text has in place of each constant."""

    def __init__(self, calls: Mapping[int, Callable[..., Any]]) -> None:
        self.calls = calls
        self.found: dict[str, Any] = {}
        self.names: dict[str, str] = {}  # the text of a constant -> its name

    def visit(self, node: ast.AST) -> Any:
        """Most nodes are names and numbers: nothing is in them."""
        return node if isinstance(node, (ast.Name, ast.Constant, ast.Delete)) else super().visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """What stands on the left stays."""
        node.value = self.visit(node.value)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call of an overload, or of torch.Size on numbers."""
        path = _path(node.func)
        if path[:2] == ["torch", "Size"] and not node.keywords and (sizes := _numbers(node.args)) is not None:
            return self.named(f"torch.Size({sizes})", lambda: torch.Size(sizes), node)
        chain = path[2:] if path[:2] == ["torch", "ops"] else path
        if len(chain) == 3 and (chain[0] == "aten" or len(path) == 5) and (op := _overload(chain)) is not None:
            tick()
            call = self.calls.get(node.lineno) or direct_call(op)
            node.func = self.named(f"{'.'.join(chain)} {id(call)}", lambda: call, node.func)
        else:
            node.func = self.visit(node.func)
        node.args = [self.visit(argument) for argument in node.args]
        for keyword in node.keywords:
            keyword.value = self.visit(keyword.value)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A class of torch."""
        path = _path(node)
        if path[:1] == ["torch"] and isinstance(cls := _found(path), type):
            return self.named(".".join(path), lambda: cls, node)
        self.generic_visit(node)
        return node

    def named(self, text: str, value: Any, node: ast.expr) -> ast.Name:
        """The name of a constant, where some node stood."""
        if text not in self.names:
            self.names[text] = f"constant {len(self.names)}"
            self.found[self.names[text]] = value()
        return ast.copy_location(ast.Name(self.names[text], ast.Load()), node)


def _path(node: ast.expr) -> list[str]:
    """The names of `a.b.c`; none for anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def _found(path: list[str]) -> Any:
    """What the names stand for."""
    found: Any = torch
    for name in path[1:]:
        found = getattr(found, name, None)
    return found


def _overload(chain: list[str]) -> Any:
    found = _found(["torch", "ops", *chain])
    return found if isinstance(found, torch._ops.OpOverload) else None


def _numbers(arguments: list[ast.expr]) -> list[int] | None:
    """The numbers of `[2, 3]`; None where there is anything else."""
    if len(arguments) != 1 or not isinstance(arguments[0], ast.List):
        return None
    values = [item.value for item in arguments[0].elts if isinstance(item, ast.Constant)]
    return values if len(values) == len(arguments[0].elts) else None  # type: ignore[return-value]
