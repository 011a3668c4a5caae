"""The terminal driver of the inline mode: Textual's, with our keyboard.

A resize must not clear the screen, on which the conversation is: the app (inline.py) draws its part
again.
"""

from __future__ import annotations

import asyncio
import os
import signal
from types import FrameType

from textual import events
from textual.drivers.linux_inline_driver import LinuxInlineDriver
from textual.geometry import Size

from treadle.apps.tui.input.keyboard import KeyboardDriver


class InlineDriver(LinuxInlineDriver):
    _read_input = KeyboardDriver._read_input
    _dispatch = KeyboardDriver._dispatch
    _has_vim_keys = KeyboardDriver._has_vim_keys
    run_input_thread = KeyboardDriver.run_input_thread

    def start_application_mode(self) -> None:
        super().start_application_mode()
        loop = asyncio.get_running_loop()

        def on_signal(number: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self._report_size)

        signal.signal(signal.SIGWINCH, on_signal)

    def _report_size(self) -> None:
        size = Size(*self._get_terminal_size())
        self._app.post_message(events.Resize(size, size))

    def _get_terminal_size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self.fileno)
        except OSError:  # the terminal is gone
            return 80, 24
        return max(size.columns, 1), max(size.lines, 1)

    def read_width(self) -> int:
        """The width of the terminal at this moment."""
        return self._get_terminal_size()[0]
