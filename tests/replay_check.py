"""The law of replay, checked in every test of a fault: each session that it leaves replays equal.

Sessions of this process are read when their log is closed; those of processes that a test started
or killed are read from the folders that they left. Used by conftest.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from treadle.apps.cli.commands.replay import replay_recording
from treadle.core.contracts.wrapped import find_innermost
from treadle.core.errors import StoreError
from treadle.core.loop.session_log import SessionLog
from treadle.core.transcript.entries import Entry
from treadle.sessions.log.journal import read_entries
from treadle.sessions.replay import split_recordings


class ReplayCheck:
    """The sessions that a test leaves."""

    def __init__(self) -> None:
        self._sessions: dict[str, Sequence[Entry]] = {}

    @property
    def count(self) -> int:
        return len(self._sessions)

    def add(self, name: str, entries: Sequence[Entry]) -> None:
        self._sessions[name] = entries

    def install(self, patch: pytest.MonkeyPatch) -> None:
        close = SessionLog.aclose

        async def noted_close(log: SessionLog) -> None:
            if log.has_store:
                store: Any = find_innermost(log)
                try:
                    await log.wrapped.flush()
                    self.add(f"{log.session_id} ({id(store)})", await store.load())
                except StoreError:
                    pass  # a test about stores that fail
            await close(log)

        patch.setattr(SessionLog, "aclose", noted_close)

    def add_folders(self, *places: Path) -> None:
        for place in places:
            for file in place.rglob("journal.jsonl"):
                self.add(str(file.parent), read_entries(file.parent))

    async def find_problems(self) -> list[str]:
        problems = []
        for name, entries in self._sessions.items():
            for recording in split_recordings(entries):
                difference = await replay_recording(recording)
                if difference is not None:
                    problems.append(f"the replay of {name} differs: {difference!r:.900}")
        return problems
