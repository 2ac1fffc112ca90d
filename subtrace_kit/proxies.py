"""Proxies: frozen records of the values in a trace.

A proxy is never the object that user code holds. It says what that object looked like when the
program was recorded. Making one has no side effect.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["NumberProxy", "Proxy", "SubclassTensorProxy", "TensorProxy", "names_in", "proxy_kind"]


@dataclass(frozen=True)
class Proxy:
    """A named value.

    Args:
        name: A Python identifier, unique in its trace.
    """

    name: str

    def replace(self, *, like: Proxy | torch.Tensor | None = None, **changes: Any) -> Proxy:
        """The same kind of proxy with other fields.

        A field comes from `changes` if it is there, else from `like` if that has it, else from
        this proxy. The name is never taken from `like`.

        Args:
            like: A proxy or a tensor to take fields from.
            **changes: Fields by name.

        Returns:
            A new proxy of this proxy's class.

        Raises:
            TypeError: A change names no field of this kind of proxy.

        Example:
            >>> p = TensorProxy("x", (2,), (1,), torch.float32, torch.device("cpu"))
            >>> q = p.replace(like=torch.ones(3, dtype=torch.float64), dtype=torch.int8)
            >>> q.name, q.shape, q.dtype
            ('x', (3,), torch.int8)
        """
        known = {field.name for field in dataclasses.fields(self)}
        if unknown := changes.keys() - known:
            raise TypeError(f"{type(self).__name__} has no field {sorted(unknown)[0]!r}; it has {sorted(known)}")
        taken = {} if like is None else _fields_of(like)
        taken.pop("name", None)
        return dataclasses.replace(self, **{k: v for k, v in taken.items() if k in known} | changes)


@dataclass(frozen=True)
class NumberProxy(Proxy):
    """A Python number that was taken out of a tensor and is computed anew at each run.

    Args:
        name: Its name.
        python_type: int, float, bool or complex.
        value: What it was when the program was recorded; never used as data.
        guarded: Whether a run that finds another value is refused, because the program may depend
            on it in ways that the trace does not show (a size, an index, a Python computation).
    """

    python_type: type = float
    value: Any = None
    guarded: bool = False


@dataclass(frozen=True)
class TensorProxy(Proxy):
    """A tensor.

    Args:
        name: Its name.
        shape: Sizes.
        stride: Strides, in elements.
        dtype: Its dtype.
        device: Its device.
        requires_grad: Whether autograd follows it.
        storage_offset: Offset into its storage, in elements.
        lazy: Whether its conjugate bit and its negative bit are set: handlers run with both left alone.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool = False
    storage_offset: int = 0
    lazy: tuple[bool, bool] = (False, False)


@dataclass(frozen=True)
class SubclassTensorProxy(TensorProxy):
    """A tensor of a wrapper subclass.

    Args:
        cls: The user's class.
        inner: Its inner tensors by attribute name, in the order of `__tensor_flatten__`.
        metadata: The second value of `__tensor_flatten__`.
    """

    cls: type = torch.Tensor
    inner: tuple[tuple[str, TensorProxy], ...] = ()
    metadata: Any = None

    def parts(self) -> Iterator[TensorProxy]:
        """Yield what is inside, at any depth, wrappers before what they hold."""
        for _, proxy in self.inner:
            yield proxy
            if isinstance(proxy, SubclassTensorProxy):
                yield from proxy.parts()

    def leaves(self, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], TensorProxy]]:
        """Yield the plain tensors inside, at any depth, each with its attribute path."""
        for name, proxy in self.inner:
            if isinstance(proxy, SubclassTensorProxy):
                yield from proxy.leaves((*path, name))
            else:
                yield (*path, name), proxy


def names_in(proxy: Proxy) -> set[str]:
    """The names of a value and of all that is inside it."""
    return {proxy.name, *(p.name for p in proxy.parts())} if isinstance(proxy, SubclassTensorProxy) else {proxy.name}


def _fields_of(like: Proxy | torch.Tensor) -> dict[str, Any]:
    if isinstance(like, Proxy):
        return {field.name: getattr(like, field.name) for field in dataclasses.fields(like)}
    return {
        "shape": tuple(like.shape),
        "stride": like.stride(),
        "dtype": like.dtype,
        "device": like.device,
        "requires_grad": like.requires_grad,
        "storage_offset": like.storage_offset(),
        "lazy": (like.is_conj(), like.is_neg()),
    }


_kinds: weakref.WeakKeyDictionary[type, type[SubclassTensorProxy]] = weakref.WeakKeyDictionary()


def proxy_kind(cls: type) -> type[SubclassTensorProxy]:
    """The kind of proxy for one wrapper class, made when the class is first seen.

    Args:
        cls: A wrapper subclass of torch.Tensor.

    Returns:
        A subclass of SubclassTensorProxy named after the class.

    Example:
        >>> class Pair(torch.Tensor): ...
        >>> proxy_kind(Pair).__name__
        'PairProxy'
        >>> proxy_kind(Pair) is proxy_kind(Pair)
        True
    """
    if (kind := _kinds.get(cls)) is None:
        kind = _kinds[cls] = type(f"{cls.__name__}Proxy", (SubclassTensorProxy,), {"__module__": cls.__module__})
    return kind
