"""`treadle send`: moves a session to another machine over ssh, or gets it from there.

    treadle send ID HOST          here: the sender;   ssh HOST treadle send --receive
    treadle send --from HOST ID   here: the receiver; ssh HOST treadle send ID -

The protocol is sessions/detached/transfer.py; this connects it to ssh, or to the standard streams.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from treadle.apps.console.console import UsageError, command, print_error, print_line
from treadle.apps.console.exit_codes import ERROR, SUCCESS, USAGE_ERROR
from treadle.core.errors import StoreError
from treadle.lib.text.sanitize import escape_invisible

if TYPE_CHECKING:
    from treadle.sessions.library import Library
    from treadle.workspace.checkpoints.object_store import ObjectStore

USAGE = """\
usage: treadle send ID HOST          move a session to another machine, over ssh
       treadle send --from HOST ID   get it from there

With its log, its checkpoints, what it costs and what it waits for, but without the files of the
project: the machine has to have them in a folder of the same path, and treadle on the PATH of ssh.
A session at work is sent after its round. A fork, and a session that has forks, stays: they share
one history. If it breaks off, the same command finishes it: one machine has the session."""
STDIO = "-"


@command("treadle send", USAGE)
def run(arguments: list[str]) -> int:
    from treadle.sessions.library import ID_PATTERN, Library

    library = Library()
    match arguments:
        case ["--receive"]:
            _receive(library, sys.stdin.buffer, sys.stdout.buffer)
            return SUCCESS
        case ["--from", host, session_id] if not host.startswith("-"):
            if ID_PATTERN.fullmatch(session_id) is None:  # a shell reads it there
                raise UsageError(f"{escape_invisible(session_id)!r} is not a session ID")
            return _fetch(library, host, session_id)
        case [session_id, host] if host == STDIO or not host.startswith("-"):
            return _send(library, library.find(session_id, by_words=True), host)
    print_error(USAGE)
    return USAGE_ERROR


def _send(library: Library, session_dir: Path, host: str) -> int:
    from treadle.sessions.detached.background import take_over
    from treadle.sessions.detached.transfer import Sender
    from treadle.sessions.history import list_checkpoint_trees

    folder = Path(library.get_summary(session_dir).folder)
    wait = "treadle: it works: it is sent after this round"
    asyncio.run(take_over(session_dir, lambda: print_error(wait)))
    objects = _open_store(library, folder).find_files(list_checkpoint_trees(session_dir))
    if host == STDIO:
        Sender(library, sys.stdout.buffer, sys.stdin.buffer).send(session_dir, host, objects)
        return SUCCESS
    with _connect(host, "--receive") as (to, back):
        Sender(library, to, back).send(session_dir, host, objects)
    print_line(f"{session_dir.name} is on {host}: ssh -t {host} treadle attach {session_dir.name}")
    return SUCCESS


def _fetch(library: Library, host: str, session_id: str) -> int:
    with _connect(host, session_id, STDIO) as (to, back):
        name = _receive(library, back, to)
    if not name:
        print_error(f"treadle send: {host} did not send the session")
        return ERROR
    print_line(f"{name} is here: treadle attach {name}")
    return SUCCESS


def _receive(library: Library, source: IO[bytes], back: IO[bytes]) -> str:
    from treadle.sessions.detached.transfer import receive

    return receive(
        library, source, back, lambda folder, files: _open_store(library, folder).adopt(files)
    )


def _open_store(library: Library, folder: Path) -> ObjectStore:
    from treadle.workspace.checkpoints.object_store import ObjectStore

    return ObjectStore(library.checkpoint_dir(folder))


@contextmanager
def _connect(host: str, *words: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The standard streams of `treadle send` on the other machine."""
    from treadle.sessions.detached.transfer import BROKEN

    program = ("ssh", host, "treadle", "send", *words)
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdin, process.stdout
        except BrokenPipeError as error:
            raise StoreError(f"{BROKEN} (treadle has to be on the PATH of ssh there)") from error
        finally:
            with suppress(OSError):
                process.stdin.close()
