"""The Python state that a program keeps outside its arguments: remembered, looked at, given back."""

from __future__ import annotations

import dis
import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from .outcome import Items

__all__ = ["Outside"]

_DEPTH, _ITEMS = 8, 10_000
_FOREIGN = (sys.stdlib_module_names | {"torch", "subtrace_kit"}) - {"__main__", "types"}
_MISSING = object()


@dataclass
class _Keeper:
    """Something that keeps values by key: a list, dict or set, the attributes of an object, variables."""

    path: str
    read: Callable[[], dict[Any, Any]]
    write: Callable[[dict[Any, Any]], None]
    before: dict[Any, Any]


class Outside:
    """The lists, dicts, objects and variables that a program can reach without its arguments.

    Args:
        program: A function, a method, a module or another object that is called.
    """

    def __init__(self, program: Any) -> None:
        self.keepers: list[_Keeper] = []
        self.generators: list[torch.Generator] = []
        self.tensors: Items = []
        self._seen: dict[int, Any] = {}
        self._visit("", program, 0)

    def changes(self) -> Items:
        """What is another object than it was, with the path to it; None where it is gone."""
        found: Items = []
        for keeper in self.keepers:
            now = keeper.read()
            for i, key in enumerate({**keeper.before, **now}):
                if now.get(key, _MISSING) is not keeper.before.get(key, _MISSING):
                    found.append((_joined(keeper.path, key, i), now.get(key)))
        return found

    def give_back(self) -> None:
        """Put everything back as it was."""
        for keeper in self.keepers:
            now, before = keeper.read(), keeper.before
            if _keys(now) != _keys(before) or not all(map(operator.is_, now.values(), before.values())):
                keeper.write(before)

    def _visit(self, path: str, value: Any, depth: int) -> None:
        if id(value) in self._seen or depth > _DEPTH or isinstance(value, (type, types.ModuleType)):
            return
        depth = 0 if isinstance(value, torch.nn.Module) else depth  # Modules nest deeper than other objects do.
        self._seen[id(value)] = value
        if isinstance(value, torch.Generator):
            self.generators.append(value)
        elif isinstance(value, torch.Tensor):
            self.tensors.append((path, value))
            return
        if (kept := _keeping(value)) is not None:
            read, write = kept
            self.keepers.append(_Keeper(path, read, write, read()))
            for i, (key, item) in enumerate(self.keepers[-1].before.items()):
                self._visit(_joined(path, key, i), item, depth + 1)
        for part in _parts(value):
            self._visit(path, part, depth + 1)


Keeping = tuple[Callable[[], dict[Any, Any]], Callable[[dict[Any, Any]], None]]


def _keeping(value: Any) -> Keeping | None:
    """How to read and write what a value keeps; None where it keeps nothing that a program could change."""
    if isinstance(value, (list, set, dict)) and len(value) > _ITEMS:
        return None
    if isinstance(value, list):
        return lambda: dict(enumerate(value)), lambda before: value.__setitem__(slice(None), before.values())
    if isinstance(value, set):
        return lambda: {id(item): item for item in value}, lambda before: _refill(value, set(before.values()))
    if isinstance(value, dict):
        return lambda: dict(value), lambda before: _refill(value, before)
    if isinstance(value, types.FunctionType):
        return None if _is_foreign(value.__module__) else _variables(value)
    known = isinstance(value, (torch.nn.Module, torch.optim.Optimizer))
    if not hasattr(value, "__dict__") or (_is_foreign(type(value).__module__) and not known):
        return None
    space = vars(value)
    return lambda: {_Attribute(k): v for k, v in space.items()}, lambda before: _refill(space, _texts(before))


def _parts(value: Any) -> Iterator[Any]:
    """What belongs to a value and cannot be replaced in it."""
    if isinstance(value, tuple):
        yield from value
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, types.MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, types.FunctionType) and not _is_foreign(value.__module__):
        yield from (value.__defaults__, value.__kwdefaults__, inspect.unwrap(value))
    elif isinstance(value, torch.nn.Module) or (hasattr(value, "__dict__") and not _is_foreign(type(value).__module__)):
        yield getattr(type(value), "forward" if isinstance(value, torch.nn.Module) else "__call__", None)


class _Attribute(str):
    """The name of an attribute or a variable, not the key of an item."""

    __slots__ = ()


def _variables(function: types.FunctionType) -> Keeping:
    """The variables of a closure, and the globals that its code names."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
    space, names = function.__globals__, [n for n in _names(function.__code__) if n in function.__globals__]

    def read() -> dict[Any, Any]:
        found = {_Attribute(name): space[name] for name in names if name in space}
        return found | {_Attribute(name): cell.cell_contents for name, cell in cells.items() if _filled(cell)}

    def write(before: dict[Any, Any]) -> None:
        for name, value in before.items():
            if name in cells:
                cells[name].cell_contents = value
            else:
                space[str(name)] = value

    return read, write


def _names(code: types.CodeType) -> list[str]:
    """The globals that a function names, and those that functions inside it name."""
    own = [step.argval for step in dis.get_instructions(code) if step.opname.endswith("_GLOBAL")]
    inner = [name for part in code.co_consts if isinstance(part, types.CodeType) for name in _names(part)]
    return list(dict.fromkeys([*own, *inner]))


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _keys(kept: dict[Any, Any]) -> list[Any]:
    """The keys in order; tensors, whose == is no truth, by identity."""
    return [id(key) if isinstance(key, torch.Tensor) else key for key in kept]


def _is_foreign(module: Any) -> bool:
    return str(module).split(".")[0] in _FOREIGN


def _refill(container: Any, before: Any) -> None:
    container.clear()
    container.update(before)


def _texts(names: dict[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in names.items()}


def _joined(path: str, key: Any, place: int) -> str:
    if isinstance(key, _Attribute):
        return f"{path}.{key}" if path else str(key)
    return f"{path}[{key!r}]" if isinstance(key, (str, int, bool)) else f"{path}[{type(key).__name__} {place}]"
