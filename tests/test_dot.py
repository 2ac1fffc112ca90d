import os
import stat
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import graphviz
import graphviz.backend.dot_command as dot_command
import pytest

from subtrace_kit import _dot

PURE = Path(sysconfig.get_path("scripts")) / "graphviz-pure"
GRAPH = "digraph { a -> b }"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test looks for an engine anew, and leaves the graphviz package as it was."""
    monkeypatch.setattr(dot_command, "DOT_BINARY", dot_command.DOT_BINARY)
    monkeypatch.delenv(_dot.VARIABLE, raising=False)
    _dot.engine.cache_clear()
    yield
    _dot.engine.cache_clear()


def program(folder: Path, name: str, text: str = "#!/bin/sh\nexit 1\n") -> Path:
    path = folder / name
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_variable_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = program(tmp_path, "mine")
    program(tmp_path, "dot")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(_dot.VARIABLE, str(mine))
    assert _dot.engine() == mine


def test_dot_on_the_path_goes_before_the_pure_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _dot.engine() == PURE
    _dot.engine.cache_clear()
    dot = program(tmp_path, "dot")
    assert _dot.engine() == dot


def test_pure_is_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "dot")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(_dot.VARIABLE, "pure")
    assert _dot.engine() == PURE


def test_the_engine_is_looked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = _dot.engine()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(_dot.VARIABLE, "nothing")
    assert _dot.engine() == found


def test_a_wrong_choice_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_dot.VARIABLE, "/no/such/dot")
    assert _dot.engine() is None
    assert _dot.advice() == "no picture: $SUBTRACE_DOT is '/no/such/dot', which is no program that can be run"


def test_none_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    assert _dot.engine() is None
    assert "pip install graphviz-pure" in _dot.advice()
    with pytest.raises(FileNotFoundError, match="no layout engine"):
        _dot.render(GRAPH, "svg")


def test_the_graphviz_package_uses_the_same_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_dot.VARIABLE, "pure")
    _dot.engine()
    assert "<svg" in graphviz.Source(GRAPH).pipe(format="svg", encoding="utf-8")


def test_render(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_dot.VARIABLE, "pure")
    assert b"<svg" in _dot.render(GRAPH, "svg")
    small, large = (_dot.render(GRAPH, "png", f"-Gdpi={dpi}") for dpi in (40, 160))
    assert small.startswith(b"\x89PNG")
    assert len(small) < len(large)


def test_an_engine_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_dot.VARIABLE, "pure")
    with pytest.raises(subprocess.SubprocessError, match="syntax error"):
        _dot.render("digraph { a [", "svg")


@pytest.mark.skipif(os.name == "nt", reason="the stand-in is a shell script")
def test_an_engine_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_dot.VARIABLE, str(program(tmp_path, "slow", "#!/bin/sh\nexec sleep 30\n")))
    monkeypatch.setattr(_dot, "TIMEOUT", 0.2)
    with pytest.raises(subprocess.TimeoutExpired):
        _dot.render(GRAPH, "svg")
