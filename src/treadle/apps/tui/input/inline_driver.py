"""The terminal driver of the inline mode: Textual's, with our keyboard, and with ctrl+z.

A resize must not clear the screen, on which the conversation is: the app (inline.py) draws its part
again.
"""

from __future__ import annotations

import asyncio
import os
import signal
import termios
import tty
from contextlib import suppress
from types import FrameType
from typing import Any

from textual import events
from textual.drivers.linux_inline_driver import LinuxInlineDriver
from textual.geometry import Size

from treadle.apps.tui.input.keyboard import KeyboardDriver, make_paste_query
from treadle.apps.tui.terminal.status import TerminalStatus

FOCUS_REPORTS_OFF = "\x1b[?1004l"


class InlineDriver(LinuxInlineDriver):
    _read_input = KeyboardDriver._read_input
    _dispatch = KeyboardDriver._dispatch
    _has_vim_keys = KeyboardDriver._has_vim_keys
    _has_dialog = KeyboardDriver._has_dialog
    run_input_thread = KeyboardDriver.run_input_thread

    _is_stopped = False  # by ctrl+z

    @property
    def can_suspend(self) -> bool:
        return True

    def start_application_mode(self) -> None:
        attributes = self._turn_echo_off()
        super().start_application_mode()
        self.attrs_before = attributes
        loop = asyncio.get_running_loop()

        def on_signal(number: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self._report_size)

        signal.signal(signal.SIGWINCH, on_signal)
        signal.signal(signal.SIGTSTP, self._on_stop)
        signal.signal(signal.SIGCONT, self._on_continue)
        if self._status is not None:
            self.write(self._status.begin_sequence)
        self.write(make_paste_query())

    def stop_application_mode(self) -> None:
        if self._status is not None:
            self.write(self._status.end_sequence)
        self.write(FOCUS_REPORTS_OFF)  # before the terminal echoes again
        super().stop_application_mode()

    def write(self, data: str) -> None:
        with suppress(OSError):  # the terminal is gone: hang_up.py ends the program
            super().write(data)

    def flush(self) -> None:
        with suppress(OSError):
            super().flush()  # type: ignore[no-untyped-call]

    @property
    def _status(self) -> TerminalStatus | None:
        return getattr(self._app, "terminal_status", None)

    def _turn_echo_off(self) -> list[Any] | None:
        """The terminal answers what it is asked at the start: that must not be seen. Returns its
        attributes as they were."""
        try:
            before = termios.tcgetattr(self.fileno)
            silent = termios.tcgetattr(self.fileno)
            silent[tty.LFLAG] &= ~termios.ECHO
            termios.tcsetattr(self.fileno, termios.TCSANOW, silent)
        except termios.error:  # no terminal
            return None
        return before

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        if self._auto_restart and not self._is_stopped:
            self._is_stopped = True
            self.suspend_application_mode()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _on_continue(self, number: int, frame: FrameType | None) -> None:
        if not self._is_stopped:
            return
        if os.tcgetpgrp(self.fileno) != os.getpgrp():  # `bg`: the terminal is another's
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        self._is_stopped = False
        self.resume_application_mode()
        self._app.post_message(self.SignalResume())

    def _report_size(self) -> None:
        size = Size(*self._get_terminal_size())
        self._app.post_message(events.Resize(size, size))

    def _get_terminal_size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self.fileno)
        except OSError:  # the terminal is gone
            return 80, 24
        return size.columns or 80, size.lines or 24  # 0: the terminal does not tell

    def read_size(self) -> tuple[int, int]:
        """Columns and rows of the terminal at this moment."""
        return self._get_terminal_size()
