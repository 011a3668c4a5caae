"""`treadle send`: moves a session to another machine over ssh or to a fleet, or gets it from there.

    treadle send ID HOST          here: the sender;   ssh HOST treadle send --receive
    treadle send --from HOST ID   here: the receiver; ssh HOST treadle send ID -

The protocol is sessions/detached/transfer.py; this connects it to ssh, or to the standard streams.
The database of a fleet in place of HOST: apps/fleet/commands/session_transfer.py.
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from platform import node
from typing import IO, TYPE_CHECKING, TypeVar

from treadle.apps.console.console import UsageError, command, print_error, print_line
from treadle.apps.console.exit_codes import ERROR, SUCCESS, USAGE_ERROR
from treadle.apps.fleet.store_address import hide_password, is_store_address
from treadle.core.errors import StoreError
from treadle.lib.text.sanitize import escape_invisible
from treadle.sessions.detached.transfer import STDIO

if TYPE_CHECKING:
    from treadle.sessions.library import Library
    from treadle.workspace.checkpoints.object_store import ObjectStore

_T = TypeVar("_T")

USAGE = """\
usage: treadle send ID HOST                        move a session to another machine, over ssh
       treadle send --from HOST ID                 get it from there
       treadle send ID ADDRESS                     move it to the queue of a fleet
       treadle send --from ADDRESS ID [FOLDER]     get it from there, its files to a new folder

ADDRESS is the database of the fleet: sqlite:PATH or postgresql://USER@HOST/NAME. A worker continues
the open turn in a copy of the session's folder.

With its log, its checkpoints, what it costs and what it waits for, but without the files of the
project: the machine has to have them in a folder of the same path, and treadle on the PATH of ssh.
A session at work is sent after its round. A fork, and a session that has forks, stays: they share
one history. If it breaks off, the same command finishes it: one machine has the session."""
HERE = "{0} is here: treadle attach {0}"
NOT_REACHED = (
    "{host} does not answer: ssh has to reach it, and treadle has to be on its PATH there. Nothing "
    "was changed.{said}"
)
STAYS = (
    "{error}. Session {id} stays on {node}, and its run was stopped: `treadle attach {id}` there "
    "continues it"
)
SENT_LATER = "it works: it is sent after this round (ctrl+c lets it work on)"


@command("treadle send", USAGE)
def run(arguments: list[str]) -> int:
    from treadle.sessions.detached.transfer import write_start
    from treadle.sessions.library import ID_PATTERN, Library

    library = Library()
    match arguments:
        case [session_id, address] if is_store_address(address):
            return _send_to_fleet(library, library.find(session_id, by_words=True), address)
        case ["--from", address, session_id, *folder] if is_store_address(address):
            if len(folder) > 1:
                raise UsageError(f"name one new folder for the files of {session_id}")
            return _fetch_from_fleet(library, address, session_id, *map(Path, folder))
        case ["--receive"]:
            write_start(sys.stdout.buffer)
            _receive(library, sys.stdin.buffer, sys.stdout.buffer)
            return SUCCESS
        case ["--from", host, session_id] if not host.startswith("-"):
            if ID_PATTERN.fullmatch(session_id) is None:  # a shell reads it there
                raise UsageError(f"{escape_invisible(session_id)!r} is not a session ID")
            return _fetch(library, host, session_id)
        case [session_id, host] if not session_id.startswith("-") and (
            host == STDIO or not host.startswith("-")
        ):
            if host == STDIO:
                write_start(sys.stdout.buffer)
            return _send(library, library.find(session_id, by_words=True), host)
    print_error(USAGE)
    return USAGE_ERROR


def _send(library: Library, session_dir: Path, host: str) -> int:
    """The machine is reached before a run is stopped for it."""
    from treadle.sessions.detached.transfer import Sender, check_family

    check_family(library, session_dir)
    if host == STDIO:
        sender = Sender(library, sys.stdout.buffer, sys.stdin.buffer)
        _transfer(library, session_dir, partial(sender.send, session_dir, host))
        return SUCCESS
    with _connect(host, "--receive") as (to, back):
        sender = Sender(library, to, back)
        _transfer(library, session_dir, partial(sender.send, session_dir, host))
    print_line(f"{session_dir.name} is on {host}: ssh -t {host} treadle attach {session_dir.name}")
    return SUCCESS


def _send_to_fleet(library: Library, session_dir: Path, address: str) -> int:
    from treadle.apps.fleet.commands.session_transfer import check_sendable, send_session
    from treadle.sessions.detached.transfer import check_family

    check_family(library, session_dir)
    asyncio.run(check_sendable(address, library, session_dir))
    run_id = _transfer(
        library,
        session_dir,
        lambda objects: asyncio.run(send_session(address, library, session_dir, objects)),
    )
    store = shlex.quote(hide_password(address))
    print_line(f"{session_dir.name} is in the fleet: treadle fleet status {run_id} --store {store}")
    return SUCCESS


def _fetch_from_fleet(
    library: Library, address: str, session_id: str, files: Path | None = None
) -> int:
    from treadle.apps.fleet.commands.session_transfer import fetch_session

    files = files.resolve() if files is not None else None
    adopt = partial(_adopt_objects, library)
    asyncio.run(fetch_session(address, library, session_id, files, adopt))
    print_line(HERE.format(session_id))
    return SUCCESS


def _transfer(library: Library, session_dir: Path, send: Callable[[Mapping[str, Path]], _T]) -> _T:
    """When no run has the session any more, with the files of its checkpoints."""
    from treadle.apps.console.supervisor import bring_here
    from treadle.sessions.detached.transfer import BROKEN, read_sending
    from treadle.sessions.history import list_checkpoint_trees

    folder = Path(library.get_summary(session_dir).folder)
    was_running = bring_here(session_dir, folder, SENT_LATER)
    objects = _open_store(library, folder).find_files(list_checkpoint_trees(session_dir))
    try:
        return send(objects)
    except (StoreError, OSError) as error:
        if not was_running or read_sending(session_dir) is not None:
            raise
        problem = BROKEN if isinstance(error, ConnectionError) else error
        raise StoreError(STAYS.format(error=problem, id=session_dir.name, node=node())) from None


def _fetch(library: Library, host: str, session_id: str) -> int:
    with _connect(host, session_id, STDIO) as (to, back):
        name = _receive(library, back, to)
    if not name:
        print_error(f"treadle send: {host} did not send the session")
        return ERROR
    print_line(HERE.format(name))
    return SUCCESS


def _receive(library: Library, source: IO[bytes], back: IO[bytes]) -> str:
    from treadle.sessions.detached.transfer import receive

    return receive(library, source, back, partial(_adopt_objects, library))


def _adopt_objects(library: Library, folder: Path, files: list[Path]) -> None:
    _open_store(library, folder).adopt(files)


def _open_store(library: Library, folder: Path) -> ObjectStore:
    from treadle.workspace.checkpoints.object_store import ObjectStore

    return ObjectStore(library.checkpoint_dir(folder))


@contextmanager
def _connect(host: str, *words: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """The standard streams of `treadle send` on the other machine."""
    from treadle.sessions.detached.transfer import BROKEN, read_start

    program = ("ssh", host, "treadle", "send", *words)
    try:
        process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError as error:
        raise StoreError(f"ssh cannot be run: {error.strerror}") from None
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            said = read_start(process.stdout)
            if said is not None:
                shown = f" It said: {escape_invisible(said)}" if said else ""
                raise StoreError(NOT_REACHED.format(host=host, said=shown))
            yield process.stdin, process.stdout
        except ConnectionError:
            raise StoreError(BROKEN) from None
        finally:
            with suppress(OSError):
                process.stdin.close()
