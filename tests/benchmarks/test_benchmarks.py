"""The long run's own pieces: tables, the file, and the parts of a call."""

import json

import pytest
import torch

from .__main__ import main
from .classes import Pair, Scaled
from .guards import GUARDED
from .parts import HOW, breakdown
from .tables import Figure, table
from .variants import expect_equal


@pytest.mark.parametrize("gradients", [False, True])
def test_the_parts_make_up_the_call(gradients):
    us = {figure.variant: figure.us for figure in breakdown(2, 1, gradients)}
    assert us.keys() <= HOW.keys()
    backward, *its = (us.pop(part, 0) for part in ("backward", "its check", "its run", "its engine"))
    assert sum(its) == pytest.approx(backward)
    assert sum(us.values()) - us["call"] == pytest.approx(us["call"])
    assert min(us[part] for part in ("guard", "unwrap", "run", "wrap", "frames")) > 0
    assert (backward != 0) is gradients


def test_the_script_prints_tables_and_writes_figures(tmp_path, capsys, monkeypatch):
    monkeypatch.delitem(GUARDED, "100 parameters")  # seconds for torch.compile
    path = tmp_path / "figures.json"
    assert main(["--n", "1", "--rounds", "1", "--scale", "3", "--train", "--json", str(path)]) == 0
    figures = [Figure(**figure) for figure in json.loads(path.read_text("utf-8"))["figures"]]
    assert {f.table for f in figures} == {"calls", "training", "first calls", "scale", "guards", "parts"}
    assert {f.subject for f in figures if f.table == "calls"} == {"Pair", "Scaled"}
    printed = capsys.readouterr().out
    assert all(variant in printed for variant in ("floor", "eager", "aot_eager", "jit", "torch.compile", "unwrap"))


def test_a_table_has_ratios_to_the_floor():
    found = [Figure("calls", "Pair", 1, "floor", 2.0), Figure("calls", "Pair", 1, "jit", 3.0)]
    assert table(found).splitlines()[-1].split() == ["Pair", "1", "2.0", "(", "1.00x)", "3.0", "(", "1.50x)"]


def test_another_result_than_eagers_is_not_timed():
    with pytest.raises(AssertionError, match="jit differs from eager"):
        expect_equal("jit", (torch.ones(2),), (torch.zeros(2),))


def test_the_classes_are_sound():
    x = Pair(torch.ones(2), torch.zeros(2)) * 3
    assert (x.a.tolist(), x.b.tolist()) == ([3, 3], [0, 0])
    y = -Scaled(torch.ones(2), torch.tensor(2.0)) * 3
    assert (y.data_.tolist(), y.scale_.item()) == ([-1, -1], 6)
