"""The MCP servers that may run here, as one source.

They start in the background, and nobody waits for them longer than asked for. That what comes late
leaves the cache as it is, is tools/late_tools.py's business; who may run at all, extensions.py's, which is
asked again before every start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from treadle.apps.assembly.extensions import start_objections
from treadle.apps.assembly.hook_environment import make_hook_environment
from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.core.errors import ConfigError
from treadle.tools.federation import Federation
from treadle.tools.mcp.config import McpServerConfig, find_secret_variables, parse_server_config
from treadle.tools.mcp.server import McpServer, McpState, McpStatus

Notify = Callable[[str], None]


class McpServers(Federation):
    """All of them; `open` starts each, and waits for them no longer than `patience`."""

    def __init__(
        self, servers: Sequence[McpServer], startup_wait: float, problems: ServerProblems
    ) -> None:
        super().__init__(servers)
        self.servers = tuple(servers)
        self._startup_wait = startup_wait
        self._problems = problems

    async def open(self) -> None:
        await super().open()
        if self._startup_wait:
            await asyncio.gather(
                *(server.wait_ready(self._startup_wait) for server in self.servers)
            )
            for server in self.servers:
                self._problems.on_timeout(server.status, self._startup_wait)


class ServerProblems:
    """Tells the person which server is away, and why: once, until it was up again."""

    def __init__(self, notify: Notify | None) -> None:
        self._notify = notify or (lambda text: None)
        self._reported: dict[str, McpState] = {}

    def on_status(self, status: McpStatus) -> None:
        """A server changed."""
        if status.state == "up":
            self._reported.pop(status.name, None)
        elif status.state in _PROBLEM_TEXTS and self._reported.get(status.name) != status.state:
            self._reported[status.name] = status.state
            self._notify(
                _PROBLEM_TEXTS[status.state].format(name=status.name, problem=status.problem)
            )

    def on_timeout(self, status: McpStatus, waited: float) -> None:
        """Nobody waits for a server any longer."""
        if status.state == "starting":
            what = f"the server {status.name} is not up after {waited:g} s"
            self._notify(f"{what}; its tools come when it is")


_PROBLEM_TEXTS: Mapping[McpState, str] = {
    "down": "the server {name} is down and is started again: {problem}",
    "failed": "the server {name} does not start: {problem}",
    "login": "{problem}",
}


def make_servers(
    definitions: Mapping[str, Mapping[str, Any]],
    workspace: LazyWorkspace,
    *,
    user_servers: Collection[str],
    trusted: bool,
    startup_wait: float,
    notes: list[str],
    notify: Notify | None,
) -> McpServers:
    """The servers as a source; a definition that is wrong is noted and left out.

    `own` names those of the user's own settings, `trusted` is about the folder.
    """
    trouble = ServerProblems(notify)
    objection = start_objections(workspace.root)
    made: list[McpServer] = []
    for name, definition in definitions.items():
        try:
            if name in user_servers:
                config = _isolate_user_server(
                    parse_server_config(name, definition), workspace.root, trusted
                )
            else:
                config = parse_server_config(name, definition, trusted=False)
                notes.extend(_format_withheld(name, find_secret_variables(definition)))
            made.append(
                McpServer(
                    name,
                    config,
                    start=workspace.spawn,
                    root=workspace.root,
                    on_change=trouble.on_status,
                    start_objection=partial(objection, name, definition),
                )
            )
        except ConfigError as error:
            notes.append(str(error))
    return McpServers(made, startup_wait, trouble)


def _isolate_user_server(config: McpServerConfig, root: Path, trusted: bool) -> McpServerConfig:
    """One of the user's own: what the folder holds must not become part of it.

    Where the folder is not trusted it does not even stand there, since `npx` and their like run
    what they find.
    """
    if config.transport != "stdio":
        return config
    env = make_hook_environment(" ".join((config.command, *config.args)), root)
    cwd = config.cwd if trusted else str(Path.home() / config.cwd)
    return msgspec.structs.replace(config, cwd=cwd, env={**env, **config.env})


def _format_withheld(name: str, variables: Sequence[str]) -> list[str]:
    if not variables:
        return []
    named = f"the server {name} of this folder gets no secret: {', '.join(variables)} stays empty"
    return [f"{named}; name the server in your own settings to give it"]
