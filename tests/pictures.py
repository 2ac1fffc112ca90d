"""The pictures of the README: `make pictures` draws them anew."""

from __future__ import annotations

import tempfile
from pathlib import Path

import lab
import torch
from torch.testing._internal.two_tensor import TwoTensor

import subtrace_kit
from subtrace_kit.trace import Trace

IMAGES = Path(__file__).parents[1] / "notebooks" / "images"


def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    pair = TwoTensor(x, y)
    pair = (pair * 2).relu()
    return pair.a + pair.b


def explorer(trace: Trace, target: Path) -> None:
    """A screenshot of the explorer's page at the second operation."""
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        html = Path(folder) / "trace.html"
        subtrace_kit.save_html(trace, html)
        browser = playwright.chromium.launch(executable_path=lab.browser(), args=list(lab.ARGUMENTS))
        page = browser.new_page(viewport={"width": 1366, "height": 768})
        page.goto(html.as_uri())
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        page.screenshot(path=str(target))
        browser.close()


def main() -> None:
    torch.manual_seed(0)
    trace = subtrace_kit.trace(program, values=True)(torch.randn(2, 3), torch.randn(2, 3))
    (IMAGES / "trace.svg").write_bytes(subtrace_kit.draw(trace).pipe("svg"))
    if lacking := lab.missing():
        raise SystemExit(f"explorer.png needs a browser: there is {lacking}")
    explorer(trace, IMAGES / "explorer.png")


if __name__ == "__main__":
    main()
