"""`treadle undo`: take back what the last turn changed in the files. The work is in sessions.py."""

from __future__ import annotations

from treadle.apps.cli.commands import sessions


def run(arguments: list[str]) -> int:
    return sessions.run(["undo", *arguments])
