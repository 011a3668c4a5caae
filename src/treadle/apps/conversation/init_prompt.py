"""The message of `/init`: the agent writes AGENTS.md.

Policy protects that file: what is written is shown as a diff and approved first, also in the modes
that accept edits.
"""

from __future__ import annotations

from treadle.core.transcript.items import UserItem, to_user_item

INIT_PROMPT = """\
Look around in this project and write a file AGENTS.md at its root for coding agents that will \
work here: how to build, test (all, and a single one) and lint it; how it is laid out; the \
conventions that its code follows and that are not obvious. Read what is there before you write: \
the README, build files, a few sources, and an AGENTS.md or CLAUDE.md if there is one already, \
which you improve instead. Only what is true and useful, in at most 60 lines."""


def build_init(arguments: str) -> UserItem:
    """The message, with what the user adds."""
    return to_user_item(f"{INIT_PROMPT}\n{arguments}".strip())
