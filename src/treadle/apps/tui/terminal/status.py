"""Keeps the terminal informed: title, progress, notifications. Takes all of it back at the end.

The driver (input/keyboard.py) writes `begin_sequence` whenever the screen is taken, and
`end_sequence` whenever it is given back: at the end, after SIGTERM, while suspended. Used by
screen.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from treadle.apps.tui.terminal.sequences import (
    BELL,
    RESTORE_TITLE,
    SAVE_TITLE,
    ProgressState,
    detect_terminal,
    format_clipboard,
    format_notification,
    format_progress,
    format_title,
)

STATE_TEXTS: Mapping[ProgressState, str] = {
    "off": "",
    "busy": "working",
    "waiting": "needs your answer",
}


class TerminalStatus:
    """`write` sends a sequence to the terminal. `notify` is the setting: auto, bell or off."""

    def __init__(
        self,
        folder: Path,
        write: Callable[[str], None],
        notify: str = "auto",
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.terminal = detect_terminal(environ)
        self.notify_setting = notify
        self._name = folder.name or str(folder)
        self._write = write
        self._session_name = ""
        self._shown: ProgressState | None = None
        self._has_focus: bool | None = None  # None: the terminal does not tell

    @property
    def begin_sequence(self) -> str:
        return SAVE_TITLE + self._describe(self._shown or "off")

    @property
    def end_sequence(self) -> str:
        """Also right if nothing was shown."""
        return self._progress("off") + format_title("", "") + RESTORE_TITLE

    def set_focus(self, has_focus: bool) -> None:
        self._has_focus = has_focus

    def update(self, name: str = "", *, is_busy: bool, is_waiting: bool) -> None:
        """Show the state, and the name of the session; writes only what has changed."""
        state: ProgressState = "waiting" if is_waiting else "busy" if is_busy else "off"
        if state != self._shown or name != self._session_name:
            self._shown, self._session_name = state, name
            self._write(self._describe(state))

    def notify(self, text: str) -> None:
        """Tell the user, who may be looking at another window; nothing if this one has focus."""
        if self.notify_setting == "off" or self._has_focus:
            return
        kind = "bell" if self.notify_setting == "bell" else self.terminal.notification
        # The bell also for tmux, which marks the window and may not pass the rest through.
        if self._has_focus is None or kind == "bell" or self.terminal.is_tmux:
            self._write(BELL)
        if kind != "bell" and self._has_focus is False:
            sequence = format_notification(kind, f"{self._name}: {text}")
            self._write(self.terminal.pass_through(sequence))

    def copy(self, text: str) -> None:
        """Copy to the user's clipboard, also over ssh and from inside tmux."""
        sequence = format_clipboard(text)
        self._write(sequence)
        if self.terminal.is_tmux:  # which keeps it for itself, unless set-clipboard is on
            self._write(self.terminal.pass_through(sequence))

    def _describe(self, state: ProgressState) -> str:
        title = " · ".join(filter(None, (self._session_name, self._name)))
        return format_title(title, STATE_TEXTS[state]) + self._progress(state)

    def _progress(self, state: ProgressState) -> str:
        if not self.terminal.has_progress:
            return ""
        return self.terminal.pass_through(format_progress(state))
