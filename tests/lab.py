"""JupyterLab and a browser for tests: a server on this machine, and Debian's chromium driven by Playwright."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
START = 60.0
"""Seconds that the server has to answer."""


def browser() -> str | None:
    """The browser's path: $SUBTRACE_KIT_CHROMIUM, or the first one on PATH."""
    chosen = os.environ.get("SUBTRACE_KIT_CHROMIUM")
    return chosen or next(filter(None, map(shutil.which, BROWSERS)), None)


def missing() -> str:
    """What the tests lack, empty where all is there."""
    lacking = [] if browser() else ["no chromium (apt-get install chromium)"]
    lacking += [f"no {name}" for name in ("playwright", "jupyterlab") if importlib.util.find_spec(name) is None]
    return ", ".join(lacking)


@contextlib.contextmanager
def server(folder: Path) -> Iterator[str]:
    """JupyterLab in a folder, with settings of its own; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}",
        "--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True",
        f"--ServerApp.root_dir={folder}", "--allow-root", "--LabApp.expose_app_in_browser=True",
    ]  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    log = folder / "server.log"
    with log.open("wb") as out:
        running = subprocess.Popen(command, env=_environment(folder), stdout=out, stderr=out)
    try:
        _wait(address, running, log)
        yield address
    finally:
        running.send_signal(signal.SIGTERM)
        try:
            running.wait(15)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait(15)


def _environment(folder: Path) -> dict[str, str]:
    """The environment of the server: nothing of the user's settings, and no news over the page."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "JUPYTERLAB_SETTINGS_DIR")
    places = {name: str(folder / name.lower()) for name in names}
    settings = Path(places["JUPYTERLAB_SETTINGS_DIR"]) / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    kit = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [kit, os.environ.get("PYTHONPATH")]))
    return {**os.environ, **places, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def _wait(address: str, running: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + START
    while time.monotonic() < end and running.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/api", timeout=5):
            return
        time.sleep(0.1)
    raise RuntimeError(f"JupyterLab does not answer:\n{log.read_text(errors='replace')[-2000:]}")


def notebook(path: Path, *cells: str) -> None:
    """Write a notebook of code cells."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, path)


_KERNEL = """async () => {
  const shown = window.jupyterapp.shell.currentWidget;
  await shown.context.ready;
  await shown.sessionContext.ready;
  await shown.sessionContext.session.kernel.info;
}"""


def run_all(page: Any, address: str, name: str) -> None:
    """Open a notebook, wait for its kernel in the page (the kernel's sign is too early), and run all cells."""
    page.goto(f"{address}/lab/tree/{name}?reset")
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    page.evaluate(_KERNEL)
    page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
