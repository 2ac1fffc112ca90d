"""The part of a generated check that looks at places outside the arguments, module by module."""

from __future__ import annotations

from typing import Any

import torch

from .guard_text import GuardText
from .owners import module_hooks
from .roots import Place, itself
from .trace import TrainingFlag
from .variables import contents_of, default_of, keyword_default_of, variable_of

__all__ = ["PlaceText"]

_MODULE_DICTS = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_MANY = 5  # from so many on, reading all that a module keeps is quicker than reading one after the other


class PlaceText(GuardText):
    """Lines that look at modules and at what is kept at places.

    Args:
        **space: Objects that the lines call by these names.
    """

    def __init__(self, **space: Any) -> None:
        super().__init__(**space)
        self.modules: dict[tuple[int, tuple], torch.nn.Module] = {}  # by the place at which they were looked at
        self.kept: dict[tuple[int, str], tuple[str, ...]] = {}  # module and dict -> its keys, where they are checked
        self.read: dict[tuple[int, str], dict[str, str]] = {}  # module and dict -> the variables of its values
        self.dicts: dict[int, str] = {}  # module -> the variable of its own dict

    def flag(self, flag: TrainingFlag) -> None:
        """A module is the one it was, in its mode, with its hooks."""
        module = self.named(flag.module)
        self.require(f"{self.place(flag.fetch)} is {module} and {module}.training is {flag.training}")
        if isinstance(flag.fetch, Place):
            self.modules[id(flag.fetch.root), flag.fetch.steps] = flag.module
        if flag.hooks:
            self.require(f"{self.named(module_hooks)}({module}) == {self.named(flag.hooks)}")
        else:
            own = self.own(flag.module)
            self.require(f"not ({' or '.join(f'{own}[{name!r}]' for name in _HOOKS)} or 'forward' in {own})")

    def own(self, module: torch.nn.Module) -> str:
        """A variable for the dict of a module, where modules keep everything: their attributes are slow to read."""
        if id(module) not in self.dicts:
            self.dicts[id(module)] = self.variable(f"{self.named(module)}.__dict__")
        return self.dicts[id(module)]

    def entries(self, module: torch.nn.Module, recorded: tuple[tuple[str, ...], ...]) -> None:
        """The names of the parameters, buffers and submodules of a module."""
        kept = [(f"{self.own(module)}[{d!r}]", names) for d, names in zip(_MODULE_DICTS, recorded, strict=True)]
        self.require_all([f"tuple({d}) == {self.named(names)}" if names else f"not {d}" for d, names in kept])
        self.kept |= {(id(module), d): names for d, names in zip(_MODULE_DICTS, recorded, strict=True)}

    def place(self, fetch: Any) -> str:
        """An expression for what is at a place now; modules on the way are checked by their flags."""
        if not isinstance(fetch, Place):
            return f"{self.named(fetch)}()"
        parent, expression = fetch.root(), self.start(fetch.root)
        for i, (how, key) in enumerate(fetch.steps):
            if (module := self.modules.get((id(fetch.root), fetch.steps[:i]))) is not None:
                parent, expression = module, self.named(module)
            kept = [d for d in _MODULE_DICTS if isinstance(parent, torch.nn.Module) and key in vars(parent)[d]]
            if kept:
                expression = self.entry(parent, kept[0], key)
            else:
                expression += f".{key}" if how == "attribute" else f"[{self.key(key)}]"
            parent = getattr(parent, key) if how == "attribute" else parent[key]
        return expression

    def start(self, root: Any) -> str:
        """An expression for the object that the way to a place starts from."""
        function: Any = getattr(root, "func", None)
        given: tuple[Any, ...] = getattr(root, "args", ())
        if function is itself:
            return self.named(given[0])
        if function is vars and isinstance(given[0], type):
            return self.named(vars(given[0]))  # a view: it shows what the class keeps at any time
        if function is vars:
            return f"{self.named(given[0])}.__dict__"
        if function in _READS:
            holder, *keys = given
            return f"{self.named(holder)}{_READS[function].format(*map(self.key, keys))}"
        return f"{self.named(root)}()"

    def entry(self, module: torch.nn.Module, where: str, key: str) -> str:
        """An expression for a parameter, buffer or submodule."""
        names = self.kept.get((id(module), where), ())
        if len(names) < _MANY or key not in names:
            return f"{self.own(module)}[{where!r}][{self.key(key)}]"
        if (id(module), where) not in self.read:
            found = self.read[id(module), where] = {name: self.fresh() for name in names}
            self.lines.append(f"({', '.join(found.values())},) = {self.own(module)}[{where!r}].values()")
        return self.read[id(module), where][key]

    def key(self, key: Any) -> str:
        """A key as it is written: numbers and texts themselves, anything else by a name."""
        return repr(key) if type(key) in (int, str) else self.named(key)


_READS = {
    contents_of: ".cell_contents",
    default_of: ".__defaults__[{}]",
    keyword_default_of: ".__kwdefaults__[{}]",
    variable_of: "[{}]",
}
"""How the start of a place is written out, so that a check calls no function for it."""
