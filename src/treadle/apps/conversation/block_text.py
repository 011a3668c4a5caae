"""The text of blocks without styles: for copying, searching, questions and the plain mode.

Pure, and without rich: the plain mode works where the extra `tui` is not installed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.apps.conversation.state.blocks import (
    Activity,
    ActivityKind,
    CodeBlock,
    ShellBlock,
    TaskLine,
    ToolCallBlock,
    ViewBlock,
)
from treadle.core.transcript.content import parse_arguments
from treadle.lib.text.sanitize import INVISIBLE, escape_char
from treadle.lib.text.text import find_title, plural

if TYPE_CHECKING:
    from treadle.tools.builtin.conversation.todo import TodoStatus

TODO_SIGNS: dict[TodoStatus, str] = {"pending": "☐", "in_progress": "▸", "completed": "☑"}


_ACTIVITY_TEXTS: dict[ActivityKind, str] = {
    "idle": "working",
    "waiting": "waiting for the model",
    "retrying": "waiting to retry",
    "approval": "waiting for your approval",
    "question": "waiting for your answer",
    "mutating": "running",
}


def describe_tasks(tasks: Sequence[TaskLine]) -> str:
    """How many run in the background, and which."""
    return f"{plural(len(tasks), 'task')}: {', '.join(task.summary for task in tasks)}"


def format_activity(activity: Activity) -> str:
    """`writing`, `running bash`."""
    text = _ACTIVITY_TEXTS.get(activity.kind, activity.kind)
    return f"{text} {activity.subject}".rstrip()


def plain_text(block: ViewBlock) -> str:
    """The text that copying and searching a block use."""
    match block:
        case ToolCallBlock():
            body = block.display if is_diff(block.display) else block.result
            return f"{format_call_title(block)}\n{body}".rstrip()
        case ShellBlock():
            return f"$ {block.command}\n{block.output}".rstrip()
        case CodeBlock():
            return block.text.rstrip("\n")
    return block.text.strip("\n")


def format_call_title(call: ToolCallBlock) -> str:
    """One line about a call: the tool's summary, or its name and main argument.
    `bash (edited): ls` if the user edited it."""
    summary = call.summary
    if not summary:
        summary = f"{call.name}: {_main_argument(call.raw)}" if call.raw else call.name
    title = " ".join(summary.split()).removesuffix(":")
    if not call.is_edited:
        return title
    name, colon, argument = title.partition(": ")
    return f"{name} (edited){colon}{argument}"


def _main_argument(raw: str) -> str:
    arguments = parse_arguments(raw)
    if isinstance(arguments, str):
        return raw[:80]
    for name in ("command", "path", "file_path", "pattern", "query", "url", "description"):
        if isinstance(arguments.get(name), str):
            return str(arguments[name])
    if isinstance(plan := arguments.get("plan"), str):
        return find_title(plan)
    texts = [str(value) for value in arguments.values() if isinstance(value, str | int | float)]
    return ", ".join(texts)[:200]


def is_diff(text: str) -> bool:
    return text.startswith(("--- ", "diff --git ")) and "\n@@ " in text


def replace_controls(text: str) -> str:
    """The text with each invisible character replaced by one visible character."""
    return INVISIBLE.sub(_replacement_char, text)


def _replacement_char(match: re.Match[str]) -> str:
    visible = escape_char(match[0])
    return visible if len(visible) == 1 else "\ufffd"


def format_table(rows: Sequence[tuple[str, str]]) -> str:
    """Two columns; the first one is at most 40 wide, unless a cell of it is longer."""
    width = min(max(len(name) for name, _ in rows), 40)
    return "\n".join(f"{name:{width}}  {description}".rstrip() for name, description in rows)
