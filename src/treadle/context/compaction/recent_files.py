"""The files that a session used last, shown again after a summary: a notice "recent_files".

A summary names files, but the next edit needs their text. Used by compactor.py; the files come from
a function, see apps/assembly.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from treadle.core.transcript.items import Item, NoticeItem, ToolResultItem
from treadle.core.transcript.size_estimate import estimate_text_chars

MAX_RECENT_FILES = 5
MAX_FILE_CHARS = 20_000
MIN_FILE_CHARS = 500  # less is not worth a place
HEADING = "The files that you used last, as they are on disk now:"

# Path and text of the files that a session used last, the newest first.
ReadRecentFiles = Callable[[str], Awaitable[Sequence[tuple[str, str]]]]


def make_recent_files_notice(
    files: Sequence[tuple[str, str]], kept: Sequence[Item], limit: int
) -> NoticeItem | None:
    """A notice of at most `limit` characters; files that the kept items show are left out."""
    shown: list[str] = []
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
        shown.append(f'<file path="{path}">\n{cut}{rest}\n</file>')
        limit -= estimate_text_chars(shown[-1])
    if not shown:
        return None
    return NoticeItem("\n".join([HEADING, *shown]), "recent_files")


def _is_shown(text: str, kept: Sequence[Item]) -> bool:
    """Whether a result shows its first lines, with or without numbers before them."""
    lines = [line for line in text.splitlines() if line.strip()][:5]
    results = (item.text for item in kept if isinstance(item, ToolResultItem))
    return bool(lines) and any(all(line in result for line in lines) for result in results)
