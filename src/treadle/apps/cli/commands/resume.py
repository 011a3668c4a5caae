"""`treadle resume`: go on with turns that wait on disk.

    treadle resume                     what waits, for what, and how to go on with it
    treadle resume --parked            go on with all whose time has come, one after the other
    treadle resume ID [OPTIONS of -p]  go on with this one now
    treadle resume ID --approve        ... and let the calls happen that it waits with
    treadle resume ID --deny REASON    ... or not, for a reason that the model reads
    treadle resume ID --answer TEXT    ... with the answer to the question that it waits with

Each goes on in its own folder, exactly where it stopped, as a run of `treadle -p` that may be
parked again. The work is headless.py's; what is parked is sessions/parking's to know.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.cli import exit_codes
from treadle.apps.cli.commands.sessions import report_errors
from treadle.apps.cli.console import print_error, print_line
from treadle.core.errors import ConfigError
from treadle.core.sanitize import escape_invisible

if TYPE_CHECKING:
    from treadle.apps.cli.resume_answers import ResumeInput
    from treadle.sessions.suspend import SuspendedSession

USAGE = """\
usage: treadle resume                         what waits, and for what
       treadle resume --parked                go on with all whose time has come
       treadle resume ID [--approve | --deny REASON] [--answer TEXT]...
                         [OPTIONS of -p, such as --max-cost USD]"""


def run(arguments: list[str]) -> int:
    match arguments:
        case ["--help" | "-h" | "help", *_]:
            print(USAGE)
            return exit_codes.SUCCESS
        case []:
            return report_errors("resume", _list_suspended)
        case ["--parked"]:
            return report_errors("resume", _resume_all_due)
        case ["--parked", session, *rest] | [session, *rest] if not session.startswith("-"):
            return report_errors("resume", lambda: _resume_one(session, rest))
    print(USAGE, file=sys.stderr)
    return exit_codes.USAGE_ERROR


def _list_suspended() -> int:
    found = _find_suspended()
    for one in found:
        print_line(_format_suspended(one))
    if not found:
        print("nothing waits")
    return exit_codes.SUCCESS


def _resume_all_due() -> int:
    """The worst exit code; 75 if something still waits."""
    found, code = _find_suspended(), exit_codes.SUCCESS
    for one in found:
        if not one.is_due:
            print_error(_format_suspended(one))
            code = code or exit_codes.SUSPENDED
            continue
        ended = _resume(one.summary.id, one.summary.folder, [])
        if ended in (exit_codes.ABORTED, exit_codes.TERMINATED):
            return ended
        code = ended or code
    if not found:
        print("nothing waits", file=sys.stderr)
    return code


def _resume_one(name: str, rest: list[str]) -> int:
    from treadle.sessions.library import Library

    library = Library()
    summary = library.get_summary(library.find(name))
    options, word = _parse_resume_input(rest)
    return _resume(summary.id, summary.folder, options, word)


def _parse_resume_input(rest: list[str]) -> tuple[list[str], ResumeInput | None]:
    """A person's word, apart from the options of the run that stand behind it."""
    ruling: bool | str | None = None
    answers: tuple[str, ...] = ()
    while rest:
        match rest:
            case ["--approve", *_] if ruling is None:
                ruling, rest = True, rest[1:]
            case ["--deny", reason, *_] if ruling is None:
                ruling, rest = reason, rest[2:]
            case ["--answer", text, *_] if text.strip():
                answers, rest = (*answers, text), rest[2:]
            case ["--answer", *_]:
                raise ConfigError("--answer needs the answer")
            case _:
                break
    if ruling is None and not answers:
        return rest, None
    from treadle.apps.cli.resume_answers import ResumeInput

    return rest, ResumeInput(ruling, answers)


def _resume(
    session_id: str, folder: str, options: list[str], resume_input: ResumeInput | None = None
) -> int:
    from treadle.apps.cli import headless

    if not Path(folder).is_dir():
        print_error(
            f"treadle resume: {session_id} worked in {escape_invisible(folder)}, which is gone"
        )
        return exit_codes.WRONG_FOLDER
    os.chdir(folder)
    return headless.run(
        ["-p", "--resume", session_id, "--park", *options], resume_input, reads_input=False
    )


def _find_suspended() -> list[SuspendedSession]:
    from treadle.sessions.library import Library
    from treadle.sessions.suspend import list_suspended

    return list_suspended(Library())


def _format_suspended(suspended: SuspendedSession) -> str:
    from treadle.apps.cli.resume_answers import format_resume_hint as how_to

    summary, parked = suspended.summary, suspended.entry
    match parked.wake.on:
        case "time" if suspended.is_due:
            how = "its time has come"
        case "time":
            at = time.strftime("%Y-%m-%d %H:%M", time.localtime(parked.wake.at))
            how = f"until {at}"
        case "file":
            how = f"until {parked.wake.path} is there"
        case _:
            how = how_to(summary.id, parked.reason)
    return f"{summary.id}  {parked.reason}: {escape_invisible(f'{parked.detail} ({how})')}"
