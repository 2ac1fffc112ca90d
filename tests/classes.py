"""Wrapper classes that each break one rule of the protocol, and a few odd but sound ones."""

import torch
from torch.utils import _pytree as pytree


class Base(torch.Tensor):
    """One inner tensor; every op is run on it."""

    @staticmethod
    def __new__(cls, inner, *rest):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device
        )
        made.inner = inner
        return made

    def __tensor_flatten__(self):
        return ["inner"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        return cls(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = pytree.tree_map_only(cls, lambda t: t.inner, (args, kwargs or {}))
        return pytree.tree_map_only(torch.Tensor, cls, func(*args, **kwargs))


class MissingName(Base):
    def __tensor_flatten__(self):
        return ["inner", "nowhere"], None


class NoneListed(Base):
    extra = None

    def __tensor_flatten__(self):
        return ["inner", "extra"], None


class OldSignature(Base):
    @staticmethod
    def __tensor_unflatten__(inner, metadata):
        return OldSignature(inner["inner"])


class GivesPlain(Base):
    @staticmethod
    def __tensor_unflatten__(inner, metadata, size, stride):
        return inner["inner"]


class HidesTensor(Base):
    def __tensor_flatten__(self):
        return ["inner"], {"secret": self.inner}


class GivesNothing(Base):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return None


class NoProtocol(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(args[0].inner, *args[1:], **(kwargs or {}))


class LeavesTorch(Base):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls(torch.from_numpy(args[0].inner.numpy() + 1))


class ReadsList(Base):
    """Its handler takes sizes out of the data."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        first = args[0].inner.tolist()[0]
        return args[0].inner * first


class Counting(Base):
    """A Python attribute that each op counts up."""

    count = 0

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args[0].count += 1
        return super().__torch_dispatch__(func, types, args, kwargs)


class Raises(Base):
    """Its handler has no rule for `sin`."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.sin.default:
            raise NotImplementedError("no rule for sin")
        return super().__torch_dispatch__(func, types, args, kwargs)


class Declines(Base):
    """Its handler answers every op with NotImplemented."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return NotImplemented
