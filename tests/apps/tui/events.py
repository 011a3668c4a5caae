"""Events for the tests of the view, without the ids that nobody looks at."""

from __future__ import annotations

from typing import Any

from treadle.apps.tui.state.blocks import ViewBlock
from treadle.apps.tui.state.reducer import ViewState, apply_event
from treadle.core.events import Event


def after(*happened: tuple[Any, ...] | Event, view: ViewState | None = None) -> ViewState:
    """The view after these: `(TextDelta, "hello")` or a whole event."""
    view = view or ViewState()
    for number, one in enumerate(happened):
        if isinstance(one, Event):
            view = apply_event(view, one)
        else:
            kind, *details = one
            view = apply_event(view, kind("s", "t", number, *details))
    return view


def blocks(view: ViewState) -> list[ViewBlock]:
    return list(view.blocks)
