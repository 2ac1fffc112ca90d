"""What random programs are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from subtrace_kit.zoo import (
    ComplexTensor,
    QuantTensor,
    ScaleTensor,
    TwoTensor,
    from_complex,
    from_quant,
    from_scale,
    from_two,
    to_complex,
    to_quant,
    to_scale,
    to_two,
)


class Cube(torch.autograd.Function):
    """x ** 3 with a backward of its own; saves its input, whatever class it has."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * x * x * 3


class AddInto(torch.autograd.Function):
    """Adds into its first argument and says so."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.add_(y)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return grad, grad * 1


def hooked(x: torch.Tensor) -> torch.Tensor:
    """x * 2 with a hook on it that halves the gradient."""
    y = x * 2
    y.register_hook(lambda grad: grad / 2)
    return y


F = torch.nn.functional
linear = LINEAR = torch.nn.Linear(3, 3)
two_linear = TWO_LINEAR = torch.nn.Linear(3, 3)  # its parameters are wrappers
NAMES: dict[str, Any] = {
    "torch": torch, "F": F, "checkpoint": checkpoint, "Cube": Cube, "AddInto": AddInto,
    "ComplexTensor": ComplexTensor, "QuantTensor": QuantTensor, "ScaleTensor": ScaleTensor, "TwoTensor": TwoTensor,
    "from_complex": from_complex, "from_quant": from_quant, "from_scale": from_scale, "from_two": from_two,
    "hooked": hooked, "to_complex": to_complex, "to_quant": to_quant, "to_scale": to_scale, "to_two": to_two,
    "linear": LINEAR, "two_linear": TWO_LINEAR,
}  # fmt: skip
CAPTURED = ("weight", "table", "half")

# What a letter in a step stands for.
KINDS: dict[str, Callable[[Any], bool]] = {
    "a": lambda v: isinstance(v, torch.Tensor),
    "p": lambda v: type(v) in (torch.Tensor, torch.nn.Parameter) and v.is_floating_point(),
    "t": lambda v: isinstance(v, TwoTensor),
    "s": lambda v: isinstance(v, ScaleTensor),
    "k": lambda v: isinstance(v, QuantTensor),
    "z": lambda v: isinstance(v, ComplexTensor),
    "c": lambda v: type(v) is torch.Tensor and v.is_complex(),
    "g": lambda v: isinstance(v, torch.Tensor) and v.requires_grad,
    "l": lambda v: isinstance(v, torch.Tensor) and v.requires_grad and v.is_leaf,
    "m": lambda v: isinstance(v, torch.Tensor) and v.dim() == 2,
    "n": lambda v: isinstance(v, float),
    "h": lambda v: isinstance(v, ScaleTensor) and isinstance(v.raw, TwoTensor),
}
# A second letter of the same kind prefers the shape of the first.
ALIKE = {"b": "a", "q": "p", "u": "t", "v": "s", "y": "z"}

# Groups of steps: weight, then the steps. `=` marks one that gives no value.
STEPS: list[tuple[int, list[str]]] = [
    (14, ["{a} + {b}", "{a} - {b}", "{a} * {b}", "{a} * 2", "{a} * 0.5", "{a} + 1", "{a} / 2", "-{a}", "{a} - 1.5",
          "2 * {a}", "1 - {a}", "{a} / {b}.abs().add(1)", "{a} ** 2", "torch.add({a}, {b}, alpha=2)"]),
    (8, ["{a}.sin()", "{a}.relu()", "{a}.exp()", "{a}.abs()", "torch.tanh({a})", "{a}.sigmoid()", "F.gelu({a})",
         "F.softmax({a}, -1)", "torch.where({a} > 0, {a}, {b})", "{a}.clamp(-1, 1)", "F.silu({p})",
         "torch.where({p} > 0, {p}, {q})", "{p}.masked_fill({p} > 0, 0.5)", "{a}.sgn()", "{z}.conj()", "{z}.angle()"]),
    (12, ["{a}.t()", "{a}.view(-1)", "{a}.reshape(-1)", "{a}[0]", "{a}[:, 1]", "{a}[1:]", "{a}[:, ::2]", "{a}[None]",
          "{a}.unsqueeze(-1)", "{a}.squeeze()", "{a}.expand(2, *{a}.shape)", "{a}[0].expand_as({a})", "{a}.mT",
          "{a}.transpose(0, -1)", "{a}.permute(1, 0)", "{a}.diagonal()", "{a}.view_as({a})", "{a}.flatten()",
          "{a}.narrow(0, 0, 1)", "{a}.select(-1, 0)", "{z}.real", "{c}.real", "{z}.conj()",
          "{a}.as_strided((2,), (1,))", "{a}.view({a}.shape)", "{a}.movedim(0, -1)", "{a}.unfold(0, 2, 1)",
          "{a}[..., :1]"]),
    (6, ["{a}.clone()", "{a}.contiguous()", "{a}.detach()", "{a}.detach()", "{a}.clone().requires_grad_()",
         "{a}.detach().requires_grad_()", "{a}.to(torch.float64)", "{a}.to({b}.dtype)", "torch.zeros_like({a})",
         "{a}.new_ones(2)", "torch.ones_like({a})", "{p}.half().float()", "{a}.float()", "torch.full_like({a}, 2)"]),
    (7, ["{m} @ {m}", "{m} @ {m}.t()", "torch.mm({m}.t(), {m})", "F.linear({m}, {m})", "torch.addmm({a}, {m}, {m})",
         "{m}.t() @ {m}", "torch.matmul({a}, {b})", "F.linear({p}, {k})", "{p} @ {k}.t()", "torch.outer({p}, {q})"]),
    (7, ["{a}.sum()", "{a}.mean()", "{a}.sum(0)", "{a}.sum(-1, keepdim=True)", "{a}.amax(0)", "{p}.std()", "{a}.prod()",
         "{a}.norm()", "{a}.cumsum(0)", "{a}.sum(0, keepdim=True) + {b}", "{a}.argmax()", "{a}.var(0)",
         "{a}.logsumexp(0)"]),
    (6, ["{a}.split(1)", "{a}.chunk(2)", "{a}.unbind(0)", "{a}.max(0)", "{a}.split([1, 1], -1)", "{a}.unbind(-1)",
         "{a}.sort(-1)", "{a}.topk(1)", "torch.var_mean({a})", "{a}.chunk(2, -1)", "torch.aminmax({p})",
         "{a}.min(-1)"]),
    (4, ["torch.cat([{a}, {b}])", "torch.stack([{a}, {b}])", "torch.cat([{a}, {a}], -1)", "torch.stack([{a}, {b}], -1)",
         "torch.cat([{a}[:1], {b}])", "torch.hstack([{a}, {b}])"]),
    (10, ["TwoTensor({p}, {q})", "TwoTensor({p}, {p}.clone())", "TwoTensor({p}, {p}.detach())", "TwoTensor({p}, {p})",
          "ScaleTensor({p}, half)", "ScaleTensor({p}, {p}.sum().detach().abs() + 1)", "ComplexTensor({p}, {q})",
          "QuantTensor.from_float({p})", "QuantTensor.from_float({p}, -1)", "TwoTensor({t}, {u})",
          "TwoTensor({s}, {v})", "ScaleTensor({t}, half)", "TwoTensor({z}, {y})", "TwoTensor({a}, {a}.clone())",
          "TwoTensor({p}.detach(), {q})", "ScaleTensor({p}, half.clone())", "ComplexTensor({p}, {p}.clone())",
          "TwoTensor({p}, {q}).requires_grad_()"]),
    (10, ["to_two({p}, {q})", "to_two({p}, {p})", "to_scale({p}, half)", "to_quant({p})", "to_quant({p}, -1)",
          "to_complex(torch.complex({p}, {q}))", "from_two({t})", "from_two({t})[0]", "from_scale({s})",
          "from_quant({k})", "from_complex({z})", "from_complex({z}).real", "to_scale({p}, {p}.detach().abs().mean())",
          "Cube.apply({a})", "Cube.apply({t})", "Cube.apply({p})", "from_two(to_two({p}, {q}))", "from_scale({h})"]),
    (7, ["{t}.a", "{t}.b", "{t}.a + {t}.b", "{s}.raw", "{s}.scale", "{k}.scale", "{z}.re", "{z}.im", "{k}.q",
         "{k}.dequantize()", "{s}.dequantize()", "{t}.a.detach()", "{h}.raw.a"]),
    (4, ["linear({p})", "F.linear({p}, weight)", "{a} * weight", "{a} + table", "table * 2", "linear({t})",
         "linear({p}).relu()", "two_linear({t})", "two_linear({t}).sin()", "two_linear.weight.t()",
          "two_linear({p})", "two_linear.weight * {a}", "table.a * 2", "{a} @ weight", "linear.weight * {a}",
          "weight.t()"]),
    (4, ["{p}.sum().item()", "{p}.mean().item() * 2", "{s}.sum().item()", "{a}.mean().item()"]),
    (4, ["{a} * {n}", "{a} + {n}", "torch.full_like({a}, {n})", "{a}.add({b}, alpha={n})", "{n} * {a}", "{a} - {n} / 3",
         "torch.tensor({n})", "{n} * 2 + 1", "torch.full((2, 3), {n})"]),
    (3, ["torch.rand(3)", "torch.randn_like({a})", "torch.rand(3, 3) * {a}", "F.dropout({a})", "F.dropout({p}, 0.5)",
         "{p}.bernoulli(0.5)", "{a} + torch.randn(())"]),
    (3, ["torch.tensor([1.0, 2.0, 3.0])", "torch.arange(3.0)", "torch.eye(3)", "torch.ones(3, 3)", "torch.tensor(2.0)",
         "torch.zeros(2, 3, requires_grad=True)", "{a} * torch.tensor(3.0)", "{a} + torch.ones(3)"]),
    (3, ["torch.autograd.grad({g}.sum(), {l}, retain_graph=True)[0]", "{l}.grad", "{l}.grad * 2",
         "torch.autograd.grad({g}, {l}, torch.ones_like({g}), retain_graph=True)[0]",
         "torch.autograd.grad({g}.sum(), {l}, create_graph=True)[0] * 2",
         "checkpoint(torch.sin, {a}, use_reentrant=False)",
         "checkpoint(lambda x: (x * 2).sin(), {a}, use_reentrant=False)"]),
    (3, ["={g}.sum().backward(retain_graph=True)", "={g}.backward(torch.ones_like({g}), retain_graph=True)",
         "={l}.register_hook(lambda g: g * 2)", "hooked({g})", "={g}.retain_grad()", "={l}.grad = None"]),
    (14, ["={a}.add_(1)", "={a}.mul_(2)", "={a}.copy_({b})", "={a}.add_({b})", "={a}[0].mul_(3)", "={a}.t().add_({b})",
          "={a}.zero_()", "={a}.sub_({b})", "={a}[:, 0] = 1", "={a}[0] = {b}[0]", "={a}.fill_(0.5)", "={t}.a.add_(1)",
          "={t}.b.mul_(2)", "={s}.raw.add_(1)", "={s}.scale.mul_(2)", "={z}.re.mul_(2)", "={a}.relu_()",
          "={p}.add_({p})", "={a}.view(-1).mul_(2)", "={a}.detach().mul_(2)", "={t}.copy_({p})", "={p}.copy_({k})",
          "={k}.copy_({p})", "={a}.add_({n})", "={a}.div_(2)", "={p}.uniform_()", "={a}.clamp_(-1, 1)",
          "={h}.raw.a.add_(1)", "={a}.unsqueeze_(0)", "={a}.t_()", "={a}.squeeze_()"]),
    (7, ["{a}.add_(1)", "{a}.mul_(2)", "{a}.copy_({b})", "{a}[0].add_(1)", "{a}.add_({b})", "AddInto.apply({a}, {b})",
         "AddInto.apply({a}.clone(), {b})", "{a}.clone().mul_(2)", "(x0).add_(1)", "{a}.detach_()", "{a}.relu_()",
         "F.relu({a}, inplace=True)", "{a}.requires_grad_()", "torch._foreach_add([{a}, {b}], 1)"]),
    (3, ["={t}.a = {t}.a * 2", "={t}.b = {t}.b.detach().clone()", "={s}.scale = {s}.scale * 2", "={t}.note = 3",
         "={t}.a = {t}.a.clone()", "=torch._foreach_mul_([{a}, {b}], 2)", "=torch._foreach_add_([{a}], [{b}])",
         "={z}.im = {z}.im.clone()"]),
]  # fmt: skip
BLOCKS = [
    (80, ""), (12, "torch.no_grad()"), (4, "torch.enable_grad()"), (2, "torch.inference_mode()"),
    (2, "torch.autocast('cpu', dtype=torch.bfloat16)"),
]  # fmt: skip
PLAIN = [
    (6, "torch.randn({n}, {m})"), (2, "torch.randn({m}, {n}).t()"), (1, "torch.randn({n} + 1, {m})[1:]"),
    (1, "torch.randn({n}, {m} * 2)[:, ::2]"), (1, "torch.randn({n}, 1).expand({n}, {m})"), (1, "torch.randn({m})"),
    (1, "torch.randn({n}, {m}, dtype=torch.float64)"), (1, "torch.randn(())"), (1, "torch.randn(2, {n}, {m})"),
    (1, "torch.randn({n}, {m}, requires_grad=True)"),
]  # fmt: skip
INPUTS = [
    (12, "{e}"), (8, "TwoTensor({e}, {e})"), (6, "ScaleTensor({e}, torch.rand(()) + 0.5)"),
    (4, "ComplexTensor({e}, {e})"), (4, "QuantTensor.from_float({e})"), (1, "QuantTensor.from_float({e}, -1)"),
    (2, "TwoTensor({e}, {e}.clone())"),
    (2, "TwoTensor(ScaleTensor({e}, torch.rand(()) + 0.5), ScaleTensor({e}, torch.rand(()) + 0.5))"),
    (2, "ScaleTensor(TwoTensor({e}, {e}), torch.rand(()) + 0.5)"), (1, "torch.complex({e}, {e})"),
    (1, "TwoTensor(TwoTensor({e}, {e}), TwoTensor({e}, {e}))"), (1, "TwoTensor({k}, {k})"),
    (1, "TwoTensor(ComplexTensor({e}, {e}), ComplexTensor({e}, {e}))"),
]  # fmt: skip
SHARED = [
    "{old}", "TwoTensor({old}, torch.randn({n}, {m}))", "TwoTensor({old}, {old})",
    "ScaleTensor({old}, torch.rand(()) + 0.5)", "{old}.detach()", "{old}[0]", "{old}.view(-1)",
    "TwoTensor({old}.a, {old}.b)", "ScaleTensor({old}.raw, {old}.scale)", "TwoTensor({old}, {old}.clone())",
    "{old} * 2", "{old}.a", "ScaleTensor({old}.a, torch.rand(()) + 0.5)",
]  # fmt: skip
RESULTS = [
    "{0}", "[{0}, {1}]", "({0}, {{'k': {1}}})", "{{'x': [{0}], 'y': ({1}, {2})}}", "({0}, {1}, {2}, {3})",
    "[{0}, None, 3]",
]  # fmt: skip


def is_wrapper(value: Any) -> bool:
    """Whether a value holds inner tensors."""
    return hasattr(value, "__tensor_flatten__")
