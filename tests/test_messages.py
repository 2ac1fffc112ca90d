"""What a TraceError says: the true cause for each type of error, the line that failed, and a way out that works."""

import re

import classes
import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from unsound import Sized

import subtrace_kit
from subtrace_kit import TraceError
from subtrace_kit.zoo import TwoTensor


def two(*shape):
    return TwoTensor(torch.ones(shape), torch.ones(shape))


def grad(*shape):
    return torch.ones(shape, requires_grad=True)


def told(program, *args):
    """What trace() says of a program that fails."""
    with pytest.raises(TraceError) as caught:
        subtrace_kit.trace(program)(*args)
    return str(caught.value)


def cause(text):
    """The usual cause and the way out of a text."""
    return re.search(r"usual cause: (.*)\n  way out: (.*)", text).groups()


# ------------------------------------------------------------------------- a backward in the program


def twice(x):
    loss = (x * 2).sum()
    loss.backward()
    loss.backward()


def overwritten(x):
    y = x.exp()
    y.mul_(2).sum().backward()


@pytest.mark.parametrize(
    ("program", "args", "why"),
    [
        (twice, [grad(2)], "a backward twice through one graph"),
        (lambda x: (x * 2).backward(), [grad(2)], "more than one element"),
        (lambda x: (x * 2).sum().backward(), [torch.ones(2)], "nothing that the tensor was made of requires"),
        (overwritten, [grad(2)], "writes in place into a tensor that the backward needs"),
        (lambda x, y: torch.autograd.grad(x.sum(), [y]), [grad(2), grad(2)], "does not depend on"),
    ],
)
def test_a_backward_that_fails(program, args, why):
    assert why in cause(told(program, *args))[0]


class NoCos(classes.Base):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.cos.default:
            raise NotImplementedError("no")
        return super().__torch_dispatch__(func, types, args, kwargs)


def test_an_op_of_the_backward_that_the_class_lacks():
    def program(t):
        t.sin().sum().backward()

    why, way_out = cause(told(program, NoCos(torch.ones(2)).requires_grad_()))
    assert why == "NoCos has no rule for aten.cos.default, which the backward sends"
    assert way_out == "add a rule for aten.cos.default to NoCos"


def test_a_handler_that_declines_in_the_backward():
    class Declines(classes.Base):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            mine = func is not torch.ops.aten.cos.default
            return super().__torch_dispatch__(func, types, args, kwargs) if mine else NotImplemented

    trace = subtrace_kit.trace(lambda t: t.sin())(Declines(torch.ones(2)).requires_grad_())
    with pytest.raises(TraceError) as caught:
        subtrace_kit.backward(trace)
    assert caught.value.what.endswith("aten.cos.default fails: Declines.__torch_dispatch__ returned NotImplemented")


def test_the_line_of_a_hook_is_not_said_to_be_in_a_class():
    def program(x):
        y = x * 2
        y.register_hook(lambda g: g.nope)
        y.sum().backward()

    assert "  inside it at " in told(program, grad(2))


def test_a_module_of_torch_is_named():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(3, 3))
    assert "(aten.addmm.default), module 1: mat1 and mat2" in told(net, torch.ones(2, 2))


# ------------------------------------------------------------------------------------------ a class


class WrongName(classes.Base):
    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        return cls(inner["data"])


class WantsMetadata(classes.Base):
    @classmethod
    def __tensor_unflatten__(cls, inner, metadata, size, stride):
        return cls(inner["inner"], *metadata)


class NoPair(classes.Base):
    def __tensor_flatten__(self):
        return ["inner"]


def built(cls):
    return told(lambda x: cls(x * 2) + 1, torch.ones(2))


def test_unflatten_that_fails_shows_its_line():
    text = built(WrongName)
    assert 'return cls(inner["data"])' in text
    assert "in <lambda>: return told(lambda x: cls(x * 2) + 1" in text
    assert "gave the inner tensors ['inner'] and the metadata None" in cause(text)[0]
    assert "does not take what it is given" in cause(built(WantsMetadata))[0]


def test_a_wrong_signature_shows_the_def_line():
    text = built(classes.OldSignature)
    assert "OldSignature.__tensor_unflatten__: def __tensor_unflatten__(inner, metadata):" in text
    assert cause(text)[0].startswith("a signature other than")


def test_flatten_that_gives_no_pair():
    assert cause(built(NoPair))[0].startswith("it does not return a pair")


@pytest.mark.parametrize("program", [lambda t: t + 1, lambda t: torch.add(t, 1)])
def test_a_handler_that_declines(program):
    text = told(program, classes.Declines(torch.ones(2)))
    assert text.startswith("TypeError in torch")
    assert "Declines.__torch_dispatch__ returned NotImplemented" in text.splitlines()[0]
    assert "no class among the arguments has a rule for aten.add.Tensor" in cause(text)[0]
    assert "DispatchMode" not in text


class Again(classes.Base):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class AgainFunction(classes.Base):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_a_handler_that_comes_back_to_itself():
    assert "runs the op on the wrapper itself again" in cause(told(lambda t: t.sin(), Again(torch.ones(2))))[0]
    text = told(lambda t: t.sin(), AgainFunction(torch.ones(2)))
    assert cause(text)[0].startswith("__torch_function__ calls the function on the wrapper itself again")


class EntersItself(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        with self:
            return func(*args, **(kwargs or {}))


def test_a_mode_that_comes_back_to_itself():
    def program(x):
        with EntersItself():
            return x + 1

    assert cause(told(program, torch.ones(2)))[0].startswith("the __torch_dispatch__ of a mode runs ops with the mode")


def test_a_program_that_calls_itself():
    def program(x):
        return program(x)

    assert cause(told(program, torch.ones(2)))[0].startswith("program calls itself without end")


# ----------------------------------------------------------------------------------- types of errors


class Plain(classes.Base):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls(func(args[0].inner, args[1].scale))


class Table(classes.Base):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return {}[func](*args)


class HalfOfIt(classes.Base):
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls(func(args[0].inner, args[1].inner[:1]))


@pytest.mark.parametrize(
    ("program", "args", "why"),
    [
        (lambda x: x @ x, [torch.ones(2, 3)], "arguments whose shapes do not fit this op"),
        (lambda t: t @ t, [HalfOfIt(torch.ones(3, 3))], "inner tensors of other shapes than the wrapper"),
        (lambda x: x @ x.double(), [torch.ones(2, 2)], "arguments of different dtypes"),
        (lambda x: x.t().view(-1), [torch.ones(2, 3)], "strides do not allow it"),
        (lambda x: x.add_(1), [grad(2)], "a write in place into a leaf"),
        (lambda t: t.scale, [two(2)], "'scale' is misspelt, or set only on some ways to build a TwoTensor"),
        (lambda t, x: t * x, [Plain(torch.ones(2)), torch.ones(2)], "asks a plain tensor for 'scale'"),
        (lambda x: None.shape, [torch.ones(2)], "or a NoneType stands where another was meant"),
        (lambda t: t.sin(), [Table(torch.ones(2))], "Table has no rule for aten.sin.default"),
        (lambda t: t.sin(), [classes.Raises(torch.ones(2))], "Raises has no rule for aten.sin.default"),
        (lambda x: torch.sin(x, 3), [torch.ones(2)], "another number of arguments"),
        (lambda x, y: x, [torch.ones(2)], "takes other arguments than trace(fn)(...) was given"),
        (lambda x: [][0], [torch.ones(2)], "the code at this line, or what it calls, raises it"),
    ],
)
def test_the_cause_is_that_of_the_type(program, args, why):
    assert why in cause(told(program, *args))[0]


def test_data_that_fake_tensors_do_not_have():
    with pytest.raises(TraceError, match="fake tensors have none") as caught:
        subtrace_kit.trace(lambda x: x[x > 0], fake=True)(torch.ones(2))
    assert cause(str(caught.value))[1] == "trace without fake=True"


# The first dual tensor makes torch script its rules.
scripts = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")


@scripts
def test_forward_mode_is_refused():
    def program(x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(forward_ad.make_dual(x, x).sin()).tangent

    assert told(program, torch.ones(2)).startswith("forward-mode derivatives (torch.autograd.forward_ad) inside")


@scripts
def test_the_way_out_of_forward_mode():
    trace = subtrace_kit.trace(lambda x: x.sin())(torch.zeros(2))
    with forward_ad.dual_level():
        out = trace(forward_ad.make_dual(torch.zeros(2), torch.ones(2)))
        assert forward_ad.unpack_dual(out).tangent.tolist() == [1, 1]


def test_swapped_tensors():
    text = told(lambda x, y: torch.utils.swap_tensors(x, y), torch.ones(2), torch.zeros(2))
    assert "takes no tensor that something refers to weakly" in cause(text)[0]


def test_a_lazy_module():
    net = torch.nn.LazyLinear(2)
    for program in (net, lambda x: net(x)):
        assert cause(told(program, torch.ones(1, 3)))[1].startswith("call the module once before tracing")
    net(torch.ones(1, 3))
    subtrace_kit.trace(net)(torch.ones(1, 3))


def test_a_branch_that_torch_keeps_for_later():
    def program(x):
        return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y - 3, (x,))

    text = told(program, torch.ones(2))
    assert "torch.cond cannot be recorded" in text
    assert "DispatchMode" not in text
    assert "torch.where" in cause(text)[1]


# ------------------------------------------------------------- arguments that answer for themselves


def test_a_class_that_fails_to_tell_its_device():
    class Speechless(Sized):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if func is torch.ops.prim.device.default:
                raise KeyError("device")
            return super().__torch_dispatch__(func, types, args, kwargs)

    with pytest.raises(TraceError) as caught:
        subtrace_kit.trace(lambda x: x * 2)(Speechless(torch.ones(2)))
    assert caught.value.what == "argument x, a Speechless, cannot be looked at: KeyError: 'device'"
    assert caught.value.handler.text == 'raise KeyError("device")'
    assert "see why x.shape, x.stride() or x.device fails" in str(caught.value)
    assert "aten.mul.Tensor(x, 2)" in str(subtrace_kit.trace(lambda x: x * 2)(Sized(torch.ones(2))))


def test_a_class_that_tells_its_device_on_fake_tensors():
    with pytest.raises(TraceError, match=r"argument x, a Sized, cannot be looked at: AssertionError"):
        subtrace_kit.trace(lambda x: x * 2, fake=True)(Sized(torch.ones(2)))
