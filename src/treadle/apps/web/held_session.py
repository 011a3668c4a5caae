"""A session that another program has open: it can be read, and is shown as it grows.

Has what tab.py needs of a session. When the other program ends, live_session.py takes its place.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

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
from treadle.sessions.log.follower import JournalFollower
from treadle.sessions.log.lock import is_locked, read_lock_holder
from treadle.sessions.summaries import SessionSummary

POLL_SECONDS = 1.0
_REWRITES = (Rewound, ViewRewritten, Uncompacted)  # entries after which more than the end differs


class HeldSession:
    def __init__(self, session_dir: Path, summary: SessionSummary) -> None:
        self._session_dir = session_dir
        self._facts = SessionFacts(
            title=summary.title,
            folder=shorten_home(Path(summary.folder)),
            session_id=summary.id,
            is_read_only=True,
        )
        self._log = JournalFollower(session_dir)
        self._timings = TimingFollower(session_dir)
        self._state: SessionState | None = None
        self._items = ViewState()  # of what is in the log; in the view, open calls are interrupted
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
            if self._state is None or await asyncio.to_thread(self._log.has_new):
                await asyncio.to_thread(self._read)
                self.feed.mark_changed()

    async def wait_until_free(self) -> None:
        """Show what the other program adds, until it has closed the session."""
        while await asyncio.to_thread(is_locked, self._session_dir):
            await asyncio.sleep(POLL_SECONDS)
            await self.open()

    def refuse(self) -> SessionBusy:
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
        self._view = msgspec.structs.replace(finish_view(view), usage=usage)
        self._timings.read_new()
        banner = (
            f"Another program has this session open ({self._find_holder()}). You can read it here; "
            "it can be continued here when that program has closed it."
        )
        self._facts = msgspec.structs.replace(self._facts, banner=banner)

    def _find_holder(self) -> str:
        holder = read_lock_holder(self._session_dir)
        if holder is None:
            return "unknown"
        clock = time.strftime("%H:%M", time.localtime(holder.since))
        program = f"{holder.program}, " if holder.program else ""
        return f"{program}process {holder.pid}, since {clock}"

    def _build_state(self, version: int) -> PageState:
        self._calls.update(self._view.blocks)
        regions = render_regions(self._view, self._facts, (), self._calls)
        return PageState(version, self._view.blocks, regions)
