"""Events for the tests of the view, without the ids that nobody looks at."""

from __future__ import annotations

from typing import Any

from treadle.apps.tui.blocks import Block
from treadle.apps.tui.view import View, step
from treadle.core.events import Event


def after(*happened: tuple[Any, ...] | Event, view: View | None = None) -> View:
    """The view after these: `(TextDelta, "hello")` or a whole event."""
    view = view or View()
    for number, one in enumerate(happened):
        if isinstance(one, Event):
            view = step(view, one)
        else:
            kind, *details = one
            view = step(view, kind("s", "t", number, *details))
    return view


def blocks(view: View) -> list[Block]:
    return list(view.blocks)
