"""The explorer in JupyterLab and its page, in a real browser. Without one they skip, or fail where it is required."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lab
import pytest
import torch
from test_groups import blocks

import subtrace_kit
from subtrace_kit.zoo import TwoTensor

LAPTOP = {"width": 1366, "height": 768}
PROGRAM = """\
import torch, subtrace_kit
from subtrace_kit.zoo import TwoTensor

def program(x, y):
    pair = TwoTensor(x, y)
    pair = (pair * 2).relu()
    return pair.a + pair.b

t = subtrace_kit.trace(program, values=True)(torch.ones(2, 3), torch.ones(2, 3))
"""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser; its absence skips the tests, or is an error where SUBTRACE_KIT_BROWSER=required."""
    if lacking := lab.missing():
        if os.environ.get("SUBTRACE_KIT_BROWSER") == "required":
            pytest.fail(f"SUBTRACE_KIT_BROWSER=required, but there is {lacking}")
        pytest.skip(f"browser tests: {lacking}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=lab.browser(), args=list(lab.ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page of the size of a laptop's screen, on which no script may fail."""
    page = chromium.new_page(viewport=LAPTOP)
    page.set_default_timeout(20_000)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    page.close()
    assert errors == []


def shot(page: Any, name: str) -> None:
    """A picture of the page, where $SUBTRACE_KIT_SHOTS names a folder for them."""
    if folder := os.environ.get("SUBTRACE_KIT_SHOTS"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def status(page: Any, text: str) -> None:
    """Wait for the line that says where the explorer stands."""
    page.wait_for_selector(f'[role="status"]:has-text("{text}")')


def marked(page: Any, pane: str) -> str:
    """The id of the operation whose outline has the colour of the current one."""
    return page.evaluate(
        f"""() => [...document.querySelectorAll('{pane} g.node, {pane} g.cluster')].filter((g) => {{
          const shape = g.querySelector('polygon, path, ellipse');
          return getComputedStyle(shape).fill === 'rgb(255, 243, 191)';
        }}).map((g) => g.id).join(' ')"""
    )


def test_the_explorer_in_jupyterlab(page: Any, tmp_path: Path) -> None:
    lab.notebook(tmp_path / "explore.ipynb", PROGRAM, "subtrace_kit.explore(t, depth=1)")
    with lab.server(tmp_path) as address:
        lab.run_all(page, address, "explore.ipynb")
        status(page, "program, as written: 1 of 6 shown")
        page.wait_for_selector(".pane svg g.node")
        assert marked(page, ".pane") == "op_0"

        page.click('button:has-text("Step")')
        status(page, "2 of 6 shown")
        assert marked(page, ".pane") == "op_1"
        page.click('button:has-text("Expand")')
        status(page, "2 of 7 shown")
        page.wait_for_selector('.pane svg g.cluster[id="op_1"]')

        page.fill('input[placeholder="search"]', "class:TwoTensor")
        page.keyboard.press("Enter")
        status(page, "match")
        page.fill('input[placeholder="search"]', "aten.relu")
        page.keyboard.press("Enter")
        status(page, "match 1 of 3")
        assert page.inner_text(".stk .op code") == "relu = aten.relu.default(mul)"
        assert "pair = (pair * 2).relu()" in page.inner_text(".stk pre mark")
        handler = page.locator("h4:has-text('in the class: two.py')").bounding_box()
        assert handler["x"] + 100 < LAPTOP["width"]  # it is not pushed out of its pane

        page.focus("select[size]")
        page.keyboard.press("ArrowDown")
        page.wait_for_selector(".stk .op code:has-text('relu_1 = getattr')")
        page.keyboard.press("ArrowUp")
        page.wait_for_selector('.stk .op code:text-is("relu = aten.relu.default(mul)")')
        shot(page, "explorer")

        page.click('button:text-is("lowered")')
        status(page, "program, lowered")
        shot(page, "lowered")


def test_a_failed_trace_in_jupyterlab(page: Any, tmp_path: Path) -> None:
    failing = PROGRAM.replace("pair.a + pair.b", "pair.a @ pair.b").replace("\nt = ", "\ntry:\n    t = ") + (
        "except subtrace_kit.TraceError as error:\n    t = error\n"
    )
    lab.notebook(tmp_path / "failed.ipynb", failing, "subtrace_kit.explore(t)")
    with lab.server(tmp_path) as address:
        lab.run_all(page, address, "failed.ipynb")
        page.wait_for_selector(".stk .error")
        assert "matmul" in page.inner_text(".stk .error")
        page.wait_for_selector(".stk .badge.failed")
        shot(page, "failed")
        assert re.fullmatch(r"op_\d+(_\d+)*", marked(page, ".pane"))


def test_the_page(page: Any, tmp_path: Path) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        pair = (TwoTensor(x, y) * 2).relu()
        return pair.a + pair.b

    t = subtrace_kit.trace(program, values=True)(torch.ones(2, 3), torch.ones(2, 3))
    path = subtrace_kit.save_html(t, tmp_path / "page.html", depth=1)
    page.goto(path.as_uri())
    status(page, "as written: 1 of 6 shown")
    assert marked(page, "#picture") == "op_0"
    page.keyboard.press("ArrowDown")
    status(page, "2 of 6 shown")
    assert marked(page, "#picture") == "op_1"
    page.keyboard.press("Enter")
    status(page, "2 of 7 shown")
    page.keyboard.press("/")
    page.keyboard.type("aten.relu")
    page.keyboard.press("Enter")
    status(page, "match 1 of 3")
    assert page.inner_text("#details .op code") == "relu = aten.relu.default(mul)"
    page.select_option("#depth", "all")
    page.wait_for_selector("#picture g.cluster")
    page.click('button:text-is("lowered")')
    page.select_option('label:has-text("beside") select', label="as written")
    page.wait_for_selector("#details tr.here")
    assert "vanished: twotensor = TwoTensor" in page.inner_text("#details table")
    shot(page, "page")
    with page.expect_download() as download:
        page.click('button:text-is("Save png")')
    assert download.value.suggested_filename == "program.png"


def test_on_the_page_only_the_block_opens_that_is_found(page: Any, tmp_path: Path) -> None:
    path = subtrace_kit.save_html(blocks(12), tmp_path / "page.html", depth=1)
    page.goto(path.as_uri())
    status(page, "as written: 1 of 2 shown")
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    status(page, "2 of 14 shown")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("/")
    page.keyboard.type("name:t3")
    page.keyboard.press("Enter")
    status(page, "7 of 17 shown")
    assert page.inner_text('#list [aria-selected="true"]').strip().endswith("blocks.3.act  (1 operation)")
    page.goto(subtrace_kit.save_html(blocks(12), tmp_path / "named.html", expand="blocks.3").as_uri())
    status(page, "1 of 7 shown")
    assert page.inner_text("#list").count(" x ") == 2
