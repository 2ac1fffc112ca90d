"""The generated check says yes only where the interpreted one does."""

import collections

import pytest
import torch
from kinds import Optional, Slotted
from torch.testing._internal.two_tensor import TwoTensor as TorchTwo

import subtrace_kit
from subtrace_kit import TraceError
from subtrace_kit.intercept import TELLS_APART, tensor_check
from subtrace_kit.quick_guard import quick_guard
from subtrace_kit.running import Runner
from subtrace_kit.zoo import QuantTensor, ScaleTensor, TwoTensor

Pair = collections.namedtuple("Pair", "left right")


def one(*shape):
    return torch.ones(shape)


def two(*shape):
    return TwoTensor(one(*shape), one(*shape))


SHARED = one(2, 3)
BASE = one(4, 3)

CALLS = {
    "plain": lambda: (one(2, 3), one(2, 3)),
    "other shape": lambda: (one(3, 3), one(2, 3)),
    "other strides": lambda: (one(3, 2).t(), one(2, 3)),
    "double": lambda: (one(2, 3).double(), one(2, 3)),
    "gradient": lambda: (one(2, 3).requires_grad_(), one(2, 3)),
    "parameter": lambda: (torch.nn.Parameter(one(2, 3)), one(2, 3)),
    "frozen parameter": lambda: (torch.nn.Parameter(one(2, 3), requires_grad=False), one(2, 3)),
    "one object": lambda: (SHARED, SHARED),
    "views of one memory": lambda: (BASE[:2], BASE[2:]),
    "offset": lambda: (BASE[1:3], one(2, 3)),
    "detached": lambda: (SHARED, SHARED.detach()),
    "complex": lambda: (one(2, 3).cfloat(), one(2, 3)),
    "conjugated": lambda: (one(2, 3).cfloat().conj(), one(2, 3)),
    "negated": lambda: (one(2, 3).cfloat().conj().imag.contiguous(), one(2, 3)),
    "negative bit": lambda: (torch._neg_view(one(2, 3)), one(2, 3)),
    "numbers": lambda: (one(2, 3), 2),
    "another number": lambda: (one(2, 3), 3),
    "a float for an int": lambda: (one(2, 3), 2.0),
    "a bool for an int": lambda: (one(2, 3), True),
    "not a number": lambda: (one(2, 3), float("nan")),
    "none": lambda: (one(2, 3), None),
    "text": lambda: (one(2, 3), "sum"),
    "dtype": lambda: (one(2, 3), torch.float32),
    "list": lambda: ([one(2, 3)], one(2, 3)),
    "tuple": lambda: ((one(2, 3),), one(2, 3)),
    "longer list": lambda: ([one(2, 3), one(2, 3)], one(2, 3)),
    "dict": lambda: ({"a": one(2, 3)}, one(2, 3)),
    "other key": lambda: ({"b": one(2, 3)}, one(2, 3)),
    "two keys": lambda: ({"a": one(2), "b": one(2)}, one(2)),
    "keys the other way round": lambda: ({"b": one(2), "a": one(2)}, one(2)),
    "named tuple": lambda: (Pair(one(2), one(2)), one(2)),
    "wrapper": lambda: (two(2, 3), one(2, 3)),
    "another class": lambda: (ScaleTensor(one(2, 3), torch.tensor(0.5)), one(2, 3)),
    "a class of the same name": lambda: (TorchTwo(one(2, 3), one(2, 3)), one(2, 3)),
    "wrapper with a gradient": lambda: (two(2, 3).requires_grad_(), one(2, 3)),
    "inner tensors are one": lambda: (TwoTensor(SHARED, SHARED), one(2, 3)),
    "inner tensor is the other": lambda: (TwoTensor(SHARED, one(2, 3)), SHARED),
    "nested": lambda: (TwoTensor(two(2, 3), two(2, 3)), one(2, 3)),
    "quantized": lambda: (QuantTensor.from_float(one(2, 3)), one(2, 3)),
    "quantized along an axis": lambda: (QuantTensor.from_float(one(2, 3), -1), one(2, 3)),
    "optional": lambda: (Optional(one(2, 3)), one(2, 3)),
    "optional there": lambda: (Optional(one(2, 3), one(2, 3)), one(2, 3)),
    "slots": lambda: (Slotted(one(2, 3)), one(2, 3)),
    "sparse": lambda: (one(2, 3).to_sparse(), one(2, 3)),
    "meta": lambda: (torch.ones(2, 3, device="meta"), one(2, 3)),
}
WEIGHT = torch.nn.Parameter(one(3))


def program(a, b):
    return torch.ones(2) * WEIGHT.sum()


def interpreted(runner, args):
    try:
        runner.check_slowly(args, {})
    except TraceError:
        return False
    return True


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("recorded", CALLS)
def test_it_says_yes_only_where_the_interpreted_check_does(recorded, mode):
    with mode():
        trace = subtrace_kit.trace(program)(*CALLS[recorded]())
        quick, runner = quick_guard(trace), Runner(trace)
        assert quick is None or quick(CALLS[recorded](), {}) is not None or recorded == "not a number"
        for name, make in CALLS.items():
            args = make()
            slow = interpreted(runner, args)
            assert slow or quick is None or quick(args, {}) is None, name
        assert quick is None or quick(CALLS[recorded](), {}) is not None or recorded == "not a number"


@pytest.mark.parametrize("name", ["plain", "dict", "wrapper", "nested", "quantized", "optional there", "one object"])
def test_common_kinds_have_a_quick_check(name):
    assert quick_guard(subtrace_kit.trace(program)(*CALLS[name]()))(CALLS[name](), {}) is not None


def test_global_state_is_part_of_it():
    args = (one(2), one(2))
    quick = quick_guard(subtrace_kit.trace(program)(*args))
    for state in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)):
        with state:
            assert quick(args, {}) is None
        with state:
            inside = quick_guard(subtrace_kit.trace(program)(*args))
            assert inside(args, {}) is not None
        assert inside(args, {}) is None


def test_captured_tensors_modules_and_constants_are_part_of_it():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3, eps=0.1))
    args = (one(2, 3),)
    quick = quick_guard(subtrace_kit.trace(net)(*args))
    assert quick(args, {})["_0_weight"] is net[0].weight

    def refused(change, undo):
        change()
        answer = quick(args, {})
        undo()
        assert quick(args, {}) is not None
        return answer is None

    kept, first = net[0].weight, net[0]
    assert refused(net.eval, net.train)
    assert refused(lambda: setattr(net[1], "eps", 0.2), lambda: setattr(net[1], "eps", 0.1))
    assert refused(net.double, net.float)
    assert refused(lambda: net[0].requires_grad_(False), lambda: net[0].requires_grad_(True))
    assert refused(lambda: net.__setitem__(0, torch.nn.Linear(3, 3)), lambda: net.__setitem__(0, first))
    assert refused(lambda: setattr(net[0], "weight", None), lambda: setattr(net[0], "weight", kept))
    handle = []
    assert refused(lambda: handle.append(net[0].register_forward_hook(lambda *_: None)), lambda: handle.pop().remove())
    net[0].weight = torch.nn.Parameter(one(3, 3) * 2)
    assert quick(args, {})["_0_weight"] is net[0].weight


def test_a_class_is_not_asked_through_its_function_handler():
    class Loud(TwoTensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    seen = []
    args = (Loud(one(2), one(2)), one(2))
    seen.clear()
    trace = subtrace_kit.trace(lambda a, b: b + 1)(*args)
    trace(*args)
    Runner(trace).check_slowly(args, {})
    assert seen == []


def test_a_function_mode_sees_nothing_of_the_check():
    class Reads(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **kwargs or {})

    seen = []
    args, longer = (two(2), one(2)), (two(3), one(3))
    fits = quick_guard(subtrace_kit.trace(lambda a, b: b + 1)(*args))
    broken = TwoTensor(one(2), one(2))
    del broken.b
    given = [args, longer, (broken, one(2)), args]
    outside = [fits(each, {}) is not None for each in given]
    with Reads():
        inside = [fits(each, {}) is not None for each in given]
        assert seen == []
        assert args[1].shape == (2,)
    assert outside == inside == [True, False, False, True]
    assert len(seen) == 1


def test_the_class_of_an_inner_tensor_that_a_handler_asks_for_is_part_of_it():
    class Asks(TwoTensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            by = 3 if isinstance(args[0].a, torch.nn.Parameter) else 2
            return cls(args[0].a * by, args[0].b * by)

    frozen = torch.nn.Parameter(one(2), requires_grad=False)
    plain, held = (Asks(one(2), one(2)),), (Asks(frozen, one(2)),)
    for recorded, other in ((plain, held), (held, plain)):
        fits = quick_guard(subtrace_kit.trace(lambda x: x * 2)(*recorded))
        for _ in range(3):
            assert fits(other, {}) is None
            assert fits(recorded, {}) is not None


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_the_check_by_one_call_says_what_the_checks_one_by_one_say(mode):
    frozen, wants = (torch.nn.Parameter(one(2), requires_grad=flag) for flag in (False, True))
    kinds = [one(2), one(2).requires_grad_(), frozen, wants, one(3), one(4)[::2], one(2).double(), two(2)]
    kinds += [torch._neg_view(one(2)), one(2).to(torch.complex64), one(2).to(torch.complex64).conj()]
    with mode():
        for recorded in kinds:
            fits = quick_guard(subtrace_kit.trace(lambda x: (x,))(recorded))
            wanted = [fits((given,), {}) for given in kinds]
            for _ in range(5):
                fits((recorded,), {})
            assert [fits((given,), {}) for given in kinds] == wanted
            assert fits((recorded,), {}) is not None


def test_torchs_own_check_tells_two_tensors_from_one():
    assert TELLS_APART
    assert not tensor_check((one(2), one(2)))(SHARED, SHARED)


def test_each_object_is_looked_at_once():
    args = (TwoTensor(SHARED, SHARED), SHARED)
    fits = quick_guard(subtrace_kit.trace(lambda a, b: b + 1)(*args))
    for _ in range(3):
        assert fits(args, {}) is not None
    assert fits((TwoTensor(SHARED, SHARED), SHARED.clone()), {}) is None
    assert fits((TwoTensor(SHARED, SHARED.clone()), SHARED), {}) is None
    apart = (two(2, 3), one(2, 3))
    fits = quick_guard(subtrace_kit.trace(lambda a, b: b + 1)(*apart))
    for _ in range(3):
        assert fits(apart, {}) is not None
    assert fits(args, {}) is None
