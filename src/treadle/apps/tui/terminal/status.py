"""Keeps the terminal informed: title, progress, notifications; and the escape sequences for that,
and for the clipboard. Takes all of it back at the end.

The driver (input/keyboard.py) writes `begin_sequence` whenever the screen is taken, and
`end_sequence` whenever it is given back: at the end, after SIGTERM, while suspended. Used by
screen.py.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from treadle.lib.text.sanitize import escape_invisible

BELL = "\x07"
ST = "\x1b\\"
SAVE_TITLE, RESTORE_TITLE = "\x1b[22;2t", "\x1b[23;2t"
MAX_TITLE_CHARS = 80
NotificationKind = Literal["bell", "osc9", "osc99", "osc777"]
ProgressState = Literal["off", "busy", "waiting"]
_PROGRESS_CODES: Mapping[ProgressState, str] = {"off": "0;0", "busy": "3;0", "waiting": "4;100"}


class TerminalKind(msgspec.Struct, frozen=True):
    """What a terminal can do, as far as its environment tells."""

    notification: NotificationKind = "bell"
    has_progress: bool = False
    is_tmux: bool = False

    def pass_through(self, sequence: str) -> str:
        """A sequence for the terminal that tmux runs in (with `allow-passthrough on`)."""
        if not self.is_tmux:
            return sequence
        doubled = sequence.replace("\x1b", "\x1b\x1b")
        return f"\x1bPtmux;{doubled}{ST}"


def detect_terminal(environ: Mapping[str, str]) -> TerminalKind:
    """Inside tmux the variables of the terminal around it count, if they are still there."""
    return TerminalKind(
        _find_notification(environ),
        _has_progress(environ),
        bool(environ.get("TMUX")),
    )


def _find_notification(environ: Mapping[str, str]) -> NotificationKind:
    program = _find_program(environ)
    if program == "kitty":
        return "osc99"
    if program in ("iterm.app", "wezterm", "ghostty"):
        return "osc9"
    if program in ("foot", "rxvt") or environ.get("VTE_VERSION"):
        return "osc777"
    return "bell"


def _find_program(environ: Mapping[str, str]) -> str:
    """The name of the terminal's program, in lower case; "" if it is not known."""
    if environ.get("KITTY_WINDOW_ID"):
        return "kitty"
    if environ.get("GHOSTTY_RESOURCES_DIR"):
        return "ghostty"
    if environ.get("WEZTERM_PANE"):
        return "wezterm"
    if environ.get("LC_TERMINAL") == "iTerm2" or environ.get("ITERM_SESSION_ID"):
        return "iterm.app"
    term = environ.get("TERM", "")
    for name in ("kitty", "ghostty", "foot", "rxvt"):
        if name in term:
            return name
    return environ.get("TERM_PROGRAM", "").lower()


def _has_progress(environ: Mapping[str, str]) -> bool:
    if environ.get("WT_SESSION") or environ.get("ConEmuANSI") == "ON":
        return True
    program = _find_program(environ)
    if program == "iterm.app":  # earlier versions show it as a notification
        version = environ.get("LC_TERMINAL_VERSION") or environ.get("TERM_PROGRAM_VERSION", "")
        return tuple(map(int, re.findall(r"\d+", version)[:3])) >= (3, 6, 6)
    vte = environ.get("VTE_VERSION", "")
    return program == "ghostty" or (vte.isdecimal() and int(vte) >= 8000)


def format_title(folder: str, state: str) -> str:
    text = escape_invisible(f"{folder} · {state}" if state else folder)
    return f"\x1b]2;{text[:MAX_TITLE_CHARS]}{BELL}"


def format_progress(state: ProgressState) -> str:
    return f"\x1b]9;4;{_PROGRESS_CODES[state]}{BELL}"


def format_notification(kind: NotificationKind, text: str) -> str:
    text = escape_invisible(text).replace(";", ",")
    match kind:
        case "osc9":
            return f"\x1b]9;treadle: {text}{BELL}"
        case "osc99":
            return f"\x1b]99;;treadle: {text}{ST}"
        case "osc777":
            return f"\x1b]777;notify;treadle;{text}{ST}"
        case _:
            return BELL


def format_clipboard(text: str) -> str:
    encoded = base64.b64encode(text.encode(errors="replace")).decode()
    return f"\x1b]52;c;{encoded}{BELL}"


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
