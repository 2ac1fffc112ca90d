"""Which nn.Module of the program runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from .intercept import current_listener

__all__ = ["ModulePaths"]


class ModulePaths:
    """The paths of the modules that are running, outermost first.

    Args:
        fn: The program. Of a module the parts have their paths in it, else modules have those of their variables.
    """

    def __init__(self, fn: Any) -> None:
        self.running: list[str] = []
        self.called = False  # whether any module has run, also one that the program has made
        self.module = fn if isinstance(fn, torch.nn.Module) else None

    @property
    def now(self) -> str:
        """The path of the innermost module that runs, empty outside."""
        return self.running[-1] if self.running else ""

    @contextlib.contextmanager
    def follow(self, recorder: Any) -> Iterator[None]:
        """Note modules as they start and end, for the thread that `recorder` records."""
        if self.module is not None:
            paths = {id(part): path for path, part in self.module.named_modules()}
        else:
            paths = {id(module): place.path for place, module in reversed(recorder.places.modules)}

        def enter(module: torch.nn.Module, _: Any) -> None:
            if current_listener() is recorder:
                self.called = True
                self.running += [path] if (path := paths.get(id(module))) else []

        def leave(module: torch.nn.Module, *_: Any) -> None:
            if paths.get(id(module)) and current_listener() is recorder and self.running:
                self.running.pop()

        hooks = torch.nn.modules.module
        handles = [
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
