"""`treadle -p "/name arguments"`: a custom command, or a prompt of an MCP server.

An unknown name is sent as it is: a prompt may begin with a path. Used by headless.py.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from treadle.apps.assembly import AgentSession
from treadle.apps.assembly.command_files import CustomCommand, find_custom_commands
from treadle.apps.assembly.extensions import is_command_approved
from treadle.apps.assembly.rules import is_trusted
from treadle.apps.claude_settings import translate_model
from treadle.apps.services.command_expansion import UNAPPROVED, expand_command
from treadle.apps.services.console import print_error
from treadle.apps.settings import Settings
from treadle.core.transcript import Text, UserContent


class NamedCommand(msgspec.Struct, frozen=True):
    """A command that the user named, with what follows its name."""

    command: CustomCommand
    arguments: str
    folder: Path

    async def expand(self, session: AgentSession, settings: Settings) -> tuple[UserContent, ...]:
        """Its message; what it allows is allowed for this turn."""
        is_approved = is_command_approved(self.folder, self.command)
        if not is_approved:
            print_error(f"treadle: /{self.command.name}: {UNAPPROVED}")
        added = list_added_folders(settings, self.folder)
        message = await expand_command(
            session, self.command, self.arguments, is_approved=is_approved, added_folders=added
        )
        if is_approved:
            session.policy.grant(self.command.allowed_tools)
        return message.content


async def expand_server_prompt(
    session: AgentSession, settings: Settings, prompt: tuple[UserContent, ...]
) -> tuple[UserContent, ...]:
    """The message with `/server:prompt arguments` replaced by the prompt of that MCP server; the
    same message if it does not begin with one."""
    first = prompt[0].text if prompt and isinstance(prompt[0], Text) else ""
    name, _, arguments = first.removeprefix("/").partition(" ")
    if not first.startswith("/") or not any(
        name.startswith(f"{server.name}:") for server in session.servers
    ):
        return prompt
    from treadle.apps.services.mcp_prompts import expand_prompt

    await session.agent.config.source.open()
    wait = settings.server_wait
    message = await expand_prompt(session.servers, name.strip(), arguments.strip(), wait)
    return prompt if message is None else (*message.content, *prompt[1:])


def list_added_folders(settings: Settings, folder: Path) -> list[Path]:
    return [Path(folder, one).expanduser() for one in settings.add_dir]


def find_command(prompt: str, folder: Path) -> NamedCommand | None:
    """The command that a prompt starts; None if there is none of this name."""
    name, _, arguments = prompt.removeprefix("/").partition(" ")
    folders = [folder] if is_trusted(folder) else []
    commands, _ = find_custom_commands([*folders, Path.home()], home=Path.home())
    found = next((one for one in commands if one.name == name.strip()), None)
    return NamedCommand(found, arguments.strip(), folder) if found is not None else None


def choose_model(settings: Settings, command: NamedCommand | None) -> Settings:
    """The settings with the model of the command, if the user has chosen none for this run."""
    name = translate_model(command.command.model) if command is not None else ""
    if not name or settings.origin("model").startswith(("--", "TREADLE_")):
        return settings
    origins = {**settings.origins, "model": f"/{command.command.name}" if command else ""}
    return msgspec.structs.replace(settings, model=name, origins=origins)
