"""Constants that a program makes, attributes that it sets on wrappers, hooks that it registers."""

import dataclasses

import pytest
import torch
from compare import assert_same_as_eager
from torch.utils import _pytree as pytree

import subtrace_kit
from subtrace_kit.zoo import TwoTensor


class Shifts(TwoTensor):
    """Its handler of `neg` makes a constant."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.neg.default:
            return args[0].a * torch.tensor([2.0, 3.0, 4.0])
        return super().__torch_dispatch__(func, types, args, kwargs)


class Noted(TwoTensor):
    """It has a note of its own, and hands it on to results."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_dispatch__(func, types, args, kwargs)
        for given in pytree.tree_leaves(args):
            if isinstance(given, Noted) and isinstance(out, Noted) and "note" in vars(given):
                out.note = given.note
        return out


def plain(seed):
    torch.manual_seed(seed)
    return (torch.randn(3),)


def leaf(seed):
    return (plain(seed)[0].requires_grad_(),)


def wrapped(cls):
    return lambda seed: (cls(*plain(seed), *plain(seed + 10)),)


def times_constant(x):
    return x * torch.tensor([1.0, 2.0, 3.0])


def constant_written(x):
    total = torch.tensor([1.0, 2.0, 3.0])
    total.add_(x)
    return total, total * x


def constant_of_data(x):
    total = torch.tensor([0.5, 0.5, 0.5])
    total[1:] = x[1:]
    return total


def constant_put_in(x):
    y = x.clone()
    y[0] = torch.tensor(5.0)
    y[1] = 3
    return y


def two_constants(x):
    one, other = torch.tensor(2.0), torch.tensor(2.0)
    one.mul_(3)
    return x * one, x * other


@pytest.mark.parametrize(
    "program",
    [times_constant, constant_written, constant_of_data, constant_put_in, two_constants],
    ids=lambda f: f.__name__,
)
def test_constants_in_the_program(program):
    assert_same_as_eager(program, plain)


@pytest.mark.parametrize("program", [times_constant, constant_put_in, two_constants], ids=lambda f: f.__name__)
def test_constants_next_to_wrappers(program):
    assert_same_as_eager(program, wrapped(TwoTensor))


def test_a_constant_in_a_handler():
    assert_same_as_eager(lambda x: -x, wrapped(Shifts))


def test_a_constant_of_a_run_is_not_that_of_the_next():
    trace = subtrace_kit.trace(constant_written)(*plain(0))
    for form in (trace, subtrace_kit.lower(trace)):
        for seed in (1, 2, 3):
            assert torch.equal(form(*plain(seed))[0], torch.tensor([1.0, 2.0, 3.0]) + plain(seed)[0])


def sets_note(x):
    x.note = 3
    return x * 2


def note_on_result(x):
    y = x * 2
    y.note = "a"
    return y + 1


def note_changed_twice(x):
    y = x * 2
    y.note = 1
    z = y + 1
    y.note = 2
    return y, z, y + 1


def note_deleted(x):
    y = x * 2
    y.note = 1
    del y.note
    return y, y + 1


def hidden_tensor(x):
    y = x * 2
    y.hidden = x.a + 1
    return y, y.hidden * 2


def hidden_tensor_of_argument(x):
    x.hidden = x.a * 3
    return x.hidden + x.b


def list_as_note(x):
    y = x * 2
    y.note = [1]
    y.note.append(2)
    return y


def inner_replaced(x):
    x.a = x.b * 2
    return x + 1


@pytest.mark.parametrize("cls", [TwoTensor, Noted])
@pytest.mark.parametrize(
    "program",
    [sets_note, note_on_result, note_changed_twice, note_deleted, hidden_tensor, hidden_tensor_of_argument,
     list_as_note, inner_replaced],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_attributes_that_are_set_after_a_wrapper_was_built(program, cls):
    assert_same_as_eager(program, wrapped(cls))


def test_an_argument_has_its_attributes_again():
    (x,) = wrapped(TwoTensor)(0)
    before = dict(vars(x))
    subtrace_kit.trace(lambda x: (sets_note(x), hidden_tensor_of_argument(x), inner_replaced(x)))(x)
    assert vars(x).keys() == before.keys()
    assert all(vars(x)[name] is value for name, value in before.items())


def test_a_captured_wrapper_has_its_attributes_again():
    (held,) = wrapped(TwoTensor)(0)
    before = dict(vars(held))

    def program(x):
        held.a = held.a + x
        held.note = 3
        return (held * 2).a

    trace = subtrace_kit.trace(program)(*plain(1))
    assert vars(held).keys() == before.keys()
    assert all(vars(held)[name] is value for name, value in before.items())
    total = before["a"]
    for seed in (2, 3, 4):
        total = total + plain(seed)[0]
        assert torch.equal(trace(*plain(seed)), total * 2)
        assert torch.equal(held.a, total)
    assert held.note == 3


def hook_on_argument(x):
    handle = x.register_hook(lambda grad: grad * 3)
    y = (x * 2).sin()
    handle.remove()
    return y


def hook_on_result(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    return y.sin()


def hook_in_backward(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 3)
    y.sum().backward()
    found, x.grad = x.grad, None
    return found * 1


@pytest.mark.parametrize("program", [hook_on_result, hook_in_backward], ids=lambda f: f.__name__)
def test_hooks_of_tensors(program):
    trace = subtrace_kit.trace(program)(*leaf(0))
    for form in (program, trace, subtrace_kit.lower(trace)):
        (x,) = leaf(1)
        out = form(x)
        if out.requires_grad:
            out.sum().backward()
            assert torch.equal(x.grad, (x * 2).cos().detach() * 6)
        else:
            assert torch.equal(out, torch.full((3,), 6.0))


def test_a_hook_is_gone_after_tracing():
    (x,) = leaf(0)
    subtrace_kit.trace(hook_in_backward)(x)
    assert not x._backward_hooks
    subtrace_kit.trace(lambda x: (x.register_hook(lambda grad: grad * 3), x * 2)[1])(x)
    x.sum().backward()
    assert torch.equal(x.grad, torch.ones(3))


@dataclasses.dataclass(frozen=True, slots=True)
class Options:
    factor: float
    weight: object = None


def test_an_object_argument_in_slots_may_be_an_equal_one():
    trace = subtrace_kit.trace(lambda x, options: x * options.factor)(torch.ones(2), Options(3.0))
    assert trace(torch.ones(2), Options(3.0)).sum() == 6
    with pytest.raises(subtrace_kit.TraceError, match="argument options"):
        trace(torch.ones(2), Options(4.0))


class Alike:
    """Equal to all of its kind, whatever tensor it holds."""

    __slots__ = ("weight",)

    def __init__(self, weight):
        self.weight = weight

    def __eq__(self, other):
        return isinstance(other, Alike)


def test_an_equal_object_in_slots_with_another_tensor_is_another():
    trace = subtrace_kit.trace(lambda x, held: x * held.weight)(torch.ones(2), Alike(torch.ones(2)))
    with pytest.raises(subtrace_kit.TraceError, match="argument held"):
        trace(torch.ones(2), Alike(torch.zeros(2)))


class Private:
    """Equal to all of its kind; its tensor is in a slot with a private name."""

    __slots__ = ("__weight",)

    def __init__(self, weight):
        self.__weight = weight

    def __eq__(self, other):
        return isinstance(other, Private)

    def weight(self):
        return self.__weight


def test_private_slots_are_looked_at():
    trace = subtrace_kit.trace(lambda x, held: x * held.weight())(torch.ones(2), Private(torch.ones(2)))
    with pytest.raises(subtrace_kit.TraceError, match="argument held"):
        trace(torch.ones(2), Private(torch.zeros(2)))
