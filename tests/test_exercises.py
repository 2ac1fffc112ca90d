"""The exercises of the notebooks: checks fail on what is to be solved, and pass on the folded solution."""

import copy
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from subtrace_kit import TraceError
from subtrace_kit.exercises import BEGIN, END, blank, blank_notebook, is_exercise, main

FOLDER = Path(__file__).parents[1] / "notebooks"
NOTEBOOKS = sorted(p for p in FOLDER.glob("*.ipynb") if not p.stem.endswith("_exercises"))
SOLUTION = re.compile(r"<summary>Solution</summary>\s*```python\n(.*?)```", re.DOTALL)
LEAST = 2


def read(path):
    return nbformat.read(path, as_version=4)


def exercises(notebook):
    """The places of the solved cells; the check stands in the next cell, the solution folded before."""
    return [i for i, c in enumerate(notebook.cells) if c.cell_type == "code" and is_exercise(c.source)]


def solution(notebook, index):
    return next(m for c in reversed(notebook.cells[:index]) if (m := SOLUTION.search(c.source)))[1].strip()


def test_functions_dicts_and_variables_are_blanked():
    source = 'class A:\n    n = 3\n    def f(self):\n        """Says what."""\n        return 1\nd = {"a": 1}\n'
    assert blank(source) == (
        'class A:\n    n = None\n\n    def f(self):\n        """Says what."""\n        ...\nd = {\'a\': None}'
    )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_there_are_exercises_and_the_cell_is_the_folded_solution(path):
    notebook = read(path)
    assert len(exercises(notebook)) >= LEAST
    for index in exercises(notebook):
        solved = notebook.cells[index].source.removeprefix(BEGIN).rstrip().removesuffix(END).strip()
        assert solved == solution(notebook, index)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_checks_fail_on_the_stub_and_pass_on_the_folded_solution(path):
    notebook = read(path)
    stubs = blank_notebook(copy.deepcopy(notebook))
    cells, checks = [], []
    for index, cell in enumerate(notebook.cells):
        cells.append(cell)
        if index in exercises(notebook):
            check = copy.deepcopy(notebook.cells[index + 1])
            check.metadata["tags"] = ["raises-exception"]
            cell.source, stub = solution(notebook, index), stubs.cells[index]
            cells[-1:] = [stub, check, cell]
            checks.append(check)
    notebook.cells = [c for c in cells if c.cell_type == "code"]
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    for check in checks:
        kinds = [output.output_type for output in check.outputs]
        assert "error" in kinds, f"passes on the stub:\n{check.source}"


def test_a_copy_with_exercises_is_written_once(tmp_path, capsys):
    path = tmp_path / "01.ipynb"
    path.write_text(NOTEBOOKS[0].read_text())
    main([str(path)])
    written = read(tmp_path / "01_exercises.ipynb")
    assert capsys.readouterr().out == f"{tmp_path / '01_exercises.ipynb'}\n"
    assert any("..." in written.cells[i].source for i in exercises(written))
    with pytest.raises(TraceError, match="is there already"):
        main([str(path)])
    with pytest.raises(TraceError, match="no notebook is given"):
        main([])
