"""The sessions of one folder or database, which may be open elsewhere: list, read, remove.

Nothing is opened for writing. The databases have theirs in sqlite_store.py and postgres_place.py;
open_store.py finds the place of a location. Used by agents/agent_sessions.py and child_agents.py.
"""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from treadle.core.errors import SessionNotFound
from treadle.core.transcript.entries import Entry
from treadle.sessions.log.hash_chain import ChainReport
from treadle.sessions.summaries import UNREADABLE, SessionIndex, SessionSummary

FIRST_ENTRIES = 8  # one of them is the first message
SUMMARY_KINDS = ("turn", "usag", "chil", 'end"', "park", "rewi")  # how the kinds begin


class SessionQuery(msgspec.Struct, frozen=True):
    """Which sessions of a place: the one with this id; or those whose id begins with `prefix`, with
    a last entry since then, and after the session `before` in the order of a list."""

    name: str = ""
    prefix: str = ""
    since: float = 0.0
    until: float = math.inf
    before: str = ""
    limit: int = 50


class SessionPlace(ABC):
    """All sessions of a location. Those of child agents are among them in a database."""

    @abstractmethod
    async def list_page(self, query: SessionQuery) -> list[SessionSummary]:
        """The session with the newest entry first. A session without entries is none."""

    async def find(self, session_id: str) -> SessionSummary | None:
        page = await self.list_page(SessionQuery(name=session_id, limit=1))
        return page[0] if page else None

    @abstractmethod
    async def is_open(self, session_id: str) -> bool:
        """Whether a process, also this one, has the session open."""

    @abstractmethod
    async def read(self, session_id: str) -> Sequence[Entry]:
        """The entries; none if there is no such session."""

    @abstractmethod
    async def verify(self, session_id: str) -> ChainReport:
        """Whether the entries are as they were written, by their hashes."""

    @abstractmethod
    async def remove(self, session_id: str) -> None:
        """SessionBusy if it is open; StoreError if another session needs its entries."""


class FolderPlace(SessionPlace):
    """A folder with a folder for each session; those of child agents are in that."""

    def __init__(self, root: Path) -> None:
        self._root = root

    async def list_page(self, query: SessionQuery) -> list[SessionSummary]:
        return await asyncio.to_thread(self._list_page, query)

    async def is_open(self, session_id: str) -> bool:
        from treadle.sessions.log.lock import is_locked

        return await asyncio.to_thread(is_locked, self._root / session_id)

    async def read(self, session_id: str) -> Sequence[Entry]:
        from treadle.sessions.log.journal import read_entries
        from treadle.sessions.log.reader import FIRST_SEGMENT

        session_dir = self._root / session_id
        is_there = (session_dir / FIRST_SEGMENT).exists()
        return await asyncio.to_thread(read_entries, session_dir) if is_there else ()

    async def verify(self, session_id: str) -> ChainReport:
        from treadle.sessions.audit import verify_session

        return await asyncio.to_thread(verify_session, self._root / session_id)

    async def remove(self, session_id: str) -> None:
        await asyncio.to_thread(self._remove, session_id)

    def _list_page(self, query: SessionQuery) -> list[SessionSummary]:
        end = (query.until, query.before)
        found = sorted(self._list_times(query), reverse=True)
        chosen = [pair for pair in found if pair[0] >= query.since and pair < end]
        index, page = SessionIndex(self._root.parent), list[SessionSummary]()
        for updated, name in chosen:
            try:
                summary = index.get(self._root / name)
            except (OSError, SessionNotFound):  # removed since
                continue
            if summary.entries or summary.state == UNREADABLE:
                page.append(msgspec.structs.replace(summary, updated=updated))
            if len(page) == query.limit:
                break
        return page

    def _list_times(self, query: SessionQuery) -> Iterator[tuple[float, str]]:
        """When each session was written last."""
        from treadle.sessions.library import list_journals
        from treadle.sessions.log.reader import list_segments

        for path in [Path(path) for path, _ in list_journals(str(self._root))]:
            if path.name.startswith(query.prefix) and query.name in ("", path.name):
                try:
                    yield list_segments(path)[-1].stat().st_mtime, path.name
                except (OSError, SessionNotFound):  # removed since
                    continue

    def _remove(self, session_id: str) -> None:
        from treadle.sessions.library import list_journals, make_forked_error, remove_session_dir
        from treadle.sessions.log.reader import read_header

        headers = [read_header(Path(path)) for path, _ in list_journals(str(self._root))]
        forks = [
            one.session
            for one in headers
            if one and one.parent and one.parent.session == session_id
        ]
        if forks:
            raise make_forked_error(session_id, forks)
        remove_session_dir(self._root / session_id)
