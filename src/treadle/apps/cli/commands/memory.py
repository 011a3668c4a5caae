"""`treadle memory`: what the agent keeps for later sessions: list, accept, edit, forget."""

from __future__ import annotations

import sys
from pathlib import Path

from treadle.apps.console import exit_codes
from treadle.apps.console.console import print_line, report_errors
from treadle.apps.console.help_option import wants_help

USAGE = """\
usage: treadle memory                     list the lines of this project and of yours
       treadle memory accept N ...        use lines that the agent proposed
       treadle memory edit N TEXT         change a line, and use it
       treadle memory forget N ...        remove lines; also: undo N ...
       treadle memory add [--user] TEXT   keep a line of yours; --user: in every project"""


def run(arguments: list[str]) -> int:
    if wants_help(arguments):
        print(USAGE)
        return exit_codes.SUCCESS
    if arguments and arguments[0] not in ("list", "accept", "edit", "forget", "undo", "add"):
        print(USAGE, file=sys.stderr)
        return exit_codes.USAGE_ERROR
    return report_errors("treadle memory", lambda: _run(arguments))


def _run(arguments: list[str]) -> int:
    from treadle.apps.settings.kept_memory import run_memory_action

    print_line(run_memory_action(Path.cwd(), arguments))
    return exit_codes.SUCCESS
