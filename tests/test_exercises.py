"""The exercises of the notebooks: checks pass on the folded solution, and say in words what is wrong with others."""

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

WRONG = {
    "01": [
        [
            ("            dtype=torch.float64,\n", ""),
            ("torch.float64", "data.dtype"),
            ("            device=data.device,\n", ""),
            ("        return outer", ""),
            ("        outer.stored = data\n", ""),
        ],
        [
            ("names, self.sign", "names, None"),
            (", metadata)", ", -1)"),
            ("        return Shifted", "        Shifted"),
            (' if self.shift is None else ["data_", "shift"]', ""),
        ],
    ],
    "02": [
        [
            ("        return func", "        func"),
            ("(*args, **(kwargs or {}))", "(*args)"),
            ("func is not aten.detach.default", "True"),
            (".overloadpacket", ""),
        ],
        [
            ("weight.a, bias", "weight.a"),
            ("cls(F", "Pair(F"),
            ("            return linear", "            linear"),
            ("return func(*args, **kwargs)", "return func(*args)"),
            ("if func is F.linear", "if False"),
        ],
    ],
    "03": [
        [
            ("owner = threading.get_ident()", "owner = threading.main_thread().ident"),
            (" == owner", ""),
            ("        super().__init__(seen_here)", ""),
        ],
        [
            ("shifted.exp(), shifted.sin()", '{"exp": shifted.exp(), "pair": pair, "shifted": shifted}'),
            ("    return", "    return pair,"),
            (" + 1", ""),
        ],
    ],
    "04": [
        [
            ("*shown.captures, ", ""),
            ("    return Counter(", "    return dict("),
            (
                "Counter((cls, symbol) for symbol, found in asked for cls in found if cls)",
                "Counter({(c, s) for s, f in asked for c in f if c})",
            ),
            ("{classes.get(name) for name in row.inputs}", "[classes.get(name) for name in row.inputs]"),
        ],
        [(" and not row.wrapper", ""), ('row.symbol.endswith("linear") and ', ""), ("return [", "[")],
        [
            (" aten.t.default", ""),
            ("return_and_correct_aliasing(func, (table, *args), {}, out)", "out"),
            ("func(table.q, *args), ", "func(table.q, *args).clone(), "),
            ("func(table.q, *args), ", "func(table.q, *args).contiguous(), "),
            ("type(table)", "Int8"),
            ("    return return_and", "    return_and"),
        ],
        [
            ("return moved if", "return moved_safely if"),
            ("moved if", "(lambda func, t, *a: type(t)(func(t.q, *a).contiguous(), t.scale)) if"),
            ("else on_values", "else super().rule(func)"),
            (" aten.t.default", ""),
        ],
    ],
    "05": [
        [('"fifth": "kept"', '"fifth": "elided"'), ('"fifth": "kept",', "")],
        [
            ("(torch.ones(3, 2, device=device), by_row)", "(torch.ones(4, 2, device=device), by_row)"),
            (".double(), QuantTensor.from_float(numbers.double())", ".double(), by_row"),
            (".t(), by_row", ".t()[:3], by_row"),
        ],
        [
            ("            products.clear()", "            pass"),
            ("    return dataclasses", "    dataclasses"),
            ("number = earlier * number", "number = earlier"),
        ],
    ],
    "06": [
        [('"w"): []', '"w"): ["mm.default"]'), ('("ScaleTensor", "w"): [],', '("ScaleTensor", "w"): None,')],
        [
            ("        return a + 2 * x * b", ""),
            ("x.clone()", "x"),
            ("from_two(grad) if", "(grad.a, grad.b) if"),
            ("a + 2 * x * b", "a + x * b"),
            ("        return TwoTensor", "        TwoTensor"),
        ],
        [
            ("sum(from_two(grad_x))", "grad_x"),
            ("x.t() @ grad", "(x.t() @ grad).a"),
            ("        return x @ w", ""),
            ("        return sum(from_two(grad_x)), x.t() @ grad", "        return None, None"),
        ],
    ],
    "07": [
        [
            ("        return return_and", "        return_and"),
            (
                "return_and_correct_aliasing(func, args, kwargs, cls.run(func, args, kwargs))",
                "cls.run(func, args, kwargs)",
            ),
            ("cls.run(func, args, kwargs)", "cls.run(func, args, {})"),
        ],
        [
            ("        args[0].inner.copy_(", "        args[0].inner = ("),
            ("        return args[0]", ""),
            ("return args[0]", "return Half(args[0].inner)"),
            (", **plain_kwargs", ""),
        ],
        [
            ('["inner", "shift"], self.gain', '["inner", "shift"]'),
            ('["inner", "shift"], self.gain', '["inner", "shift"], None'),
            ("metadata, inner", "3.0, inner"),
            (', inner["shift"])', ")"),
            ("        return cls", "        cls"),
        ],
        [
            ("torch.where(largest > 1, largest, 1)", "largest"),
            ("return b", "b"),
            ("largest > 1, largest, 1", "largest > 1, 1, 1"),
        ],
    ],
    "08": [
        [
            ("w.scale.detach() if w.scale.shape[dim] == 1 else ", ""),
            ("func(w.q, dim, *where)", "func(w.q, dim, *where).clone()"),
            ("    return return_and", "    return_and"),
            ("return_and_correct_aliasing(func, (w, dim, *where), {}, out)", "out"),
            ("func(w.scale, dim, *where)", "w.scale"),
        ],
        [
            ("torch.where(v / s > 464, v / 8, v / 16)", "v / 8"),
            ("torch.maximum(relative, s * 2**-10)", "relative"),
            (".flatten(-2)", ""),
            ("return torch", "torch"),
        ],
        [
            ("        return F.linear", "        F.linear"),
            ("        return grad_x, grad_w", "        return None, None"),
            ("MX.from_float(w.t())", "MX.from_float(w).dequantize().t().contiguous()"),
            ("MX.from_float(x), ", "x, "),
        ],
    ],
    "09": [
        [
            ("    raw = torch.neg(raw)\n", ""),
            ("torch.abs(raw)", "torch.abs(raw).clone()"),
            ("scale * 0.7", "scale"),
            ("    return raw, scale", "    raw, scale"),
            ("return raw, scale", "return raw * scale"),
        ],
        [
            ('"step"', '"rate"'),
            ("torch.tensor(rate * min(1.0, (step + 1) / 4), device=device)", "rate * min(1.0, (step + 1) / 4)"),
            ("(step + 1)", "step"),
            ("weight - grad", "weight + grad"),
            ("    return weight", "    weight"),
        ],
        [
            ("self.gain", "(self.gain, self.label)"),
            ("self.gain", "None"),
            ('        return ["raw"]', '        self.label\n        return ["raw"]'),
            ('["raw"], self.gain', '["raw", "gain"], None'),
            ('(inner["raw"], metadata)', '(inner["raw"], metadata["gain"])'),
            ("        return Quiet", "        return Labelled"),
        ],
        [
            ("    counted.update(bound.symbol.name for bound in part.bound_symbols)\n", ""),
            ("(bound.symbol.name for bound in part.bound_symbols)", "([part.name])"),
            ("    return subtrace_kit.to_fx(part)", "    subtrace_kit.to_fx(part)"),
            ("    return subtrace_kit.to_fx(part)", '    raise NotImplementedError("it only counts")'),
            (
                "    counted.update(bound.symbol.name for bound in part.bound_symbols)\n    return",
                "    run = subtrace_kit.to_fx(part)\n    names = [bound.symbol.name for bound in part.bound_symbols]\n"
                "    return lambda *tensors: counted.update(names) or run(*tensors)\n    return",
            ),
        ],
    ],
}
"""For each exercise: what is replaced in the solution by what, so that it is wrong."""


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


def attempts(notebook, index, number, name):
    """The solution made wrong, in each of the ways that stand for this exercise above."""
    right = solution(notebook, index)
    for old, new in WRONG[name[:2]][number]:
        assert old in right, f"{name}: {old!r} is not in the solution:\n{right}"
        yield right.replace(old, new)


def with_attempts(notebook, name):
    """The code cells of a notebook, each exercise tried in vain before it is solved; and the checks of those tries."""
    stubs, cells, checks, places = blank_notebook(copy.deepcopy(notebook)), [], [], exercises(notebook)
    for index, cell in enumerate(notebook.cells):
        if index in places:
            stub = stubs.cells[index].source
            for tried in (stub, *attempts(notebook, index, places.index(index), name)):
                check = nbformat.v4.new_code_cell(notebook.cells[index + 1].source)
                check.metadata["tags"] = ["raises-exception"]
                cells += [nbformat.v4.new_code_cell(tried), check]
                checks.append((tried, check))
            cell = nbformat.v4.new_code_cell(solution(notebook, index))
        cells.append(cell)
    return [cell for cell in cells if cell.cell_type == "code"], checks


def failure(check):
    """What the one error of a cell is, and what it says."""
    errors = [output for output in check.outputs if output.output_type == "error"]
    return (errors[0].ename, errors[0].evalue) if errors else ("no error", "")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_checks_fail_in_words_on_stubs_and_wrong_answers_and_pass_on_the_folded_solution(path):
    notebook = read(path)
    notebook.cells, checks = with_attempts(notebook, path.name)
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    passed = [(failure(check), tried) for tried, check in checks if failure(check)[0] != "AssertionError"]
    assert not passed, "no readable failure:\n" + "\n\n".join(f"{why}:\n{tried}" for why, tried in passed)
    assert all(failure(check)[1] for _, check in checks), "a check fails without a word"


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
