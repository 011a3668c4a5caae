"""The screen of the app: what a key has changed is drawn at once, and what is drawn is drawn once.

Textual lets a change wait for the next frame of its clock, if a frame was drawn shortly before, and
draws an inline screen three times when its height changes. Used by terminal_screen.py; app.py tells
it about keys.
"""

from __future__ import annotations

from textual import events
from textual.geometry import Size
from textual.screen import Screen

FRAMES_OF_A_KEY = 2  # its own, and one that was due when it came


class KeyScreen(Screen[None]):
    _frames_at_once = 0
    _laid_out: tuple[Size, Size] | None = None  # its own size, and that of the terminal

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

    def _refresh_layout(self, size: Size | None = None, scroll: bool = False) -> None:
        super()._refresh_layout(size, scroll)
        self._laid_out = self._size, self.app.size
        if self.app.is_inline and not self.app._batch_count:
            self._repaint_required = False  # all of it was drawn

    def _screen_resized(self, size: Size) -> None:
        """An inline screen hears of the height that its layout has given it, too."""
        if not self.app.is_inline or (size, self.app.size) != self._laid_out:
            super()._screen_resized(size)
