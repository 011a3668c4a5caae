"""Escape sequences for what is around the screen: title, progress, notification, clipboard.

    title          OSC 2; saved and restored with CSI 22 and 23
    progress       OSC 9;4     only where it is known: elsewhere OSC 9 is a notification
    notification   OSC 9, 99 or 777, as the terminal takes it; elsewhere the bell
    clipboard      OSC 52
    background     OSC 11 asks for it (background.py)

Pure: from the environment and texts to strings. Used by status.py.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
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
