"""The guard of a trace as one generated function: a quick yes, or no answer.

A no is not told why: the interpreted check of `guards` and `running` then decides, and names the difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .equality import same_value
from .facts import answer, code_of, module_entries
from .guard_text import Check
from .intercept import (
    TELLS_APART,
    WithOpaque,
    any_autocast,
    global_context,
    memory_of,
    tensor_check,
    tree_children,
)
from .place_text import PlaceText
from .progress import counted
from .proxies import SubclassTensorProxy, TensorProxy
from .roots import is_simple
from .trace import Attribute, Capture, Constant, Trace

__all__ = ["quick_guard"]


def quick_guard(trace: Trace) -> Check | None:
    """A function that says of arguments and captured tensors that a trace fits them.

    Args:
        trace: Any trace.

    Returns:
        A function of (args, kwargs) that gives the captured values by name where the interpreted checks
        would pass, and None where they might not. No function where the kind of input is beyond it
        (custom pytree nodes, ragged sizes).

    Example:
        >>> import torch, subtrace_kit
        >>> fits = quick_guard(subtrace_kit.trace(lambda x: x + 1)(torch.ones(2)))
        >>> fits((torch.zeros(2),), {}), fits((torch.zeros(3),), {})
        ({}, None)
    """
    try:
        return _Writer(trace).function()
    except (_Beyond, SyntaxError, LookupError, AttributeError):
        return None


class _Beyond(Exception):
    """A kind of input that the generated check does not know."""


class _Writer(PlaceText):
    """Writes the conditions under which the answer is yes."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(Tensor=torch.Tensor, Parameter=torch.nn.Parameter)
        self.trace = trace
        self.tensors: list[str] = []  # variables of arguments and what is inside them, in the order of the guard
        self.plain: list[str] = []
        self.checked: list[str] = []  # variables of all tensors, captured ones too
        self.facts: list[str] = []  # what must be true of them, one by one
        self.flags: list[str] = []  # the part of it that is about gradients
        self.leaves: list[str] = []
        self.parts: dict[tuple[str, str], str] = {}  # what has been read: variable and attribute -> variable
        self.found: dict[str, str] = {}  # captured values: the name in the trace -> the variable

    def function(self) -> Check:
        """The check, compiled."""
        self.context()
        self.structure()
        for module, names in self.module_entries():
            self.entries(module, names)
        for flag in self.trace.flags:
            self.flag(flag)
        for argument, leaf in zip(self.trace.guard.arguments, self.leaves, strict=True):
            if argument.proxy is None:
                self.value(leaf, argument.value)
            else:
                self.tensor(leaf, argument.proxy)
        for capture in counted(self.trace.captures):
            self.capture(capture)
        asked = [a for a in self.trace.attributes if not a.by_class and not self.told(a)]
        if self.checked:
            self.kinds()
        if self.checked and not self.trace.guard.free:
            self.memory()
        for tie in self.trace.ties:
            self.require(f"{self.place(tie.fetch)} is {self.part(tie.argument, tie.attributes)}")
        for attribute in asked:
            now = self.part(attribute.argument, attribute.way)
            self.value(now if attribute.ask is None else f"{self.named(attribute.ask)}({now})", attribute.value)
        for constant in self.trace.constants:
            if not constant.by_class:
                self.constant(constant)
        for owner in self.trace.owners:
            if owner.fetch is not None:
                self.found[owner.name] = self.variable(self.place(owner.fetch))
        return self.compiled(self.found)

    # ----------------------------------------------------------------------------------- checks

    def context(self) -> None:
        """Grad mode, inference mode and autocast are as recorded."""
        recorded = self.trace.guard.context
        if not self.trace.guard.free:
            self.require(f"{self.named(torch.is_grad_enabled)}() is {recorded.grad}")
        self.require(f"{self.named(torch.is_inference_mode_enabled)}() is {recorded.inference}")
        if recorded.autocast:
            current = self.named(global_context)
            self.require(f"{current}({1 << 30}).autocast == {self.named(recorded.autocast)}")
        else:
            self.require(f"not {self.named(any_autocast)}()")

    def structure(self) -> None:
        """Arguments are nested as recorded; every leaf gets a variable."""
        positional, keywords = tree_children(self.trace.guard.spec)
        if names := [self.fresh() for _ in tree_children(positional)]:
            self.lines.append(f"({', '.join(names)},) = args")
        else:
            self.require("not args")
        for name, child in zip(names, tree_children(positional), strict=True):
            self.nested(name, child)
        if tree_children(keywords):
            self.nested("kwargs", keywords)
        else:
            self.require("not kwargs")

    def nested(self, expression: str, spec: Any) -> None:
        if spec.is_leaf():
            self.leaves.append(expression)
            return
        children = tree_children(spec)
        if spec.type not in (tuple, list, dict):
            raise _Beyond
        self.require(f"type({expression}) is {spec.type.__name__} and len({expression}) == {len(children)}")
        keys: Any = range(len(children))
        if spec.type is dict:
            keys = list(spec.context)
            self.require(f"list({expression}) == {self.named(keys)}") if keys else None
        for key, child in zip(keys, children, strict=True):
            self.nested(self.variable(f"{expression}[{self.key(key)}]"), child)

    def value(self, expression: str, recorded: Any) -> None:
        """A Python value is of the recorded type, and equal."""
        if recorded is None or isinstance(recorded, (bool, type)):
            self.require(f"{expression} is {self.named(recorded)}")
            return
        now, then = self.variable(expression), self.named(recorded)
        equal = f"(type({now}) is {self.named(type(recorded))} and {now} == {then})"
        if isinstance(recorded, float) or not is_simple(recorded):
            equal = f"{self.named(same_value)}({now}, {then})"
        self.require(f"{now} is {then} or {equal}")

    def tensor(self, name: str, proxy: TensorProxy) -> None:
        """A tensor is what its proxy says, inner tensors and metadata too."""
        if not all(type(size) is int for size in (*proxy.shape, *proxy.stride)) or not proxy.device.type:
            raise _Beyond  # ragged sizes
        self.tensors.append(name)
        if isinstance(proxy, SubclassTensorProxy):
            self.classes.add(proxy.cls)
            self.require(f"type({name}) is {self.named(proxy.cls)}")
        else:
            self.plain.append(name)
            self.facts.append(f"(type({name}) is Tensor or type({name}) is Parameter)")
        self.checked.append(name)
        self.note_facts(name, proxy)
        if isinstance(proxy, SubclassTensorProxy):
            self.inner(name, proxy)

    def note_facts(self, name: str, proxy: TensorProxy) -> None:
        shape, stride = self.named(torch.Size(proxy.shape)), self.named(tuple(proxy.stride))
        conditions = [f"{name}.shape == {shape}", f"{name}.stride() == {stride}"]
        conditions.append(f"{name}.dtype is {self.named(proxy.dtype)}")
        if not self.trace.guard.free:
            self.flags.append(f"{'' if proxy.requires_grad else 'not '}{name}.requires_grad")
            conditions.append(self.flags[-1])
        cpu = proxy.device.type == "cpu"
        conditions.append(f"{name}.is_cpu" if cpu else f"{name}.device == {self.named(proxy.device)}")
        if proxy.dtype.is_complex:
            conditions.append(f"{name}.is_conj() is {proxy.lazy[0]}")
        conditions.append(f"{name}.is_neg() is {proxy.lazy[1]}")
        self.facts += conditions

    def told(self, attribute: Attribute) -> bool:
        """Whether torch's own check answers it: the class of a tensor is one of the facts it keeps."""
        now = self.part(attribute.argument, attribute.way)
        if attribute.ask is not type or now not in self.checked:
            return False
        self.facts.append(f"type({now}) is {self.named(attribute.value)}")
        return True

    def kinds(self) -> None:
        """All tensors are of the recorded kind: one call of torch's own check, once one has been made of them.

        It looks at each object once, and says no where it meets one again.
        """
        alike: list[str] = []
        apart: list[str] = []
        if not self.trace.guard.free:
            alike, apart = self.pattern(self.tensors, self.trace.guard.same, "is", "id({})")
        self.require_all(alike)
        again = {condition.partition(" is ")[0] for condition in alike}
        given, box = ", ".join(name for name in self.checked if name not in again), self.named([None])
        fits = [f"check({given})"]
        if not self.trace.guard.context.grad:  # there torch's own check takes any flag
            fits += self.flags
        self.lines += [
            f"check = {box}[0]",
            f"if check is None or not ({' and '.join(fits)}):",
            f"    if not ({' and '.join([*self.facts, *apart])}): return",
            f"    {box}[0] = check or {self.named(tensor_check)}(({given},))",
        ]
        if not TELLS_APART:
            self.require_all(apart)

    def inner(self, name: str, proxy: SubclassTensorProxy) -> None:
        if isinstance(proxy.metadata, WithOpaque):
            raise _Beyond
        flat = self.variable(f"{name}.__tensor_flatten__()")
        names = [attribute for attribute, _ in proxy.inner]
        self.require(f"{flat}[0] == {self.named(names)} or {flat}[0] == {self.named(tuple(names))}")
        metadata = self.named(proxy.metadata)
        self.require(f"{flat}[1] is {metadata} or {flat}[1] == {metadata}")
        for attribute, part in proxy.inner:
            variable = self.parts[name, attribute] = self.variable(f"{name}.{attribute}")
            self.tensor(variable, part)

    def part(self, argument: int, way: tuple[str, ...]) -> str:
        """An expression for what is inside an argument; a variable where it has been read."""
        found = self.leaves[argument]
        for attribute in way:
            found = self.parts.get((found, attribute), f"{found}.{attribute}")
        return found

    def memory(self) -> None:
        """The same tensors share memory, and no others."""
        shared = self.trace.guard.shared
        if len(self.plain) == len(shared) > 1:
            memory = self.named(memory_of)
            now = [self.variable(f"{memory}({name})") for name in self.plain]
            for conditions in self.pattern(now, shared, "==", "{}"):
                self.require_all(conditions)
        elif len(self.plain) > 1:
            raise _Beyond  # layouts without memory of their own

    def capture(self, capture: Capture) -> None:
        """A captured tensor is what it was, in every place that held it."""
        name = self.found[capture.proxy.name] = self.variable(self.place(capture.fetch))
        before = len(self.tensors), len(self.plain)
        self.tensor(name, capture.proxy)
        del self.tensors[before[0] :], self.plain[before[1] :]
        for fetch in capture.others:
            self.require(f"{self.place(fetch)} is {name}")

    def module_entries(self) -> Iterator[tuple[Any, Any]]:
        """The modules whose names of parameters, buffers and submodules matter, and these names."""
        for constant in self.trace.constants:
            asked = getattr(constant.fetch, "root", None)
            if getattr(asked, "func", None) is module_entries and not constant.by_class:
                yield asked.args[0], constant.value  # type: ignore[union-attr]

    def constant(self, constant: Constant) -> None:
        """A Python value outside the arguments; what is often asked is written out."""
        asked = getattr(constant.fetch, "root", None)
        function: Any = getattr(asked, "func", None)
        given: tuple[Any, ...] = getattr(asked, "args", ())
        if function is module_entries:
            return  # looked at before the modules
        if function is code_of:
            self.require(f"{self.named(given[0])}.__code__ is {self.named(constant.value)}")
        elif function is answer and given[0] is type:
            self.require(f"type({self.place(given[1])}) is {self.named(constant.value)}")
        else:
            place = self.place(constant.fetch)
            if place != self.named(constant.value):  # else it is what it is
                self.value(place, constant.value)
