"""The base of the full screen: a Textual app that tells the terminal around it what happens, and
takes its theme and its motion from it.

Draws nothing; screen.py does. The sequences are in status.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from textual import on
from textual.app import App

from treadle.apps.conversation import helper_programs
from treadle.apps.tui.frontend import Frontend
from treadle.apps.tui.options import TerminalOptions
from treadle.apps.tui.render.palette import NONE, THEME_NAMES, Palette, select_palette
from treadle.apps.tui.terminal import background
from treadle.apps.tui.terminal.key_screen import KeyScreen
from treadle.apps.tui.terminal.status import TerminalStatus
from treadle.apps.tui.widgets.prompt import PromptWidget
from treadle.apps.tui.widgets.transcript import TranscriptWidget
from treadle.lib.files.search_path import find_program

TIMEOUT_SECONDS = 2.0
_VARIABLES = ("DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XDG_CURRENT_DESKTOP")
# A program with its arguments, and its output if motion is to be reduced.
_QUESTIONS = (
    (("gsettings", "get", "org.gnome.desktop.interface", "enable-animations"), b"false"),
    (("defaults", "read", "com.apple.universalaccess", "reduceMotion"), b"1"),
)


async def wants_reduced_motion(folder: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Ask the desktop of this machine; over ssh it is not the user's."""
    if environ.get("SSH_CONNECTION"):
        return False
    for (name, *arguments), expected in _QUESTIONS:
        program = find_program(name, folder, environ)
        if program is not None:
            _, output, _ = await helper_programs.run_program(
                program, *arguments, variables=_VARIABLES, timeout=TIMEOUT_SECONDS
            )
            if output.strip() == expected:
                return True
    return False


class TerminalScreen(Frontend, App[int]):
    """The driver (input/keyboard.py) uses `terminal_status`."""

    palette: Palette

    def get_default_screen(self) -> KeyScreen:
        return KeyScreen(id="_default")

    @property
    def prompt(self) -> PromptWidget:
        return self.query_one("#prompt", PromptWidget)

    @property
    def transcript(self) -> TranscriptWidget:
        return self.query_one("#transcript", TranscriptWidget)

    def init_terminal(self, options: TerminalOptions) -> None:
        self.terminal_status = TerminalStatus(
            self.session.folder, self._write_terminal, options.notify
        )
        self.is_motion_reduced = options.reduced_motion == "on"
        self._is_theme_chosen = options.theme in THEME_NAMES

    def show_palette(self) -> None:
        """Draw with another palette."""
        raise NotImplementedError

    async def set_up_terminal(self) -> None:
        """Fit the theme to the terminal's background, and the motion to the desktop."""
        if not self._is_theme_chosen and self.palette is not NONE:
            self._write_terminal(background.QUERY)
        if self.options.reduced_motion == "auto" and not self.is_headless:
            self.is_motion_reduced = await wants_reduced_motion(self.session.folder)
        self._apply_motion()

    def _apply_motion(self) -> None:
        self.animation_level = "none" if self.is_motion_reduced else "full"

    def _write_terminal(self, sequence: str) -> None:
        if self._driver is not None and not self.is_headless:
            self._driver.write(sequence)

    @on(background.BackgroundReported)
    def _on_background_reported(self, event: background.BackgroundReported) -> None:
        if not self._is_theme_chosen:
            self._use_theme("light" if event.is_light else "dark")

    def on_app_focus(self) -> None:
        self.terminal_status.set_focus(True)

    def on_app_blur(self) -> None:
        self.terminal_status.set_focus(False)

    def copy_to_clipboard(self, text: str) -> None:
        self._clipboard = text
        self.terminal_status.copy(text)

    def _notify_user(self, message: str) -> None:
        self.terminal_status.notify(message)

    def apply_settings(self) -> None:
        values = self.session.settings.format_values()
        self.terminal_status.notify_setting = values["notify"]
        if values["reduced_motion"] != "auto":
            self.is_motion_reduced = values["reduced_motion"] == "on"
            self._apply_motion()
        if values["theme"] in THEME_NAMES and values["theme"] != self.palette.name:
            self.change_theme(values["theme"])

    def change_theme(self, name: str) -> None:
        self._is_theme_chosen = True
        self._use_theme(name)
        if self.palette.name != name:
            self.show_message("NO_COLOR is set: themes have no effect", "warning")

    def _use_theme(self, name: str) -> None:
        self.palette = select_palette(name)
        self.theme = f"treadle-{self.palette.name}"
        self.show_palette()
