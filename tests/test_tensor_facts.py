"""What a program asks of a tensor besides its data is compared at each run."""

import pytest
import torch

import subtrace_kit
from subtrace_kit.zoo import TwoTensor as Pair


class Labelled(torch.Tensor):
    """A subclass without a dispatch of its own."""


def quantized(scale):
    return torch.quantize_per_tensor(torch.ones(1), scale, 0, torch.qint8)


def with_gradient(gradient):
    x = torch.ones(1, requires_grad=True)
    x.grad = gradient
    return x


def inference():
    with torch.inference_mode():
        return torch.ones(1)


ONE = torch.ones(1)


def one(requires_grad=True):
    return torch.ones(1, requires_grad=requires_grad)


def labelled():
    made = torch.ones(1)
    made.scale = 1
    return made


def either(question):
    return lambda x: x * 2 if question(x) else x * 3


QUESTIONS = {
    "class": (either(lambda x: isinstance(x, torch.nn.Parameter)), lambda: torch.nn.Parameter(ONE), one),
    "subclass": (lambda x: x + 1, lambda: torch.ones(1).as_subclass(Labelled), lambda: torch.ones(1)),
    "offset": (lambda x: x * x.storage_offset(), lambda: torch.arange(3.0)[1:2], lambda: torch.arange(3.0)[2:]),
    "storage": (lambda x: x * x.untyped_storage().nbytes(), lambda: torch.ones(1), lambda: torch.ones(4)[:1]),
    "view": (either(lambda x: x._is_view()), lambda: torch.ones(1), lambda: torch.ones(2)[:1]),
    "base": (either(lambda x: x._base is None), lambda: torch.ones(1), lambda: torch.ones(2)[:1]),
    "node": (either(lambda x: x.grad_fn is None), one, lambda: one() * 1),
    "inference": (either(lambda x: x.is_inference()), lambda: torch.ones(1), inference),
    "attributes": (either(lambda x: hasattr(x, "scale")), lambda: torch.ones(1), labelled),
    "quantizer": (lambda x: x.dequantize() + x.q_scale(), lambda: quantized(0.5), lambda: quantized(0.25)),
    "entries": (lambda x: x.to_dense() + x._nnz(), lambda: torch.eye(2).to_sparse(), torch.ones(2, 2).to_sparse),
    "gradient": (either(lambda x: x.grad is None), one, lambda: with_gradient(torch.ones(1))),
    "no gradient": (either(lambda x: x.grad is None), lambda: with_gradient(torch.ones(1)), one),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.parametrize(("program", "recorded", "other"), QUESTIONS.values(), ids=QUESTIONS)
def test_another_answer_is_refused_and_traced_anew_by_jit(program, recorded, other, lowered):
    t = subtrace_kit.trace(program)(recorded())
    t = subtrace_kit.lower(t) if lowered else t
    torch.testing.assert_close(t(recorded()), program(recorded()))
    with pytest.raises(subtrace_kit.TraceError):
        t(other())
    jitted = subtrace_kit.jit(program)
    for make in (recorded, other, recorded):
        torch.testing.assert_close(jitted(make()), program(make()))


def test_the_class_of_captured_tensors_is_compared():
    class Holder:
        weight = torch.ones(1).as_subclass(Labelled)

    t = subtrace_kit.trace(lambda x: x * Holder.weight)(torch.ones(1))
    assert type(t(torch.ones(1))) is Labelled
    Holder.weight = torch.ones(1)
    with pytest.raises(subtrace_kit.TraceError, match="class of Holder"):
        t(torch.ones(1))


def test_reclassed_tensors_and_parameters_made_inside():
    def program(x):
        weight = torch.nn.Parameter(x * 2)
        return weight * 2, x.as_subclass(Labelled) + 1, weight

    t = subtrace_kit.trace(program)(torch.ones(2))
    for f in (t, subtrace_kit.lower(t)):
        product, labelled, weight = f(torch.tensor([3.0, 4.0]))
        assert (product.tolist(), labelled.tolist()) == ([12.0, 16.0], [4.0, 5.0])
        assert (type(labelled), type(weight), weight.tolist()) == (Labelled, torch.nn.Parameter, [6.0, 8.0])
        assert (product.requires_grad, weight.is_leaf) == (True, True)


def test_a_parameter_replaced_inside():
    layer = torch.nn.Linear(1, 1, bias=False)

    def program(x):
        layer.weight = torch.nn.Parameter(layer.weight.detach() * 2)
        return layer(x)

    with torch.no_grad():
        layer.weight.fill_(1.0)
    t = subtrace_kit.trace(program)(torch.ones(1, 1))
    assert layer.weight.item() == 1.0
    assert [t(torch.ones(1, 1)).item() for _ in range(3)] == [2.0, 4.0, 8.0]
    assert layer.weight.item() == 8.0


def test_a_gradient_from_before_is_that_of_each_run():
    def program(x):
        x.grad.mul_(2)
        return x.grad + 1

    for make in (lambda v: torch.full((2,), v), lambda v: Pair(torch.full((2,), v), torch.full((2,), 2 * v))):
        first, other = make(1.0).requires_grad_(), make(1.0).requires_grad_()
        first.grad, other.grad = make(3.0), make(5.0)
        before, gradient = first.grad, str(first.grad)
        t = subtrace_kit.trace(program)(first)
        assert (first.grad is before, str(before)) == (True, gradient)
        expected = (
            str(make(11.0))
            if type(first) is torch.Tensor
            else str(Pair(torch.full((2,), 11.0), torch.full((2,), 21.0)))
        )
        assert str(t(other)) == expected
        other.grad = make(5.0)
        assert str(subtrace_kit.lower(t)(other)) == expected


def test_a_tensor_that_nobody_keeps_is_refused():
    def threaded(x):
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: x * 2).result() + 1

    for program in (threaded, lambda x: x * x._base.sum()):
        with pytest.raises(subtrace_kit.TraceError, match="unknown origin"):
            subtrace_kit.trace(program)(torch.ones(3)[1:])


def test_a_write_in_another_thread_is_refused():
    from concurrent.futures import ThreadPoolExecutor

    def program(x):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: x.mul_(2)).result()
        return x + 1

    with pytest.raises(subtrace_kit.TraceError, match="written out of sight"):
        subtrace_kit.trace(program)(torch.ones(3))
