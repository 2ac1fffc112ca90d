"""Hooks that a trace cannot register again are refused, with the line that registers or needs them."""

import pytest
import torch
from torch.autograd.graph import register_multi_grad_hook, save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import subtrace_kit
from subtrace_kit import TraceError
from subtrace_kit.zoo import TwoTensor

EVERY_MODULE = torch.nn.modules.module
MODULE_HOOKS = ("register_full_backward_hook", "register_full_backward_pre_hook", "register_backward_hook")


def times_ten(*grads):
    return None if len(grads) == 3 else grads[-1] * 10


def removed(x):
    y = x * 2
    y.register_hook(times_ten).remove()
    return y


def removed_at_the_end_of_a_block(x):
    y = x * 2
    with y.register_hook(times_ten):
        y.sum().backward(retain_graph=True)
    return y


def removed_by_itself(x):
    handle = x.register_hook(lambda grad: handle.remove())
    (x * 2).sum().backward()
    return x * 3


def before_a_node(x):
    y = x * 2
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 10,))
    return y


def after_a_node(x):
    y = x * 2
    y.grad_fn.register_hook(lambda inputs, outputs: None)
    return y


def at_an_accumulation(x):
    y = x * 2
    y.grad_fn.next_functions[0][0].register_hook(lambda inputs, outputs: None)
    return y


def for_what_is_saved(x):
    with saved_tensors_hooks(torch.ones_like, lambda saved: saved):
        return x * x


def saved_elsewhere(x):
    with save_on_cpu():
        return x * x


def of_several(x):
    register_multi_grad_hook((x,), lambda grads: None)
    return x * 2


def of_any(x):
    register_multi_grad_hook((x,), lambda grad: None, mode="any")
    return x * 2


PROGRAMS = (
    removed, removed_at_the_end_of_a_block, removed_by_itself, before_a_node, after_a_node, at_an_accumulation,
    for_what_is_saved, saved_elsewhere, of_several, of_any,
)  # fmt: skip


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_hook_that_cannot_be_registered_again_is_refused(program, wrap):
    x = torch.ones(3)
    x = (TwoTensor(x, x) if wrap else x).requires_grad_()
    with pytest.raises(TraceError, match="hook") as caught:
        subtrace_kit.trace(program)(x)
    assert caught.value.source.function in (program.__name__, "<lambda>")
    assert caught.value.way_out
    assert not x._backward_hooks
    assert "_register_hook" not in vars(torch.autograd.Function)


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())


def leaf():
    return torch.ones(1, 2, requires_grad=True)


@pytest.mark.filterwarnings("ignore:Using non-full backward hooks|Using a non-full backward hook:FutureWarning")
@pytest.mark.parametrize("kind", MODULE_HOOKS)
def test_a_module_with_a_backward_hook_is_refused(kind):
    module = net()
    getattr(module[0], kind)(times_ten)
    calls = {
        "times_ten": (module, leaf()),
        "<lambda>": (lambda x: module(x) * 2, leaf()),
        "among_arguments": (among_arguments, module, leaf()),
    }
    for function, (program, *args) in calls.items():
        with pytest.raises(TraceError, match="a backward hook of a Linear") as caught:
            subtrace_kit.trace(program)(*args)
        assert caught.value.source.function == function
    with torch.no_grad():  # no backward, no hook
        assert torch.equal(subtrace_kit.trace(module)(leaf())(leaf()), module(leaf()))


def among_arguments(module, x):
    return module(x)


@pytest.mark.parametrize("kind", ["register_module_full_backward_hook", "register_module_full_backward_pre_hook"])
def test_a_backward_hook_of_all_modules(kind):
    trace = subtrace_kit.trace(net())(leaf())
    made_inside = subtrace_kit.trace(lambda x: torch.nn.ReLU()(x * 2))(leaf())
    handle = getattr(EVERY_MODULE, kind)(times_ten)
    try:
        for form in (trace, made_inside, subtrace_kit.lower(made_inside)):
            with pytest.raises(TraceError, match="hooks of all modules"):
                form(leaf())
        with pytest.raises(TraceError, match="a backward hook of a"):
            subtrace_kit.trace(net())(leaf())
    finally:
        handle.remove()
    trace(leaf())


@pytest.mark.parametrize("kind", MODULE_HOOKS[:2])
def test_a_backward_hook_that_is_added_between_runs_is_refused(kind):
    module = net()
    called = lambda x: module(x) * 2  # noqa: E731
    for program, *args in ((module, leaf()), (called, leaf()), (among_arguments, module, leaf())):
        trace = subtrace_kit.trace(program)(*args)
        for form in (trace, subtrace_kit.lower(trace)):
            handle = getattr(module[0], kind)(times_ten)
            with pytest.raises(TraceError, match="other hooks"):
                form(*args)
            handle.remove()
            form(*args)


def test_hooks_inside_a_checkpoint_are_registered_again():
    module = net()
    module[0].register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 10,))

    def program(x):
        return checkpoint(module, x, use_reentrant=False)

    trace = subtrace_kit.trace(program)(leaf())
    x = leaf()
    (wanted,) = torch.autograd.grad(program(x).sum(), x)
    for form in (trace, subtrace_kit.lower(trace)):
        (found,) = torch.autograd.grad(form(x).sum(), x)
        assert torch.equal(found, wanted)


def test_hooks_around_the_run_see_what_it_saves():
    kept = []
    trace = subtrace_kit.trace(lambda x: x * x)(leaf())
    for form in (trace, subtrace_kit.lower(trace)):
        with saved_tensors_hooks(kept.append, lambda saved: saved):
            form(leaf())
    assert len(kept) == 4
