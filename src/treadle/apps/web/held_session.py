"""A session that another program has open, or that of a child agent: it is shown as it grows.

Has what tab.py needs of a session. When the other program ends, live_session.py takes its place. A
child agent at work takes messages; its parent continues it.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Protocol

import msgspec

from treadle.apps.conversation.state.blocks import CallState
from treadle.apps.conversation.state.from_transcript import apply_item, finish_view
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.pages.timeline import TimingFollower
from treadle.apps.web.call_index import CallIndex
from treadle.apps.web.feed import Feed, PageState
from treadle.apps.web.render.regions import SessionFacts, render_regions
from treadle.core.errors import SessionBusy
from treadle.core.transcript.entries import Rewound, Uncompacted, ViewRewritten
from treadle.core.transcript.state import SessionState, fold_entries
from treadle.lib.text.text import shorten_home
from treadle.sessions.log.lock import is_locked, read_lock_holder
from treadle.sessions.log.state_loader import JournalFollower
from treadle.sessions.summaries import SessionSummary

POLL_SECONDS = 1.0
WORK_SECONDS = 0.2  # how often a child agent at work is looked at
_REWRITES = (Rewound, ViewRewritten, Uncompacted)  # entries after which more than the end differs


class AgentParent(Protocol):
    """The session that started a child agent, and what of it this server can do."""

    session_id: str
    title: str

    def find_view(self, agent_session: str) -> ViewState | None:
        """What the agent does now; None if it is not at work in this server."""

    def steer(self, agent_session: str, text: str) -> bool:
        """Whether it is at work and gets the message."""

    def stop(self, agent_session: str) -> bool:
        """Whether it is at work and is stopped; its parent gets what it has done."""


class HeldSession:
    """`parent` is given for the session of a child agent."""

    def __init__(
        self, session_dir: Path, summary: SessionSummary, parent: AgentParent | None = None
    ) -> None:
        self._session_dir = session_dir
        self._parent = parent
        self._live: ViewState | None = None
        self._steered: set[str] = set()
        self._facts = SessionFacts(
            title=summary.title,
            folder=shorten_home(Path(summary.folder)),
            session_id=summary.id,
            is_read_only=True,
            parent=parent.session_id if parent is not None else "",
        )
        self._log = JournalFollower(session_dir)
        self._timings = TimingFollower(session_dir)
        self._state: SessionState | None = None
        self._items = ViewState()  # of what is in the log, without the state of its open calls
        self._is_locked = False  # by the program that works on it
        self._view = ViewState()
        self._calls = CallIndex()
        self._reading = asyncio.Lock()  # all tabs that show it share this
        self.feed = Feed(summary.id, self._build_state, self._timings.seconds.get)

    @property
    def session_id(self) -> str:
        return self.feed.session_id

    async def open(self) -> None:
        """Read what is new; all of it the first time."""
        async with self._reading:
            live = self._parent.find_view(self.session_id) if self._parent is not None else None
            is_changed, self._live = live is not self._live, live
            was_locked = self._is_locked
            self._is_locked = await asyncio.to_thread(is_locked, self._session_dir)
            has_new = self._is_locked != was_locked or await asyncio.to_thread(self._log.has_new)
            if self._state is None or (has_new and not live):
                await asyncio.to_thread(self._read)
                is_changed = True
            if is_changed:
                self.feed.mark_changed()

    async def wait_until_free(self) -> None:
        """Show what the other program adds, until it has closed the session; that of a child agent
        is always its parent's."""
        while self._parent is not None or await asyncio.to_thread(is_locked, self._session_dir):
            await asyncio.sleep(POLL_SECONDS if self._live is None else WORK_SECONDS)
            await self.open()

    def steer(self, text: str, message_id: str) -> None:
        """Send a message to a child agent, once; raises if it is not at work."""
        if message_id in self._steered:
            return
        if self._parent is None or not self._parent.steer(self.session_id, text):
            raise self.refuse()
        self._steered.add(message_id)

    def stop(self) -> None:
        """Stop a child agent; raises if it is not at work."""
        if self._parent is None or not self._parent.stop(self.session_id):
            raise self.refuse()

    def refuse(self) -> SessionBusy:
        if self._parent is not None:
            return SessionBusy(
                "a child agent takes messages while it works; its parent has the rest"
            )
        return SessionBusy(f"this session is open in another program: {self._find_holder()}")

    def _read(self) -> None:
        known = self._state
        entries = self._log.read_new() if known is not None else None
        if known is None or entries is None:
            state, shown, view = self._log.load(), 0, ViewState()
        else:
            state, shown, view = fold_entries(entries, known), len(known.full_history), self._items
            if any(isinstance(one, _REWRITES) for one in entries):
                shown, view = 0, ViewState()
        items = state.full_history
        for position in range(shown, len(items)):
            view = apply_item(view, items[position])
        self._state, self._items = state, view
        usage = state.usage + state.child_usage
        self._timings.read_new()
        view = finish_view(view, self._find_call_state) if self._is_locked else finish_view(view)
        self._view = msgspec.structs.replace(view, usage=usage)
        self._facts = msgspec.structs.replace(self._facts, banner=self._make_banner())

    def _find_call_state(self, call_id: str) -> CallState:
        """Of a call that the other program has not finished."""
        state = self._state
        is_decided = state is not None and (call_id in state.decisions or call_id in state.intents)
        return "asking" if call_id in self._timings.asked and not is_decided else "running"

    def _make_banner(self) -> str:
        if self._parent is not None:
            return f"An agent of “{self._parent.title}”."
        return (
            f"Another program has this session open ({self._find_holder()}). You can read it here; "
            "it can be continued here when that program has closed it."
        )

    def _find_holder(self) -> str:
        holder = read_lock_holder(self._session_dir)
        if holder is None:
            return "unknown"
        clock = time.strftime("%H:%M", time.localtime(holder.since))
        program = f"{holder.program}, " if holder.program else ""
        return f"{program}process {holder.pid}, since {clock}"

    def _build_state(self, version: int) -> PageState:
        view = self._live if self._live is not None else self._view
        facts = msgspec.structs.replace(self._facts, is_agent=self._live is not None)
        self._calls.update(view.blocks)
        return PageState(version, view.blocks, render_regions(view, facts, (), self._calls))
