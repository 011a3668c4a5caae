"""Texts and answers of an approval that all hosts show, and the argument that the user may edit."""

from __future__ import annotations

from typing import Literal

from treadle.apps.conversation.block_text import format_call_title
from treadle.apps.conversation.choice_option import ChoiceOption
from treadle.apps.conversation.state.blocks import ToolCallBlock, strip_brackets
from treadle.core.sanitize import escape_invisible
from treadle.core.steps import PendingApproval

# For this session: until it is closed. Always: the rules are saved.
ApprovalAnswer = Literal["once", "session", "always", "edit", "deny", "stop"]
_EDITABLE_ARGUMENTS = ("command", "content", "new_string", "url")


def format_approval_title(approval: PendingApproval) -> str:
    """The question of an approval: `Run this command?`, `Allow edit src/a.py?`."""
    name, summary = approval.call.name, strip_brackets(approval.summary)
    if name == "bash":
        return "Run this command?"
    title = format_call_title(ToolCallBlock(approval.call.id, name, summary=summary))
    return f"Allow {escape_invisible(title.replace(': ', ' ', 1))}?"


def list_approval_options(approval: PendingApproval, *, is_child: bool) -> list[ChoiceOption]:
    """The answers to an approval, each with its label and key. One of a child agent can be
    allowed only once, as it is."""
    rules = escape_invisible(", ".join(approval.rules))
    options = [ChoiceOption("once", "Yes", key="y")]
    if rules and not is_child:
        options.append(ChoiceOption("session", "Yes, and allow it in this session", key="t"))
        options.append(ChoiceOption("always", f"Yes, and always allow: {rules}", key="a"))
    if find_editable_argument(approval)[0] and not is_child:
        options.append(ChoiceOption("edit", "Edit first", key="e"))
    options.append(ChoiceOption("deny", "No, with a reason", key="n"))
    options.append(ChoiceOption("stop", "Stop the turn", key="s"))
    return options


def find_editable_argument(approval: PendingApproval) -> tuple[str, str]:
    """Name and text of the argument that a user may want to edit; empty if there is none."""
    arguments = approval.call.arguments or {}
    for name in _EDITABLE_ARGUMENTS:
        if isinstance(arguments.get(name), str):
            return name, arguments[name]
    return "", ""
