"""Exercises of the notebooks: stored solved; this makes copies in which they are to be solved."""

from __future__ import annotations

import ast
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import TraceError

__all__ = ["BEGIN", "END", "blank", "blank_notebook", "is_exercise", "main"]

BEGIN, END = "# exercise\n", "# end of exercise"
"""The first and the last line of a cell that is an exercise."""


def is_exercise(source: str) -> bool:
    """Whether the code of a cell is a solved exercise."""
    return source.startswith(BEGIN) and source.rstrip().endswith(END)


def blank(source: str) -> str:
    """What is left to solve of a solved exercise.

    Args:
        source: Python code. Functions lose their bodies, dicts their values, other variables their value.

    Returns:
        Code that compiles, and that no check of the exercise accepts.

    Example:
        >>> print(blank("def twice(x):\\n    return 2 * x"))
        def twice(x):
            ...
    """
    tree = _Blanked().visit(ast.parse(source))
    return ast.unparse(ast.fix_missing_locations(tree))


class _Blanked(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        described = node.body[:1] if ast.get_docstring(node) is not None else []
        node.body = [*described, ast.Expr(ast.Constant(...))]
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        missing = ast.Constant(None)
        if isinstance(node.value, ast.Dict):
            node.value.values = [missing for _ in node.value.values]
        else:
            node.value = missing
        return node


def blank_notebook(notebook: Any) -> Any:
    """Make the exercises of a notebook exercises again, in place.

    Args:
        notebook: A notebook as nbformat reads it.

    Returns:
        The same notebook; cells from the first exercise on have no outputs.
    """
    met = False
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        if is_exercise(cell.source):
            met, cell.source = True, f"{BEGIN}{blank(cell.source)}\n\n\n{END}"
        if met:
            cell.outputs, cell.execution_count = [], None
    return notebook


def main(paths: Sequence[str]) -> None:
    """Write copies of notebooks with their exercises to be solved, beside them: `NAME_exercises.ipynb`.

    Args:
        paths: Notebooks.

    Raises:
        TraceError: No notebook is given, or nbformat is missing.
    """
    if not paths:
        raise TraceError("no notebook is given", way_out="python -m subtrace_kit.exercises notebooks/01_*.ipynb")
    try:
        import nbformat
    except ImportError as error:
        raise TraceError("nbformat cannot be imported", way_out="pip install nbformat") from error
    for path in map(Path, paths):
        target = path.with_name(f"{path.stem}_exercises.ipynb")
        if target.exists():
            raise TraceError(f"{target} is there already", way_out="move it away, so that your solutions are kept")
        nbformat.write(blank_notebook(nbformat.read(path, as_version=4)), target)
        print(target)


if __name__ == "__main__":
    main(sys.argv[1:])
