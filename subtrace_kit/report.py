"""The report of verify: two outcomes side by side, one row for each thing that is compared."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Any

import torch

from .errors import TraceError
from .guards import same_metadata, same_sizes

__all__ = ["Check", "Comparison", "Report"]

Facts = dict[str, Any]
"""What is seen of one value, by the name of the fact."""

Outcome = dict[str, dict[str, Facts]]
"""What one run leaves: sections (results, arguments, ...), in each the facts by path."""

FACTS = {
    "values": "values", "class": "classes", "metadata": "metadata", "inner tensors": "inner tensors", "dtype": "dtype",
    "device": "device", "shape": "shape", "stride": "strides", "storage_offset": "storage offset",
    "requires_grad": "requires_grad", "is_leaf": "is_leaf", "lazy": "lazy bits",
}  # fmt: skip
"""The facts of a result that have a row of their own, and what it is called."""

SAME, CLOSE, DIFFERS, SKIPPED = "same", "close", "differs", "not compared"
_COLORS = {SAME: "#2e7d4f", CLOSE: "#b35900", DIFFERS: "#c62828", SKIPPED: "#5b6770"}
_SHOWN = 4
_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"


@dataclass(frozen=True)
class Check:
    """One thing that is compared.

    Args:
        name: What: `values`, `strides`, `gradients`, ...
        verdict: `same`, `close` (within the tolerance), `differs` or `not compared`.
        differences: A line for each difference: where, what the trace has, what eager has.
        note: What else is to be said, for instance why nothing was compared.
    """

    name: str
    verdict: str
    differences: tuple[str, ...] = ()
    note: str = ""

    @property
    def lines(self) -> list[str]:
        """The note and the first differences."""
        more = len(self.differences) - _SHOWN
        found = [*([self.note] if self.note else []), *self.differences[:_SHOWN]]
        return found + ([f"and {more} more"] if more > 0 else [])


@dataclass(frozen=True)
class Report:
    """Eager and a trace side by side. It prints one line a check; a notebook shows it as a table.

    Args:
        name: The program's name.
        rows: The checks.

    Example:
        >>> Report("f", (Check("values", "same"), Check("strides", "differs", ("out: (1,) instead of (2,)",))))
        f: 1 of 2 checks differ
          values   same
          strides  differs  out: (1,) instead of (2,)
    """

    name: str
    rows: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether no check differs."""
        return all(row.verdict != DIFFERS for row in self.rows)

    def row(self, name: str) -> Check:
        """The check of that name.

        Raises:
            KeyError: There is none.
        """
        return {row.name: row for row in self.rows}[name]

    def raise_if_wrong(self) -> None:
        """Raise the report as an error if a check differs.

        Raises:
            TraceError: A check differs; the error's text is that of the report.
        """
        if not self.ok:
            raise TraceError(str(self))

    @property
    def title(self) -> str:
        """The outcome in one line."""
        wrong, skipped = (sum(row.verdict == verdict for row in self.rows) for verdict in (DIFFERS, SKIPPED))
        left = f", {skipped} not compared" if skipped else ""
        outcome = f"{wrong} of {len(self.rows)} checks differ" if wrong else "eager and trace agree"
        return f"{self.name}: {outcome}{left}"

    def __str__(self) -> str:
        names, verdicts = (max((len(row[i]) for row in self._cells()), default=0) for i in (0, 1))
        lines = [self.title]
        for name, verdict, texts in self._cells():
            first, *others = texts or [""]
            lines.append(f"  {name:{names}}  {verdict:{verdicts}}  {first}".rstrip())
            lines += [f"{'':{names + verdicts + 6}}{text}" for text in others]
        return "\n".join(lines)

    __repr__ = __str__

    def _cells(self) -> list[tuple[str, str, list[str]]]:
        return [(row.name, row.verdict, row.lines) for row in self.rows]

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><td style="{_CELL}">{html.escape(name)}</td>'
            f'<td style="{_CELL};color:{_COLORS[verdict]}"><b>{verdict}</b></td>'
            f'<td style="{_CELL};font-family:monospace">{"<br>".join(map(html.escape, texts))}</td></tr>'
            for name, verdict, texts in self._cells()
        )
        title = f'<caption style="{_CELL};font-weight:bold">{html.escape(self.title)}</caption>'
        return f'<table style="border-collapse:collapse">{title}{rows}</table>'


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

    def check(self, section: str, fact: str = "") -> Check:
        """One row: a whole section, or one fact of it."""
        found, wanted = self.found[section], self.wanted[section]
        differences: list[tuple[str, bool]] = []
        for path in [*wanted, *(path for path in found if path not in wanted)]:
            if path in found and path in wanted:
                differences += self.differences(path, found[path], wanted[path], fact)
            elif section not in ("results", "aliasing", "identity"):  # Other paths: other classes, another structure.
                side, what = ("eager", wanted[path]) if path in wanted else ("the trace", found[path])
                differences.append((f"{path}: only in {side}: {_show(next(iter(what.values())))}", False))
        verdict = SAME if not differences else CLOSE if all(close for _, close in differences) else DIFFERS
        there = any((not fact or fact in seen) and seen.get("class") is not type(None) for seen in wanted.values())
        note = "" if there or differences else "there are none"
        return Check(FACTS.get(fact, section), verdict, tuple(text for text, _ in differences), note)

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
    if found.shape != wanted.shape:
        return "not compared, for the shapes differ", False
    one, other = _wide(found), _wide(wanted)
    equal = (one == other) | ((one != one) & (other != other))
    if equal.all() and (found.is_floating_point() or found.is_complex() or torch.equal(found, wanted)):
        return "", True
    gap = (one - other).abs().masked_fill(equal, 0)
    text = f"{int((~equal).sum())} of {equal.numel()} values differ, by {gap.max().item():g} at most"
    return text, bool(rtol or atol) and torch.allclose(one, other, rtol, atol, equal_nan=True)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    try:
        return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
    except RuntimeError:  # A dtype that torch can only store: its bits.
        return tensor.contiguous().view(torch.uint8).to(torch.float64)


def alike(found: Any, wanted: Any, depth: int = 8) -> bool:
    """Equality of what a class keeps beside its tensors; objects without `==` are compared by attributes."""
    if same_metadata(found, wanted):
        return True
    if type(found) is not type(wanted) or not depth:
        return False
    if isinstance(found, torch.Tensor):
        return same_metadata(torch.equal(found, wanted), True)
    if isinstance(found, dict):
        return found.keys() == wanted.keys() and all(alike(found[key], wanted[key], depth - 1) for key in found)
    if isinstance(found, (list, tuple)):
        return len(found) == len(wanted) and all(alike(*pair, depth - 1) for pair in zip(found, wanted, strict=True))
    if isinstance(found, (float, complex)):
        return found != found and wanted != wanted
    return (
        type(found).__eq__ is object.__eq__
        and hasattr(found, "__dict__")
        and alike(vars(found), vars(wanted), depth - 1)
    )


def _show(value: Any) -> str:
    text = value.__name__ if isinstance(value, type) else str(value).removeprefix("torch.")
    return text if len(text) <= 120 else f"{text[:117]}..."
