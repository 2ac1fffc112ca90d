"""Sound wrapper classes, one for each way in which classes are written."""

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import return_and_correct_aliasing

aten = torch.ops.aten


class Sound(torch.Tensor):
    """Runs every op on its inner tensors, and keeps views and in-place ops as torch promises them."""

    @staticmethod
    def shell(cls, like, **options):
        return torch.Tensor._make_wrapper_subclass(
            cls, like.shape, strides=like.stride(), storage_offset=like.storage_offset(), dtype=like.dtype, **options
        )

    @classmethod
    def part(cls, name, wrapper):
        return getattr(wrapper, name)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        like = next(t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, cls))
        names, metadata = like.__tensor_flatten__()
        found = {}
        for name in names:
            inner = pytree.tree_map_only(cls, lambda t, name=name: getattr(t, name), (args, kwargs))
            found[name] = func(*inner[0], **inner[1])
        first = found[names[0]]
        if not isinstance(first, torch.Tensor):
            return first
        out = cls.__tensor_unflatten__(found, metadata, first.shape, first.stride())
        return return_and_correct_aliasing(func, args, kwargs, out)


class KeywordOnly(Sound):
    @staticmethod
    def __new__(cls, *, data, unit):
        made = Sound.shell(cls, data)
        made.data_, made.unit = data, unit
        return made

    def __tensor_flatten__(self):
        return ["data_"], {"unit": self.unit}

    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        return cls(data=inner["data_"], unit=metadata["unit"])


class SetInInit(Sound):
    @staticmethod
    def __new__(cls, low, high):
        return Sound.shell(cls, low)

    def __init__(self, low, high):
        self.low, self.high = low, high

    def __tensor_flatten__(self):
        return ["low", "high"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        return cls(inner["low"], inner["high"])


class Factory(Sound):
    """Its constructor takes a size alone; `wrap` puts the inner tensor in."""

    @staticmethod
    def __new__(cls, like):
        return Sound.shell(cls, like)

    @classmethod
    def wrap(cls, body):
        made = cls(body)
        made.body = body
        return made

    def __tensor_flatten__(self):
        return ["body"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        return cls.wrap(inner["body"])


class Optional(Sound):
    """A second inner tensor, or none."""

    @staticmethod
    def __new__(cls, body, extra=None):
        made = Sound.shell(cls, body)
        made.body, made.extra = body, extra
        return made

    def __tensor_flatten__(self):
        return ["body"] + ["extra"] * (self.extra is not None), None

    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        return cls(inner["body"], inner.get("extra"))


class Slotted(Sound):
    __slots__ = ("body",)

    @staticmethod
    def __new__(cls, body):
        made = Sound.shell(cls, body)
        made.body = body
        return made

    def __tensor_flatten__(self):
        return ["body"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        return cls(inner["body"])


class AsksItself(Sound):
    """`.shape` and `.device` go through its handler."""

    @staticmethod
    def __new__(cls, body):
        made = Sound.shell(cls, body, dispatch_sizes_strides_policy="sizes", dispatch_device=True)
        made.body = body
        return made

    def __tensor_flatten__(self):
        return ["body"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        return cls(inner["body"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        questions = {
            aten.sym_size.default: lambda t: t.shape,
            aten.sym_stride.default: lambda t: t.stride(),
            aten.sym_storage_offset.default: lambda t: t.storage_offset(),
            aten.sym_numel.default: lambda t: t.numel(),
            aten.dim.default: lambda t: t.dim(),
            torch.ops.prim.device.default: lambda t: t.device,
        }
        if func in questions:
            return questions[func](args[0].body)
        if func is aten.is_contiguous.default:
            return args[0].body.is_contiguous()
        args, kwargs = pytree.tree_map_only(cls, lambda t: t.body, (args, kwargs or {}))
        return pytree.tree_map_only(torch.Tensor, cls, func(*args, **kwargs))


class BothHandlers(Slotted):
    """Takes `torch.nn.functional.relu` as a function, all else as ops."""

    __slots__ = ()

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.relu:
            return cls(torch.clamp(args[0].body, min=0) + 100)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Packed(torch.Tensor):
    """Two 4-bit numbers in a byte: (n, 2k) outside, (n, k) inside."""

    @staticmethod
    def __new__(cls, bytes_, size):
        made = torch.Tensor._make_wrapper_subclass(cls, size, dtype=torch.float32)
        made.bytes_ = bytes_
        return made

    @classmethod
    def pack(cls, x):
        x = x.to(torch.uint8)
        return cls(x[:, ::2] | (x[:, 1::2] << 4), x.shape)

    def unpack(self):
        return torch.stack([self.bytes_ & 15, self.bytes_ >> 4], -1).flatten(1).float()

    def __tensor_flatten__(self):
        return ["bytes_"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        return cls(inner["bytes_"], size)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (aten.detach.default, aten.clone.default):
            return cls(func(args[0].bytes_), args[0].shape)
        args, kwargs = pytree.tree_map_only(cls, cls.unpack, (args, kwargs or {}))
        return func(*args, **kwargs)


class Rebinds(Slotted):
    """An in-place op puts a new tensor in place of the inner one."""

    __slots__ = ()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is aten.mul_.Tensor:
            args[0].body = args[0].body * args[1]
            return args[0]
        return super().__torch_dispatch__(func, types, args, kwargs)


class Draws(Slotted):
    """Adds noise to what it multiplies."""

    __slots__ = ()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is aten.mul.Tensor:
            product = args[0].body * args[1]
            return cls(product + torch.rand_like(product))
        return super().__torch_dispatch__(func, types, args, kwargs)
