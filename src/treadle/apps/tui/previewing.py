"""What a call would do to a file, as a diff, before it is allowed. Reads; changes nothing.

A guess from the arguments of the tools that everybody knows: where it cannot say, it says nothing,
and the person sees the arguments themselves.
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

from treadle.core.errors import ConfigError
from treadle.core.textfile import read_text
from treadle.core.transcript.content import Arguments, ToolCall

MOST_BYTES = 2 << 20


def preview(call: ToolCall, folder: Path) -> str:
    """A unified diff, or ""."""
    given = call.arguments
    if given is None:
        return ""
    path = _text(given, "file_path", "path", "file")
    if not path:
        return ""
    before = _content(folder / Path(path).expanduser())
    if before is None:
        return ""
    after = _after(given, before)
    if after is None or after == before:
        return ""
    rows = unified_diff(
        before.splitlines(), after.splitlines(), f"a/{path}", f"b/{path}", lineterm=""
    )
    return "\n".join(rows)


def _after(given: Arguments, before: str) -> str | None:
    content = _text(given, "content", "contents")
    if content is not None:
        return content
    edits = given.get("edits") or [given]
    for edit in edits if isinstance(edits, list) else []:
        old = _text(edit, "old_string", "old_str", "old_text") if isinstance(edit, dict) else None
        new = _text(edit, "new_string", "new_str", "new_text") if isinstance(edit, dict) else None
        if not old or new is None or old not in before:
            return None
        before = before.replace(old, new, -1 if edit.get("replace_all") else 1)
    return before


def _content(path: Path) -> str | None:
    """A file's text; one that is not there yet is empty."""
    try:
        return read_text(path, MOST_BYTES, within=None)
    except FileNotFoundError:
        return ""
    except ConfigError:
        return None


def _text(given: Arguments, *names: str) -> str | None:
    return next((given[name] for name in names if isinstance(given.get(name), str)), None)
