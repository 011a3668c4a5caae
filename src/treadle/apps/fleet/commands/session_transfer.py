"""Moves a session of this machine to the queue of a fleet, and back. Exactly one side has it.

    this machine                                   the database (sql/sql_transfers.py)
    send: lock it, mark it as being sent     ──▶   a transfer; its files as one blob, its log
                                                   one transaction: committed, and there is a run
          remove it
    fetch: unpack the files, add to the log  ◀──   a transfer
           what the fleet has written              one transaction: committed, and there is no run
           move it to the sessions

Wherever this process is killed, the same command finishes it: the database says whether the
transfer is committed. The mark, the files and the places here are those of a session that is sent
to another machine (sessions/detached/transfer.py). Used by apps/cli/background_sessions/send.py.
"""

from __future__ import annotations

import io
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import msgspec

from treadle._version import __version__
from treadle.apps.fleet.database import open_database
from treadle.apps.fleet.folders.workspaces import RunWorkspaces, get_default_folder
from treadle.apps.fleet.run_record import FleetRun
from treadle.apps.fleet.sql.run_rows import describe_newer, is_newer_version
from treadle.apps.fleet.sql.sql_connection import RUNS_TABLE
from treadle.apps.fleet.sql.sql_database import SESSION_PREFIX, SqlDatabase
from treadle.apps.fleet.sql.sql_transfers import SqlTransfers
from treadle.apps.fleet.store_address import hide_password
from treadle.apps.fleet.task import FleetTask
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.load import load_settings
from treadle.apps.settings.settings import SETTINGS_BY_NAME
from treadle.core.contracts.wrapped import find_innermost
from treadle.core.errors import ConfigError, SessionBusy, SessionNotFound, StoreError
from treadle.core.transcript.entries import Entry, InputQueued
from treadle.core.transcript.items import NoticeItem
from treadle.lib.files.private_files import make_private_folder, write_private_file
from treadle.sessions.children import list_children
from treadle.sessions.detached import transfer
from treadle.sessions.detached.background import NO_CHOICES, read_choices
from treadle.sessions.library import Library
from treadle.sessions.log.journal import append_entries, read_entries
from treadle.sessions.log.reader import JournalReader
from treadle.sessions.log.state_loader import StateLoader
from treadle.sessions.queued_store import MAX_QUEUED_ENTRIES, DatabaseStore, SessionFence

MAX_PACKAGE_BYTES = 256 << 20  # one value of the database
_TASK_SETTINGS = ("model", "permission_mode", "max_cost", "max_turns")
_MARK = "fleet"  # in the place of a session that is fetched
SENT = (
    "This session continues in a fleet. The working folder is now a copy of {folder}, in another "
    "place: the instructions name it. Use paths in it."
)
FETCHED = (
    "This session has left the fleet and continues on the user's machine, in {folder}. The files "
    "as the fleet left them are in {files}; {folder} does not have its changes."
)


class _FetchMark(msgspec.Struct, frozen=True):
    """What is being fetched to a place."""

    fleet: str
    session: str


@asynccontextmanager
async def open_fleet(address: str) -> AsyncIterator[SqlDatabase]:
    """A fleet that exists, with the tables of this version."""
    await (await open_database(address, create=False)).aclose()
    database = cast(SqlDatabase, await open_database(address))
    try:
        yield database
    finally:
        await database.aclose()


# --- to the fleet -------------------------------------------------------------------------


async def check_sendable(address: str, library: Library, session_dir: Path) -> None:
    """Raises before a run of the session is stopped for nothing."""
    _make_task(library, session_dir, "0")
    async with open_fleet(address):
        pass


async def send_session(
    address: str, library: Library, session_dir: Path, objects: Mapping[str, Path]
) -> str:
    """The id of its run. `objects`: as of transfer.Sender. Raises if the session stays here, or if
    the database is gone in the middle: then ask again."""
    async with open_fleet(address) as database:
        transfers = SqlTransfers(database)
        with transfer.lock_to_send(library, session_dir, hide_password(address)) as earlier:
            if earlier is not None:
                if await transfers.settle(earlier.token):
                    await _remove(transfers, library, session_dir, earlier.token)
                    return _make_run_id(session_dir, earlier.token)
                transfer.unmark_sending(session_dir)
            entries = _read_log(session_dir)
            token = transfer.mark_sending(session_dir, hide_password(address)).token
            try:
                task = _make_task(library, session_dir, token)
                package = _pack(library, session_dir, token, objects)
                await transfers.put_package(session_dir.name, package)
                await transfers.begin(token)
                notice = _queue_notice(SENT, folder=task.folder)
                await _write_log(transfers, token, session_dir.name, (*entries, notice))
            except BaseException:
                transfer.unmark_sending(session_dir)
                raise
            if not await transfers.commit_run(token, task, session_dir.name):
                transfer.unmark_sending(session_dir)
                raise StoreError(f"the fleet has session {session_dir.name} already")
            await _remove(transfers, library, session_dir, token)
        with suppress(StoreError):  # any worker does it
            await database.dispatch()
    return task.id


def _make_run_id(session_dir: Path, token: str) -> str:
    """Of one stay: a worker of an earlier one, that was only slow, has no run with this id."""
    return f"{session_dir.name}-{token[:8]}"


def _make_task(library: Library, session_dir: Path, token: str) -> FleetTask:
    """What the run is given of the choices of the user. Raises if it cannot have all of them."""
    session_id = session_dir.name
    if session_id.startswith(SESSION_PREFIX):
        raise StoreError(f"session {session_id} is a copy of a run: it cannot be sent to a fleet")
    if list_children(session_dir):
        raise StoreError(
            f"session {session_id} has sessions of child agents, which a fleet does not keep: it "
            "cannot be sent to one"
        )
    summary = library.get_summary(session_dir)
    if Path(summary.folder, ".git").is_file():  # commands in a copy would change its repository
        raise StoreError(
            f"session {session_id} works in a worktree of git, of which a fleet makes no copy: it "
            "cannot be sent to one"
        )
    stored = read_choices(session_dir)
    choices = NO_CHOICES if stored is None else stored
    lost = [SETTINGS_BY_NAME[name].option for name in choices.flags if name not in _TASK_SETTINGS]
    lost += [f"--{name}" for name in ("deny", "until") if getattr(choices, name)]
    if lost:
        raise StoreError(
            f"a run of a fleet has no {', '.join(lost)}: session {session_id} cannot be sent with "
            f"it. `treadle stop {session_id}` ends its work here, and what it was started with"
        )
    folder = Path(summary.folder)
    settings = load_settings(folder, choices.flags, is_trusted=lambda: is_trusted(folder))

    def has(name: str) -> bool:
        """The default limits hold for sessions in the background."""
        return stored is not None or settings.origin(name) != "default"

    return FleetTask(
        id=_make_run_id(session_dir, token),
        prompt=library.get_title(summary) or session_id,
        folder=summary.folder,
        model=cast(str | None, choices.flags.get("model")),
        permission_mode=cast(str | None, choices.flags.get("permission_mode")),
        max_cost=settings.max_cost if has("max_cost") else None,
        max_turns=settings.max_turns if has("max_turns") else None,
    )


def _read_log(session_dir: Path) -> list[Entry]:
    """The log of a session that a fleet can continue."""
    loader = StateLoader(reader := JournalReader(session_dir))
    state = loader.load()
    if reader.damage or loader.lost_blobs or loader.unknown_kinds:
        raise StoreError(
            f"a part of session {session_dir.name} cannot be read by this version, or is lost: it "
            "cannot be sent to a fleet"
        )
    if state.turn is None and not state.queued:
        raise StoreError(
            f"session {session_dir.name} has nothing to do: its last turn is over. Give it a "
            f'message first: treadle --bg --resume {session_dir.name} "…"'
        )
    if state.suspended is not None and state.suspended.reason == "question":
        raise StoreError(
            f"session {session_dir.name} waits for an answer, and a fleet cannot ask: `treadle "
            f"attach {session_dir.name}` asks you"
        )
    return read_entries(session_dir)


def _pack(library: Library, session_dir: Path, token: str, objects: Mapping[str, Path]) -> bytes:
    paths = [one for one in session_dir.rglob("*") if one.is_file()]
    size = sum(one.stat().st_size for one in (*paths, *objects.values()))
    if size > MAX_PACKAGE_BYTES:
        raise StoreError(
            f"session {session_dir.name} has {size >> 20} MB with its checkpoints; a fleet takes "
            f"at most {MAX_PACKAGE_BYTES >> 20}"
        )
    package = io.BytesIO()
    transfer.write_package(library, session_dir, token, objects, package)
    return package.getvalue()


async def _write_log(
    transfers: SqlTransfers, token: str, session_id: str, entries: Sequence[Entry]
) -> None:
    store = await transfers.open_log(token, session_id)
    try:
        for number, entry in enumerate(entries):
            store.append(entry)
            if number % MAX_QUEUED_ENTRIES == 0:
                await store.flush()
        await store.flush()
    finally:
        await store.aclose()


def _queue_notice(text: str, **words: object) -> Entry:
    return InputQueued(NoticeItem(text.format(**words), kind="fleet"), secrets.token_hex(8))


async def _remove(transfers: SqlTransfers, library: Library, session_dir: Path, token: str) -> None:
    transfer.remove_sent(library, session_dir, token)
    await transfers.forget(token)


# --- from the fleet -----------------------------------------------------------------------


async def fetch_session(
    address: str,
    library: Library,
    session_id: str,
    files: Path | None,
    adopt_objects: transfer.AdoptObjects,
) -> None:
    """`files` is a new folder for the files of the run. Raises if the session stays there, or if
    the database is gone in the middle: then ask again."""
    async with open_fleet(address) as database:
        fetcher = _Fetcher(database, library, session_id, adopt_objects)
        has_come = await fetcher.finish_earlier()
        run, package = await fetcher.find()
        if run is None and has_come:
            return
        if run is None:
            raise SessionNotFound(
                f"the fleet has no session {session_id}: see `treadle fleet status`"
            )
        if package is None:
            raise StoreError(
                f"session {session_id} was not sent: `treadle fleet open {run.id}` copies it"
            )
        if run.state == "running":
            raise SessionBusy(
                f"a worker has session {session_id}. Wait until it is done, or stop it: treadle "
                f"fleet cancel {run.id}"
            )
        if is_newer_version(run.version, __version__):
            raise StoreError(describe_newer(run, __version__))
        entries = await _load_log(database, run)
        await fetcher.fetch(run, package, entries, files)


class _Fetcher:
    """Fetches one session, or finishes that."""

    def __init__(
        self,
        database: SqlDatabase,
        library: Library,
        session_id: str,
        adopt_objects: transfer.AdoptObjects,
    ) -> None:
        self._database, self._transfers = database, SqlTransfers(database)
        self._mark = _FetchMark(database.fleet_id, session_id)
        self._library = library
        self._adopt_objects = adopt_objects

    async def finish_earlier(self) -> bool:
        """Whether an earlier attempt has moved the session; from now on it is in its place."""
        has_come = False
        for place, mark in _list_marks(self._library):
            if mark != self._mark:
                continue
            lock = transfer.lock_place(place)
            try:
                if not (place / _MARK).exists():
                    continue  # its process was at work, and has ended it
                if await self._transfers.settle(place.name):
                    await self._finish(place)
                    has_come = True
                else:
                    await self._clear(place)
            finally:
                os.close(lock)
        return has_come

    async def find(self) -> tuple[FleetRun | None, bytes | None]:
        session_id = self._mark.session
        return (
            await self._transfers.find_run(session_id),
            await self._transfers.get_package(session_id),
        )

    async def fetch(
        self, run: FleetRun, package: bytes, entries: Sequence[Entry], files: Path | None
    ) -> None:
        place, lock = _make_place(self._library, self._mark)
        try:
            try:
                await self._transfers.begin(place.name)
                session_dir, folder = _unpack(self._library, place, package)
                await _export_files(self._database, run, files)
                sent = len(read_entries(session_dir))
                added = [*entries[sent:]]
                if files is not None:
                    added.append(_queue_notice(FETCHED, folder=folder, files=files))
                await append_entries(session_dir, added)
                os.sync()  # all of it is durable before the database has no run
            except BaseException:
                shutil.rmtree(place)
                raise
            if not await self._transfers.commit_removal(place.name, run):
                await self._clear(place)
                raise SessionBusy(f"{run.id} has changed meanwhile; nothing was moved")
            await self._finish(place)
        finally:
            os.close(lock)

    async def _finish(self, place: Path) -> None:
        if (place / transfer.SESSION).exists():
            transfer.accept(place)
            transfer.finish(self._library, place, self._adopt_objects)
        await self._clear(place)

    async def _clear(self, place: Path) -> None:
        shutil.rmtree(place)
        await self._transfers.forget(place.name)


async def _load_log(database: SqlDatabase, run: FleetRun) -> Sequence[Entry]:
    """The whole log of a run. Raises if this version cannot read all of it."""
    fence = SessionFence(RUNS_TABLE, run.id, run.epoch)
    store = await database.connection.open_session(run.session, fence)
    try:
        entries = await store.load()
        inner = find_innermost(store)
        if isinstance(inner, DatabaseStore) and (inner.unknown_kinds or inner.is_damaged):
            raise StoreError(
                f"a part of session {run.session} cannot be read by this version, or is lost: "
                "it cannot be fetched"
            )
    finally:
        await store.aclose()
    return entries


async def _export_files(database: SqlDatabase, run: FleetRun, files: Path | None) -> None:
    """Save the files of the run here, before they are deleted with it."""
    workspaces = RunWorkspaces(get_default_folder(), database)
    if not await workspaces.has_begun(run.id):
        if files is not None:
            raise ConfigError(
                f"no worker has begun: there are no files for {files}, so leave it out"
            )
        return
    if files is None:
        raise ConfigError(
            f"session {run.session} has worked on a copy of its folder. Name a new folder for "
            f"that: treadle send --from ADDRESS {run.session} FOLDER"
        )
    await workspaces.save_latest(run.id)
    await workspaces.export(run.task, run.id, files)


def _list_marks(library: Library) -> list[tuple[Path, _FetchMark]]:
    marks: list[tuple[Path, _FetchMark]] = []
    for path in transfer.find_incoming(library).glob(f"*/{_MARK}"):
        with suppress(OSError, msgspec.DecodeError):  # another process has ended it
            marks.append((path.parent, msgspec.json.decode(path.read_bytes(), type=_FetchMark)))
    return marks


def _make_place(library: Library, mark: _FetchMark) -> tuple[Path, int]:
    """A place with this mark, and its lock."""
    place = transfer.find_incoming(library) / secrets.token_hex(16)
    make_private_folder(place)
    lock = transfer.lock_place(place)
    write_private_file(place / _MARK, msgspec.json.encode(mark))
    return place, lock


def _unpack(library: Library, place: Path, package: bytes) -> tuple[Path, str]:
    """The session in its place, and the folder that it belongs to."""
    source = io.BytesIO(package)
    request = msgspec.json.decode(source.readline(), type=transfer.TransferRequest)
    if request.package is None:
        raise StoreError("the session in the database is malformed")
    if problem := transfer.find_problem(library, place, request.package):
        raise StoreError(problem)
    transfer.store_files(place, request.package, source, is_wanted=True)
    return place / transfer.SESSION, request.package.folder
