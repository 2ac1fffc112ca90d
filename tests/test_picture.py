"""A picture as a file: its name says the format, SVG where it says none."""

import subprocess
from pathlib import Path

import pytest
from handmade import W, X, call, example, make, mul, plain

from subtrace_kit import TraceError, _dot
from subtrace_kit.draw import draw

pytestmark = pytest.mark.usefixtures("pure")


@pytest.mark.parametrize(
    ("name", "options", "saved", "begin"),
    [
        ("x", {}, "x.svg", b"<?xml"),
        ("x.svg", {}, "x.svg", b"<?xml"),
        ("x.png", {}, "x.png", b"\x89PNG"),
        ("x", {"format": "png"}, "x.png", b"\x89PNG"),
        ("x.png", {"format": "png"}, "x.png", b"\x89PNG"),
        ("v1.2", {}, "v1.2.svg", b"<?xml"),
    ],
)
def test_the_name_says_the_format(tmp_path, name, options, saved, begin):
    picture = draw(example())
    assert Path(picture.render(tmp_path / name, **options)) == tmp_path / saved
    assert (tmp_path / saved).read_bytes().startswith(begin)
    (tmp_path / saved).unlink()
    assert Path(picture.copy().render(name, directory=tmp_path / "new", cleanup=True, **options)).name == saved
    assert [path.name for path in (tmp_path / "new").iterdir()] == [saved]


def test_a_format_that_the_engine_does_not_make(tmp_path):
    with pytest.raises(TraceError, match='Format: "pdf" not recognized') as caught:
        draw(example()).render(tmp_path / "x.pdf", quiet=True)
    assert 'render("trace.svg")' in caught.value.way_out


def test_a_failed_trace_is_drawn_without_a_warning():
    failing = call("torch.f", (X,), None, call("aten.f", (X,), None), call("aten.g", (W,), plain("u")))
    source = draw(make((mul(), failing), inputs=(X, W), failure="Error: no")).source
    assert "&#160;" not in source
    done = subprocess.run([str(_dot.engine()), "-Tpng"], input=source.encode(), capture_output=True)
    assert done.returncode == 0
    assert b"arning" not in done.stderr
