"""`treadle resume`: go on with turns that wait on disk.

    treadle resume                     what waits, for what, and how to go on with it
    treadle resume --parked            go on with all whose time has come, one after the other
    treadle resume ID [OPTIONS of -p]  go on with this one now
    treadle resume ID --approve        ... and let the calls happen that it waits with
    treadle resume ID --deny REASON    ... or not, for a reason that the model reads

Each goes on in its own folder, exactly where it stopped, as a run of `treadle -p` that may be
parked again. The work is headless.py's; what is parked is sessions/parking's to know.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.cli import exits
from treadle.apps.cli.sessions import answered

if TYPE_CHECKING:
    from treadle.sessions.parking import Waiting

USAGE = """\
usage: treadle resume                         what waits, and for what
       treadle resume --parked                go on with all whose time has come
       treadle resume ID [--approve | --deny REASON] [OPTIONS of -p, such as --max-cost USD]"""


def run(arguments: list[str]) -> int:
    match arguments:
        case ["--help" | "-h" | "help", *_]:
            print(USAGE)
            return exits.DONE
        case []:
            return answered("resume", _list)
        case ["--parked"]:
            return answered("resume", _all_due)
        case [session, *rest] if not session.startswith("-"):
            return answered("resume", lambda: _one(session, rest))
    print(USAGE, file=sys.stderr)
    return exits.USAGE


def _list() -> int:
    found = _waiting()
    for one in found:
        print(_line(one))
    if not found:
        print("nothing waits")
    return exits.DONE


def _all_due() -> int:
    """The worst exit code; 75 if something still waits."""
    found, code = _waiting(), exits.DONE
    for one in found:
        if not one.is_due:
            print(_line(one), file=sys.stderr)
            code = code or exits.PARKED
            continue
        ended = _go_on(one.summary.id, one.summary.folder, [], None)
        if ended in (exits.ABORTED, exits.TERMINATED):
            return ended
        code = ended or code
    if not found:
        print("nothing waits", file=sys.stderr)
    return code


def _one(name: str, rest: list[str]) -> int:
    from treadle.sessions.library import Library

    library = Library()
    summary = library.summary(library.find(name))
    options, answer = _answer(rest)
    return _go_on(summary.id, summary.folder, options, answer)


def _answer(rest: list[str]) -> tuple[list[str], bool | str | None]:
    """A person's word, apart from the options of the run."""
    if rest[:1] == ["--approve"]:
        return rest[1:], True
    if rest[:1] == ["--deny"] and len(rest) > 1:
        return rest[2:], rest[1]
    return rest, None


def _go_on(session: str, folder: str, options: list[str], answer: bool | str | None) -> int:
    from treadle.apps.cli import headless

    if not Path(folder).is_dir():
        print(f"treadle resume: {session} worked in {folder}, which is gone", file=sys.stderr)
        return exits.ELSEWHERE
    os.chdir(folder)
    return headless.run(["-p", "--resume", session, "--park", *options], answer, reads_input=False)


def _waiting() -> list[Waiting]:
    from treadle.sessions.library import Library
    from treadle.sessions.parking import waiting

    return waiting(Library())


def _line(one: Waiting) -> str:
    summary, parked = one.summary, one.parked
    match parked.wake.on:
        case "time" if one.is_due:
            how = "its time has come"
        case "time":
            at = time.strftime("%Y-%m-%d %H:%M", time.localtime(parked.wake.at))
            how = f"until {at}"
        case "file":
            how = f"until {parked.wake.path} is there"
        case "answer":
            how = f"treadle resume {summary.id} --approve, or --deny REASON"
        case _:
            how = f"treadle resume {summary.id} with a higher limit"
    safe = "".join(c if c.isprintable() else " " for c in f"{parked.detail} ({how})")
    return f"{summary.id}  {parked.reason}: {safe}"
