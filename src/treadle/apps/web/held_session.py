"""A session that another program has open: it can be read, and is shown as it grows.

Has what tab.py needs of a session. When the other program ends, live_session.py takes its place.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec

from treadle.apps.conversation.state.from_transcript import build_view
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.web.call_index import CallIndex
from treadle.apps.web.feed import Feed, PageState
from treadle.apps.web.render.regions import SessionFacts, render_regions
from treadle.core.errors import SessionBusy
from treadle.lib.text.text import shorten_home
from treadle.sessions.history import read_state
from treadle.sessions.log.lock import is_locked, read_lock_holder
from treadle.sessions.log.reader import list_segments
from treadle.sessions.summaries import SessionSummary
from treadle.sessions.timings import read_call_seconds

POLL_SECONDS = 1.0


class HeldSession:
    def __init__(self, session_dir: Path, summary: SessionSummary) -> None:
        self._session_dir = session_dir
        self._facts = SessionFacts(
            title=summary.title,
            folder=shorten_home(Path(summary.folder)),
            session_id=summary.id,
            is_read_only=True,
        )
        self._view = ViewState()
        self._calls = CallIndex()
        self._seconds: dict[str, float] = {}
        self._sizes: list[int] = []
        self.feed = Feed(summary.id, self._build_state, lambda call_id: self._seconds.get(call_id))

    @property
    def session_id(self) -> str:
        return self.feed.session_id

    async def open(self) -> None:
        await asyncio.to_thread(self._read)

    async def wait_until_free(self) -> None:
        """Show what the other program adds, until it has closed the session."""
        while await asyncio.to_thread(is_locked, self._session_dir):
            await asyncio.sleep(POLL_SECONDS)
            if await asyncio.to_thread(self._measure) != self._sizes:
                await self.open()
                self.feed.mark_changed()

    def refuse(self) -> SessionBusy:
        return SessionBusy(f"this session is open in another program: {self._find_holder()}")

    def _read(self) -> None:
        self._sizes = self._measure()  # before the reading: what is added meanwhile is seen later
        view = read_state(self._session_dir)
        items = view.full_history
        shown = build_view(items)
        self._view = msgspec.structs.replace(shown, usage=view.usage + view.child_usage)
        self._seconds = read_call_seconds(self._session_dir)
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

    def _measure(self) -> list[int]:
        return [path.stat().st_size for path in list_segments(self._session_dir)]

    def _build_state(self, version: int) -> PageState:
        self._calls.update(self._view.blocks)
        regions = render_regions(self._view, self._facts, (), self._calls)
        return PageState(version, self._view.blocks, regions)
