"""Where a session is kept: `agent.session("order-42", store=...)`.

    nothing         with the user's other sessions: `treadle sessions list` shows it
    a folder        a folder for each session in it
    a file          sessions.db, .sqlite, .sqlite3: all sessions in one SQLite database
    an address      postgresql://USER@HOST/NAME: in that database, for many machines
    a Store         an own one, for this session
    a function      makes the Store of an id

Used by agents/session.py.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from treadle.core.contracts.store import Store
from treadle.core.contracts.wrapped import find_innermost
from treadle.core.errors import ConfigError, SessionNotFound, StoreError
from treadle.core.transcript.entries import Entry, TurnBegan
from treadle.core.transcript.recover import recover, recover_fork
from treadle.core.transcript.state import SessionState, apply, fold_entries
from treadle.lib.shielded import complete, open_in_thread

if TYPE_CHECKING:
    from treadle.sessions.log.entry_redaction import EntryRedactor
    from treadle.sessions.log.journal import Journal
    from treadle.sessions.log.records import ForkPoint
    from treadle.sessions.session_place import SessionPlace

StoreLocation = str | os.PathLike[str] | Store | Callable[[str], Store | Awaitable[Store]]

DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
DATABASE_SCHEMES = ("postgresql://", "postgres://")


class OpenedStore(msgspec.Struct, frozen=True):
    """The store of a session, what it holds, and lines for the user about damage."""

    store: Store
    state: SessionState
    warnings: tuple[str, ...] = ()


def make_session_id() -> str:
    return f"{time.strftime('%y%m%d')}-{os.urandom(4).hex()}"


def check_session_id(session_id: object) -> str:
    from treadle.sessions.library import ID_PATTERN

    if isinstance(session_id, str) and ID_PATTERN.fullmatch(session_id):
        return session_id
    raise ConfigError(
        f"{session_id!r} cannot be the id of a session: use 1 to 81 letters, digits and "
        ". _ - @ : +, with a letter or digit first"
    )


async def open_store(
    location: StoreLocation | None, session_id: str, parent: Store | None = None
) -> OpenedStore:
    """Open the session with this id, or begin it. SessionBusy if it is open elsewhere. That of a
    child agent has the folder and the secrets of its parent's."""
    if isinstance(location, str) and location.startswith(DATABASE_SCHEMES):
        return await _load(await _open_postgres(location, session_id, parent))
    if location is None or isinstance(location, (str, os.PathLike)):
        path = find_place(location)
        if path.suffix in DATABASE_SUFFIXES:
            return await _load(
                await open_in_thread(lambda: _open_database(path, session_id, parent), close_store)
            )
        return await open_in_thread(lambda: _open_journal(path / session_id, parent), _close_opened)
    if callable(location):
        made: object = location(session_id)
        store = await made if inspect.isawaitable(made) else made
    else:
        store = location
    return await _load(_check_store(store, session_id))


async def _load(store: Store) -> OpenedStore:
    try:
        state = await load_state(store)
        return OpenedStore(store, state, getattr(find_innermost(store), "warnings", ()))
    except BaseException:
        await complete(store.aclose())
        raise


async def fork_store(
    store: Store, location: StoreLocation | None, new_id: str, before_turn: str | None = None
) -> None:
    """Make the session `new_id` at the location, with the history of the open store, up to before a
    turn or to the end. StoreError if there is a session with that id."""
    if location is not None and hasattr(location, "append"):
        raise ConfigError("this store holds one session: give a folder or a function to fork")
    session_dir: Path | None = getattr(find_innermost(store), "session_dir", None)
    if session_dir is not None and not callable(location) and not store.is_empty:
        place = find_place(location) / new_id
        forked = await open_in_thread(
            lambda: _fork_journal(session_dir, place, before_turn), close_store
        )
        await forked.aclose()
        return
    entries = cut_before_turn(await store.load(), before_turn)
    opened = await open_store(location, new_id)
    try:
        if not opened.store.is_empty:
            raise _make_taken_error(new_id)
        begin_fork(opened.store, entries, store.session_id)
    finally:
        await complete(opened.store.aclose())


def begin_fork(store: Store, entries: Sequence[Entry], session_id: str) -> None:
    """Let an empty store begin as a fork of the session with these entries."""
    for entry in (*entries, *recover_fork(fold_entries(entries), session_id)):
        store.append(entry)


def find_session_place(location: StoreLocation | None) -> SessionPlace | None:
    """Where the sessions of a location are; None if only the caller's own code knows."""
    if isinstance(location, str) and location.startswith(DATABASE_SCHEMES):
        from treadle.core.extras import require_extra

        require_extra("fleet")
        from treadle.sessions.postgres.postgres_place import PostgresPlace

        return PostgresPlace(location)
    if callable(location) or hasattr(location, "append"):
        return None
    path = find_place(location)
    if path.suffix in DATABASE_SUFFIXES:
        from treadle.sessions.sqlite_store import SqlitePlace

        return SqlitePlace(path)
    from treadle.sessions.session_place import FolderPlace

    return FolderPlace(path)


async def check_session_exists(location: StoreLocation | None, session_id: str) -> None:
    """SessionNotFound if it does not. That of an own store is not looked for."""
    place = find_session_place(location)
    if place is not None and await place.find(session_id) is None:
        raise make_missing_error(session_id)


def make_missing_error(session_id: str) -> SessionNotFound:
    return SessionNotFound(f"there is no session {session_id!r} in this store")


async def read_session(location: StoreLocation | None, session_id: str) -> Sequence[Entry]:
    """The entries of a session, which may be open elsewhere; none if it does not exist, or if only
    the caller's own code knows where it is."""
    place = find_session_place(location)
    return () if place is None else await place.read(session_id)


class ReadOnlyStore:
    """The entries of a session that was read: what a driver adds to them is not kept."""

    is_empty, write_error = False, None

    def __init__(self, session_id: str, entries: Sequence[Entry]) -> None:
        self.session_id = session_id
        self._entries = entries

    def append(self, entry: Entry) -> None:
        return None

    async def flush(self) -> None:
        return None

    async def load(self) -> Sequence[Entry]:
        return self._entries

    async def aclose(self) -> None:
        return None


def cut_before_turn(entries: Sequence[Entry], turn_id: str | None) -> Sequence[Entry]:
    """The entries before the turn with this id; all of them without one."""
    if turn_id is None:
        return entries
    places = [
        n for n, one in enumerate(entries) if isinstance(one, TurnBegan) and not one.continues
    ]
    return entries[: max(n for n in places if entries[n].turn_id == turn_id)]  # type: ignore[union-attr]


def _fork_journal(session_dir: Path, new_dir: Path, before_turn: str | None) -> Journal:
    from treadle.sessions.history import fork_journal
    from treadle.sessions.log.journal import Journal
    from treadle.sessions.log.reader import FIRST_SEGMENT

    if (new_dir / FIRST_SEGMENT).exists():
        raise _make_taken_error(new_dir.name)

    def create(point: ForkPoint) -> Journal:
        return Journal.create(new_dir, folder=str(Path.cwd()), parent=point)

    return fork_journal(session_dir, create, before_turn)[0]


def _make_taken_error(session_id: str) -> StoreError:
    return StoreError(f"there is a session {session_id} already; choose another id")


async def load_state(store: Store) -> SessionState:
    """The state with which the session of a store is continued; the store gets the entries that
    lead to it."""
    state = fold_entries(await store.load())
    is_damaged = bool(getattr(find_innermost(store), "is_damaged", False))
    for entry in recover(state, lacks_items=is_damaged, lacks_intents=is_damaged):
        store.append(entry)
        state = apply(state, entry)
    return state


async def close_store(store: Store) -> None:
    await store.aclose()


async def _close_opened(opened: OpenedStore) -> None:
    await opened.store.aclose()


def _check_store(store: object, session_id: str) -> Store:
    missing = [name for name in ("append", "flush", "load", "aclose") if not hasattr(store, name)]
    if missing or store is None:
        raise ConfigError(
            f"store: {store!r} is not a Store (it has no {missing[0]}); give a folder, a database "
            "file, a Store or a function that makes one"
        )
    found = getattr(store, "session_id", None)
    if found != session_id:
        raise ConfigError(f"store: it holds the session {found!r}, not {session_id!r}")
    return store  # type: ignore[return-value]  # checked by its methods


def find_place(location: str | os.PathLike[str] | None) -> Path:
    """The folder or the database that a location names."""
    if location == ":memory:":
        raise ConfigError(
            "store is ':memory:', which would be a folder of that name; for a session that is not "
            "kept, leave out `session`, or give treadle.testing.MemoryStore(ID) as the store, with "
            "the id of the session"
        )
    if isinstance(location, str) and "://" in location:
        scheme = location.partition("://")[0]
        raise ConfigError(
            f"store is a URL of {scheme!r}; expected a folder, a database file such as "
            "sessions.db, or postgresql://…"
        )
    if location is not None:
        return Path(location).expanduser()
    from treadle.sessions.library import default_root, project_name

    return default_root() / project_name(Path.cwd())


def _open_database(path: Path, session_id: str, parent: Store | None) -> Store:
    from treadle.sessions.sqlite_store import SqliteStore

    store = SqliteStore(path, session_id)
    store.redactor = _find_redactor(parent)
    return store


async def _open_postgres(url: str, session_id: str, parent: Store | None) -> Store:
    from treadle.core.extras import require_extra

    require_extra("fleet")
    from treadle.sessions.postgres.postgres_server import LeasedPostgresStore

    store = await LeasedPostgresStore.open_session(url, session_id)
    store.redactor = _find_redactor(parent)
    return store


def _open_journal(session_dir: Path, parent: Store | None) -> OpenedStore:
    from treadle.sessions.log.journal import Journal, resume
    from treadle.sessions.log.reader import FIRST_SEGMENT

    redactor = _find_redactor(parent)
    if (session_dir / FIRST_SEGMENT).exists():
        resumed = resume(session_dir)
        resumed.journal.redactor = redactor
        return OpenedStore(resumed.journal, resumed.state, resumed.warnings)
    above = None if parent is None else find_innermost(parent)
    folder = above.header.folder if isinstance(above, Journal) else str(Path.cwd())
    journal = Journal.create(session_dir, folder=folder)
    journal.redactor = redactor
    return OpenedStore(journal, SessionState())


def _find_redactor(parent: Store | None) -> EntryRedactor:
    """That of the parent's store, or one for the secrets of this process."""
    from treadle.lib.text.redaction import find_secrets
    from treadle.sessions.log.entry_redaction import EntryRedactor

    known = None if parent is None else getattr(find_innermost(parent), "redactor", None)
    return known if isinstance(known, EntryRedactor) else EntryRedactor(find_secrets(os.environ))
