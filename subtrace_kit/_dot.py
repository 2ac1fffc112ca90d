"""The layout engine: a `dot` program, found once, that turns DOT text into a picture."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from functools import cache
from pathlib import Path

import graphviz.backend.dot_command

__all__ = ["advice", "engine", "render"]

VARIABLE = "SUBTRACE_DOT"
TIMEOUT = 60.0
"""Seconds after which a layout is given up."""


@cache
def engine() -> Path | None:
    """The layout engine: $SUBTRACE_DOT, else `dot` on PATH, else the one of graphviz-pure.

    $SUBTRACE_DOT is a path, or the word `pure` for the engine that graphviz-pure installs, which
    gives the same picture on every platform. The graphviz package is told of the engine, so that
    `Digraph.render` and `Digraph.view` find it too.

    Returns:
        Its path, or None where there is none. An explicit choice is never replaced by another.

    Example:
        >>> engine()  # doctest: +SKIP
        PosixPath('/usr/bin/dot')
    """
    found = _find()
    if found is None:
        return None
    path = Path(found)
    graphviz.backend.dot_command.DOT_BINARY = path
    return path


def _find() -> str | None:
    chosen = os.environ.get(VARIABLE, "")
    if chosen == "pure":
        return _pure()
    return shutil.which(chosen) if chosen else shutil.which("dot") or _pure()


def _pure() -> str | None:
    return shutil.which("graphviz-pure", path=sysconfig.get_path("scripts"))


def advice() -> str:
    """One line that says how to get a layout engine."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen and chosen != "pure":
        return f"no picture: ${VARIABLE} is {chosen!r}, which is no program that can be run"
    return "no picture: no layout engine was found; `pip install graphviz-pure` brings one"


def render(source: str, format: str, *options: str) -> bytes:
    """A picture of DOT text.

    Args:
        source: DOT text.
        format: `svg`, `png`, or another format of the engine.
        *options: Further options of `dot`, for instance `-Gdpi=60`.

    Returns:
        The file's content.

    Raises:
        OSError: There is no engine, or it cannot be started.
        subprocess.SubprocessError: The engine refuses the text, or takes longer than `TIMEOUT`.

    Example:
        >>> render("digraph { a -> b }", "svg")[:5]
        b'<?xml'
    """
    if (program := engine()) is None:
        raise FileNotFoundError(advice())
    command = [str(program), "-Kdot", f"-T{format}", *options]
    done = subprocess.run(command, input=source.encode(), capture_output=True, timeout=TIMEOUT)
    if done.returncode:
        raise subprocess.SubprocessError(done.stderr.decode(errors="replace").strip())
    return done.stdout


engine()  # a Digraph that a user draws by hand finds the engine too
