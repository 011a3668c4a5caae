"""`treadle resume`: lists and continues suspended turns.

    treadle resume                     list suspended turns, what they wait for, how to continue
    treadle resume --suspended         continue all that are due, one after the other
    treadle resume ID [OPTIONS of -p]  continue this one now
    treadle resume ID --approve        ... and approve the calls that wait for approval
    treadle resume ID --deny REASON    ... or deny them, with a reason that the model reads
    treadle resume ID --answer TEXT    ... and answer the question of the model

Each turn continues in its own folder, where it stopped, as a run of `treadle -p --suspend`. Uses
headless.py and sessions/detached/suspend.py.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.console import exit_codes
from treadle.apps.console.console import UsageError, command, print_error, print_line
from treadle.lib.text.sanitize import escape_invisible

if TYPE_CHECKING:
    from treadle.apps.cli.resume_answers import ResumeInput
    from treadle.sessions.detached.suspend import SuspendedSession

USAGE = """\
usage: treadle resume                         list suspended turns
       treadle resume --suspended             continue all that are due
       treadle resume ID [--approve | --deny REASON] [--answer TEXT]...
                         [OPTIONS of -p, such as --max-cost USD]"""
NAME = "treadle resume"


@command(NAME, USAGE)
def run(arguments: list[str]) -> int:
    match arguments:
        case []:
            return _list_suspended()
        case ["--suspended" | "--parked"]:  # --parked: the name in version 0.1
            return _resume_all_due()
        case ["--suspended" | "--parked", name, *rest] | [name, *rest] if name[:1] != "-":
            return _resume_one(name, rest)
    print(f"{NAME}: unknown option {arguments[0]}", file=sys.stderr)
    print(USAGE, file=sys.stderr)
    return exit_codes.USAGE_ERROR


def _list_suspended() -> int:
    lines = [_format_suspended(suspended) for suspended in _find_suspended()]
    for line in lines or ["no suspended turns"]:
        print_line(line)
    return exit_codes.SUCCESS


def _resume_all_due() -> int:
    """Returns the last exit code that is not 0; 75 if a turn is not due."""
    sessions, code = _find_suspended(), exit_codes.SUCCESS
    for suspended in sessions:
        if not suspended.is_due:
            print_error(_format_suspended(suspended))
            code = code or exit_codes.SUSPENDED
            continue
        last_code = _resume(suspended.summary.id, suspended.summary.folder, [])
        if last_code in (exit_codes.ABORTED, exit_codes.TERMINATED):
            return last_code
        code = last_code or code
    if not sessions:
        print("no suspended turns", file=sys.stderr)
    return code


def _resume_one(name: str, rest: list[str]) -> int:
    from treadle.sessions.library import Library

    library = Library()
    summary = library.get_summary(library.find(name))
    options, resume_input = _parse_resume_input(rest)
    return _resume(summary.id, summary.folder, options, resume_input)


def _parse_resume_input(rest: list[str]) -> tuple[list[str], ResumeInput | None]:
    """The options of the run, and the user's input before them."""
    decision: bool | str | None = None
    answers: tuple[str, ...] = ()
    while rest:
        match rest:
            case ["--approve", *_] if decision is None:
                decision, rest = True, rest[1:]
            case ["--deny", reason, *_] if decision is None:
                decision, rest = reason, rest[2:]
            case ["--answer", text, *_] if text.strip():
                answers, rest = (*answers, text), rest[2:]
            case ["--answer", *_]:
                raise UsageError("--answer needs a text")
            case _:
                break
    if decision is None and not answers:
        return rest, None
    from treadle.apps.cli.resume_answers import ResumeInput

    return rest, ResumeInput(decision, answers)


def _resume(
    session_id: str, folder: str, options: list[str], resume_input: ResumeInput | None = None
) -> int:
    from treadle.apps.cli import start

    if not Path(folder).is_dir():
        folder = escape_invisible(folder)
        print_error(f"{NAME}: the folder of session {session_id} no longer exists: {folder}")
        return exit_codes.WRONG_FOLDER
    os.chdir(folder)
    arguments = ["-p", "--resume", session_id, "--suspend", *options]
    return start.run(arguments, resume_input, reads_input=False)


def _find_suspended() -> list[SuspendedSession]:
    from treadle.sessions.detached.suspend import list_suspended
    from treadle.sessions.library import Library

    return list_suspended(Library())


def _format_suspended(suspended: SuspendedSession) -> str:
    from treadle.apps.cli.resume_answers import format_resume_hint

    summary, entry = suspended.summary, suspended.entry
    match entry.wake.on:
        case "time" if suspended.is_due:
            hint = "due now"
        case "time":
            hint = time.strftime("until %Y-%m-%d %H:%M", time.localtime(entry.wake.at))
        case "file":
            hint = f"until {entry.wake.path} exists"
        case _:
            hint = format_resume_hint(summary.id, entry.reason)
    return f"{summary.id}  {entry.reason}: {escape_invisible(f'{entry.detail} ({hint})')}"
