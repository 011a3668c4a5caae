"""MCP servers as one source that does not break the cache, and judges see through it.

Servers start in the background; what they offer when the first request is made is listed, what
comes later is announced and called by `use_tool` (tools/steady.py). Rules and hooks are about the
tool that is meant: `meant` and `SeeingThrough` show them that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from treadle.apps.wiring.late import LateWorkspace
from treadle.core.contracts.hook import Answer, Change, Hook, HookPoint, Moment
from treadle.core.contracts.policy import Proposal
from treadle.core.errors import ConfigError
from treadle.tools.federation import Federation
from treadle.tools.mcp.server import McpServer, McpStatus
from treadle.tools.steady import NAME, Steady

_TROUBLE = ("failed", "login")


class Servers(Federation):
    """All of them; `open` starts each, and waits for them no longer than `patience`."""

    def __init__(self, servers: Sequence[McpServer], patience: float) -> None:
        super().__init__(servers)
        self.servers = tuple(servers)
        self._patience = patience

    async def open(self) -> None:
        await super().open()
        if self._patience:
            await asyncio.gather(*(server.ready(self._patience) for server in self.servers))


def servers_of(
    definitions: Mapping[str, Mapping[str, Any]],
    workspace: LateWorkspace,
    *,
    patience: float,
    notes: list[str],
    tell: Callable[[str], None] | None,
) -> tuple[Steady, tuple[McpServer, ...]]:
    """The servers as a source; a definition that is wrong is noted and left out."""

    def heard(status: McpStatus) -> None:
        if tell is not None and status.state in _TROUBLE:
            tell(f"server {status.line}")

    made: list[McpServer] = []
    for name, definition in definitions.items():
        try:
            made.append(_server(name, definition, workspace, heard))
        except ConfigError as error:
            notes.append(str(error))
    servers = Servers(made, patience)
    return Steady(servers), servers.servers


def _server(
    name: str,
    definition: Mapping[str, Any],
    workspace: LateWorkspace,
    heard: Callable[[McpStatus], None],
) -> McpServer:
    root: Path = workspace.root
    return McpServer(name, definition, start=workspace.spawn, root=root, on_change=heard)


# ------------------------------------------------------------------ what a call means


def meant(steady: Steady) -> Callable[[Proposal], Proposal]:
    """For the policy: a call of a tool that came late is judged as that tool's."""

    def see(proposal: Proposal) -> Proposal:
        if proposal.tool.name != NAME:
            return proposal
        tool = steady.late().get(str(proposal.arguments.get("name")))
        inner = proposal.arguments.get("arguments")
        if tool is None or not isinstance(inner, dict):
            return proposal
        return msgspec.structs.replace(proposal, tool=tool.spec, arguments=inner)

    return see


class SeeingThrough:
    """A hook that is asked about the tool that is meant."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    @property
    def points(self) -> frozenset[HookPoint]:
        return self._hook.points

    async def ask(self, moment: Moment) -> Answer | None:
        given = moment.data.get("tool_input")
        inner = given.get("arguments") if isinstance(given, dict) else None
        if moment.data.get("tool_name") != NAME or not isinstance(inner, dict):
            return await self._hook.ask(moment)
        assert isinstance(given, dict), "it has arguments"
        data = {**moment.data, "tool_name": str(given.get("name")), "tool_input": inner}
        answer = await self._hook.ask(msgspec.structs.replace(moment, data=data))
        if isinstance(answer, Change) and answer.arguments is not None:
            return msgspec.structs.replace(
                answer, arguments={**given, "arguments": answer.arguments}
            )
        return answer
