"""`treadle` at a terminal: the options that were typed, handed to the screen.

Hosts do not know each other, so the screen is found by its name, as every command is.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from treadle.apps.cli.options import CommandLine, UsageError

TUI_MODULE = "treadle.apps.tui.main"
HEADLESS_OPTIONS = ("file", "output_format", "output_schema", "park", "quiet", "verbose")


def start_tui(command_line: CommandLine) -> int:
    """Until the person leaves; the exit code."""
    for name in HEADLESS_OPTIONS:
        if command_line.has(name):
            raise UsageError(f"--{name.replace('_', '-')} is an option of -p")
    exit_code: int = import_module(TUI_MODULE).start(
        Path.cwd(),
        command_line.settings(),
        resume="" if command_line.has("continue") else command_line.text("resume") or None,
        prompt=command_line.prompt or "",
        allow=command_line.texts("allow"),
        deny=command_line.texts("deny"),
        until=command_line.text("until"),
        plain=command_line.has("plain"),
    )
    return exit_code
