"""`treadle` at a terminal: the options that were typed, handed to the screen.

Hosts do not know each other, so the screen is found by its name, as every command is.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from treadle.apps.cli.options import CommandLine, UsageError

SCREEN = "treadle.apps.tui.main"
ONLY_HEADLESS = ("file", "output_format", "output_schema", "park", "quiet", "verbose")


def start(line: CommandLine) -> int:
    """Until the person leaves; the exit code."""
    for name in ONLY_HEADLESS:
        if line.has(name):
            raise UsageError(f"--{name.replace('_', '-')} is an option of -p")
    exit_code: int = import_module(SCREEN).start(
        Path.cwd(),
        line.settings(),
        resume="" if line.has("continue") else line.text("resume") or None,
        prompt=line.prompt or "",
        allow=line.texts("allow"),
        deny=line.texts("deny"),
        until=line.text("until"),
        plain=line.has("plain"),
    )
    return exit_code
