"""Picture: a graph of a trace, which shows itself in a notebook and saves itself as a file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import graphviz

from . import _dot
from .errors import TraceError
from .fold import outline
from .rows import View

__all__ = ["Picture", "bundle"]

PNG_RESOLUTION = ((40, 96), (100, 60))
"""Pairs (operations at most, dots per inch); larger pictures have no PNG."""


class Picture(graphviz.Digraph):
    """A graphviz graph of a trace that shows itself in a notebook, also in an untrusted one.

    Attributes:
        shown: The view that it draws.
    """

    shown: View = View("", "", (), (), (), ())

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **({"format": "svg"} | options))

    def copy(self) -> Picture:
        """A copy that can be changed."""
        twin: Picture = super().copy()
        twin.shown = self.shown
        return twin

    def render(self, filename: str | os.PathLike[str] | None = None, *args: Any, **options: Any) -> str:
        """Save the picture, and the DOT text that it is made of beside it.

        Args:
            filename: `trace.svg` or `trace.png` says the format too; `trace` becomes `trace.svg`.
            *args: As for `graphviz.Digraph.render`.
            **options: Likewise, for instance `format="png"`, `cleanup=True` to keep no DOT text.

        Returns:
            The path of the picture.

        Raises:
            TraceError: The layout engine does not make this format, or fails.
            OSError: There is no layout engine, or the file cannot be written.

        Example:
            >>> subtrace_kit.draw(t).render("trace.png")  # doctest: +SKIP
            'trace.png'
        """
        ending = Path(filename).suffix[1:] if filename is not None else ""
        if not args and ending in graphviz.FORMATS and options.get("format") in (None, ending):
            options["outfile"] = Path(options.pop("directory", None) or "", filename or "")
            filename = None
        try:
            saved: str = super().render(filename, *args, **options)
        except graphviz.CalledProcessError as error:
            raise TraceError(
                f"the layout engine does not make this picture: {_told(error)}",
                cause="the engine that comes with the install makes SVG and PNG",
                way_out='render("trace.svg") or render("trace.png"); for other formats a graphviz `dot` on your PATH',
            ) from error
        return saved

    def __repr__(self) -> str:
        size = self.shown.size
        return f"<Picture of {self.shown.name}: {size} operation{'s' * (size != 1)}>"

    def _repr_mimebundle_(
        self, include: Iterable[str] | None = None, exclude: Iterable[str] | None = None, **_: Any
    ) -> dict[str, Any]:
        made = bundle(self, outline(self.shown))
        wanted = set(made if include is None else include) - set(exclude or ())
        return {kind: data for kind, data in made.items() if kind in wanted}


def _told(error: graphviz.CalledProcessError) -> str:
    """What the engine said, in one line."""
    said = error.stderr or ""
    words = said.decode(errors="replace") if isinstance(said, bytes) else str(said)
    return (words.strip().splitlines() or ["it failed"])[-1]


def bundle(picture: Picture, text: str) -> dict[str, Any]:
    """Text and images; why there are none is the last line of the text."""
    if _dot.engine() is None:
        return {"text/plain": f"{text}\n# {_dot.advice()}"}
    try:
        return {"text/plain": text, **_images(picture)}
    except (OSError, subprocess.SubprocessError) as error:
        reason = str(error).splitlines() or ["the layout engine failed"]
        return {"text/plain": f"{text}\n# no picture: {reason[0]}"}


def _images(picture: Picture) -> dict[str, Any]:
    """SVG, and PNG of what is not too large, at a resolution that keeps notebooks small."""
    images: dict[str, Any] = {"image/svg+xml": _dot.render(picture.source, "svg").decode()}
    for most, dpi in PNG_RESOLUTION:
        if picture.shown.size <= most:
            images["image/png"] = _dot.render(picture.source, "png", f"-Gdpi={dpi}")
            break
    return images
