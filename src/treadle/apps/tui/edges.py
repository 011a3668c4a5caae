"""The edges of the screen: the clock of a turn, the tray, the status, what is offered."""

from __future__ import annotations

import time

from rich.text import Text

from treadle.apps.tui import tray
from treadle.apps.tui.completing import Offer
from treadle.apps.tui.host import Host
from treadle.apps.tui.markdown import lead
from treadle.apps.tui.palette import Palette
from treadle.apps.tui.scene import View

WIDEST_NAME = 20  # of what is offered, beyond which what is said about it is not aligned
LONG_TURN = 10.0  # seconds after which the end of a turn is worth a bell


class Edges:
    """What the app knows beside the view, and the lines made of both."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.branch = ""
        self.hint = ""
        self.tick = 0
        self.seconds = 0.0
        self._began: float | None = None

    def keep_time(self, is_busy: bool) -> bool:
        """Follow the turns; whether one has just ended that took long."""
        now = time.monotonic()
        if is_busy and self._began is None:
            self._began, self.hint = now, ""
        if self._began is not None:
            self.seconds = now - self._began
        if is_busy or self._began is None:
            return False
        self._began = None
        return self.seconds > LONG_TURN

    def lines(
        self, view: View, palette: Palette, size: tuple[int, int], *, is_scrolled: bool
    ) -> tuple[list[Text], Text]:
        """The tray and the status."""
        width, height = size
        card = self._host.model
        facts = tray.Facts(
            model=view.model or card.name,
            window=card.window,
            mode=self._host.mode,
            folder=self._host.folder,
            branch=self.branch,
            seconds=self.seconds,
            tick=self.tick,
            hint=self.hint,
            is_scrolled=is_scrolled,
        )
        above = tray.tray(view, facts, width, palette)[-max(height // 3, 1) :]
        return above, tray.status(view, facts, width, palette)


def offer_lines(
    offers: list[Offer], picked: int, width: int, most: int, palette: Palette
) -> list[Text]:
    """What is offered, around what the cursor is on."""
    lines: list[Text] = []
    column = max((len(offer.text.strip()) for offer in offers if offer.about), default=0)
    first = max(0, min(picked - most // 2, len(offers) - most))
    for place, offer in enumerate(offers[first : first + most], first):
        is_at = place == picked
        line = lead("▸ " if is_at else "  ", palette.accent)
        line.append(offer.text.strip(), palette.accent if is_at else palette.plain)
        if offer.about:
            gap = max(min(column, WIDEST_NAME) - len(offer.text.strip()), 0) + 2
            line.append(" " * gap + offer.about, palette.faint)
        line.truncate(max(width, 1), overflow="ellipsis")
        lines.append(line)
    return lines
