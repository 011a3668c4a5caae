"""The sessions of a folder that are on disk, and the turns of the open one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.conversation.session.lifecycle import SessionLifecycle
from treadle.core.transcript.items import AssistantItem, Item, UserItem
from treadle.sessions import history

MAX_PREVIEW_LINES = 4
MAX_LINE_CHARS = 300


class SessionLine(msgspec.Struct, frozen=True):
    """A session in a list."""

    id: str
    title: str
    updated: float
    turns: int
    state: str


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

    def list_sessions(self, limit: int = 200) -> list[SessionLine]:
        """The sessions of the folder, last used first."""
        library = self._session.library
        return [
            SessionLine(
                one.id,
                library.get_title(one),
                one.updated,
                one.turns,
                library.describe_state(one),
            )
            for one in library.list_summaries(folder=self._session.folder, limit=limit)
            if one.turns
        ]

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
