"""Two outcomes side by side: what differs, and whether within the tolerance."""

from __future__ import annotations

from typing import Any

import torch

from .equality import same_metadata, same_sizes
from .guards import tensor_fields
from .intercept import flat_parts, is_wrapper_type, no_torch_function
from .outcome import FACTS, Facts, Outcome
from .report import CLOSE, DIFFERS, SAME, Check

__all__ = ["Comparison", "alike", "inside"]


class Comparison:
    """Two outcomes side by side.

    Args:
        found: That of the trace.
        wanted: That of eager.
        rtol: Relative tolerance for values.
        atol: Absolute tolerance for values.
    """

    def __init__(self, found: Outcome, wanted: Outcome, rtol: float = 0.0, atol: float = 0.0) -> None:
        self.found, self.wanted, self.rtol, self.atol = found, wanted, rtol, atol

    def errors(self, section: str) -> tuple[str, str]:
        """How a step failed, in the trace and in eager; empty where it did not."""
        found, wanted = (side[section]["backward"]["error"] for side in (self.found, self.wanted))
        return found, wanted

    def check(self, section: str, fact: str = "") -> Check:
        """One row: a whole section, or one fact of it."""
        found, wanted = self.found[section], self.wanted[section]
        differences = [
            difference
            for path in {**wanted, **found}
            for difference in (
                self.differences(path, found[path], wanted[path], fact)
                if path in found and path in wanted
                else self.only_once(section, path)
            )
        ]
        verdict = SAME if not differences else CLOSE if all(close for _, close in differences) else DIFFERS
        there = any((not fact or fact in seen) and seen.get("class") is not type(None) for seen in wanted.values())
        note = "" if there or differences else "there are none"
        return Check(FACTS.get(fact, section), verdict, tuple(text for text, _ in differences), note)

    def only_once(self, section: str, path: str) -> list[tuple[str, bool]]:
        """What only one side has: told by other rows, or a source of random numbers that was loaded meanwhile."""
        if section in ("results", "aliasing", "identity", "random state"):
            return []
        side, there = ("eager", self.wanted) if path in self.wanted[section] else ("the trace", self.found)
        facts = there[section][path]
        shown = facts["values"] if "values" in facts and "dtype" not in facts else next(iter(facts.values()))
        return [(f"{path}: only in {side}: {_show(shown)}", False)]

    def differences(self, path: str, found: Facts, wanted: Facts, only: str) -> list[tuple[str, bool]]:
        """How the facts of one path differ, and whether each difference is within the tolerance."""
        names = [name for name in wanted if name in found and only in ("", name)]
        several = not only and len(wanted) > 1
        texts = [(f"{name} " if several else "", *self.difference(name, found[name], wanted[name])) for name in names]
        return [(f"{path}: {what}{text}", close) for what, text, close in texts if text]

    def difference(self, name: str, found: Any, wanted: Any) -> tuple[str, bool]:
        """How a fact differs, empty where it does not, and whether that is within the tolerance."""
        if isinstance(found, torch.Tensor) and isinstance(wanted, torch.Tensor):
            return _apart(found, wanted, self.rtol, self.atol)
        if (name in ("shape", "stride") and same_sizes(found, wanted)) or alike(found, wanted):
            return "", True
        return f"{_show(found)} instead of {_show(wanted)}", False


def _apart(found: torch.Tensor, wanted: torch.Tensor, rtol: float, atol: float) -> tuple[str, bool]:
    """How values differ, zeros of another sign too, and whether that is within the tolerance."""
    if found.shape != wanted.shape:
        return "not compared, for the shapes differ", False
    one, other = _wide(found), _wide(wanted)
    equal = ((one == other) | ((one != one) & (other != other))) & _same_bits(found, wanted)
    if equal.all():
        return "", True
    gap = (one - other).abs().masked_fill(equal, 0)
    text = f"{int((~equal).sum())} of {equal.numel()} values differ, by {gap.max().item():g} at most"
    return text, bool(rtol or atol) and torch.allclose(one, other, rtol, atol, equal_nan=True)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    try:
        return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
    except RuntimeError:  # A dtype that torch can only store: its bits.
        return tensor.contiguous().view(torch.uint8).to(torch.float64)


def _same_bits(found: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor | bool:
    """Where values that are equal as wide floats are equal indeed: large integers, and zeros by their sign."""
    if found.dtype != wanted.dtype or found.is_complex():
        return True
    if found.dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        return (found != 0) | (found.signbit() == wanted.signbit())
    return True if found.is_floating_point() or found.dtype not in _WHOLE else found == wanted


_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


def alike(found: Any, wanted: Any, depth: int = 8) -> bool:
    """Equality of what a class keeps beside its tensors; objects without `==` are compared by attributes."""
    if found is wanted:
        return True
    if type(found) is not type(wanted) or not depth:
        return False
    if isinstance(found, torch.Tensor):
        return _alike_tensors(found, wanted, depth)
    if isinstance(found, dict):
        return found.keys() == wanted.keys() and all(alike(found[key], wanted[key], depth - 1) for key in found)
    if isinstance(found, (list, tuple)):
        return len(found) == len(wanted) and all(alike(*pair, depth - 1) for pair in zip(found, wanted, strict=True))
    if isinstance(found, (float, complex)) and found != found:
        return wanted != wanted
    return same_metadata(found, wanted) or _alike_objects(found, wanted, depth)


def _alike_objects(found: Any, wanted: Any, depth: int) -> bool:
    own = type(found).__eq__ is object.__eq__ and hasattr(found, "__dict__")
    return own and alike(vars(found), vars(wanted), depth - 1)


def _alike_tensors(found: Any, wanted: Any, depth: int) -> bool:
    """Equality of tensors of one class without asking the class, which may have no rule for it."""
    one, other = tensor_fields(found), tensor_fields(wanted)
    if any(one[k] != other[k] and not (k in ("shape", "stride") and same_sizes(one[k], other[k])) for k in one):
        return False
    if not is_wrapper_type(type(found)):
        with no_torch_function():
            return found.is_meta or not _apart(_dense(found.detach()), _dense(wanted.detach()), 0, 0)[0]
    return alike(inside(found), inside(wanted), depth - 1)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.layout is torch.strided else tensor.to_dense()


def inside(tensor: Any) -> tuple[dict[str, Any], Any]:
    """The inner tensors of a wrapper by name, and its metadata."""
    names, metadata = flat_parts(tensor)
    return {name: getattr(tensor, name) for name in names}, metadata


def _show(value: Any) -> str:
    text = value.__name__ if isinstance(value, type) else str(value).removeprefix("torch.")
    return text if len(text) <= 120 else f"{text[:117]}..."
