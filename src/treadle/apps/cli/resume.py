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

from treadle.apps.cli import exits
from treadle.apps.cli.printing import say, warn
from treadle.apps.cli.sessions import answered
from treadle.core.errors import ConfigError
from treadle.core.terminal import visible

if TYPE_CHECKING:
    from treadle.apps.cli.parked import Word
    from treadle.sessions.parking import Waiting

USAGE = """\
usage: treadle resume                         what waits, and for what
       treadle resume --parked                go on with all whose time has come
       treadle resume ID [--approve | --deny REASON] [--answer TEXT]...
                         [OPTIONS of -p, such as --max-cost USD]"""


def run(arguments: list[str]) -> int:
    match arguments:
        case ["--help" | "-h" | "help", *_]:
            print(USAGE)
            return exits.DONE
        case []:
            return answered("resume", _list)
        case ["--parked"]:
            return answered("resume", _all_due)
        case ["--parked", session, *rest] | [session, *rest] if not session.startswith("-"):
            return answered("resume", lambda: _one(session, rest))
    print(USAGE, file=sys.stderr)
    return exits.USAGE


def _list() -> int:
    found = _waiting()
    for one in found:
        say(_line(one))
    if not found:
        print("nothing waits")
    return exits.DONE


def _all_due() -> int:
    """The worst exit code; 75 if something still waits."""
    found, code = _waiting(), exits.DONE
    for one in found:
        if not one.is_due:
            warn(_line(one))
            code = code or exits.PARKED
            continue
        ended = _go_on(one.summary.id, one.summary.folder, [])
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
    options, word = _word(rest)
    return _go_on(summary.id, summary.folder, options, word)


def _word(rest: list[str]) -> tuple[list[str], Word | None]:
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
    from treadle.apps.cli.parked import Word

    return rest, Word(ruling, answers)


def _go_on(session: str, folder: str, options: list[str], word: Word | None = None) -> int:
    from treadle.apps.cli import headless

    if not Path(folder).is_dir():
        warn(f"treadle resume: {session} worked in {visible(folder)}, which is gone")
        return exits.ELSEWHERE
    os.chdir(folder)
    return headless.run(["-p", "--resume", session, "--park", *options], word, reads_input=False)


def _waiting() -> list[Waiting]:
    from treadle.sessions.library import Library
    from treadle.sessions.parking import waiting

    return waiting(Library())


def _line(one: Waiting) -> str:
    from treadle.apps.cli.parked import how as how_to

    summary, parked = one.summary, one.parked
    match parked.wake.on:
        case "time" if one.is_due:
            how = "its time has come"
        case "time":
            at = time.strftime("%Y-%m-%d %H:%M", time.localtime(parked.wake.at))
            how = f"until {at}"
        case "file":
            how = f"until {parked.wake.path} is there"
        case _:
            how = how_to(summary.id, parked.reason)
    return f"{summary.id}  {parked.reason}: {visible(f'{parked.detail} ({how})')}"
