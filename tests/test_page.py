import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from handmade import W, X, build, call, chain, example, make, mul, pair, plain, sin
from test_groups import blocks

import subtrace_kit
from subtrace_kit import _dot, save_html
from subtrace_kit import page as pages
from subtrace_kit.errors import TraceError
from subtrace_kit.explorer import start
from subtrace_kit.page import page
from subtrace_kit.source import Source
from subtrace_kit.zoo import TwoTensor

EVIL = '</script><img src=x onerror="alert(1)">'


pytestmark = pytest.mark.usefixtures("pure")


def data(text: str) -> Any:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def test_the_page_holds_the_passes_their_rows_and_pictures(tmp_path: Path) -> None:
    path = save_html(example(), tmp_path / "page.html", depth=1)
    one, *_ = data(path.read_text("utf-8"))["passes"]
    assert one["label"] == "as written"
    assert [row[0] for row in one["rows"]] == [row.id for row in start(example()).sheet.rows.values()]
    assert [row[1] for row in one["rows"]][:5] == [-1, 0, 1, 1, 1]
    assert [row[5] for row in one["rows"]] == [0] * 10
    assert [picture["depth"] for picture in one["pictures"]] == [-1, 1, 2, 3]
    assert one["pictures"][0]["svg"].startswith("<svg")


def test_what_is_open_at_first_is_open_on_the_page() -> None:
    rows = data(page(start(example(), depth=1, expand="torch.mul")))["passes"][0]["rows"]
    assert [row[0] for row in rows if row[5]] == ["op_0"]


def test_all_passes_and_their_pairs_are_there() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return (TwoTensor(x, x) * 2).a

    found = data(page(start(subtrace_kit.trace(program)(torch.ones(2)))))
    assert [one["label"] for one in found["passes"]] == ["as written", "unrolled", "lowered"]
    assert sorted(found["pairs"]) == ["0,1", "0,2", "1,2"]
    assert "vanished: 4" in found["pairs"]["0,2"]["summary"]


def test_a_pass_that_cannot_be_made_says_why() -> None:
    t = subtrace_kit.trace(lambda x: x.detach())(torch.ones(2, requires_grad=True))
    assert "no gradient reaches" in data(page(start(t)))["passes"][1]["problem"]


def test_sources_are_written_once(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("one\ntwo <b>\n")
    rows = [call("torch.f", (W,), plain(f"t{i}"), source=Source(str(file), 2, "f")) for i in range(5)]
    (source,) = data(page(start(make(rows))))["sources"]
    assert "<mark>   2  two &lt;b&gt;</mark>" in source


def test_a_failed_trace_is_shown_with_its_error() -> None:
    text = page(start(make((mul(), sin()), inputs=(X, W), failure="RuntimeError: <no>")))
    assert '<div class="error" role="alert">RuntimeError: &lt;no&gt;</div>' in text
    one = data(text)["passes"][0]
    assert one["rows"][one["at"]][0] == "op_1_0_2"


def test_everything_from_user_code_is_escaped(tmp_path: Path) -> None:
    evil = type(EVIL, (torch.Tensor,), {})
    file = tmp_path / "<img src=x onerror=y>.py"
    file.write_text(EVIL)
    rows = [
        build(pair("p", plain("a"), plain("b"), cls=evil, metadata=EVIL)),
        call(EVIL, (W, EVIL), plain("t"), module=EVIL, source=Source(str(file), 1, EVIL)),
    ]
    text = page(start(make(rows, inputs=(W,), name=EVIL, failure=EVIL)))
    assert "<img" not in text
    assert text.count("</script>") == 2
    found = data(text)
    shown = [*found["sources"], *(piece for row in found["passes"][0]["rows"] for piece in row[6])]
    shown += [picture["svg"] for picture in found["passes"][0]["pictures"]]
    assert not [piece for piece in shown if "<img" in piece]
    assert any("&lt;img" in piece for piece in found["sources"])


def test_the_page_loads_nothing_and_runs_one_script() -> None:
    text = page(start(example()))
    assert "default-src 'none'" in text
    assert not re.findall(r'(?:src|href)="?https?:', text)


def test_a_page_has_room_for_so_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MOST_ROWS", 4)
    one = data(page(start(example())))["passes"][0]
    assert [row[0] for row in one["rows"]] == ["op_0", "op_0_0", "op_1", "op_1_0"]
    assert one["note"] == "this page holds 4 of 10 rows: explore(t) in a notebook shows all"
    monkeypatch.setattr(pages, "MOST_ROWS", 1)
    assert [row[0] for row in data(page(start(example())))["passes"][0]["rows"]] == ["op_0"]


def test_a_long_pass_has_pictures_of_its_parts() -> None:
    one = data(page(start(chain(200), expand=lambda row: row.times > 0)))["passes"][0]
    pictures = [picture for picture in one["pictures"] if picture["depth"] == -1]
    assert len(pictures) == 13
    assert {key for picture in pictures for key in picture["spots"]} >= {f"op_{i}" for i in range(200)}


def test_modules_are_a_depth_of_their_own() -> None:
    one = data(page(start(blocks(2))))["passes"][0]
    assert [picture["depth"] for picture in one["pictures"]] == [-1, 0, 1]


def test_without_an_engine_the_page_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_dot.VARIABLE, "/no/such/dot")
    _dot.engine.cache_clear()
    assert data(page(start(example())))["passes"][0]["pictures"][0]["problem"].startswith("no picture")


def test_an_empty_trace_is_a_page() -> None:
    assert data(page(start(make((), inputs=(X,)))))["passes"][0]["rows"] == []


def test_what_has_no_trace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="has no trace"):
        save_html(TraceError("no"), tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()
