"""The files that a session used last, shown again after a summary: a notice "recent_files".

A summary names files, but the next edit needs their text. Which files these are is read off the
conversation, so it is known in a resumed process too; a function reads them, see apps/assembly.
Used by compactor.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem, ToolResultItem
from treadle.core.transcript.size_estimate import estimate_text_chars

MAX_RECENT_FILES = 5
MAX_FILE_CHARS = 20_000
MIN_FILE_CHARS = 500  # less is not worth a place
HEADING = "The files that you used last, as they are on disk now:"

# Path and text of those of these files that can be read, in the same order.
ReadRecentFiles = Callable[[Sequence[str]], Awaitable[Sequence[tuple[str, str]]]]


def list_recent_files(items: Sequence[Item]) -> list[str]:
    """The files that were read or changed in these items, the newest first."""
    paths: dict[str, None] = {}
    calls: dict[str, ToolCall] = {}
    cwd = ""
    for item in items:
        if isinstance(item, AssistantItem):
            calls = {call.id: call for call in item.calls}
        used: list[str] = []
        if isinstance(item, NoticeItem) and item.kind in ("recent_files", "files"):
            used = (item.data or {}).get("paths", [])
        elif isinstance(item, ToolResultItem) and not item.is_error:
            data, call = item.data or {}, calls.get(item.call_id)
            cwd = data.get("cwd", cwd)
            named = (call.arguments or {}).get("file_path") if call is not None else None
            used = data.get("changed_files") or ([named] if isinstance(named, str) else [])
        for path in used:
            full = str(Path(cwd, path))
            paths.pop(full, None)
            paths[full] = None
    return list(reversed(paths))


def make_recent_files_notice(
    files: Sequence[tuple[str, str]], kept: Sequence[Item], limit: int
) -> NoticeItem | None:
    """A notice of at most `limit` characters; files that the kept items show are left out."""
    shown: dict[str, str] = {}
    for path, text in files:
        room = min(MAX_FILE_CHARS, limit)
        if len(shown) == MAX_RECENT_FILES or room < MIN_FILE_CHARS:
            break
        if _is_shown(text, kept):
            continue
        whole = estimate_text_chars(text)
        cut = text if whole <= room else text[: len(text) * room // whole]
        rest = (
            "" if cut == text else f"\n[{len(text) - len(cut):,} more characters; read shows them]"
        )
        shown[path] = f'<file path="{path}">\n{cut}{rest}\n</file>'
        limit -= estimate_text_chars(shown[path])
    if not shown:
        return None
    oldest_first = {"paths": list(reversed(shown))}
    return NoticeItem("\n".join([HEADING, *shown.values()]), "recent_files", data=oldest_first)


def _is_shown(text: str, kept: Sequence[Item]) -> bool:
    """Whether a result shows its first lines, with or without numbers before them."""
    lines = [line for line in text.splitlines() if line.strip()][:5]
    results = (item.text for item in kept if isinstance(item, ToolResultItem))
    return bool(lines) and any(all(line in result for line in lines) for result in results)
