"""`treadle -p "/name arguments"`: a custom command, or a prompt of an MCP server.

A name that is no command is an error, as in the terminal: sent as text it would cost a turn and do
something else. A prompt that begins with a path, a blank or a name with a dot is text. Used by
headless.py.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from treadle.apps.assembly import AgentSession
from treadle.apps.console.console import UsageError, print_error
from treadle.apps.conversation.commands.expansion import UNAPPROVED, expand_command
from treadle.apps.settings.claude_settings import translate_model
from treadle.apps.settings.command_files import CustomCommand, find_custom_commands
from treadle.apps.settings.extensions import is_command_approved, load_commands
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.settings import Settings
from treadle.core.transcript import Text, UserContent
from treadle.lib.text.text import suggest

_NAME = re.compile(r"/([\w:.-]+)(?:\s+(.*))?", re.DOTALL)
_AS_TEXT = "To send it as text, begin the prompt with a blank"
_KNOWN = "-p runs custom commands and prompts of MCP servers"


class NamedCommand(msgspec.Struct, frozen=True):
    """A command that the user named, with what follows its name."""

    command: CustomCommand
    arguments: str
    folder: Path

    async def expand(self, session: AgentSession, settings: Settings) -> tuple[UserContent, ...]:
        """Its message; what it allows is allowed for this turn."""
        if not is_command_approved(self.folder, self.command):
            print_error(f"treadle: /{self.command.name}: {UNAPPROVED}")
        added = list_added_folders(settings, self.folder)
        return (await expand_command(session, self.command, self.arguments, added)).content


async def expand_server_prompt(
    session: AgentSession, settings: Settings, prompt: tuple[UserContent, ...]
) -> tuple[UserContent, ...]:
    """The message with `/server:prompt arguments` replaced by the prompt of that MCP server; the
    same message if it does not begin with one. UsageError if no server has this name."""
    match = _NAME.fullmatch(prompt[0].text) if prompt and isinstance(prompt[0], Text) else None
    if match is None or ":" not in match[1]:
        return prompt
    name, arguments = match[1], (match[2] or "").strip()
    if not any(name.startswith(f"{server.name}:") for server in session.servers):
        if _is_file_name(name):
            return prompt
        raise UsageError(_describe_unknown(name))
    from treadle.apps.conversation.commands.mcp_prompts import expand_prompt

    await session.agent.config.source.open()
    wait = settings.server_wait
    message = await expand_prompt(session.servers, name, arguments, wait)
    return prompt if message is None else (*message.content, *prompt[1:])


def list_added_folders(settings: Settings, folder: Path) -> list[Path]:
    return [Path(folder, one).expanduser() for one in settings.add_dir]


def find_command(prompt: str, folder: Path) -> NamedCommand | None:
    """The command that a prompt starts; None if the prompt is text, or may be a prompt of a server.
    UsageError if there is no such command, or the folder that has it is not trusted."""
    match = _NAME.fullmatch(prompt)
    if match is None:
        return None
    name, trusted = match[1], is_trusted(folder)
    commands, _ = load_commands(folder, trusted=trusted)
    found = next((one for one in commands if one.name == name), None)
    if found is not None:
        return NamedCommand(found, (match[2] or "").strip(), folder)
    if not Path("/", name).exists():
        _report_unknown(name, [one.name for one in commands], [] if trusted else [folder])
    return None


def _is_file_name(name: str) -> bool:
    """Whether an unknown name is that of a file rather than of a command."""
    return "." in name or Path("/", name).exists()


def _report_unknown(name: str, known: list[str], untrusted: list[Path]) -> None:
    """UsageError, unless it is a file name, or may be a prompt of a server: see
    expand_server_prompt."""
    unused, _ = find_custom_commands(untrusted)
    if name in [one.name for one in unused]:
        problem = f"/{name} is a command of this folder, which is not trusted: run `treadle trust`"
        raise UsageError(f"{problem}. {_AS_TEXT}")
    close = suggest(name, known)
    if close or not (":" in name or _is_file_name(name)):
        raise UsageError(_describe_unknown(name, f"did you mean /{close}?" if close else ""))


def _describe_unknown(name: str, hint: str = "") -> str:
    return f"there is no command /{name}; {hint or f'{_KNOWN}.'} {_AS_TEXT}"


def choose_model(settings: Settings, command: NamedCommand | None) -> Settings:
    """The settings with the model of the command, if the user has chosen none for this run."""
    name = translate_model(command.command.model) if command is not None else ""
    if not name or settings.origin("model").startswith(("--", "TREADLE_")):
        return settings
    origins = {**settings.origins, "model": f"/{command.command.name}" if command else ""}
    return msgspec.structs.replace(settings, model=name, origins=origins)
