"""`treadle` at a terminal: passes the options to the terminal UI.

Hosts do not import each other, so the terminal UI is imported by its name, as commands are.
"""

from __future__ import annotations

from importlib import import_module

from treadle.apps.cli.console import UsageError, get_current_folder
from treadle.apps.cli.options import CommandLine

TUI_MODULE = "treadle.apps.tui.main"
HEADLESS_OPTIONS = ("file", "output_format", "output_schema", "suspend", "quiet", "verbose")


def start_tui(command_line: CommandLine) -> int:
    """Run the terminal UI until the user leaves it; returns the exit code."""
    for name in HEADLESS_OPTIONS:
        if command_line.has(name):
            raise UsageError(f"--{name.replace('_', '-')} works only with -p")
    exit_code: int = import_module(TUI_MODULE).start(
        get_current_folder(),
        command_line.settings(),
        resume="" if command_line.has("continue") else command_line.text("resume") or None,
        prompt=command_line.prompt or "",
        allow=command_line.texts("allow"),
        deny=command_line.texts("deny"),
        until=command_line.text("until"),
        plain=command_line.has("plain"),
    )
    return exit_code
