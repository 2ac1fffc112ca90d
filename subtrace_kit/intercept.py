"""Watch torch while a program is recorded. All use of private torch API stands in this file.

Six things are watched, for the recording thread only:

- torch functions and methods, by a TorchFunctionMode;
- ATen overloads, by a TorchDispatchMode. On an op with a wrapper argument the mode enters itself
  again and calls the op a second time, and answers that inner call with NotImplemented. So it sees
  both the op on the wrapper and every op inside, and the choice of handler stays with torch;
- `torch.Tensor._make_wrapper_subclass`, to which all arguments are passed on untouched;
- `torch.autograd.Function.apply`, also where a program took hold of it before;
- `torch.utils.checkpoint.checkpoint`, however it was imported;
- `torch.manual_seed` and its kin, and the methods that take data out of torch (`.numpy()`, ...).
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch._C._dynamo.guards import TensorGuards
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    is_traceable_wrapper_subclass_type,
)
from torch.utils.checkpoint import checkpoint

from .symbols import Context

__all__ = [
    "CONSTRUCTOR_ARGUMENTS",
    "FakeTensor",
    "FakeTensorMode",
    "Listener",
    "OpOverload",
    "current_listener",
    "function_name",
    "global_context",
    "in_functorch",
    "is_wrapper_type",
    "lacks_protocol",
    "watch",
]

CONSTRUCTOR_ARGUMENTS = (
    "cls", "size", "strides", "storage_offset", "memory_format", "dtype", "layout", "device",
    "pin_memory", "requires_grad", "dispatch_sizes_strides_policy", "dispatch_device",
    "dispatch_layout", "_extra_dispatch_keys", "storage_size",
)  # fmt: skip
"""The 15 arguments of `_make_wrapper_subclass`, in order."""


IGNORED = frozenset({"memory_format", "pin_memory"})
"""Arguments that torch takes and does nothing with."""


def constructor_arguments(args: tuple, kwargs: dict) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arguments of a `_make_wrapper_subclass` call by name, and those that torch ignores or changes.

    Negative strides count as changed: torch makes them positive without a word.
    """
    given = {**dict(zip(CONSTRUCTOR_ARGUMENTS, args, strict=False)), **kwargs}
    ignored = [name for name in given if name in IGNORED and given[name]]
    strides = given.get("strides") or ()
    if any(isinstance(step, int) and step < 0 for step in strides):
        ignored.append("strides")
    return given, tuple(ignored)


class Listener(Protocol):
    """What a recorder answers to. Each call must run the operation and return its result."""

    def function(self, func: Any, args: tuple, kwargs: dict) -> Any: ...
    def dispatch(self, func: OpOverload, types: Any, args: tuple, kwargs: dict) -> Any: ...
    def constructed(self, obj: torch.Tensor, args: tuple, kwargs: dict) -> None: ...
    def apply(self, cls: type, call: Callable[..., Any], args: tuple, kwargs: dict) -> Any: ...
    def checkpoint(self, call: Callable[..., Any], args: tuple, kwargs: dict) -> Any: ...


class FunctionMode(TorchFunctionMode):
    """Hands every torch function to a listener."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self.listener = listener

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.listener.function(func, args, kwargs or {})


class DispatchMode(TorchDispatchMode):
    """Hands every ATen overload to a listener."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would wrap the method below in a slow layer that only torch.compile needs

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self.listener = listener

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.listener.dispatch(func, types, args, kwargs or {})


class Modes:
    """The two modes of one recording, and the way to run an op's handler with its ops seen."""

    def __init__(self, listener: Listener) -> None:
        self.functions, self.ops = FunctionMode(listener), DispatchMode(listener)

    def call_inside(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """Call `func` from within its own interception, with the dispatch mode entered again."""
        torch._C._push_on_torch_dispatch_stack(self.ops)
        try:
            return func(*args, **kwargs)
        finally:
            torch._C._pop_torch_dispatch_stack(None)


# ------------------------------------------------------------------ patches, process-wide but quiet


class _Local(threading.local):
    """What each thread has of its own; where it has set nothing, the class answers, which is quick."""

    listener: Listener | None = None


_local = _Local()
_lock = threading.Lock()
_watchers = 0
_make_wrapper = torch.Tensor._make_wrapper_subclass


def current_listener() -> Listener | None:
    """The recorder of this thread, or None."""
    return _local.listener


def _watched_make(*args: Any, **kwargs: Any) -> torch.Tensor:
    made = _make_wrapper(*args, **kwargs)
    if (listener := current_listener()) is not None:
        listener.constructed(made, args, kwargs)
    return made


class _Apply:
    """Function.apply, watched and given back.

    Up to torch 2.13 it is written in Python: its code object is replaced, so that a bound `apply` taken
    earlier is seen too. Later it is C++: the attribute is replaced, and an earlier bound `apply` is not
    seen; the recorder notices the autograd node that it makes.
    """

    def __init__(self) -> None:
        self.found: Any = vars(torch.autograd.Function)["apply"]
        function = getattr(self.found, "__func__", None)
        code: Any = getattr(function, "__code__", None)
        self.python: Any = function if code is not None and code.co_freevars == ("__class__",) else None
        if self.python is not None:
            self.code, parts = code, (self.python.__defaults__, self.python.__closure__)
            self.original = types.FunctionType(code, self.python.__globals__, "apply", *parts)

    def call(self, cls: type) -> Callable[..., Any]:
        """The unwatched `cls.apply`."""
        return types.MethodType(self.original, cls) if self.python else self.found.__get__(None, cls)

    def watch(self) -> None:
        """Put the stand-in in place."""
        if self.python:
            self.python.__code__ = vars(_Stand)["apply"].__func__.__code__
        else:
            torch.autograd.Function.apply = vars(_Stand)["apply"]  # type: ignore[method-assign]

    def give_back(self) -> None:
        """Put the original back."""
        if self.python:
            self.python.__code__ = self.code
        else:
            torch.autograd.Function.apply = self.found  # type: ignore[method-assign]


class _Stand:
    # Its code must have the same free variable, `__class__`, as the original, which calls super().
    @classmethod
    def apply(cls, *args, **kwargs):  # type: ignore[no-untyped-def]  # pragma: no cover
        __class__  # type: ignore[name-defined]  # noqa: B018
        from subtrace_kit.intercept import watched_apply

        return watched_apply(cls, args, kwargs)


_apply = _Apply()


def watched_apply(cls: type, args: tuple, kwargs: dict) -> Any:
    """Stands in for `Function.apply` while some thread records."""
    call, listener = _apply.call(cls), current_listener()
    return call(*args, **kwargs) if listener is None else listener.apply(cls, call, args, kwargs)


class _Checkpoint:
    """torch.utils.checkpoint.checkpoint, watched wherever a program took it from.

    It looks at each call for a form of itself that torch.compile leaves alone; the stand-in is that form.
    """

    name = "__dynamo_disable"

    def __init__(self) -> None:
        self.function: Any = checkpoint.__wrapped__  # type: ignore[attr-defined]
        self.found: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Stands in while some thread records."""
        listener = current_listener()
        call = self.function if listener is not None or self.found is None else self.found
        return call(*args, **kwargs) if listener is None else listener.checkpoint(call, args, kwargs)

    def watch(self) -> None:
        """Put the stand-in in place."""
        self.found = vars(self.function).get(self.name)
        setattr(self.function, self.name, self)

    def give_back(self) -> None:
        """Put back what was there."""
        if self.found is None:
            delattr(self.function, self.name)
        else:
            setattr(self.function, self.name, self.found)


_checkpoint = _Checkpoint()


class _Compiler:
    """torch.compile, which would compile the recorder with the program: while some thread records, all run as eager."""

    def __init__(self) -> None:
        self.stance: Any = None

    def watch(self) -> None:
        """Let compiled functions run as they are written. A program may load the compiler only later."""
        if self.stance is None and "torch._dynamo.eval_frame" in sys.modules:
            self.stance = torch.compiler.set_stance("force_eager")
            self.stance.__enter__()

    def give_back(self) -> None:
        """Let the compiler work again."""
        if self.stance is not None:
            self.stance.__exit__(None, None, None)
            self.stance = None


_compiler = _Compiler()


def hold_compiler() -> None:
    """Let functions run as they are written from here on, after a program has called torch.compile."""
    with _lock:
        _compiler.watch()


def made_by_function(tensor: torch.Tensor) -> bool:
    """Whether the autograd node behind a tensor is that of an autograd.Function."""
    return isinstance(tensor.grad_fn, torch.autograd.function.BackwardCFunction)


RANDOM_STATE = ("manual_seed", "seed", "get_rng_state", "set_rng_state")
"""Functions of torch.random that a function mode does not see; torch itself exports them too."""

DATA_READERS = ("numpy", "tolist", "__array__", "__dlpack__", "__reduce_ex__")
"""Methods that take data out of torch. Inside a handler no function mode would see them, pickling nowhere."""

RECLASSED = ("as_subclass", "_make_subclass")
"""Functions that give the data of a tensor another Python class, unseen by a function mode; Parameter uses one."""

FROM_OUTSIDE = ("from_numpy", "frombuffer")
"""Functions that make a tensor of memory that is not torch's."""

_PLACES = [
    *((space, name) for name in RANDOM_STATE for space in (torch, torch.random)),
    *((torch.Tensor, name) for name in (*DATA_READERS, *RECLASSED)),
    *((torch, name) for name in FROM_OUTSIDE),
    (builtins, "print"),
    (torch, "compile"),
    (torch.autograd.Function, "_register_hook"),  # what torch calls for a hook of an autograd node
]
_patched = [(space, name, getattr(space, name), name in vars(space)) for space, name in _PLACES]


def _watched(function: Any) -> Any:
    @functools.wraps(function)
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        listener = current_listener()
        return function(*args, **kwargs) if listener is None else listener.function(function, args, kwargs)

    return stand_in


def _install() -> None:
    global _watchers
    with _lock:
        _watchers += 1
        if _watchers == 1:
            for space, name, function, _ in _patched:
                stand_in = _watched(function)
                setattr(space, name, staticmethod(stand_in) if name == "_make_subclass" else stand_in)
            torch.Tensor._make_wrapper_subclass = staticmethod(_watched_make)  # type: ignore[method-assign,assignment]
            _apply.watch()
            _checkpoint.watch()
            _compiler.watch()


def _uninstall() -> None:
    global _watchers
    with _lock:
        _watchers -= 1
        if _watchers == 0:
            for space, name, function, own in _patched:
                setattr(space, name, function) if own else delattr(space, name)
            del torch.Tensor._make_wrapper_subclass
            _apply.give_back()
            _checkpoint.give_back()
            _compiler.give_back()


@contextlib.contextmanager
def watch(listener: Listener, modes: Modes) -> Iterator[None]:
    """Let `listener` see all that this thread does in torch; other threads run as ever.

    Args:
        listener: Answers to the four kinds of events.
        modes: The two modes of this recording.
    """
    _install()
    _local.listener = listener
    try:
        # A backward must not go to the threads of its devices: they have no listener.
        with torch.autograd.set_multithreading_enabled(False), modes.functions, modes.ops:
            yield
    finally:
        _local.listener = None
        _uninstall()


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """Run a block with no mode and no watching, as if nothing were recorded."""
    listener = current_listener()
    _local.listener = None
    try:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            yield
    finally:
        _local.listener = listener


# --------------------------------------------------------------------------------- questions to torch

no_torch_function = torch._C.DisableTorchFunction
"""Context manager: attribute reads of tensors go straight to C++, past every function mode."""

in_function_mode: Callable[[], bool] = torch._C._is_torch_function_mode_enabled
"""Whether a `TorchFunctionMode` would see attribute reads of tensors."""

_plain_dispatch = torch.Tensor.__torch_dispatch__
_type_is_wrapper: dict[type, bool] = {}


def is_wrapper_type(cls: type) -> bool:
    """Whether objects of this class are wrappers with the flatten protocol."""
    known = _type_is_wrapper.get(cls)
    if known is None:
        known = _type_is_wrapper[cls] = is_traceable_wrapper_subclass_type(cls) and cls is not FakeTensor
    return known


def handles_functions(cls: Any) -> bool:
    """Whether the class has a `__torch_function__` of its own."""
    return cls.__torch_function__ not in _no_function_handlers


def reads_directly(cls: Any) -> bool:
    """Whether attribute reads of its objects go straight to C++ where no function mode is entered."""
    return cls.__torch_function__ is torch._C._disabled_torch_function_impl


_no_function_handlers = (torch.Tensor.__torch_function__, torch._C._disabled_torch_function_impl)


def handles_ops(cls: Any) -> bool:
    """Whether the class has a `__torch_dispatch__` of its own."""
    return cls.__torch_dispatch__ is not _plain_dispatch


def lacks_protocol(cls: type) -> bool:
    """Whether the class has its own `__torch_dispatch__` but not both halves of the protocol."""
    if cls is FakeTensor or is_wrapper_type(cls) or not issubclass(cls, torch.Tensor):
        return False
    return handles_ops(cls)


def function_name(func: Any) -> str:
    """The dotted name of a torch function, or its own name where it has none in torch."""
    if isinstance(func, OpOverload):
        return str(func)
    own = getattr(func, "__name__", "")
    for prefix, space in _SPACES:  # torch.mm and torch.spmm are one function: its own name is the better
        if own and getattr(space, own, None) is func:
            return f"{prefix}.{own}"
    try:
        name = resolve_name(func)
    except (TypeError, ValueError):
        name = None
    if name is None:
        owner = getattr(func, "__self__", None)
        name = f"torch.Tensor.{owner.__name__}.{own}" if own in ("__get__", "__set__") and owner else own
    return name or repr(func)


_SPACES = (("torch", torch), ("torch.autograd", torch.autograd), ("torch._C", torch._C))


def global_context(base_modes: int) -> Context:
    """The global state now.

    Args:
        base_modes: How many dispatch modes there were when the recording began.
    """
    autocast: tuple = ()
    if torch._C._is_any_autocast_enabled():
        autocast = tuple(
            (kind, torch.get_autocast_dtype(kind), torch.is_autocast_cache_enabled())
            for kind in ("cpu", "cuda")
            if torch.is_autocast_enabled(kind)
        )
    modes: tuple = ()
    if torch._C._len_torch_dispatch_stack() > base_modes:
        modes = tuple(_get_current_dispatch_mode_stack()[base_modes:])
    return context_of(torch.is_grad_enabled(), torch.is_inference_mode_enabled(), autocast, modes)


_contexts: dict[tuple, Context] = {}


def context_of(grad: bool, inference: bool, autocast: tuple = (), modes: tuple = ()) -> Context:
    """A Context, shared where it can be: most ops of a program run under the same one."""
    if modes:
        return Context(grad, inference, autocast, modes)
    key = (grad, inference, autocast)
    if (context := _contexts.get(key)) is None:
        context = _contexts[key] = Context(*key)
    return context


def dispatch_depth() -> int:
    """How many dispatch modes are on."""
    return torch._C._len_torch_dispatch_stack()


def node_number(value: Any) -> int | None:
    """The running number of the autograd node that made a tensor, or None."""
    node = value.grad_fn if isinstance(value, torch.Tensor) else None
    return None if node is None else node._sequence_nr()


def current_node_number() -> int | None:
    """The running number of the autograd node whose backward runs, or None."""
    node = torch._C._current_autograd_node()
    return None if node is None else node._sequence_nr()


def hooks_of_saved_tensors() -> Any:
    """The pair of hooks that autograd calls on what it saves and takes out again, or None."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


class _Sent(Exception):
    """Ends a call at the first op that it sends."""


class _FirstOp(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.sent = (func, args, kwargs or {})
        raise _Sent


def sent_alone(function: Callable[..., Any], op: OpOverload, args: tuple, kwargs: dict) -> bool:
    """Whether a function of torch hands its arguments to an op as they are.

    Args:
        function: A function or method that is not written in Python.
        op: The op.
        args: Positional arguments of both; tensors among them need no data.
        kwargs: Keyword arguments of both.
    """
    mode = _FirstOp()
    try:
        with torch._C.DisableTorchFunction(), torch.no_grad(), mode:
            function(*args, **kwargs)
    except _Sent:
        func, *given = mode.sent
        return func is op and _very_same(given, [args, kwargs])
    except Exception:  # it does not take such arguments
        return False
    return False


def _very_same(found: Any, wanted: Any) -> bool:
    (found, spec), (wanted, other) = pytree.tree_flatten(found), pytree.tree_flatten(wanted)
    if spec != other:
        return False
    pairs = zip(found, wanted, strict=True)
    return all(a is b or (not isinstance(a, torch.Tensor) and type(a) is type(b) and a == b) for a, b in pairs)


def direct_call(op: OpOverload) -> Callable[..., Any]:
    """What an overload calls when it is called: the same, without a Python function between."""
    return op._op if type(op) is OpOverload and callable(getattr(op, "_op", None)) else op


def _above_handlers() -> Any:
    python = torch._C.DispatchKey.Python
    above = torch._C._dispatch_keyset_full() - torch._C._dispatch_keyset_full_after(python)
    return above.remove(python)


as_handler = functools.partial(torch._C._ExcludeDispatchKeyGuard, _above_handlers())
"""The helper of that name in generated code, which works out the keys at each call."""


def is_watched_otherwise() -> bool:
    """Whether someone else wants to see each op, or to run it in another way, on tensors that look plain.

    These are dispatch modes, the transforms of functorch, forward-mode derivatives, deterministic algorithms.
    """
    return bool(_modes() or _transforms() or forward_ad._current_level >= 0 or _deterministic())


# a call of jit asks three times: names of this module are the quickest to find
_modes = torch._C._len_torch_dispatch_stack
_transforms = torch._C._are_functorch_transforms_active
_deterministic = torch._C._get_deterministic_algorithms


def node_maker(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Its `apply`, less what that does for functorch, whose transforms must be off."""
    apply: Callable[..., Any] = super(torch.autograd.Function, function).apply  # type: ignore[misc]
    return apply


def in_functorch() -> bool:
    """Whether a functorch transform (vmap, grad, ...) is on."""
    return torch._C._are_functorch_transforms_active()


try:
    from torch._opaque_base import OpaqueBase
except ImportError:  # up to torch 2.12

    class OpaqueBase:  # type: ignore[no-redef]
        """Stands for a class that this torch does not have: nothing is one."""


class WithOpaque(NamedTuple):
    """Metadata of a wrapper that lists objects among its inner tensors, as DTensor does its mesh.

    Args:
        metadata: The class's own metadata.
        opaque: The objects that are no tensors, by attribute name.
    """

    metadata: Any
    opaque: tuple[tuple[str, Any], ...]


def flat_parts(wrapper: Any) -> tuple[list[str], Any]:
    """The attribute names of the inner tensors of a wrapper, and its metadata with all else that it lists.

    Raises:
        Exception: Whatever its `__tensor_flatten__` raises.
    """
    names, metadata = wrapper.__tensor_flatten__()
    others = [(n, v) for n in names if not isinstance(v := getattr(wrapper, n), torch.Tensor)]
    opaque = tuple((n, v) for n, v in others if isinstance(v, OpaqueBase))
    if not opaque:
        return names, metadata
    return [n for n in names if n not in dict(opaque)], WithOpaque(metadata, opaque)


def build_wrapper(cls: Any, inner: dict[str, Any], metadata: Any, size: Any, stride: Any) -> Any:
    """A wrapper of a class, from what `flat_parts` gives.

    Raises:
        Exception: Whatever its `__tensor_unflatten__` raises.
    """
    if isinstance(metadata, WithOpaque):
        inner, metadata = {**inner, **dict(metadata.opaque)}, metadata.metadata
    return cls.__tensor_unflatten__(inner, metadata, size, stride)


memory_of: Callable[[torch.Tensor], int] = torch._C._storage_id  # type: ignore[attr-defined]
"""A number for the memory that a tensor lies in: the same for all tensors in it."""


def tensor_check(tensors: tuple[torch.Tensor, ...]) -> Callable[..., bool] | None:
    """A quick check that other tensors are of the same kind, or None where this torch has none.

    Args:
        tensors: They tell class, dtype, device, shape, strides, requires_grad, layout, lazy bits.

    Returns:
        A function of as many tensors. It says no to some that are of the same kind, under another global state.
    """
    try:
        sizes: Any = [list(t.shape) for t in tensors]
        strides: Any = [list(t.stride()) for t in tensors]
        check = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check
        return check if check(*tensors) else None
    except Exception:
        return None


def _tells_apart() -> bool:
    one, two = (torch.empty(1, device="cpu") for _ in range(2))
    check = tensor_check((one, two))
    return check is not None and not check(one, one)


TELLS_APART = _tells_apart()
"""Whether a check of this torch says no where two of its tensors are one object."""


def storage_id(storage: torch.UntypedStorage) -> int:
    """The same number for a storage itself; another Python object may stand for the same storage."""
    return storage._cdata


def with_memory(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Arguments with zeros in place of tensors without memory, by which a backward stands for zeros.

    What keeps kernels away from these is off where a dispatch mode runs an op.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    if not any(isinstance(leaf, torch.Tensor) and leaf._is_zerotensor() for leaf in leaves):
        return args, kwargs
    return pytree.tree_unflatten([_zeros(leaf) for leaf in leaves], spec)


def _zeros(leaf: Any) -> Any:
    if not isinstance(leaf, torch.Tensor) or not leaf._is_zerotensor():
        return leaf
    with torch._C._DisableTorchDispatch():
        return torch.zeros(leaf.shape, dtype=leaf.dtype, device=leaf.device)


def is_view(tensor: torch.Tensor) -> bool:
    """Whether autograd knows a tensor as a view of another."""
    return tensor._is_view()


def base_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that a view is of, or the tensor itself."""
    return tensor if tensor._base is None else tensor._base


def set_version(tensor: torch.Tensor, version: int | None) -> None:
    """Give a tensor back its version counter, after its data were given back. Inference tensors have none."""
    if version is not None:
        torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


def is_custom_node(value: Any) -> bool:
    """Whether a value is a container that only pytree knows how to take apart."""
    kind = type(value)
    return kind not in (list, tuple, dict, torch.Size) and kind in pytree.SUPPORTED_NODES


def tree_children(spec: Any) -> list[Any]:
    """The structures of the parts of a pytree structure."""
    return spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs


any_autocast = torch._C._is_any_autocast_enabled
"""Whether autocast is on for some device."""

flatten_tree = pytree.tree_flatten
flatten_with_path = pytree.tree_flatten_with_path
unflatten_tree = pytree.tree_unflatten


def hooks_of_all_modules() -> tuple[Any, ...]:
    """The hooks that run at every module."""
    kinds = (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
    )
    return tuple(hook for kind in kinds for hook in getattr(torch.nn.modules.module, kind).values())
