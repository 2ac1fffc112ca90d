"""The guard of a trace as one generated function: a quick yes, or no answer.

A no is not told why: the interpreted check of `guards` and `running` then decides, and names the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .guards import same_value
from .intercept import (
    WithOpaque,
    any_autocast,
    global_context,
    memory_of,
    no_torch_function,
    tree_children,
)
from .owners import module_hooks
from .proxies import SubclassTensorProxy, TensorProxy
from .quick_tensors import TensorFacts
from .roots import Place, is_simple
from .trace import Capture, Trace, TrainingFlag

__all__ = ["quick_guard"]

Check = Callable[[tuple, dict], "dict[str, Any] | None"]


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


class _Writer:
    """Writes the conditions under which the answer is yes."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.lines: list[str] = []
        self.space: dict[str, Any] = {"torch": torch, "Tensor": torch.Tensor, "Parameter": torch.nn.Parameter}
        self.tensors: list[str] = []  # variables of arguments and what is inside them, in the order of the guard
        self.plain: list[str] = []
        self.leaves: list[str] = []
        self.described: dict[str, TensorProxy] = {}  # variables of all tensors -> what they must be
        self.found: dict[str, str] = {}  # captured values: the name in the trace -> the variable
        self.count = 0

    def function(self) -> Check:
        """The check, compiled."""
        self.context()
        self.structure()
        for flag in self.trace.flags:
            self.flag(flag)
        for argument, leaf in zip(self.trace.guard.arguments, self.leaves, strict=True):
            if argument.proxy is None:
                self.value(leaf, argument.value)
            else:
                self.tensor(leaf, argument.proxy)
        for capture in self.trace.captures:
            self.capture(capture)
        if self.described:
            self.facts()
        if not self.trace.guard.free:
            self.memory()
        for tie in self.trace.ties:
            tied = ".".join((self.leaves[tie.argument], *tie.attributes))
            self.require(f"{self.place(tie.fetch)} is {tied}")
        for attribute in self.trace.attributes:
            if not attribute.by_class:
                now = ".".join((self.leaves[attribute.argument], *attribute.way))
                self.value(now if attribute.ask is None else f"{self.named(attribute.ask)}({now})", attribute.value)
        for constant in self.trace.constants:
            if not constant.by_class:
                self.value(self.place(constant.fetch), constant.value)
        for owner in self.trace.owners:
            if owner.fetch is not None:
                self.found[owner.name] = self.variable(self.place(owner.fetch))
        return self.compiled()

    def compiled(self) -> Check:
        """The lines as a function."""
        defaults = ", ".join(f"{name}={name}" for name in self.space)
        found = ", ".join(f"{name!r}: {variable}" for name, variable in self.found.items())
        body = "\n".join(f"    {line}" for line in [*self.lines, f"return {{{found}}}"])
        source = f"def fits(args, kwargs, {defaults}):\n{body}\n"
        exec(compile(source, "<subtrace guard>", "exec"), space := dict(self.space))
        return _quietly(space["fits"])

    # ---------------------------------------------------------------------------------- writing

    def require(self, condition: str) -> None:
        self.lines.append(f"if not ({condition}): return")

    def named(self, value: Any) -> str:
        """A name for an object that the code needs."""
        name = f"k{len(self.space)}"
        self.space[name] = value
        return name

    def variable(self, expression: str) -> str:
        """A new variable for the value of an expression."""
        self.count += 1
        self.lines.append(f"v{self.count} = {expression}")
        return f"v{self.count}"

    # ----------------------------------------------------------------------------------- checks

    def context(self) -> None:
        """Grad mode, inference mode and autocast are as recorded."""
        recorded = self.trace.guard.context
        if not self.trace.guard.free:
            self.require(f"torch.is_grad_enabled() is {recorded.grad}")
        self.require(f"torch.is_inference_mode_enabled() is {recorded.inference}")
        if recorded.autocast:
            current = self.named(global_context)
            self.require(f"{current}({1 << 30}).autocast == {self.named(recorded.autocast)}")
        else:
            self.require(f"not {self.named(any_autocast)}()")

    def structure(self) -> None:
        """Arguments are nested as recorded; every leaf gets a variable."""
        positional, keywords = tree_children(self.trace.guard.spec)
        self.nested("args", positional)
        self.nested("kwargs", keywords)

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
            shown = repr(key) if type(key) in (int, str) else self.named(key)
            self.nested(self.variable(f"{expression}[{shown}]"), child)

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
            self.require(f"type({name}) is {self.named(proxy.cls)}")
        else:
            self.plain.append(name)
        self.described[name] = proxy
        if isinstance(proxy, SubclassTensorProxy):
            self.inner(name, proxy)

    def facts(self) -> None:
        """All tensors are what their proxies say: told by one call, once it has been told one by one."""
        names = ", ".join(self.described)
        asked = [self.conditions(name, proxy) for name, proxy in self.described.items()]
        defaults = ", ".join(f"{name}={name}" for name in self.space)
        source = f"def facts({names}, {defaults}):\n    return {' and '.join(asked)}\n"
        exec(compile(source, "<subtrace guard>", "exec"), space := dict(self.space))
        facts = TensorFacts(space["facts"], self.trace.guard.free)
        alike = [f"{self.named(facts.checks)}[0]({names})"]
        if not self.trace.context.grad:  # then torch's own check takes any flag
            alike += [f"{name}.requires_grad is {proxy.requires_grad}" for name, proxy in self.described.items()]
        self.require(f"{' and '.join(alike)} or {self.named(facts)}({names})")

    def conditions(self, name: str, proxy: TensorProxy) -> str:
        """What is asked of one tensor."""
        found = (
            [] if isinstance(proxy, SubclassTensorProxy) else [f"(type({name}) is Tensor or type({name}) is Parameter)"]
        )
        shape, stride = self.named(torch.Size(proxy.shape)), self.named(tuple(proxy.stride))
        found += [f"{name}.shape == {shape}", f"{name}.stride() == {stride}"]
        found.append(f"{name}.dtype is {self.named(proxy.dtype)}")
        if not self.trace.guard.free:
            found.append(f"{'' if proxy.requires_grad else 'not '}{name}.requires_grad")
        found.append(f"{name}.is_cpu" if proxy.device.type == "cpu" else f"{name}.device == {self.named(proxy.device)}")
        if proxy.dtype.is_complex:
            found.append(f"{name}.is_conj() is {proxy.lazy[0]}")
        return " and ".join([*found, f"{name}.is_neg() is {proxy.lazy[1]}"])

    def inner(self, name: str, proxy: SubclassTensorProxy) -> None:
        if isinstance(proxy.metadata, WithOpaque):
            raise _Beyond
        flat = self.variable(f"{name}.__tensor_flatten__()")
        names = [attribute for attribute, _ in proxy.inner]
        self.require(f"{flat}[0] == {self.named(names)} or {flat}[0] == {self.named(tuple(names))}")
        metadata = self.named(proxy.metadata)
        self.require(f"{flat}[1] is {metadata} or {flat}[1] == {metadata}")
        for attribute, part in proxy.inner:
            self.tensor(self.variable(f"{name}.{attribute}"), part)

    def memory(self) -> None:
        """The same tensors are one object, and the same share memory."""
        same, shared = self.trace.guard.same, self.trace.guard.shared
        if len(self.tensors) > 1:
            self.pattern([f"id({name})" for name in self.tensors], same)
        if len(self.plain) == len(shared) > 1:
            memory = self.named(memory_of)
            self.pattern([f"{memory}({name})" for name in self.plain], shared)
        elif len(self.plain) > 1:
            raise _Beyond  # layouts without memory of their own

    def pattern(self, keys: list[str], places: tuple[int, ...]) -> None:
        """Keys are equal where their places are, and nowhere else."""
        names = [self.variable(key) for key in keys]
        first: dict[int, str] = {}
        for name, place in zip(names, places, strict=True):
            if first.setdefault(place, name) is not name:
                self.require(f"{name} == {first[place]}")
        self.require(f"len({{{', '.join(first.values())}}}) == {len(first)}")

    def capture(self, capture: Capture) -> None:
        """A captured tensor is what it was, in every place that held it."""
        name = self.found[capture.proxy.name] = self.variable(self.place(capture.fetch))
        before = len(self.tensors), len(self.plain)
        self.tensor(name, capture.proxy)
        del self.tensors[before[0] :], self.plain[before[1] :]
        for fetch in capture.others:
            self.require(f"{self.place(fetch)} is {name}")

    def place(self, fetch: Any) -> str:
        """An expression for what is at a place now; modules on the way are checked by their flags."""
        if not isinstance(fetch, Place):
            return f"{self.named(fetch)}()"
        parent, expression = fetch.root(), f"{self.named(fetch.root)}()"
        for how, key in fetch.steps:
            shown = repr(key) if type(key) in (int, str) else self.named(key)
            kept = [d for d in _MODULE_DICTS if isinstance(parent, torch.nn.Module) and key in vars(parent)[d]]
            if kept:
                expression = f"{self.named(parent)}.{kept[0]}[{shown}]"
            else:
                expression += f".{key}" if how == "attribute" else f"[{shown}]"
            parent = getattr(parent, key) if how == "attribute" else parent[key]
        return expression

    def flag(self, flag: TrainingFlag) -> None:
        """A module is the one it was, in its mode, with its hooks."""
        module = self.named(flag.module)
        self.require(f"{self.place(flag.fetch)} is {module} and {module}.training is {flag.training}")
        if flag.hooks:
            self.require(f"{self.named(module_hooks)}({module}) == {self.named(flag.hooks)}")
        else:
            names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
            self.require(f"not ({' or '.join(f'{module}.{name}' for name in names)} or 'forward' in {module}.__dict__)")


_MODULE_DICTS = ("_parameters", "_buffers", "_modules")


def _quietly(fits: Callable[..., Any]) -> Check:
    """The check without any class's `__torch_function__` in between; an error means no."""

    def check(args: tuple, kwargs: dict) -> dict[str, Any] | None:
        try:
            with no_torch_function():
                return fits(args, kwargs)
        except Exception:
            return None

    return check
