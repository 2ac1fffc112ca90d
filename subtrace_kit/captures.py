"""Find where a program keeps a tensor that is not among its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["Captures"]

Place = tuple[str, Callable[[], Any]]


class Captures:
    """Where a program keeps tensors that are not among its arguments.

    A parameter or buffer of a module, a closed-over variable and a global are looked up anew at each
    run, so a later change is seen. Any other tensor is held by reference.

    Args:
        fn: The program.
    """

    def __init__(self, fn: Any) -> None:
        self.program = fn
        self._known: dict[int, list[Place]] = {}
        self.modules: list[tuple[str, torch.nn.Module]] = []
        for path, fetch in _places(fn):
            value = fetch()
            if not isinstance(value, torch.nn.Module):
                self._known.setdefault(id(value), []).append((path, fetch))
                continue
            for prefix, part in value.named_modules():
                self.modules.append((f"{path}.{prefix}".strip("."), part))
            for name, fetch_part in _module_places(value):
                place = (f"{path}.{name}" if path else name, fetch_part)
                self._known.setdefault(id(fetch_part()), []).append(place)

    def generators(self) -> list[torch.Generator]:
        """The random generators that the program knows: closed-over ones, globals, and torch's own."""
        function = getattr(self.program, "forward", self.program)
        function = getattr(function, "__func__", function)
        cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or () if _filled(cell)]
        space = getattr(function, "__globals__", {})
        names = getattr(getattr(function, "__code__", None), "co_names", ())
        found = [*cells, *(space.get(name) for name in names), *_module_generators(self.modules)]
        return [item for item in found if isinstance(item, torch.Generator)] + [torch.default_generator]

    def find(self, tensor: torch.Tensor, name: str) -> list[Place]:
        """Every place that holds a tensor, by the user's name for it and a function that looks again.

        Args:
            tensor: The tensor.
            name: What to call it if no place is known.
        """
        return self._known.get(id(tensor)) or [(name, lambda: tensor)]


def _places(fn: Any) -> Iterator[Place]:
    if isinstance(fn, torch.nn.Module):
        yield "", lambda: fn
        return
    if isinstance(owner := getattr(fn, "__self__", None), torch.nn.Module):
        yield "", lambda: owner
    function = getattr(fn, "__func__", fn)
    code = getattr(function, "__code__", None)
    if code is None:
        return
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        if _holds(cell):
            yield name, lambda cell=cell: cell.cell_contents  # type: ignore[misc]
    space = function.__globals__
    for name in code.co_names:
        if isinstance(space.get(name), (torch.Tensor, torch.nn.Module)):
            yield name, lambda name=name: space[name]  # type: ignore[misc]


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _holds(cell: Any) -> bool:
    return _filled(cell) and isinstance(cell.cell_contents, (torch.Tensor, torch.nn.Module))


def _module_generators(modules: list[tuple[str, torch.nn.Module]]) -> Iterator[Any]:
    for _, part in modules:
        yield from vars(part).values()


def _module_places(module: torch.nn.Module) -> Iterator[Place]:
    for prefix, part in module.named_modules(remove_duplicate=False):
        for name in [*part._parameters, *part._buffers]:
            if getattr(part, name) is not None:
                yield f"{prefix}.{name}" if prefix else name, lambda part=part, name=name: getattr(part, name)  # type: ignore[misc]
