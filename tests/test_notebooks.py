"""The stored notebooks are whole: nbval passes a notebook whose outputs were stripped, so this test counts them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(p for p in FOLDER.glob("*.ipynb") if not p.stem.endswith("_exercises"))
COMPARED = re.compile(r"^\s*#\s*NBVAL_CHECK_OUTPUT\s*$", re.MULTILINE)
EMPTY_REPR = re.compile(r"<IPython\.core\.display\.\w+ object>")
MACHINE_PATH = re.compile(r"(?<![\w.])/(home|root|work|tmp|Users|var/folders)/")
LEAST_COMPARED = 5

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def _read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def _code(path: Path) -> list[Any]:
    return [cell for cell in _read(path).cells if cell.cell_type == "code" and cell.source.strip()]


def _text(cell: Any) -> str:
    """All that nbval compares as text: printed streams and text/plain results."""
    parts = [output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return EMPTY_REPR.sub("", "\n".join(parts)).strip()


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS, f"no notebook in {FOLDER.name}/"


@each_notebook
def test_enough_cells_are_compared(path: Path) -> None:
    marked = [cell for cell in _code(path) if COMPARED.search(cell.source)]
    hollow = [cell.source for cell in marked if not _text(cell)]
    assert not hollow, f"{path.name}: compared, but no text is stored; run the notebook and save it:\n{hollow[0]}"
    assert len(marked) >= LEAST_COMPARED, f"{path.name}: {len(marked)} cells with '# NBVAL_CHECK_OUTPUT'"


@each_notebook
def test_every_code_cell_was_run_in_order(path: Path) -> None:
    counts = [cell.execution_count for cell in _code(path)]
    assert counts == list(range(1, len(counts) + 1)), f"{path.name}: restart, run all, save"


@each_notebook
def test_an_error_is_stored_only_where_one_is_taught(path: Path) -> None:
    for cell in _code(path):
        if "raises-exception" not in cell.metadata.get("tags", []):
            errors = [output.ename for output in cell.outputs if output.output_type == "error"]
            assert not errors, f"{path.name}: {errors} stored for:\n{cell.source}"


@each_notebook
def test_metadata_is_the_same_on_every_machine(path: Path) -> None:
    notebook = _read(path)
    nbformat.validate(notebook)
    assert notebook.metadata.kernelspec.name == "python3"
    timed = [cell.source for cell in notebook.cells if "execution" in cell.metadata]
    assert not timed, f"{path.name}: execution times are stored; turn them off, or drop metadata.execution:\n{timed[0]}"


@each_notebook
def test_no_path_of_a_machine_is_stored(path: Path) -> None:
    for cell in _code(path):
        for output in cell.outputs:
            found = MACHINE_PATH.search(str(output.get("text", "")) + str(output.get("data", {}).get("text/plain", "")))
            assert not found, f"{path.name}: a path with {found and found[0]!r} is stored for:\n{cell.source}"
