"""The screen of the app: what a key has changed is drawn at once.

Textual lets it wait for the next frame of its clock, if a frame was drawn shortly before. Used by
screen.py; app.py tells it about keys.
"""

from __future__ import annotations

from textual import events
from textual.screen import Screen

FRAMES_OF_A_KEY = 2  # its own, and one that was due when it came


class KeyScreen(Screen[None]):
    _frames_at_once = 0

    def expect_key(self) -> None:
        """A key is about to change something."""
        self._frames_at_once = FRAMES_OF_A_KEY

    async def _on_idle(self, event: events.Idle) -> None:
        """Textual calls the handler of the base class after this one."""
        is_changed = self._layout_required or self._repaint_required or self._dirty_widgets
        if self._frames_at_once and is_changed and self.is_current and not self.app._batch_count:
            self._frames_at_once -= 1
            event.prevent_default()
            self._on_timer_update()
