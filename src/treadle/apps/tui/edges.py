"""The edges of the screen: the clock of a turn, the tray, the status, what is offered."""

from __future__ import annotations

import time

from rich.text import Text

from treadle.apps.tui import tray
from treadle.apps.tui.completing import Completion
from treadle.apps.tui.host import Host
from treadle.apps.tui.markdown import styled_prefix
from treadle.apps.tui.palette import Palette
from treadle.apps.tui.scene import ViewState

MAX_NAME_WIDTH = 20  # of what is offered, beyond which what is said about it is not aligned
LONG_TURN_SECONDS = 10.0  # seconds after which the end of a turn is worth a bell


class StatusArea:
    """What the app knows beside the view, and the lines made of both."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.branch = ""
        self.hint = ""
        self.tick = 0
        self.turn_seconds = 0.0
        self._started: float | None = None

    def update_clock(self, is_busy: bool) -> bool:
        """Follow the turns; whether one has just ended that took long."""
        now = time.monotonic()
        if is_busy and self._started is None:
            self._started, self.hint = now, ""
        if self._started is not None:
            self.turn_seconds = now - self._started
        if is_busy or self._started is None:
            return False
        self._started = None
        return self.turn_seconds > LONG_TURN_SECONDS

    def render(
        self, view: ViewState, palette: Palette, size: tuple[int, int], *, is_scrolled: bool
    ) -> tuple[list[Text], Text]:
        """The tray and the status."""
        width, height = size
        card = self._host.model
        facts = tray.StatusInfo(
            model=view.model or card.name,
            context_window=card.window,
            mode=self._host.mode,
            folder=self._host.folder,
            branch=self.branch,
            turn_seconds=self.turn_seconds,
            tick=self.tick,
            hint=self.hint,
            is_scrolled=is_scrolled,
        )
        above = tray.render_activity(view, facts, width, palette)[-max(height // 3, 1) :]
        return above, tray.render_status_line(view, facts, width, palette)


def render_completions(
    completions: list[Completion], selected: int, width: int, max_rows: int, palette: Palette
) -> list[Text]:
    """What is offered, around what the cursor is on."""
    lines: list[Text] = []
    column = max((len(offer.text.strip()) for offer in completions if offer.description), default=0)
    first = max(0, min(selected - max_rows // 2, len(completions) - max_rows))
    for place, offer in enumerate(completions[first : first + max_rows], first):
        is_at = place == selected
        line = styled_prefix("▸ " if is_at else "  ", palette.accent)
        line.append(offer.text.strip(), palette.accent if is_at else palette.plain)
        if offer.description:
            gap = max(min(column, MAX_NAME_WIDTH) - len(offer.text.strip()), 0) + 2
            line.append(" " * gap + offer.description, palette.faint)
        line.truncate(max(width, 1), overflow="ellipsis")
        lines.append(line)
    return lines
