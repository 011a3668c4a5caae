"""What a call would change in a file, as a diff, before the user approves it. Reads only.

A guess from the usual argument names of edit tools. Without a guess it returns "", and the
frontend shows the arguments instead.
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

from treadle.core.errors import ConfigError
from treadle.core.transcript.content import Arguments, ToolCall
from treadle.core.untrusted_files import read_text

MAX_BYTES = 2 << 20


def preview_diff(call: ToolCall, folder: Path) -> str:
    """A unified diff, or ""."""
    given = call.arguments
    if given is None:
        return ""
    path = _find_text(given, "file_path", "path", "file")
    if not path:
        return ""
    before = _read_content(folder / Path(path).expanduser())
    if before is None:
        return ""
    after = _apply_edits(given, before)
    if after is None or after == before:
        return ""
    rows = unified_diff(
        before.splitlines(), after.splitlines(), f"a/{path}", f"b/{path}", lineterm=""
    )
    return "\n".join(rows)


def _apply_edits(arguments: Arguments, text: str) -> str | None:
    content = _find_text(arguments, "content", "contents")
    if content is not None:
        return content
    edits = arguments.get("edits") or [arguments]
    for edit in edits if isinstance(edits, list) else []:
        old = (
            _find_text(edit, "old_string", "old_str", "old_text")
            if isinstance(edit, dict)
            else None
        )
        new = (
            _find_text(edit, "new_string", "new_str", "new_text")
            if isinstance(edit, dict)
            else None
        )
        if not old or new is None or old not in text:
            return None
        text = text.replace(old, new, -1 if edit.get("replace_all") else 1)
    return text


def _read_content(path: Path) -> str | None:
    """The text of a file; "" if it does not exist yet, None if it cannot be read."""
    try:
        return read_text(path, MAX_BYTES, within=None)
    except FileNotFoundError:
        return ""
    except ConfigError:
        return None


def _find_text(arguments: Arguments, *names: str) -> str | None:
    return next((arguments[name] for name in names if isinstance(arguments.get(name), str)), None)
