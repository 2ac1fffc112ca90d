"""The explorer as a widget: it shows a state and turns clicks into the next one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipywidgets as w

from . import fragments, panes
from .collecting import no_collection
from .errors import TraceError
from .explorer import Explorer
from .page import save_page
from .scene import MODES, marks, save_picture, scene

__all__ = ["ExplorerWidget"]

LISTED = 300
"""Rows in the list at a time: the list is a window that moves with the current row."""
HEIGHT = "380px"
ALL = 6
"""Stands for all levels in the choice of the depth."""
KEYS_STAY = (
    '<img src="data:," alt="" hidden onerror="this.closest(\'.stk-explorer\').addEventListener(\'focusin\', '
    "(event) => event.target.setAttribute('data-lm-suppress-shortcuts', 'true'))\">"
)
"""JupyterLab takes arrow keys and letters from what has the focus in an output, unless an attribute there says no."""
HELP = (
    "Tab reaches every control; Enter or Space presses a button. In the list of operations the arrow keys step, and "
    "Home and End go to its ends. Search takes a word, or op:, class:, module: or name: and a word; Enter searches."
)
_numbers = itertools.count(1)


class ExplorerWidget(w.VBox):
    """A trace to step through. It holds no logic of its own: `state` is what it shows.

    Args:
        state: What to show.
    """

    def __init__(self, state: Explorer) -> None:
        self.state = state
        self.scope = f"stk-{next(_numbers)}"
        self._busy = False
        self._drawn: dict[Any, Any] = {}
        self._make_choices()
        self._make_panes()
        super().__init__(self._rows())
        self.add_class("stk-explorer")
        self.show(state)

    # ---------------------------------------------------------------------------------- controls

    def _make_choices(self) -> None:
        labels, narrow = self.state.passes.labels, w.Layout(width="190px")
        style = {"description_width": "60px"}
        self.passes = w.ToggleButtons(options=labels, style={"button_width": "auto"}, tooltips=["show this pass"] * 9)
        others = [("(none)", ""), *((label, label) for label in labels)]
        self.beside = w.Dropdown(options=others, description="beside", layout=narrow, style=style)
        depths = [("modules", 0), *((str(n), n) for n in range(1, ALL)), ("all", ALL)]
        self.depth = w.Dropdown(options=depths, description="depth", layout=w.Layout(width="150px"), style=style)
        self.mode = w.Dropdown(options=MODES, description="picture", layout=w.Layout(width="150px"), style=style)
        self.search = w.Text(placeholder="search", continuous_update=False, layout=w.Layout(width="140px"))
        self.alone = w.Text(placeholder="only this module or value", continuous_update=False, layout=narrow)
        self.list = w.Select(options=[], rows=20, layout=w.Layout(width="27%", height=HEIGHT))
        self.place = w.IntSlider(min=0, max=1, readout=False, layout=w.Layout(width="110px"))
        self.play = w.Play(min=0, max=1, interval=700, layout=w.Layout(width="auto"))
        self._on(self.passes, lambda state, value: state.choose(value))
        self._on(self.beside, lambda state, value: state.compare(value))
        self._on(self.depth, lambda state, value: state.to_depth(None if value == ALL else value))
        self._on(self.mode, lambda state, value: state)
        self._on(self.search, lambda state, value: state.search(value))
        self._on(self.alone, lambda state, value: state.only(value))
        self._on(self.list, lambda state, value: state.reveal(value) if value else state)
        self._on(self.place, lambda state, value: state.to(value))
        self._on(self.play, lambda state, value: state.to(value))

    def _make_panes(self) -> None:
        self.sheet_style = w.HTML(f"<style>{fragments.CSS}</style>{KEYS_STAY}", layout=w.Layout(display="none"))
        self.marks = w.HTML(layout=w.Layout(display="none"))
        self.picture = w.HTML(layout=w.Layout(width="36%", height=HEIGHT, overflow="hidden"))
        self.details = w.HTML(layout=w.Layout(width="37%", height=HEIGHT, overflow="auto"))
        self.error = w.HTML()
        self.status = w.HTML()

    def _rows(self) -> list[w.Widget]:
        steps = [
            self._button("First", "go to the first operation", Explorer.first),
            self._button("Back", "go to the operation before", Explorer.back),
            self._button("Step", "go to the next operation", Explorer.step),
            self._button("Last", "go to the last operation", Explorer.last),
        ]
        folds = [
            self._button("Expand", "show what is inside", Explorer.expand),
            self._button("Collapse", "fold it", Explorer.collapse),
        ]
        found = [
            self._button("Prev", "go to the match before", lambda state: state.next_match(-1)),
            self._button("Next", "go to the next match", lambda state: state.next_match(1)),
        ]
        saves = [self._button(f"Save {kind}", f"save as {kind}", self._saver(kind)) for kind in ("svg", "png", "html")]
        about = w.HTML(f'<div class="stk">{HELP}</div>')
        return [
            self.sheet_style,
            self.marks,
            self.error,
            w.HBox([self.passes, self.beside, self.depth, self.mode]),
            w.HBox([*steps, *folds, self.play, self.place, self.search, *found], layout=w.Layout(flex_flow="row wrap")),
            self.status,
            w.HBox([self.list, self.picture, self.details]),
            w.HBox([self.alone, *saves]),
            about,
        ]

    def _button(self, text: str, about: str, change: Callable[[Explorer], Explorer]) -> w.Button:
        button = w.Button(description=text, tooltip=about, layout=w.Layout(width="auto"))
        button.on_click(lambda _: self._go(change))
        return button

    def _on(self, control: Any, change: Callable[[Explorer, Any], Explorer]) -> None:
        def changed(event: Any) -> None:
            if not self._busy:
                self._go(lambda state: change(state, event["new"]))

        control.observe(changed, "value")

    def _saver(self, kind: str) -> Callable[[Explorer], Explorer]:
        """What saves the picture or the page beside the notebook, and says where."""

        def save(state: Explorer) -> Explorer:
            path = Path(f"{state.sheet.view.name}.{kind}")
            try:
                save_page(state, path) if kind == "html" else save_picture(state, path)
            except (OSError, TraceError) as error:
                return state.say(f"not saved: {error}")
            return state.say(f"saved as {path}")

        return save

    # ---------------------------------------------------------------------------------- showing

    def _go(self, change: Callable[[Explorer], Explorer]) -> None:
        with no_collection():
            self.show(change(self.state))

    def show(self, state: Explorer) -> None:
        """Show a state.

        Args:
            state: What to show.
        """
        self.state = state
        self._busy = True  # What is set here is no click of the user.
        try:
            self._show_choices()
            self._show_list()
            self._show_panes()
        finally:
            self._busy = False

    def _show_choices(self) -> None:
        state = self.state
        self.passes.value, self.beside.value = state.label, state.beside
        self.depth.value = state.folds.depth if state.folds.depth in range(ALL) else ALL
        self.alone.value, self.search.value = state.alone, state.query
        for control in (self.place, self.play):
            control.max = max(1, len(state.lines) - 1)
            control.value = state.place

    def _show_list(self) -> None:
        """The window of the list around the current row; it changes only where it must."""
        state = self.state
        start = max(0, state.place // (LISTED // 3) - 1) * (LISTED // 3)
        if self._is_new("list", (state.label, state.folds, state.alone, start)):
            lines = state.lines[start : start + LISTED]
            self.list.options = [(fragments.label(line, state.folds), line.row.id) for line in lines]
        self.list.value = state.at or None

    def _show_panes(self) -> None:
        state = self.state
        drawn = scene(state)
        if self._is_new("picture", id(drawn)):
            self.picture.value = f'<div class="stk">{panes.picture_pane(state, self.scope)}</div>'
        self.marks.value = f"<style>{marks(drawn, state, self.scope, self.mode.value)}</style>"
        self.details.value = f'<div class="stk">{panes.details_pane(state)}</div>'
        self.error.value = f'<div class="stk">{panes.error_pane(state)}</div>'
        self.status.value = f'<div class="stk" role="status">{fragments.escape(panes.status(state))}</div>'

    def _is_new(self, what: str, key: Any) -> bool:
        """Whether something is to be drawn that is not what was drawn last."""
        new = self._drawn.get(what) != key
        self._drawn[what] = key
        return new
