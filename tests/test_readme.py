"""The example of the README runs and prints what stands there."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_the_example_prints_what_the_readme_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    path = tmp_path / "example.py"
    path.write_text(example, "utf-8")
    runpy.run_path(str(path), run_name="__main__")
    printed = capsys.readouterr().out
    shown = re.findall(r"^```text\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert shown
    rest = iter(printed.splitlines())
    for line in "".join(shown).splitlines():
        assert line in rest, f"README.md shows, but the example does not print (here):\n{line}\n\nprinted:\n{printed}"
