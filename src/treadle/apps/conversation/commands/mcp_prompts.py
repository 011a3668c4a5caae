"""Prompts and resources of MCP servers, as hosts show them: `/server:prompt` and `@server:uri`.

Arguments of a prompt are given by position, as words, or by name, as `topic=looms`; the last one
takes all that is left. Attaching a resource is assembly/servers.py.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from treadle.core.errors import ConfigError
from treadle.core.transcript import Text, UserContent, UserItem
from treadle.tools.mcp.catalog import McpPrompt
from treadle.tools.mcp.server import McpServer
from treadle.tools.mcp.status import RUNNING_STATES


def list_prompt_commands(servers: Sequence[McpServer]) -> list[tuple[str, str, str]]:
    """The prompts as commands: name, what it does with its arguments, the arguments."""
    return [
        (f"{server.name}:{prompt.name}", _describe_prompt(prompt), format_arguments(prompt))
        for server in servers
        for prompt in server.catalog.prompts
    ]


def list_resource_mentions(servers: Sequence[McpServer]) -> list[str]:
    """What can stand after `@` in a message."""
    return [
        f"{server.name}:{resource.uri}"
        for server in servers
        for resource in server.catalog.resources
        if not resource.is_template
    ]


async def expand_prompt(
    servers: Sequence[McpServer], command: str, arguments: str, wait: float
) -> UserItem | None:
    """The message of a prompt; None if the name is not that of a server and a prompt.

    A server that is still starting is waited for, at most `wait` seconds. ConfigError if it is not
    up then, has no such prompt, or an argument is missing.
    """
    named = [one for one in servers if command.startswith(f"{one.name}:")]
    if not named:
        return None
    server = max(named, key=lambda one: len(one.name))
    await server.wait_ready(wait)
    name = command.removeprefix(f"{server.name}:")
    prompt = next((one for one in server.catalog.prompts if one.name == name), None)
    if prompt is None:
        raise ConfigError(f"/{command}: {_describe_missing(server)}")
    given = parse_prompt_arguments(prompt, arguments)
    messages = await server.get_prompt(prompt.name, given)
    return UserItem(tuple(_label(one.role, one.content) for one in messages))


def _describe_missing(server: McpServer) -> str:
    """Why a server does not have a prompt that the user named."""
    status = server.status
    if status.state == "starting":
        return f"MCP server {server.name} is still starting; try it again in a moment"
    if status.state not in RUNNING_STATES:
        return f"MCP server {server.name} is not available: {status.problem or status.state}"
    names = ", ".join(f"/{server.name}:{one.name}" for one in server.catalog.prompts)
    return f"MCP server {server.name} has no such prompt (it has {names or 'none'})"


def parse_prompt_arguments(prompt: McpPrompt, text: str) -> dict[str, str]:
    """The arguments that the user typed; ConfigError if one is missing or too many."""
    names = [argument.name for argument in prompt.arguments]
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name in names and name not in given:
            given[name] = value
            continue
        free = [one for one in names if one not in given]
        if free:
            given[free[0]] = word
        elif names:
            given[names[-1]] += f" {word}"
        else:
            raise ConfigError(f"{prompt.name} takes no arguments")
    missing = [one.name for one in prompt.arguments if one.is_required and one.name not in given]
    if missing:
        usage = format_arguments(prompt, "{}=...")
        raise ConfigError(f"{prompt.name} needs {', '.join(missing)}: {usage}")
    return given


def format_arguments(prompt: McpPrompt, form: str = "{}") -> str:
    """The names of the arguments; those that may be left out are in brackets."""
    shown = [(form.format(one.name), one.is_required) for one in prompt.arguments]
    return " ".join(text if is_required else f"[{text}]" for text, is_required in shown)


def _describe_prompt(prompt: McpPrompt) -> str:
    return f"{format_arguments(prompt)} {prompt.description}".strip()[:80]


def _label(role: str, content: UserContent) -> UserContent:
    """A message of the assistant inside a prompt is marked: the user sends all of it."""
    if role == "assistant" and isinstance(content, Text):
        return Text(f"[assistant] {content.text}")
    return content
