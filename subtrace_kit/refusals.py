"""What the recorder refuses, and what it says: what, usual cause, way out."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from . import ops
from .errors import TraceError
from .intercept import flatten_tree, in_functorch, is_wrapper_type
from .protocol import rule_source
from .shown import a_kind
from .source import Source

if TYPE_CHECKING:
    from .store import Store

__all__ = ["branch_on_number", "of_function", "raw_storage", "returned_nothing"]


def of_function(func: Any, name: str, args: tuple, source: Source | None, store: Store) -> TraceError | None:
    """The refusal of a torch function that the program calls, or None.

    Args:
        func: The function.
        name: Its name.
        args: Its positional arguments.
        source: The user's line.
        store: Knows the tensors of the program.
    """
    texts: tuple[str, str, str] | None = None
    if name == "_register_hook":
        source = source or _hook_line(args[-1])
    if name in _SPECIAL:
        texts = _SPECIAL[name](func, args, store)
    if texts is None and in_functorch():
        texts = (
            "a functorch transform (vmap, grad, jvp, ...) inside the program",
            "inside a transform torch hands out stand-ins for the real tensors",
            "apply the transform outside the traced program, or write the loop out",
        )
    return None if texts is None else TraceError(texts[0], source=source, cause=texts[1], way_out=texts[2])


def _reader(func: Any, args: tuple, store: Store) -> tuple[str, str, str]:
    how = ops.LEAVES_TORCH[func.__name__]
    what = f"{how} takes the data of {a_kind(args[0])} out of torch"
    return what, "numbers computed outside torch would be frozen into the trace", "stay in torch ops"


def _branch(func: Any, args: tuple, store: Store) -> tuple[str, str, str]:
    return (
        f"a branch on the data of {a_kind(args[0])}",
        "an `if`, `while`, `and`, `not` or assert on a tensor: the trace holds only the side taken",
        "use torch.where, or take the decision outside the traced program",
    )


def _hook(func: Any, args: tuple, store: Store) -> tuple[str, str, str] | None:
    code = getattr(args[1], "__code__", None) if len(args) > 1 else None
    if code is not None and code.co_filename == torch.autograd.graph.__file__:
        return (
            "register_multi_grad_hook inside the program",
            "the hook asks for the autograd nodes of the recorded run",
            "register the hook outside the traced program, or use Tensor.register_hook on each tensor",
        )
    if not store.closes_over(args[1:]):
        return None
    return (
        "a hook that closes over a tensor of the program",
        "it would keep the tensor of the recorded run",
        "pass the tensor through ctx of an autograd.Function",
    )


def _node_hook(func: Any, args: tuple, store: Store) -> tuple[str, str, str] | None:
    """A hook of an autograd node. Those that a Function or a checkpoint registers inside are registered again."""
    if store.recorder.applies:
        return None
    if (module := _module_of_hook(args[-1])) is not None:
        return (
            f"a backward hook of {a_kind(module)} (register_full_backward_hook or one of its kin)",
            "torch hangs it on an autograd node of the recorded run: a trace would run without it",
            "remove it before tracing; put Tensor.register_hook on the module's inputs and outputs into the program",
        )
    return (
        "a hook of an autograd node (grad_fn.register_hook or register_prehook)",
        "it hangs on the node of the recorded run: a trace would run without it",
        "use Tensor.register_hook: it is called with the gradient of the tensor at each run",
    )


def _module_of_hook(hook: Any) -> torch.nn.Module | None:
    """The module that has put a hook on an autograd node; old hooks know it by a weak reference."""
    modules = [getattr(item, "module", None) for item in _behind(hook)]
    modules = [found() if isinstance(found, weakref.ref) else found for found in modules]
    return next((found for found in modules if isinstance(found, torch.nn.Module)), None)


def _behind(hook: Any) -> list[Any]:
    """A hook of a node, and what its closure holds: among it what torch knows of the hooks of a module."""
    return [hook, *(cell.cell_contents for cell in getattr(hook, "__closure__", None) or ())]


def _hook_line(hook: Any) -> Source | None:
    """Where the hook of a module is defined, for a module that no line of the user calls."""
    found = [f for item in _behind(hook) for name in _USER_HOOKS for f in getattr(item, name, ())]
    found += [getattr(hook, "hook", None)]
    code = next((f.__code__ for f in found if hasattr(f, "__code__")), None)
    return None if code is None else Source(code.co_filename, code.co_firstlineno, code.co_name)


_USER_HOOKS = ("user_hooks", "user_pre_hooks")


def _set(func: Any, args: tuple, store: Store) -> tuple[str, str, str] | None:
    if func.__self__.__name__ != "data" or not is_wrapper_type(type(args[0])):
        return None
    return (
        f"assigning .data of {a_kind(args[0])} cannot be traced",
        "it replaces the outer shell and leaves the inner tensors as they were",
        "write into the tensor with copy_",
    )


def _dual(func: Any, args: tuple, store: Store) -> tuple[str, str, str] | None:
    if in_functorch():  # jvp makes dual tensors too
        return None
    return (
        "forward-mode derivatives (torch.autograd.forward_ad) inside the program",
        "a dual tensor belongs to the dual_level() of the recorded run, which is gone at the next one",
        "enter dual_level() and make the dual tensors outside, and call the trace on them; or use a backward",
    )


_SPECIAL: dict[str, Any] = {
    **dict.fromkeys(ops.LEAVES_TORCH, _reader),
    **dict.fromkeys(ops.BRANCHES, _branch),
    **dict.fromkeys(ops.HOOKS, _hook),
    **dict.fromkeys(ops.DUAL, _dual),
    "_register_hook": _node_hook,
    "__set__": _set,
}


def branch_on_number(source: Source | None) -> TraceError:
    """The error for a comparison or truth test of a number taken out of a tensor."""
    return TraceError(
        "a branch on a number that was taken out of a tensor",
        source=source,
        cause="an `if`, comparison or conversion of .item(): the trace holds only the side taken",
        way_out="use torch.where on the tensor, or take the decision outside the traced program",
    )


def unknown_origin(tensor: torch.Tensor, source: Source | None) -> TraceError:
    """The error for a tensor that the recorder has not seen and that no variable holds."""
    return TraceError(
        f"{a_kind(tensor)} of shape {list(tensor.shape)} of unknown origin",
        source=source,
        cause="it was made where nothing is recorded (torch.Tensor([...]), another thread, C++, `._base`),"
        " or kept where nobody looks",
        way_out="make it by a function (torch.tensor), pass it as an argument, or keep it in a variable or attribute",
    )


def moved_wrapper(source: Source | None) -> TraceError:
    """The error for set_ on a wrapper."""
    return TraceError(
        "set_() on a wrapper tensor",
        source=source,
        cause="it moves the outer shell to other memory, which it does not have, and cannot be taken back",
        way_out="write into the tensor with copy_, or build a new one",
    )


def raw_storage(source: Source | None) -> TraceError:
    """The error for a tensor made from raw storage."""
    return TraceError(
        "a tensor is made from raw storage, as torch.load and pickle do",
        source=source,
        cause="data that went out of torch and came back: a trace would freeze the values of the recorded run",
        way_out="load outside the traced program and pass the tensor in; copy tensors with clone()",
    )


def returned_nothing(func: Any, args: tuple, kwargs: dict, source: Source | None) -> TraceError:
    """The error for a handler that fell off its end."""
    cls = next(type(a) for a in flatten_tree((args, kwargs))[0] if is_wrapper_type(type(a)))
    return TraceError(
        f"{cls.__name__}.__torch_dispatch__ returned None for {func} (expected a tensor)",
        source=source,
        handler=rule_source(cls, "__torch_dispatch__"),
        cause="the handler falls off its end for ops that it does not know",
        way_out=f"add a rule for {func}, or raise NotImplementedError at the end",
    )


def sparse_write(tensor: torch.Tensor, source: Source | None) -> TraceError:
    """The error for a write into a tensor whose data cannot be given back."""
    return TraceError(
        f"the program writes into a tensor from outside whose layout is {tensor.layout}",
        source=source,
        cause="the memory of sparse tensors is not remembered while a program is recorded",
        way_out="write into a clone() of it",
    )


def changed_default(source: Source | None) -> TraceError:
    """The error for ops under another default dtype than at the start."""
    return TraceError(
        "the program changes the default dtype",
        source=source,
        cause="torch.set_default_dtype inside the program: a trace would make tensors of the dtype at its start",
        way_out="pass dtype= to the functions that make tensors, or set the default before tracing",
    )


def checkpoint_closure(source: Source | None) -> TraceError:
    """The error for a checkpointed function that closes over a tensor of the program."""
    return TraceError(
        "checkpoint() of a function that closes over a tensor of the program",
        source=source,
        cause="the function is called again at each run and in its backward: it would find the recorded tensor",
        way_out="pass the tensor to checkpoint() as an argument",
    )


def removed_hook(source: Source | None) -> TraceError:
    """The error for a hook that the program takes away again."""
    return TraceError(
        "the program removes a hook from a tensor",
        source=source,
        cause="handle.remove(): a trace registers the hook at each run, and does not know the handle",
        way_out="take the remove() out and hook only tensors whose hook is to stay; or run that part outside the trace",
    )


def saved_hooks(source: Source | None) -> TraceError:
    """The error for ops under hooks that are called on what autograd saves."""
    return TraceError(
        "torch.autograd.graph.saved_tensors_hooks (or save_on_cpu) inside the program",
        source=source,
        cause="what the hooks do is no part of the ops: a trace would save without them",
        way_out="enter the hooks around the call of the trace, or use torch.utils.checkpoint",
    )


def mode_beside_functions(source: Source | None) -> TraceError:
    """The error for a mode of the program that changes an op which no torch function has sent."""
    return TraceError(
        "a dispatch mode of the program handles an op with a gradient that no torch function sends",
        source=source,
        cause="ops under torch._C.DisableTorchFunction(): the op that autograd follows is out of sight",
        way_out="leave DisableTorchFunction out around the mode, or call the op under torch.no_grad()",
    )


def unseen_apply(tensor: torch.Tensor, source: Source | None) -> TraceError:
    """The error for an autograd.Function whose call was not seen."""
    return TraceError(
        f"an autograd.Function ({type(tensor.grad_fn).__name__}) was applied out of sight",
        source=source,
        cause="its `apply` was taken hold of before the recording: `f = MyFunction.apply` at import",
        way_out="call MyFunction.apply(...) in the program",
    )


def set_generator(source: Source | None) -> TraceError:
    """The error for a random generator whose state the program sets by a method of the generator."""
    return TraceError(
        "the program sets the state of a torch.Generator",
        source=source,
        cause="generator.manual_seed(), seed() or set_state(): torch lets nobody see these calls",
        way_out="set the generator before each run, outside the traced program, or use torch.manual_seed",
    )


def from_outside(name: str, source: Source | None) -> TraceError:
    """The error for a tensor over memory that the program has made outside torch."""
    return TraceError(
        f"torch.{name} of an array that the program has made",
        source=source,
        cause="numbers computed outside torch would be frozen into the trace",
        way_out="make it before, and keep it in a variable that the program finds; or stay in torch ops",
    )


def unknown_generator(source: Source | None) -> TraceError:
    """The error for a random generator that was made inside the program."""
    return TraceError(
        "a torch.Generator that is neither an argument nor a variable from outside the program",
        source=source,
        cause="a generator made inside the program: a trace would go on with the one of the recorded run",
        way_out="pass the generator in, or use torch.manual_seed",
    )
