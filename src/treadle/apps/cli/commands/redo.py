"""`treadle redo`: bring back what undo took. The work is in sessions.py."""

from __future__ import annotations

from treadle.apps.cli.commands import sessions


def run(arguments: list[str]) -> int:
    return sessions.run(["redo", *arguments])
