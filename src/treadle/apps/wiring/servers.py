"""The MCP servers that may run here, as one source.

They start in the background, and nobody waits for them longer than asked for. That what comes late
leaves the cache as it is, is tools/steady.py's business; who may run at all, extras.py's, which is
asked again before every start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from treadle.apps.wiring.extras import objections
from treadle.apps.wiring.late import LateWorkspace
from treadle.apps.wiring.surroundings import own_surroundings
from treadle.core.errors import ConfigError
from treadle.tools.federation import Federation
from treadle.tools.mcp.config import ServerConfig, server_config, withheld
from treadle.tools.mcp.server import McpServer, McpStatus, State

Tell = Callable[[str], None]


class Servers(Federation):
    """All of them; `open` starts each, and waits for them no longer than `patience`."""

    def __init__(self, servers: Sequence[McpServer], patience: float, trouble: Trouble) -> None:
        super().__init__(servers)
        self.servers = tuple(servers)
        self._patience = patience
        self._trouble = trouble

    async def open(self) -> None:
        await super().open()
        if self._patience:
            await asyncio.gather(*(server.ready(self._patience) for server in self.servers))
            for server in self.servers:
                self._trouble.missed(server.status, self._patience)


class Trouble:
    """Tells the person which server is away, and why: once, until it was up again."""

    def __init__(self, tell: Tell | None) -> None:
        self._tell = tell or (lambda text: None)
        self._told: dict[str, State] = {}

    def heard(self, status: McpStatus) -> None:
        """A server changed."""
        if status.state == "up":
            self._told.pop(status.name, None)
        elif status.state in _SAID and self._told.get(status.name) != status.state:
            self._told[status.name] = status.state
            self._tell(_SAID[status.state].format(name=status.name, problem=status.problem))

    def missed(self, status: McpStatus, waited: float) -> None:
        """Nobody waits for a server any longer."""
        if status.state == "starting":
            what = f"the server {status.name} is not up after {waited:g} s"
            self._tell(f"{what}; its tools come when it is")


_SAID: Mapping[State, str] = {
    "down": "the server {name} is down and is started again: {problem}",
    "failed": "the server {name} does not start: {problem}",
    "login": "{problem}",
}


def servers_of(
    definitions: Mapping[str, Mapping[str, Any]],
    workspace: LateWorkspace,
    *,
    own: Collection[str],
    trusted: bool,
    patience: float,
    notes: list[str],
    tell: Tell | None,
) -> Servers:
    """The servers as a source; a definition that is wrong is noted and left out.

    `own` names those of the user's own settings, `trusted` is about the folder.
    """
    trouble = Trouble(tell)
    objection = objections(workspace.root)
    made: list[McpServer] = []
    for name, definition in definitions.items():
        try:
            if name in own:
                config = _own(server_config(name, definition), workspace.root, trusted)
            else:
                config = server_config(name, definition, trusted=False)
                notes.extend(_kept(name, withheld(definition)))
            made.append(
                McpServer(
                    name,
                    config,
                    start=workspace.spawn,
                    root=workspace.root,
                    on_change=trouble.heard,
                    objection=partial(objection, name, definition),
                )
            )
        except ConfigError as error:
            notes.append(str(error))
    return Servers(made, patience, trouble)


def _own(config: ServerConfig, root: Path, trusted: bool) -> ServerConfig:
    """One of the user's own: what the folder holds must not become part of it.

    Where the folder is not trusted it does not even stand there, since `npx` and their like run
    what they find.
    """
    if config.kind != "stdio":
        return config
    env = own_surroundings(" ".join((config.command, *config.args)), root)
    cwd = config.cwd if trusted else str(Path.home() / config.cwd)
    return msgspec.structs.replace(config, cwd=cwd, env={**env, **config.env})


def _kept(name: str, variables: Sequence[str]) -> list[str]:
    if not variables:
        return []
    named = f"the server {name} of this folder gets no secret: {', '.join(variables)} stays empty"
    return [f"{named}; name the server in your own settings to give it"]
