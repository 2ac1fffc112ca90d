"""explore: a trace to step through, in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .called import expect_explorable
from .collecting import no_collection
from .errors import TraceError
from .explorer import start
from .fold import Chosen
from .options import expect_level
from .trace import Trace

if TYPE_CHECKING:
    from .explorer_widget import ExplorerWidget

__all__ = ["explore"]


def explore(
    trace: Trace | TraceError,
    depth: int | None = None,
    *,
    collapse: Chosen = None,
    expand: Chosen = None,
    passes: Mapping[str, Trace] | None = None,
) -> ExplorerWidget:
    """Step through a trace in a notebook.

    Every control is reached with Tab. In the list of operations the arrow keys step, Home and End go
    to the ends of what is listed; buttons and toggles answer to Enter and Space.

    Args:
        trace: A trace of any pass, or the TraceError that ended one: it opens at the failing op.
        depth: The deepest level that is shown, 1 being what the user wrote; 0 shows modules alone,
            where there are any. None shows all levels of a small trace, and level 1 of one with more
            than 2,000 operations.
        collapse: Operations to fold: a name (of a result, an operation or a module path), several,
            or a predicate on `view.Row`. A module path stands for all that ran in the module,
            `blocks` for `blocks.3` too.
        expand: Operations to open in spite of `depth` and `collapse`; of repeated blocks those that
            are named: `Block x 3`, the block, `Block x 8`. So does a search.
        passes: More traces to choose from, by the name that is shown.

    Returns:
        A widget; as the last line of a cell it shows itself. `.state` is what it shows.

    Raises:
        TraceError: ipywidgets is missing, there is no trace, an option does not take its value, or a name is
            that of no operation.

    Example:
        >>> explorer = subtrace_kit.explore(t, depth=1, expand="blocks.3")  # doctest: +SKIP
        >>> explorer.state.step().row.symbol  # doctest: +SKIP
        'torch.relu'
    """
    expect_explorable(trace, "explore")
    expect_level(depth, "explore", "depth", least=0)
    try:
        from .explorer_widget import ExplorerWidget  # Everything else works without ipywidgets.
    except ImportError as error:
        raise TraceError(
            f"explore() needs ipywidgets, which cannot be imported ({error})",
            way_out="pip install ipywidgets, and restart the kernel; save_html(t, path) needs neither",
        ) from error
    with no_collection():
        return ExplorerWidget(start(trace, depth=depth, collapse=collapse, expand=expand, passes=passes))
