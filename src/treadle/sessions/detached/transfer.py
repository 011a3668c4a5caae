"""Moves a session to another machine. Exactly one side has it, wherever either is killed.

    sender                                   receiver
    lock it, mark it as being sent
    receive: its files               ──▶     store them beside the sessions: not listed, not open
                                     ◀──     ready
    commit                           ──▶     note that it is received; move it to the sessions
                                     ◀──     done
    remove it

A session that is marked cannot be opened. The next attempt asks the receiver first (`settle`): it
has the session, and the sender's is removed; or it forgets what came, and can never commit it. The
streams are the caller's: ssh, in apps/cli/background_sessions/send.py. The queue of a fleet is
another receiver: apps/fleet/commands/session_transfer.py, with the same mark, files and places.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Literal

import msgspec

from treadle.core.errors import SessionBusy, StoreError
from treadle.lib.files.file_system import LocalFiles
from treadle.lib.files.flock import try_lock
from treadle.lib.files.locks import lock_file
from treadle.lib.files.private_files import make_private_folder, write_private_file
from treadle.sessions.library import ID_PATTERN, Library, project_name
from treadle.sessions.log.lock import LOCK_NAME, SENDING_FILE, acquire_lock

START_MARK = b"treadle-send-begins\n"  # what a login shell prints comes before it
MAX_BANNER_LINES = 10_000
STDIO = "-"  # the host of a machine that asked for the session
SETTLE_SECONDS = 30.0  # for a receiver of the same session that is still there
SESSION, _OBJECTS = "session", "objects"
_RECEIVED, _FORGOTTEN = "received", "forgotten"
_CHUNK = 1 << 20
BROKEN = "the connection to the other machine broke; the same command finishes it"


class Sending(msgspec.Struct, frozen=True):
    """The mark of a session that is being sent."""

    host: str
    token: str


class Package(msgspec.Struct, frozen=True):
    """What follows a request to receive: files by their path and size, one after the other."""

    session: str
    folder: str
    files: tuple[tuple[str, int], ...]


class TransferRequest(msgspec.Struct, frozen=True):
    do: Literal["settle", "receive", "commit"]
    token: str
    package: Package | None = None


class TransferReply(msgspec.Struct, frozen=True):
    state: Literal["ready", "done", "forgotten", "refused"]
    problem: str = ""


def write_start(to: IO[bytes]) -> None:
    """Say that Treadle is at this end."""
    to.write(START_MARK)
    to.flush()


def read_start(source: IO[bytes]) -> str | None:
    """Skip what comes before the start mark. None: it came; else the last line instead of it."""
    last = b""
    for _ in range(MAX_BANNER_LINES):
        line = source.readline(_CHUNK)
        if line.endswith(START_MARK):
            return None
        if not line:
            break
        last = line.strip() or last
    return last[-200:].decode(errors="replace")


# --- the sender ---------------------------------------------------------------------------


def read_sending(session_dir: Path) -> Sending | None:
    try:
        return msgspec.json.decode((session_dir / SENDING_FILE).read_bytes(), type=Sending)
    except FileNotFoundError:
        return None


def check_family(library: Library, session_dir: Path) -> None:
    """Raises StoreError if the session shares its history with another one."""
    parent = library.get_summary(session_dir).parent
    forks = [one.id for one in library.list_forks(session_dir.name)]
    if parent is not None or forks:
        others = parent.session if parent is not None else ", ".join(forks[:5])
        raise StoreError(
            f"session {session_dir.name} shares its history with {others}, so it cannot be sent"
        )


@contextmanager
def lock_to_send(library: Library, session_dir: Path, host: str) -> Iterator[Sending | None]:
    """Lock a session that can be sent to this host; the mark of an earlier attempt."""
    earlier = read_sending(session_dir)
    if earlier is None:
        lock: int | None = acquire_lock(session_dir, LocalFiles())
    else:
        lock = lock_file(session_dir / LOCK_NAME, LocalFiles())
    if lock is None:
        raise SessionBusy(f"session {session_dir.name} is being sent by another process")
    try:
        earlier = read_sending(session_dir)
        if earlier is not None and earlier.host != host:  # only that one knows who has it
            raise _make_elsewhere_error(session_dir.name, earlier.host)
        check_family(library, session_dir)
        yield earlier
    finally:
        os.close(lock)


def _make_elsewhere_error(session_id: str, host: str) -> SessionBusy:
    if host == STDIO:
        return SessionBusy(
            f"session {session_id} is being sent to a machine that asked for it, and that may have "
            f"it: `treadle send --from … {session_id}` there finishes that"
        )
    return SessionBusy(
        f"session {session_id} is being sent to {host}, which may have it: "
        f"`treadle send {session_id} {host}` finishes that"
    )


def mark_sending(session_dir: Path, host: str) -> Sending:
    """From now on the session cannot be opened here."""
    sending = Sending(host, secrets.token_hex(16))
    write_private_file(session_dir / SENDING_FILE, msgspec.json.encode(sending))
    return sending


def unmark_sending(session_dir: Path) -> None:
    """Nothing was committed, and nothing will be."""
    (session_dir / SENDING_FILE).unlink()


def write_package(
    library: Library, session_dir: Path, token: str, objects: Mapping[str, Path], to: IO[bytes]
) -> None:
    """Write a request to receive the session, and its files."""
    files = {
        f"{SESSION}/{path.relative_to(session_dir)}": path
        for path in session_dir.rglob("*")
        if path.is_file() and path.name not in (LOCK_NAME, SENDING_FILE)
    } | {f"{_OBJECTS}/{name}": path for name, path in objects.items()}
    sizes = tuple((name, path.stat().st_size) for name, path in files.items())
    folder = library.get_summary(session_dir).folder
    request = TransferRequest("receive", token, Package(session_dir.name, folder, sizes))
    to.write(msgspec.json.encode(request) + b"\n")
    for name, size in sizes:
        with files[name].open("rb") as file:
            _copy(file, to, size)


def remove_sent(library: Library, session_dir: Path, token: str) -> None:
    """At once: what is killed in the middle leaves no half session."""
    trash = find_incoming(library) / f"sent-{token}"
    make_private_folder(trash.parent)
    session_dir.rename(trash)
    shutil.rmtree(trash)


class Sender:
    """`objects` are the files of the checkpoints of the session, by their names."""

    def __init__(self, library: Library, to: IO[bytes], back: IO[bytes]) -> None:
        self._library = library
        self._to = to
        self._back = back

    def send(self, session_dir: Path, host: str, objects: Mapping[str, Path]) -> None:
        """Raises if the session stays here, or if the connection breaks: then ask again."""
        with lock_to_send(self._library, session_dir, host) as earlier:
            if earlier is not None:
                if self._ask(TransferRequest("settle", earlier.token)).state == "done":
                    remove_sent(self._library, session_dir, earlier.token)
                    return
                unmark_sending(session_dir)
            token = mark_sending(session_dir, host).token
            try:
                write_package(self._library, session_dir, token, objects, self._to)
                self._read()
            except BaseException:
                unmark_sending(session_dir)
                raise
            self._ask(TransferRequest("commit", token))
            remove_sent(self._library, session_dir, token)

    def _ask(self, request: TransferRequest) -> TransferReply:
        self._write(request)
        return self._read()

    def _write(self, request: TransferRequest) -> None:
        self._to.write(msgspec.json.encode(request) + b"\n")
        self._to.flush()

    def _read(self) -> TransferReply:
        self._to.flush()
        line = self._back.readline()
        if not line.endswith(b"\n"):
            raise StoreError(BROKEN)
        try:
            reply = msgspec.json.decode(line, type=TransferReply)
        except msgspec.DecodeError as error:
            raise StoreError(f"{BROKEN}: {line[:200]!r} is not what treadle sends") from error
        if reply.state == "refused":
            raise StoreError(f"the other machine does not take the session: {reply.problem}")
        return reply


# --- the receiver -------------------------------------------------------------------------

# Gets a folder, and files that its checkpoints need.
AdoptObjects = Callable[[Path, list[Path]], None]


def receive(
    library: Library, source: IO[bytes], back: IO[bytes], adopt_objects: AdoptObjects
) -> str:
    """Do what a sender asks for, until it ends; the session that came, or ""."""
    name = ""
    with ExitStack() as locks:
        for line in source:
            try:
                request = msgspec.json.decode(line, type=TransferRequest)
                reply, package = _answer(library, request, source, locks, adopt_objects)
                name = package.session if package is not None else name
            except (StoreError, OSError, msgspec.DecodeError) as error:
                reply = TransferReply("refused", str(error))
            back.write(msgspec.json.encode(reply) + b"\n")
            back.flush()
    return name


def _answer(
    library: Library,
    request: TransferRequest,
    source: IO[bytes],
    locks: ExitStack,
    adopt_objects: AdoptObjects,
) -> tuple[TransferReply, Package | None]:
    if not request.token.isalnum():
        raise StoreError("the token of the sender is malformed")
    place = find_incoming(library) / request.token
    make_private_folder(place)
    match request:
        case TransferRequest(do="receive", package=Package() as package):
            locks.callback(os.close, lock_place(place))
            problem = find_problem(library, place, package)
            store_files(place, package, source, is_wanted=not problem)
            if problem:
                raise StoreError(problem)
            return TransferReply("ready"), None
        case TransferRequest(do="commit"):
            if not (place / SESSION).exists():
                raise StoreError("it is not there any more")
            accept(place)
            return TransferReply("done"), finish(library, place, adopt_objects)
        case _:
            lock = lock_place(place)
            try:
                if (place / _RECEIVED).exists():
                    return TransferReply("done"), finish(library, place, adopt_objects)
                shutil.rmtree(place / SESSION, ignore_errors=True)
                shutil.rmtree(place / _OBJECTS, ignore_errors=True)
                write_private_file(place / _FORGOTTEN, b"")
                return TransferReply("forgotten"), None
            finally:
                os.close(lock)


def lock_place(place: Path) -> int:
    deadline = time.monotonic() + SETTLE_SECONDS
    while (lock := try_lock(place)) is None:
        if time.monotonic() > deadline:
            raise StoreError("an earlier transfer still runs there; try again later")
        time.sleep(0.1)
    return lock


def find_problem(library: Library, place: Path, package: Package) -> str:
    """Why the session cannot be received; "" if it can."""
    if ID_PATTERN.fullmatch(package.session) is None:
        return f"{package.session!r:.80} is not a session ID"
    if (place / _FORGOTTEN).exists() or (place / _RECEIVED).exists():
        return "this transfer is over"
    if not Path(package.folder).is_dir():
        return f"there is no folder {package.folder}; clone or copy the project to it first"
    target = _find_target(library, package)
    if target.exists() and read_sending(target) is None:
        return f"session {package.session} is there already"
    return ""


def store_files(place: Path, package: Package, source: IO[bytes], *, is_wanted: bool) -> None:
    for name, size in package.files:
        path = PurePosixPath(name)
        is_inside = path.parts[:1] in ((SESSION,), (_OBJECTS,)) and ".." not in path.parts
        if not is_inside or "\0" in name or size < 0:
            raise StoreError(f"a file is not allowed: {name!r:.80}, {size} bytes")
        if not is_wanted:
            _copy(source, None, size)
            continue
        make_private_folder(place / path.parent)
        with open(
            place / path, "wb", opener=lambda file, flags: os.open(file, flags, 0o600)
        ) as out:
            _copy(source, out, size)
    if is_wanted:
        write_private_file(place / "package", msgspec.json.encode(package))
        os.sync()  # all of it is durable before the sender removes its own


def accept(place: Path) -> None:
    """From now on this side has the session; again, if this was done before."""
    if (place / "package").exists():
        (place / "package").rename(place / _RECEIVED)


def finish(library: Library, place: Path, adopt_objects: AdoptObjects) -> Package:
    """Move what was received to its place; again, if it was not finished."""
    package = msgspec.json.decode((place / _RECEIVED).read_bytes(), type=Package)
    target = _find_target(library, package)
    adopt_objects(Path(package.folder), list((place / _OBJECTS).glob("*")))
    if (place / SESSION).exists():
        make_private_folder(target.parent)
        if target.exists():  # it was sent from here before, and comes back
            target.rename(place / "before")
        (place / SESSION).rename(target)
        os.sync()
    shutil.rmtree(place / "before", ignore_errors=True)
    return package


def _find_target(library: Library, package: Package) -> Path:
    return library.root / project_name(Path(package.folder)) / package.session


def find_incoming(library: Library) -> Path:
    return library.root.parent / "incoming"


def _copy(source: IO[bytes], target: IO[bytes] | None, size: int) -> None:
    while size:
        piece = source.read(min(size, _CHUNK))
        if not piece:
            raise StoreError(BROKEN)
        if target is not None:
            target.write(piece)
        size -= len(piece)
