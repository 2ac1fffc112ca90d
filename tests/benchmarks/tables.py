"""Figures, and tables of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Figure", "listing", "table"]


@dataclass(frozen=True)
class Figure:
    """One measured time.

    Args:
        table: The table that it belongs to.
        subject: What was run.
        n: How many ops it has.
        variant: How it was run, or which part of it.
        us: Microseconds.
        how: How it was measured, where that is not the same for the whole table.
    """

    table: str
    subject: str
    n: int
    variant: str
    us: float
    how: str = ""


def table(figures: Iterable[Figure], base: str = "floor") -> str:
    """A line for each subject and size, a column for each variant; ratios to one of them, where it is there."""
    found = {(f.subject, f.n, f.variant): f.us for f in figures}
    columns = list(dict.fromkeys(variant for _, _, variant in found))
    head = f"{'ops':>23} " + "".join(f"{column:>20}" for column in columns)
    return "\n".join([head, *(_line(found, row, columns, base) for row in dict.fromkeys(k[:2] for k in found))])


def _line(found: dict[tuple[str, int, str], float], row: tuple[str, int], columns: list[str], base: str) -> str:
    least = found.get((*row, base))
    cells = (_cell(found.get((*row, column)), least) for column in columns)
    return f"{row[0]:17}{row[1] or '':6} {''.join(cells)}"


def _cell(us: float | None, base: float | None) -> str:
    if us is None:
        return f"{'':20}"
    return f"{us:20,.1f}" if base is None else f"{us:11,.1f} ({us / base:5.2f}x)".rjust(20)


def listing(figures: Iterable[Figure]) -> str:
    """A line for each part: its times in a column for each size, and how it is measured."""
    blocks: dict[str, list[Figure]] = {}
    for figure in figures:
        blocks.setdefault(figure.subject, []).append(figure)
    return "\n".join(_block(subject, found) for subject, found in blocks.items())


def _block(subject: str, figures: list[Figure]) -> str:
    us = {(f.variant, f.n): f.us for f in figures}
    sizes = list(dict.fromkeys(f.n for f in figures))
    lines = [f"{subject:17}" + "".join(f"{f'{n} ops':>18}" for n in sizes)]
    for part, how in {f.variant: f.how for f in figures}.items():
        cells = "".join(f"{us[part, n]:12,.2f} {us[part, n] / us['call', n]:5.0%}" for n in sizes)
        lines.append(f"{part:17}{cells}  {how}")
    return "\n".join(lines)
