"""The custom commands of a session, and how one becomes a message: its commands are run, its files
attached, its tools allowed.

A command in a file runs as one of the agent does: the rules decide, and where they would ask, it
runs in the sandbox or not at all. Deny rules always hold. Files of a project's command stay inside
the project, and deny and ask rules hold for them. Used by the hosts.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Sequence
from itertools import count
from pathlib import Path

from treadle.apps.assembly.assemble import AgentSession
from treadle.apps.assembly.redaction import find_environment_secrets, redact
from treadle.apps.conversation.attachments import attach_mention, find_mentions
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.settings.command_files import SHELL_COMMAND, CustomCommand
from treadle.apps.settings.extensions import is_command_approved
from treadle.core.contracts.policy import Allow, Deny, PermissionRequest
from treadle.core.contracts.tool import Access, ToolSpec
from treadle.core.errors import TreadleError
from treadle.core.transcript import Text, UserContent, UserItem
from treadle.lib.text.text import suggest

MAX_OUTPUT_CHARS = 20_000
TIMEOUT_SECONDS = 60.0
_BASH = ToolSpec("bash", "Runs a command.", {"type": "object"})  # as the rules know it
OUTSIDE = "a command of the project attaches only files of the project"
UNAPPROVED = "the command file waits for your approval: run `treadle trust --approve`"


async def expand_command(
    session: AgentSession,
    command: CustomCommand,
    arguments: str,
    added_folders: Sequence[Path] = (),
) -> UserItem:
    """The message of a command. Without approval nothing of it runs; with it, what it allows is
    allowed until the turn ends."""
    outputs: list[str] = []
    is_approved = is_command_approved(session.workspace.root, command)
    for line in SHELL_COMMAND.findall(command.body):
        filled = command.fill_in(line, arguments)
        outputs.append(await run_prepared(session, filled) if is_approved else f"({UNAPPROVED})")
    # Only what the file has is run: a command in the arguments is text.
    numbers = count()
    body = SHELL_COMMAND.sub(lambda match: f"\0{next(numbers)}\0", command.body)
    text = command.expand(arguments.replace("\0", ""), body)
    for number, output in enumerate(outputs):
        text = text.replace(f"\0{number}\0", output)
    files = await _attach_files(session, command, arguments, added_folders)
    if is_approved:
        session.policy.grant(command.allowed_tools)
    return UserItem((Text(text), *files))


async def _attach_files(
    session: AgentSession, command: CustomCommand, arguments: str, added_folders: Sequence[Path]
) -> list[UserContent]:
    folder = session.workspace.root
    parts: list[UserContent] = []
    typed = set(find_mentions(arguments))
    for name in find_mentions(command.expand(arguments)):
        is_users_choice = command.is_user or name in typed
        if not is_users_choice and not _is_inside(Path(name), folder):
            parts.append(Text(f"[{name} is not attached: {OUTSIDE}]"))
            continue
        found = attach_mention(name, folder, lambda: added_folders, include_text=True)
        if found is None:
            continue
        problem = "" if is_users_choice else await _explain_unreadable(session, folder / name)
        parts.append(Text(f"[{name} is not attached: {problem}]") if problem else found.content)
    return parts


def _is_inside(path: Path, folder: Path) -> bool:
    return Path(os.path.normpath(folder / path.expanduser())).is_relative_to(folder)


async def _explain_unreadable(session: AgentSession, path: Path) -> str:
    policy = await session.policy.get_policy()
    return policy.explain_unreadable(str(path))


async def run_prepared(session: AgentSession, line: str) -> str:
    """The output of a command that a command file has, or why it was not run."""
    access = Access(command=line, cwd=str(session.workspace.root))
    request = PermissionRequest(
        session.store.session_id, "command", _BASH, {"command": line}, line, access
    )
    verdict = await session.policy.decide(request)
    local = await session.workspace.open()
    if isinstance(verdict, Deny) and verdict.kind == "policy":
        return f"(not run: {verdict.reason})"
    if not isinstance(verdict, Allow) and not local.sandboxed:
        return "(not run: it needs approval, since there is no sandbox)"
    try:
        result = await session.workspace.run(line, timeout=TIMEOUT_SECONDS)
    except TreadleError as error:
        return f"(not run: {error})"
    output = redact(find_environment_secrets(), result.output).strip()
    if len(output) > MAX_OUTPUT_CHARS:
        output = f"{output[:MAX_OUTPUT_CHARS]}\n... [truncated, {len(output)} chars total]"
    return output if result.exit_code == 0 else f"{output}\n(exit code {result.exit_code})".strip()


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
