"""The MCP servers of a session: their state, their prompts as commands, their resources."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from treadle.apps.conversation.session.lifecycle import SessionLifecycle
from treadle.core.errors import ConfigError
from treadle.core.transcript.items import UserItem

if TYPE_CHECKING:
    from treadle.tools.mcp.server import McpServer


class SessionServers:
    def __init__(self, session: SessionLifecycle) -> None:
        self._session = session

    def list_servers(self) -> tuple[McpServer, ...]:
        return self._session.agent_session.servers if self._session.is_open else ()

    def list_starting(self) -> tuple[str, ...]:
        """The names of those whose tools are not there yet."""
        return tuple(one.name for one in self.list_servers() if one.status.state == "starting")

    def find(self, name: str) -> McpServer:
        for server in self.list_servers():
            if server.name == name:
                return server
        names = ", ".join(one.name for one in self.list_servers()) or "none"
        raise ConfigError(f"there is no MCP server {name!r} (there are: {names})")

    async def wait(self) -> None:
        """Until each is up, or has failed for now."""
        await asyncio.gather(*(server.wait_ready() for server in self.list_servers()))

    def list_prompts(self) -> list[tuple[str, str, str]]:
        """The prompts of the servers as commands, `server:prompt`: name, summary, arguments."""
        if not self.list_servers():
            return []
        from treadle.apps.conversation.commands.mcp_prompts import list_prompt_commands

        return list_prompt_commands(self.list_servers())

    async def expand_prompt(self, command: str, arguments: str) -> UserItem | None:
        """The message of a prompt of a server; None if there is none of this name."""
        if not self.list_servers():
            return None
        from treadle.apps.conversation.commands.mcp_prompts import expand_prompt

        wait = self._session.load_settings().server_wait
        return await expand_prompt(self.list_servers(), command, arguments, wait)

    def list_resources(self) -> list[str]:
        """The resources of the servers, as they are mentioned: `server:uri`."""
        if not self.list_servers():
            return []
        from treadle.apps.conversation.commands.mcp_prompts import list_resource_mentions

        return list_resource_mentions(self.list_servers())
