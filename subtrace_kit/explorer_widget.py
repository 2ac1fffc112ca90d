"""The explorer as a widget: it shows a state and turns clicks into the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as w

from . import fragments
from .explorer import Explorer

__all__ = ["ExplorerWidget"]

LISTED = 300
"""Rows in the list at a time: the list is a window that moves with the current row."""
HELP = (
    "Tab reaches every control. In the list: arrow keys step, Home and End go to its ends. "
    "Buttons answer to Enter and Space. Search: a word, or op:, class:, module:, name: before it."
)


class ExplorerWidget(w.VBox):
    """A trace to step through. It holds no logic of its own: `state` is what it shows.

    Args:
        state: What to show.
    """

    def __init__(self, state: Explorer) -> None:
        self.state = state
        self._busy = False
        self._listed: Any = None
        self._make_controls()
        super().__init__(self._rows())
        self.show(state)

    # ---------------------------------------------------------------------------------- controls

    def _make_controls(self) -> None:
        self.style = w.HTML(f"<style>{fragments.CSS}</style>")
        self.passes = w.ToggleButtons(options=self.state.passes.labels, style={"button_width": "auto"})
        self.list = w.Select(options=[], rows=20, layout=w.Layout(width="38%", height="400px"))
        self.details = w.HTML(layout=w.Layout(width="62%", height="400px", overflow="auto"))
        self.search = w.Text(placeholder="search: op, class, module or name", continuous_update=False)
        self.message = w.HTML()
        self.place = w.IntSlider(min=0, max=1, readout=False, layout=w.Layout(width="200px"))
        self.play = w.Play(min=0, max=1, interval=600)
        self._on(self.passes, lambda state, value: state.choose(value))
        self._on(self.list, lambda state, value: state.reveal(value))
        self._on(self.search, lambda state, value: state.search(value))
        self._on(self.place, lambda state, value: state.to(value))
        self._on(self.play, lambda state, value: state.to(value))

    def _rows(self) -> list[w.Widget]:
        steps = [
            self._button("\N{MUCH LESS-THAN}", "first operation", Explorer.first),
            self._button("Back", "operation before", Explorer.back),
            self._button("Step", "next operation", Explorer.step),
            self._button("\N{MUCH GREATER-THAN}", "last operation", Explorer.last),
        ]
        folds = [
            self._button("Expand", "show what is inside", Explorer.expand),
            self._button("Collapse", "fold it", Explorer.collapse),
        ]
        found = [
            self.search,
            self._button("Previous", "match before", lambda state: state.next_match(-1)),
            self._button("Next", "next match", lambda state: state.next_match(1)),
        ]
        return [
            self.style,
            w.HBox([self.passes, *folds]),
            w.HBox([*steps, self.play, self.place, *found]),
            self.message,
            w.HBox([self.list, self.details]),
            w.HTML(f'<div class="stk">{HELP}</div>'),
        ]

    def _button(self, text: str, about: str, change: Callable[[Explorer], Explorer]) -> w.Button:
        button = w.Button(description=text, tooltip=about, layout=w.Layout(width="auto"))
        button.on_click(lambda _: self.show(change(self.state)))
        return button

    def _on(self, control: Any, change: Callable[[Explorer, Any], Explorer]) -> None:
        def changed(event: Any) -> None:
            if not self._busy and event["new"] is not None:
                self.show(change(self.state, event["new"]))

        control.observe(changed, "value")

    # ---------------------------------------------------------------------------------- showing

    def show(self, state: Explorer) -> None:
        """Show a state."""
        self.state = state
        self._busy = True
        try:
            self._show_place()
            self._show_list()
            self.details.value = f'<div class="stk">{fragments.details(state.sheet, state.at)}</div>'
            self.message.value = f'<div class="stk">{fragments.escape(state.message)}</div>'
            self.passes.value = state.label
        finally:
            self._busy = False

    def _show_place(self) -> None:
        for control in (self.place, self.play):
            control.max = max(1, len(self.state.lines) - 1)
            control.value = self.state.place

    def _show_list(self) -> None:
        """The window of the list around the current row; it changes only where it must."""
        state = self.state
        start = max(0, (state.place - LISTED // 3) // (LISTED // 3) * (LISTED // 3))
        listed = state.label, state.folds, state.alone, start
        if listed != self._listed:
            self._listed = listed
            lines = state.lines[start : start + LISTED]
            self.list.options = [(fragments.label(line, state.folds), line.row.id) for line in lines]
        if state.at:
            self.list.value = state.at
