"""Source of the small functions that generated code calls. They need torch alone."""

from __future__ import annotations

__all__ = ["HELPERS"]

HELPERS = {
    "expect": '''
def expect(found, recorded):
    """A value that the recorded program depended on must be what it was."""
    same = type(found) is type(recorded) and (found == recorded or (found != found and recorded != recorded))
    if not same:
        raise RuntimeError(f"the data now give {found!r:.80}; the trace was recorded with {recorded!r:.80}")''',
    "restride": '''
def restride(wrapper, size, stride, offset):
    """Give the outer tensor of a wrapper another geometry, without asking its class."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        wrapper.as_strided_(size, stride, offset)''',
    "as_handler": '''
def as_handler():
    """Run ops as __torch_dispatch__ does: autograd, autocast and view tracking are off."""
    python = torch._C.DispatchKey.Python
    above = torch._C._dispatch_keyset_full() - torch._C._dispatch_keyset_full_after(python)
    return torch._C._ExcludeDispatchKeyGuard(above.remove(python))''',
    "replay": '''
class replay(torch.utils._python_dispatch.TorchDispatchMode):
    """Answer ops on wrappers with recorded steps, in order; anything else goes to the class."""

    def __init__(self, *steps):
        super().__init__()
        self.steps = list(steps)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        skip = (torch.ops.aten.detach.default, torch.ops.aten.alias.default)
        if any(issubclass(t, torch.Tensor) and hasattr(t, "__tensor_flatten__") for t in types):
            while self.steps and self.steps[0][0] is not func and self.steps[0][0] in skip:
                self.steps.pop(0)
            leaves = torch.utils._pytree.tree_leaves((args, kwargs))
            tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
            constants = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
            if self.steps and self.steps[0][0] is func and list(self.steps[0][2:]) == constants:
                if self.steps[0][1].__code__.co_argcount == len(tensors):
                    return self.steps.pop(0)[1](*tensors)
        return func(*args, **kwargs)''',
}
"""Helper name -> source."""

HELPERS = {name: source.strip() for name, source in HELPERS.items()}
