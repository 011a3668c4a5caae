"""Tool calls as editors show them: kind, title, locations, diffs and output. Pure functions.

Used by updates.py for the calls of a turn and of a loaded session, by questions.py for approvals.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    ImageContentBlock,
    PlanEntry,
    TerminalToolCallContent,
    TextContentBlock,
    ToolCallLocation,
    ToolKind,
)

from treadle.apps.conversation.diff_rows import DiffHunk, DiffRow, list_hunks
from treadle.apps.conversation.tool_kinds import get_tool_kind
from treadle.core.contracts import tool as contract
from treadle.core.contracts.tool import Access, Preview
from treadle.core.transcript.content import Arguments, Image
from treadle.core.transcript.items import ToolResultItem
from treadle.tools.call_summary import summarize_call

CallContent = ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent
MAX_SHOWN_CHARS = 20_000

_PATH_ARGUMENTS = ("file_path", "path", "file")


def get_kind(name: str) -> ToolKind:
    return to_editor_kind(get_tool_kind(name))


def to_editor_kind(kind: contract.ToolKind) -> ToolKind:
    return "think" if kind == "plan" or kind == "agent" else kind  # editors do not have these two


def is_plan(name: str) -> bool:
    """Whether the tool keeps the list of todos, which editors show as a plan."""
    return get_tool_kind(name) == "plan"


def make_title(name: str, arguments: Arguments | None, summary: str = "") -> str:
    """One line: the command itself, or the tool and its most informative argument."""
    command = (arguments or {}).get("command")
    if get_kind(name) == "execute" and isinstance(command, str) and command.strip():
        return f"`{' '.join(command.split())}`"
    text = summary or summarize_call(name, arguments or {})
    return text.removeprefix("[").removesuffix("]")


def find_locations(arguments: Arguments | None, cwd: str) -> list[ToolCallLocation]:
    """The file that the arguments name; editors can follow the agent to it."""
    for key in _PATH_ARGUMENTS:
        path = (arguments or {}).get(key)
        if isinstance(path, str) and path and "\0" not in path:
            line = (arguments or {}).get("offset")
            is_line = isinstance(line, int) and not isinstance(line, bool) and line > 0
            return [_make_location(cwd, path, line if is_line else None)]
    return []


def list_accessed(access: Access, cwd: str) -> list[ToolCallLocation]:
    """The files that a call touches, as the policy sees them."""
    return [_make_location(access.cwd or cwd, file.path) for file in access.files]


def _make_location(cwd: str, path: str, line: int | None = None) -> ToolCallLocation:
    return ToolCallLocation(path=make_absolute(cwd, path), line=line)


def make_absolute(cwd: str, path: str) -> str:
    try:
        return str(Path(cwd, Path(path).expanduser()))
    except RuntimeError:  # `~` of a user that does not exist
        return str(Path(cwd, path))


# ------------------------------------------------------------------ content


def make_text(text: str) -> ContentToolCallContent:
    return ContentToolCallContent(type="content", content=TextContentBlock(type="text", text=text))


def make_output(text: str) -> list[CallContent]:
    """Output of a tool, shown as it is: editors render text as Markdown."""
    text = text.rstrip("\n")
    if not text.strip():
        return []
    if len(text) > MAX_SHOWN_CHARS:
        cut = len(text) - MAX_SHOWN_CHARS
        text = f"... [{cut:,} characters are not shown]\n{text[-MAX_SHOWN_CHARS:]}"
    runs = [len(run) for run in re.findall(r"`{3,}", text)]
    fence = "`" * max([3, *(run + 1 for run in runs)])
    return [make_text(f"{fence}\n{text}\n{fence}")]


def make_result_content(item: ToolResultItem, cwd: str) -> list[CallContent]:
    """What a finished call shows: its diff, its images, its output."""
    if get_kind(item.name) == "edit" and not item.is_error:
        return parse_diff(item.display, cwd) or make_output(item.user_text)
    images: list[CallContent] = [
        ContentToolCallContent(
            type="content",
            content=ImageContentBlock(
                type="image",
                data=base64.b64encode(part.data).decode(),
                mime_type=part.media_type,
            ),
        )
        for part in item.content
        if isinstance(part, Image) and part.data
    ]
    return [*make_output(item.display or item.user_text), *images]


def make_preview_content(preview: Preview | None, cwd: str) -> list[CallContent]:
    """What an approval shows: what the call would do."""
    if preview is None or not preview.text:
        return []
    if preview.kind == "diff":
        return parse_diff(preview.text, cwd) or make_output(preview.text)
    return make_output(preview.text)


def parse_diff(text: str, cwd: str) -> list[CallContent]:
    """A unified diff as one block for each hunk; what the diff leaves out is said at its end."""
    blocks: list[CallContent] = []
    for hunk in list_hunks(text):
        if isinstance(hunk, DiffRow):
            blocks.append(make_text(hunk.text))
        elif hunk.path:
            is_new = hunk.old_name == "/dev/null"
            blocks.append(
                FileEditToolCallContent(
                    type="diff",
                    path=make_absolute(cwd, hunk.path),
                    old_text=None if is_new else _join_lines(hunk, "add"),
                    new_text=_join_lines(hunk, "del"),
                )
            )
    return blocks


def _join_lines(hunk: DiffHunk, without: str) -> str:
    return "".join(f"{row.text}\n" for row in hunk.rows if row.kind != without)


# ------------------------------------------------------------------ plan


def parse_plan(arguments: Arguments | None) -> list[PlanEntry] | None:
    """The todo list of a call as a plan; None if the arguments are not one."""
    todos: Any = (arguments or {}).get("todos")
    if not isinstance(todos, list):
        return None
    entries: list[PlanEntry] = []
    for todo in todos:
        status = todo.get("status", "pending") if isinstance(todo, dict) else None
        if status not in ("pending", "in_progress", "completed"):
            return None
        content = str(todo.get("content", ""))
        entries.append(PlanEntry(content=content, status=status, priority="medium"))
    return entries
