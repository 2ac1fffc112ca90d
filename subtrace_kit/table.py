"""Reports as text and as a page: a title, and a row for each thing that was looked at."""

from __future__ import annotations

import html
from collections.abc import Sequence

__all__ = ["html_table", "text_table"]

Row = tuple[str, str, Sequence[str]]
"""Name, verdict, lines."""

_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"


def text_table(title: str, rows: Sequence[Row]) -> str:
    """The rows in columns.

    Example:
        >>> print(text_table("f", [("values", "same", []), ("strides", "differs", ["one", "two"])]))
        f
          values   same
          strides  differs  one
                            two
    """
    names, verdicts = (max((len(row[i]) for row in rows), default=0) for i in (0, 1))
    lines = [title]
    for name, verdict, texts in rows:
        first, *others = texts or [""]
        lines.append(f"  {name:{names}}  {verdict:{verdicts}}  {first}".rstrip())
        lines += [f"{'':{names + verdicts + 6}}{text}" for text in others]
    return "\n".join(lines)


def html_table(title: str, rows: Sequence[Row], colors: dict[str, str]) -> str:
    """The rows as a table of a page; a color for each verdict."""
    cells = "".join(
        f'<tr><td style="{_CELL}">{html.escape(name)}</td>'
        f'<td style="{_CELL};color:{colors[verdict]};white-space:nowrap"><b>{verdict}</b></td>'
        f'<td style="{_CELL};font-family:monospace">{"<br>".join(map(html.escape, texts))}</td></tr>'
        for name, verdict, texts in rows
    )
    caption = f'<caption style="{_CELL};font-weight:bold">{html.escape(title)}</caption>'
    return f'<table style="border-collapse:collapse">{caption}{cells}</table>'
