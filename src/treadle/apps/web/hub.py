"""The sessions of the server: those that are open, and the list of all.

A session is opened when a tab shows it and stays open while it works, waits for an answer or is
shown; soon after that it is closed, so that another program can continue it. Many can work at
the same time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from weakref import WeakValueDictionary

from treadle.apps.assembly import SessionOptions
from treadle.apps.conversation import undo
from treadle.apps.conversation.commands.agents import steer_agent, stop_agent
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.state.from_transcript import build_view
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.pages.blocks import BlockContext, render_block
from treadle.apps.web.feed import MAX_FIRST_BLOCKS, PREVIEW_FEED, Position, Update
from treadle.apps.web.held_session import HeldSession
from treadle.apps.web.live_session import LiveSession
from treadle.apps.web.render.inbox import WaitingSession
from treadle.apps.web.render.session_list import (
    SessionRow,
    render_search_result,
    render_session_list,
)
from treadle.core.errors import ConfigError, SessionBusy, TreadleError
from treadle.core.transcript.pending import RunTools, pending
from treadle.lib.logger import logger
from treadle.lib.text.text import shorten_home
from treadle.sessions.children import find_parent, find_root
from treadle.sessions.cost import group_costs, read_costs
from treadle.sessions.detached import background
from treadle.sessions.history import read_last_items, read_state
from treadle.sessions.library import Library, describe_last_turn
from treadle.sessions.log.reader import read_header
from treadle.sessions.search import search
from treadle.sessions.summaries import SessionSummary

IDLE_SECONDS = 30.0  # after which a session that no tab shows is closed
UNSAVED_SECONDS = 15 * 60.0  # the same for one that is not completely on disk
REAP_SECONDS = 10.0
MAX_CLOSED = 100
MAX_LISTED = 500
MAX_HITS = 100
LIST_SECONDS = 1.0  # the list is made at most once in this time
WATCH_SECONDS = 3.0  # how often sessions of other programs are looked for


class Hub:
    """`folder` is where new sessions work; `flags` are settings of the command line by name."""

    def __init__(
        self,
        folder: Path,
        flags: Mapping[str, object] | None = None,
        options: SessionOptions | None = None,
    ) -> None:
        self.folder = folder.resolve()
        self.library = Library()
        self._flags = dict(flags or {})
        self._options = options or SessionOptions()
        self._open: dict[str, LiveSession] = {}
        self._last_used: dict[str, float] = {}
        self._closed: dict[str, HostedSession] = {}  # they know mode, model and what is allowed
        self._held: WeakValueDictionary[str, HeldSession] = WeakValueDictionary()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._listeners: set[Callable[[], None]] = set()
        self._rows: list[SessionRow] = []
        self._asking: dict[str, tuple[float, bool]] = {}  # by session: when it was written
        self._listing = asyncio.Lock()
        self._listed_at = float("-inf")
        self._drawn_rows: list[SessionRow] = []
        self._drawn_at = 0.0
        self._drawn: dict[str, str] = {}  # the list as HTML, by the session that it marks

    # --- open sessions ---------------------------------------------------------------------

    async def create(self, folder: str = "") -> LiveSession:
        """A new session in a folder."""
        target = await asyncio.to_thread(_find_folder, folder) if folder else self.folder
        return await self._open_session(target, None)

    async def find(self, session_id: str) -> LiveSession:
        """A session by its id: the open one, or it is opened, which others need not wait for."""
        session = self._open.get(session_id)
        if session is None:
            path = self.library.find(session_id)
            async with self._get_lock(path.name):
                session = self._open.get(path.name)
                if session is None:
                    if background.signal_run(path, background.LEAVE_SIGNAL):
                        raise SessionBusy("it works in the background, and comes after its round")
                    folder = await self._find_folder_of(path)
                    session = await self._open_session(folder, path.name)
        self._last_used[session.session_id] = time.monotonic()
        return session

    def _get_lock(self, session_id: str) -> asyncio.Lock:
        """Of one session: it is opened and closed by one task at a time."""
        lock = self._locks.get(session_id)
        if lock is None:
            self._locks[session_id] = lock = asyncio.Lock()
        return lock

    async def find_held(self, session_id: str) -> HeldSession:
        """A session that another program has open, or that of a child agent."""
        path = self.library.find(session_id)
        session = self._held.get(path.name)
        if session is None:
            summary = await asyncio.to_thread(self.library.get_summary, path)
            parent = None
            if find_parent(path) is not None:
                root = await asyncio.to_thread(self.library.get_summary, find_root(path))
                parent = AgentRoot(root.id, self.library.get_title(root) or root.id, self._open)
            session = self._held.setdefault(path.name, HeldSession(path, summary, parent))
        await session.open()
        return session

    def is_agent(self, session_id: str) -> bool:
        """Whether it is the session of a child agent."""
        if session_id in self._open:
            return False
        return find_parent(self.library.find(session_id)) is not None

    async def find_name(self, session_id: str) -> str:
        """The id of a session that is open or can be opened."""
        if session_id in self._open:
            return session_id
        path = self.library.find(session_id)
        await self._find_folder_of(path)
        return path.name

    async def _find_folder_of(self, session_dir: Path) -> Path:
        header = await asyncio.to_thread(read_header, session_dir)
        folder = Path(header.folder if header is not None else "")
        if not await asyncio.to_thread(folder.is_dir):
            raise ConfigError(f"the folder of this session is gone: {folder}")
        return folder

    async def make_preview(self, session_id: str) -> Update | None:
        """The end of a long session that is not open yet, to be shown until it is."""
        if session_id in self._open:
            return None
        return await asyncio.to_thread(_read_preview, self.library.find(session_id))

    async def fork(self, session_id: str, before_turn: str | None = None) -> LiveSession:
        """A new session with the history of this one, up to before a turn or to its end."""
        path = self.library.find(session_id)
        folder = await self._find_folder_of(path)
        new_id = await undo.fork_session(self.library, path, folder, before_turn)
        return await self.find(new_id)

    async def _open_session(self, folder: Path, resume: str | None) -> LiveSession:
        known = self._closed.get(resume or "")
        opened = known or HostedSession(folder, self._flags, self._options)
        session = LiveSession(opened, self.mark_changed)
        try:
            await session.open(resume)
        except BaseException:
            await opened.aclose()
            raise
        self._closed.pop(session.session_id, None)
        self._open[session.session_id] = session
        self._last_used[session.session_id] = time.monotonic()
        return session

    async def close_idle(self, older_than: float = IDLE_SECONDS) -> None:
        """Close the sessions that no tab shows and that do nothing. One that cannot be closed, for
        the disk is full, stays open, and is tried again."""
        now = time.monotonic()
        for session_id, session in list(self._open.items()):
            limit = older_than if session.is_saved else max(older_than, UNSAVED_SECONDS)
            if session.is_used:
                self._last_used[session_id] = now
            elif now - self._last_used.get(session_id, now) >= limit:
                try:
                    await self._close(session_id)
                except (TreadleError, OSError) as error:
                    logger.warning("session %s stays open: %s", session_id, error)

    async def _close(self, session_id: str) -> None:
        async with self._get_lock(session_id):
            session = self._open.get(session_id)
            if session is None:
                return
            if session.opened.is_open:
                await session.opened.flush()  # nothing is closed that is not on disk
            self._open.pop(session_id, None)
            self._last_used.pop(session_id, None)
            await session.aclose()
            self._closed[session_id] = session.opened
            for oldest in list(self._closed)[:-MAX_CLOSED]:
                del self._closed[oldest]

    async def run_list_watch(self) -> None:
        """Let the tabs ask for the list again: other programs change it, and ages grow."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self.mark_changed()

    async def run_reaper(self) -> None:
        while True:
            await asyncio.sleep(REAP_SECONDS)
            await self.close_idle()

    async def aclose(self) -> None:
        """Close all; the problem of one does not keep the others open."""
        closing = (self._close(session_id) for session_id in list(self._open))
        for problem in await asyncio.gather(*closing, return_exceptions=True):
            if problem is not None:
                logger.warning("a session was not closed cleanly: %s", problem)

    # --- the list --------------------------------------------------------------------------

    def listen(self, on_change: Callable[[], None]) -> Callable[[], None]:
        """Call `on_change` after each change; the returned function ends that."""
        self._listeners.add(on_change)
        return lambda: self._listeners.discard(on_change)

    def mark_changed(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    async def render_list(self, current: str) -> str:
        """All sessions by folder, as HTML."""
        async with self._listing:  # a tab that comes meanwhile waits for the same rows
            if time.monotonic() - self._listed_at > LIST_SECONDS:
                self._rows = await asyncio.to_thread(self._read_rows)
                self._listed_at = time.monotonic()
        rows = [self._with_live_state(row) for row in self._rows]
        now = time.time()
        if rows != self._drawn_rows or now - self._drawn_at > WATCH_SECONDS:
            self._drawn_rows, self._drawn_at, self._drawn = rows, now, {}
        if current not in self._drawn:  # tabs of the same session share it
            self._drawn[current] = render_session_list(rows, current, now)
        return self._drawn[current]

    async def search(self, text: str) -> str:
        """The sessions with this text in a message, a call or a result, as HTML."""
        hits = await search(self.library.root, text, limit=MAX_HITS)
        titles = await asyncio.to_thread(self._read_titles, {hit.session for hit in hits})
        return render_search_result(text, hits, titles)

    def _read_titles(self, session_ids: set[str]) -> dict[str, str]:
        summaries = self.library.list_summaries(limit=MAX_LISTED)
        return {one.id: one.title for one in summaries if one.id in session_ids and one.title}

    def count_waiting(self) -> int:
        """Sessions of the last list that wait for the user, also those that a server left that is
        not there any more."""
        return sum(row.state == "waiting" for row in self._drawn_rows)

    async def list_waiting(self) -> list[WaitingSession]:
        """What waits for the user, in all folders."""
        await self.render_list("")
        rows = [row for row in self._rows if self._with_live_state(row).state == "waiting"]
        found: list[WaitingSession] = []
        for row in rows:
            session = self._open.get(row.id)
            questions = session.list_questions() if session is not None else ()
            folder = shorten_home(Path(row.folder))
            found.append(WaitingSession(row.id, row.title, folder, tuple(questions)))
        return found

    def _read_rows(self) -> list[SessionRow]:
        rows: list[SessionRow] = []
        summaries = list(self.library.list_summaries(limit=MAX_LISTED))
        costs = read_costs(self.library, sessions={one.id for one in summaries})
        totals = {total.key: total.cost or 0.0 for total in group_costs(costs, "session")}
        for one in summaries:
            if one.turns or one.id in self._open:
                parent = one.parent.session if one.parent else ""
                is_own = one.id in self._open  # this server has locked it
                state = describe_last_turn(one) if is_own else self.library.describe_state(one)
                is_left = state == "interrupted" and not is_own and self._is_asking(one)
                if is_left or (one.suspended and one.suspended.reason in ("approval", "question")):
                    state = "waiting"
                title = self.library.get_title(one) or "New session"
                cost = totals.get(one.id, 0.0)  # with that of its child agents
                rows.append(SessionRow(one.id, title, one.folder, one.updated, cost, state, parent))
        return rows

    def _is_asking(self, summary: SessionSummary) -> bool:
        """Whether a turn that is not finished has calls without a decision of the user."""
        known = self._asking.get(summary.id)
        if known is None or known[0] != summary.updated:
            known = summary.updated, _has_open_question(self.library.root / summary.key)
            self._asking[summary.id] = known
        return known[1]

    def _with_live_state(self, row: SessionRow) -> SessionRow:
        session = self._open.get(row.id)
        if session is None:
            return row
        state, cost = session.read_row()
        return row.with_state(state or row.state, cost)


class AgentRoot:
    """The session at the top of a tree of agents (`AgentParent`), among those that are open."""

    def __init__(self, session_id: str, title: str, opened: Mapping[str, LiveSession]) -> None:
        self.session_id = session_id
        self.title = title
        self._opened = opened

    def find_view(self, agent_session: str) -> ViewState | None:
        session = self._opened.get(self.session_id)
        if session is None or not session.opened.is_open:
            return None
        works = session.conversation.children.list()
        found = [one.view for one in works if one.session_id == agent_session and one.is_running]
        return found[0] if found else None

    def steer(self, agent_session: str, text: str) -> bool:
        session = self._opened.get(self.session_id)
        return session is not None and steer_agent(session.opened, agent_session, text)

    def stop(self, agent_session: str) -> bool:
        session = self._opened.get(self.session_id)
        return session is not None and stop_agent(session.opened, agent_session)


def _has_open_question(session_dir: Path) -> bool:
    try:
        state = read_state(session_dir)
    except (TreadleError, OSError):
        return False  # the list shows it all the same
    move = pending(state.transcript)
    return isinstance(move, RunTools) and any(one.id not in state.intents for one in move.calls)


def _read_preview(session_dir: Path) -> Update | None:
    blocks = list(build_view(read_last_items(session_dir)).blocks)[-MAX_FIRST_BLOCKS:]
    if not blocks:
        return None
    html = tuple((at, render_block(block, BlockContext())) for at, block in enumerate(blocks))
    position = Position(PREVIEW_FEED, 0)
    return Update(session_dir.name, position, len(blocks), html, is_reset=True)


def _find_folder(name: str) -> Path:
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}; name one that exists")
    return folder
