"""A sound wrapper class, and classes that each break one rule of soundness."""

import torch
from classes import Base
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

aten = torch.ops.aten


class Sound(Base):
    """One inner tensor; every op is run on it."""

    def __repr__(self):
        return f"{type(self).__name__}({self.inner!r})"


def without(*ops, error=NotImplementedError):
    """A sound class that raises for some ops."""

    class Without(Sound):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if func.overloadpacket in ops:
                raise error(f"no {func}")
            return super().__torch_dispatch__(func, types, args, kwargs)

    return Without


def answering(op, answer):
    """A sound class that has an answer of its own to one op."""

    class Answering(Sound):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if func.overloadpacket is op:
                return answer(cls, func, args, kwargs or {})
            return super().__torch_dispatch__(func, types, args, kwargs)

    return Answering


class NoDispatchMethod(Sound):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return NotImplemented


class PlainUnflatten(Sound):
    def __tensor_unflatten__(inner, metadata, size, stride):
        return PlainUnflatten(inner["inner"])


class FreshInner(Sound):
    """Its inner tensor is a new one each time it is read."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)
        made.kept = inner
        return made

    @property
    def inner(self):
        return self.kept.view_as(self.kept)


class OtherDevice(Sound):
    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device="meta")
        made.inner = inner
        return made


class OddMetadata(Sound):
    def __tensor_flatten__(self):
        return ["inner"], object()


class CopiesInner(Sound):
    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        return cls(inner["inner"].clone())


class OtherOuter(Sound):
    """Built again, it is flat."""

    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        made = torch.Tensor._make_wrapper_subclass(cls, (inner["inner"].numel(),), dtype=torch.float64)
        made.inner = inner["inner"]
        return made


class OtherMetadata(Sound):
    scale = 2.0

    def __tensor_flatten__(self):
        return ["inner"], (self.scale,)

    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        made = cls(inner["inner"])
        made.scale = metadata[0] + 1
        return made


class Labeled(Sound):
    """A label that no one hands on."""

    @staticmethod
    def __new__(cls, inner, label=None):
        made = super().__new__(cls, inner)
        made.label = label
        return made


class Unpicklable(Sound):
    @staticmethod
    def __new__(cls, inner):
        made = super().__new__(cls, inner)
        made.look = lambda: None
        return made

    def __tensor_flatten__(self):
        return ["inner"], self.look

    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        made = cls(inner["inner"])
        made.look = metadata
        return made


class Sized(Sound):
    """It answers for its sizes, strides and device itself."""

    asked = ("size", "sym_size", "stride", "sym_stride", "dim", "numel", "sym_numel", "storage_offset")

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, dtype=inner.dtype, dispatch_sizes_strides_policy="sizes", dispatch_device=True
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.prim.device.default:
            return args[0].inner.device
        name = func.overloadpacket.__name__
        if name in cls.asked or name == "sym_storage_offset":
            return getattr(args[0].inner, name.removeprefix("sym_"))()
        if name in ("is_contiguous", "is_strides_like_format", "is_non_overlapping_and_dense"):
            return True
        return super().__torch_dispatch__(func, types, args, kwargs)


class WritesArguments(Sound):
    """Its abs works in place."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is aten.abs.default:
            args[0].inner.sub_(1)
        return super().__torch_dispatch__(func, types, args, kwargs)


class Aliased(Sound):
    """Its in-place ops return the argument."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(func, types, args, kwargs)
        return return_and_correct_aliasing(func, args, kwargs or {}, out)


class NeedsArguments(torch.Tensor):
    """Its constructor takes no matrices."""

    @staticmethod
    def __new__(cls, rows: int, name: str):
        raise ValueError("no rows\nmore about it")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


def unwrapped(cls, args, kwargs):
    """The arguments of a handler with inner tensors."""
    return pytree.tree_map_only(cls, lambda t: t.inner, (args, kwargs))
