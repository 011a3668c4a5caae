"""The custom slash commands of a session: those of the user, and of its folder if it is trusted.

settings/command_files.py reads the files; expansion.py runs what is in them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path

from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.core.transcript import UserItem
from treadle.lib.text.text import suggest


async def expand_custom(session: HostedSession, name: str, arguments: str) -> UserItem | None:
    """The message of the command with this name; None if there is none."""
    from treadle.apps.conversation.commands.expansion import expand_command

    for command in session.custom_commands:
        if command.name == name:
            added = session.list_added_folders()
            return await expand_command(session.agent_session, command, arguments, added)
    return None


def begins_with_path(line: str, commands: Container[str]) -> bool:
    """Whether a line that begins with `/` is a message: `//`, `/ ` or a path comes first."""
    name = line[1:].split(maxsplit=1)[0] if line[1:].strip() else ""
    if line.startswith(("//", "/ ")) or "/" in name:
        return True
    return name not in commands and Path("/", name).exists()


def describe_unknown_command(name: str, known: Iterable[str]) -> str:
    """With what the command of Claude Code or Codex is here, else the nearest known name."""
    from treadle.apps.conversation.commands.peer_names import PEER_COMMANDS

    known = set(known)
    if name in PEER_COMMANDS:
        return f"unknown command /{name}; {PEER_COMMANDS[name].describe(known)}"
    suggestion = suggest(name, known)
    hint = f"did you mean /{suggestion}?" if suggestion else "/help lists the commands"
    return f"unknown command /{name}; {hint}"
