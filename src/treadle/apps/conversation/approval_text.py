"""Texts of an approval that all hosts show, and the argument that the user may edit."""

from __future__ import annotations

from treadle.apps.conversation.block_text import format_call_title
from treadle.apps.conversation.state.blocks import ToolCallBlock, strip_brackets
from treadle.core.sanitize import escape_invisible
from treadle.core.steps import PendingApproval

_EDITABLE_ARGUMENTS = ("command", "content", "new_string", "url")


def format_approval_title(approval: PendingApproval) -> str:
    """The question of an approval: `Run this command?`, `Allow edit src/a.py?`."""
    name, summary = approval.call.name, strip_brackets(approval.summary)
    if name == "bash":
        return "Run this command?"
    title = format_call_title(ToolCallBlock(approval.call.id, name, summary=summary))
    return f"Allow {escape_invisible(title.replace(': ', ' ', 1))}?"


def find_editable_argument(approval: PendingApproval) -> tuple[str, str]:
    """Name and text of the argument that a user may want to edit; empty if there is none."""
    arguments = approval.call.arguments or {}
    for name in _EDITABLE_ARGUMENTS:
        if isinstance(arguments.get(name), str):
            return name, arguments[name]
    return "", ""
