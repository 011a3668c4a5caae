"""A few lines to recognize a session by: its last messages and replies."""

from __future__ import annotations

from pathlib import Path

from treadle.apps.assembly.redaction import redact_for_display
from treadle.core.transcript.items import AssistantItem, Item, UserItem
from treadle.sessions.history import read_last_items, read_state

MAX_LINES = 4
MAX_CHARS = 300  # of a line


def read_preview(session_dir: Path) -> list[str]:
    """The last messages of the user (`›`) and replies, oldest first. Reads files: for a thread."""
    items = read_last_items(session_dir) or list(read_state(session_dir).transcript)
    lines: list[str] = []
    for item in reversed(items):
        if line := _format_item(item):
            lines.insert(0, line)
        if len(lines) == MAX_LINES:
            break
    return lines


def _format_item(item: Item) -> str:
    if not isinstance(item, UserItem | AssistantItem):
        return ""
    text = " ".join(redact_for_display(item.text).split())[:MAX_CHARS]
    sign = "› " if isinstance(item, UserItem) else "  "
    return sign + text if text else ""
