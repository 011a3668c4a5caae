"""The sessions of a folder that are on disk, and the turns of the open one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.conversation.session.lifecycle import SessionLifecycle
from treadle.core.transcript.items import AssistantItem, Item, UserItem
from treadle.sessions import history
from treadle.sessions.summaries import read_name

MAX_PREVIEW_LINES = 4
MAX_LINE_CHARS = 300


class SessionLine(msgspec.Struct, frozen=True):
    """A session in a list."""

    id: str
    title: str
    updated: float
    turns: int
    state: str
    is_run: bool = False  # of `treadle -p`


class TurnLine(msgspec.Struct, frozen=True):
    """A turn that the user can rewind to. `has_files`: its files can be restored, too."""

    turn_id: str
    number: int
    text: str
    time: float
    has_files: bool = False


class SavedSessions:
    def __init__(self, session: SessionLifecycle) -> None:
        self._session = session
        self._name: tuple[Path, str] | None = None

    @property
    def name(self) -> str:
        """That of the open session, which the user gave it; "" if there is none."""
        session_dir = self._session.session_dir
        if self._name is None or self._name[0] != session_dir:
            self._name = session_dir, read_name(session_dir)
        return self._name[1]

    def rename(self, name: str) -> None:
        self._session.library.rename(self._session.session_dir, name)
        self._name = None

    def list_sessions(self, limit: int = 200, words: str = "") -> list[SessionLine]:
        """The sessions of the folder that can be continued, last used first; with `words` those
        that have all of them in their title. Runs of `treadle -p` are at the end."""
        library, folder = self._session.library, self._session.folder
        if words:
            found = library.find_by_words(words, folder)[:limit]
        else:
            found = library.list_summaries(folder=folder, limit=limit)
        lines = [
            SessionLine(
                one.id,
                library.get_title(one),
                one.updated,
                one.turns,
                library.describe_state(one),
                bool(one.origin),
            )
            for one in found
            if one.turns and not one.has_failed
        ]
        return sorted(lines, key=lambda one: one.is_run)

    async def preview(self, session_id: str) -> list[str]:
        """The last messages of a session, a line each, to recognize it by."""
        session_dir = self._session.library.find(session_id, folder=self._session.folder)
        return await asyncio.to_thread(_read_preview, session_dir)

    def list_turns(self) -> list[TurnLine]:
        lines: list[TurnLine] = []
        has_files = False
        for mark in reversed(history.list_turns(self._session.session_dir)):
            has_files = has_files or bool(mark.checkpoint_before)
            lines.append(TurnLine(mark.turn_id, mark.number, mark.text, mark.time, has_files))
        return lines[::-1]


def _read_preview(session_dir: Path) -> list[str]:
    """The last messages of the user (`›`) and replies, oldest first."""
    items = history.read_last_items(session_dir) or list(history.read_state(session_dir).transcript)
    lines: list[str] = []
    for item in reversed(items):
        if line := _format_item(item):
            lines.insert(0, line)
        if len(lines) == MAX_PREVIEW_LINES:
            break
    return lines


def _format_item(item: Item) -> str:
    if not isinstance(item, UserItem | AssistantItem):
        return ""
    text = " ".join(redact_for_display(item.text).split())[:MAX_LINE_CHARS]
    sign = "› " if isinstance(item, UserItem) else "  "
    return sign + text if text else ""
