"""Rules for how a class is taken apart and put together: the flatten protocol.

The protocol is torch's own: see `is_traceable_wrapper_subclass` in torch/utils/_python_dispatch.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from ..comparison import alike
from ..copies import Copies
from ..errors import TraceError
from ..intercept import build_wrapper
from ..protocol import flatten, try_unflatten
from ..shown import instead, shown
from .example import Example, apart
from .rule import PARTS, Fault, NotTried, Rule, failed, rule, told

__all__ = ["PROTOCOL"]


@rule("methods", "The methods that torch calls are there, and of the right kind.")
def methods(example: Example) -> Iterator[Fault | str]:
    cls = example.cls
    kinds = {
        "__torch_dispatch__": ((classmethod, staticmethod), "a classmethod"),
        "__tensor_flatten__": ((), "a plain method"),
        "__tensor_unflatten__": ((staticmethod, classmethod), "a staticmethod"),
    }
    for name, (wanted, text) in kinds.items():
        found = inspect.getattr_static(cls, name, None)
        if found is None:
            yield told(cls, f"{cls.__name__} has no {name}", f"define {name}", name)
        elif isinstance(found, (staticmethod, classmethod)) != bool(wanted):
            yield told(cls, f"{name} is no {text.partition(' ')[2]}", f"make it {text}", name)
        elif not _takes(getattr(cls, name), *_GIVEN[name]):
            parameters = ", ".join(_GIVEN[name])
            yield told(cls, f"{name} does not take ({parameters})", f"def {name}(..., {parameters})", name)


_GIVEN = {
    "__torch_dispatch__": ("func", "types", "args", "kwargs"),
    "__tensor_flatten__": ("self",),
    "__tensor_unflatten__": ("inner_tensors", "metadata", "outer_size", "outer_stride"),
}


def _takes(method: Any, *given: str) -> bool:
    try:
        inspect.signature(method).bind(*given)
    except TypeError:
        return False
    except ValueError:  # one without a signature
        pass
    return True


@rule("flatten", "__tensor_flatten__ names the inner tensors, the very same at each call.")
def flattens(example: Example) -> Iterator[Fault | str]:
    x = example.first
    try:
        names, inner, _ = flatten(x)
    except TraceError as error:
        yield failed("", error)
        return
    again = [getattr(x, name) for name in names]
    for name, one, other in zip(names, inner, again, strict=True):
        if one is not other:
            text = f"x.{name} is a new tensor each time it is read"
            yield told(x.__class__, text, "keep the tensor itself as an attribute", "__tensor_flatten__")
    if inner and all(tensor.device != x.device for tensor in inner):
        text = f"the outer device is {x.device}, that of the inner tensors {inner[0].device}"
        yield told(x.__class__, text, "pass device=inner.device to _make_wrapper_subclass", "__new__")
    yield f"inner tensors: {', '.join(names) or 'none'}"


@rule("metadata", "The metadata of equal objects compares equal, by one == that gives a bool.", "flatten")
def metadata(example: Example) -> Iterator[Fault | str]:
    x, way_out = example.first, "use numbers, strings, tuples, or a frozen dataclass of them"
    pairs = {"two readings of one object": x}
    if example.made_by_call:
        pairs["two objects that are made alike"] = example.new()
    for what, second in pairs.items():
        one, other = flatten(x)[2], flatten(second)[2]
        try:
            equal = one == other
        except Exception as error:
            yield failed("comparing it", error, way_out)
            return
        if type(equal) is not bool or not equal:
            text = f"its == gives {shown(equal)} for {what}: {instead(other, one)}"
            yield told(example.cls, text, way_out, "__tensor_flatten__")
            return


@rule("unflatten", "__tensor_unflatten__ builds the object again from any inner tensors of the kind.", *PARTS)
def unflattens(example: Example) -> Iterator[Fault | str]:
    x = example.first
    names, inner, context = flatten(x)
    for given in (inner, [Copies().value(tensor) for tensor in inner]):
        try:
            made = try_unflatten(x, names, given, context)
            now = flatten(made)
        except TraceError as error:
            yield failed("", error)
            return
        if faults := list(_apart(x, made, given, now)):
            yield from faults
            return


def _apart(x: Any, made: Any, given: list[Any], now: tuple[list[str], list[Any], Any]) -> Iterator[Fault]:
    """What an object that was built of the given tensors has otherwise than x."""
    cls, again, (names, _, context) = type(x), "the object built again", flatten(x)
    if now[0] != names:
        yield _off(cls, f"{again} has the inner tensors {instead(now[0], names)}")
    elif not all(_is_made_of(*pair) for pair in zip(now[1], given, strict=True)):
        yield _off(cls, f"{again} does not hold the tensors that were given, but others")
    if not alike(now[2], context):
        yield _off(cls, f"{again} has the metadata {instead(now[2], context)}")
    for fact, (has, wanted) in apart(made, x, "shape", "strides", "dtype", "device", "layout").items():
        yield _off(cls, f"{again} has {fact} {instead(has, wanted)}")


def _is_made_of(found: Any, given: Any) -> bool:
    return found is given or (type(found) is type(given) and found.data_ptr() == given.data_ptr())


def _off(cls: type, text: str) -> Fault:
    return told(cls, text, "use inner_tensors, metadata, outer_size and outer_stride as given", "__tensor_unflatten__")


@rule("attributes", "What an object keeps beside its inner tensors is in the metadata.", *PARTS)
def attributes(example: Example) -> Iterator[Fault | str]:
    x = example.first
    names, inner, context = flatten(x)
    try:
        made = build_wrapper(example.cls, dict(zip(names, inner, strict=True)), context, x.shape, x.stride())
    except Exception as error:
        raise NotTried("the object cannot be built again") from error
    for name, value in vars(x).items():
        if name in names or name.startswith(_OF_TORCH):
            continue
        if name not in vars(made):
            yield _lost(example.cls, f"x.{name} is not there in the object built again")
        elif not alike(vars(made)[name], value):
            yield _lost(example.cls, f"x.{name} is {instead(vars(made)[name], value)} in the object built again")


_OF_TORCH = ("__", "_is_param", "_sym_")
"""What torch itself sets on objects: for torch.nn.Parameter, and where a class answers for sizes and strides."""


def _lost(cls: type, text: str) -> Fault:
    return told(cls, text, "return it with the metadata and set it in __tensor_unflatten__", "__tensor_flatten__")


@rule("repr", "An object can be printed, alone and in a list.")
def prints(example: Example) -> Iterator[Fault | str]:
    for what, show in (("repr(x)", repr), ("str(x)", str), ("repr([x])", lambda x: repr([x]))):
        try:
            show(example.first)
        except Exception as error:
            yield failed(what, error, "define __repr__ from the inner tensors")
            return


PROTOCOL: tuple[Rule, ...] = (methods, flattens, metadata, unflattens, attributes, prints)
