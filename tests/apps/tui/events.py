"""Applies events in the tests of the view; the ids are filled in."""

from __future__ import annotations

from typing import Any

from treadle.apps.conversation.state.blocks import ViewBlock
from treadle.apps.conversation.state.reducer import apply_event
from treadle.apps.conversation.state.view_state import ViewState
from treadle.core.events import Event


def after(*events: tuple[Any, ...] | Event, view: ViewState | None = None) -> ViewState:
    """The view after these events: `(TextDelta, "hello")` or an Event."""
    view = view or ViewState()
    for number, event in enumerate(events):
        if isinstance(event, Event):
            view = apply_event(view, event)
        else:
            kind, *details = event
            view = apply_event(view, kind("s", "t", number, *details))
    return view


def blocks(view: ViewState) -> list[ViewBlock]:
    return list(view.blocks)
