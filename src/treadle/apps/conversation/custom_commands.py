"""The custom slash commands of a host: those of the user, and of its folder if that is trusted.

settings/command_files.py reads the files; command_expansion.py runs what is in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from treadle.apps.conversation.host import Host
from treadle.apps.settings.command_files import CustomCommand, find_custom_commands
from treadle.core.transcript import UserItem
from treadle.lib.text.text import suggest


def find_host_commands(host: Host) -> tuple[list[CustomCommand], list[str]]:
    """Those of the user, and of the folder of a host if it is trusted."""
    folders, home = [host.folder] if host.is_trusted else [], Path.home()
    return find_custom_commands([*folders, home], home=home)


async def expand_custom_command(
    host: Host, commands: Iterable[CustomCommand], name: str, arguments: str
) -> UserItem | None:
    """The message of the command with this name; None if there is none."""
    for command in commands:
        if command.name == name:
            return await host.expand_command(command, arguments)
    return None


def begins_with_path(line: str, is_command: Callable[[str], bool]) -> bool:
    """Whether a line that begins with `/` is a message: `//`, `/ ` or a path comes first."""
    name = line[1:].split(maxsplit=1)[0] if line[1:].strip() else ""
    if line.startswith(("//", "/ ")) or "/" in name:
        return True
    return not is_command(name) and Path("/", name).exists()


def describe_unknown_command(name: str, known: Iterable[str]) -> str:
    """With what the command of Claude Code or Codex is here, else the nearest known name."""
    from treadle.apps.peer_names import PEER_COMMANDS

    known = set(known)
    if name in PEER_COMMANDS:
        return f"unknown command /{name}; {PEER_COMMANDS[name].describe(known)}"
    suggestion = suggest(name, known)
    hint = f"did you mean /{suggestion}?" if suggestion else "/help lists the commands"
    return f"unknown command /{name}; {hint}"
