"""`treadle` at a terminal: passes the options to the terminal UI.

Hosts do not import each other, so the terminal UI is imported by its name, as commands are.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from pathlib import Path

from treadle.apps.cli.options import RESUME_WITHOUT_ID, CommandLine
from treadle.apps.console.console import UsageError, get_current_folder
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.rules import is_trusted

TUI_MODULE = "treadle.apps.tui.main"
HEADLESS_OPTIONS = ("file", "output_format", "output_schema", "suspend", "quiet", "verbose")


def start_tui(command_line: CommandLine) -> int:
    """Run the terminal UI until the user leaves it; returns the exit code."""
    for name in HEADLESS_OPTIONS:
        if command_line.has(name):
            raise UsageError(f"--{name.replace('_', '-')} works only with -p")
    picks_session = command_line.has("resume") and not command_line.text("resume")
    if picks_session and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(RESUME_WITHOUT_ID.format(reason="without a terminal"))
    folder = get_current_folder()
    terminal = import_module(TUI_MODULE)
    terminal.check_screen(command_line.has("plain"))  # before anything is downloaded
    _prepare_embedded_model(folder, command_line)
    exit_code: int = terminal.start(
        folder,
        command_line.settings(),
        resume="" if command_line.has("continue") else command_line.text("resume") or None,
        prompt=command_line.prompt or "",
        allow=command_line.texts("allow"),
        deny=command_line.texts("deny"),
        until=command_line.text("until"),
        plain=command_line.has("plain"),
        picks_session=picks_session,
    )
    return exit_code


def _prepare_embedded_model(folder: Path, command_line: CommandLine) -> None:
    """Before the screen is taken: what is missing is downloaded, a better one offered once."""
    from treadle.apps.console import embedded_setup

    settings = load_settings(folder, command_line.settings(), is_trusted=lambda: is_trusted(folder))
    if not embedded_setup.is_maybe_needed(settings):
        return
    if not settings.model and sys.stdin.isatty() and sys.stdout.isatty():
        embedded_setup.offer_better()
    asyncio.run(embedded_setup.download_named(settings))
