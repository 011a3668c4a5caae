"""One connection to a server, from the handshake to its loss. The only face of the SDK.

It knows how to list tools and to call one; when to connect again is server.py's. Importing this
imports the SDK.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.client.client import Client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from treadle._version import __version__
from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import AuthRequired, ToolError
from treadle.tools.mcp.config import McpServerConfig
from treadle.tools.mcp.process import StartProcess, describe_error
from treadle.tools.mcp.results import convert_result
from treadle.tools.mcp.stdio_transport import StdioTransport

MAX_PAGES = 100
MAX_TOOLS = 1_000
MAX_TIMEOUT_FACTOR = 10  # how many times its limit a call may take while it reports progress

# The SDK warns through logging, and a program without handlers would print that on the screen.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class McpConnection:
    """A live connection. `stirred` is set when it was lost or the tools changed."""

    def __init__(self, name: str, config: McpServerConfig) -> None:
        self._name = name
        self._config = config
        self._client: Client | None = None
        self._stdio: StdioTransport | None = None
        self.changed = asyncio.Event()
        self.problem: str | None = None
        self.has_new_tools = False
        self.login_challenge: str | None = None

    @property
    def client(self) -> Client:
        assert self._client is not None, "a link is used inside `connected`"
        return self._client

    @property
    def instructions(self) -> str:
        return (self.client.instructions or "").strip()

    def is_lost(self) -> bool:
        return self.problem is not None

    def mark_lost(self, problem: str) -> None:
        """It is over; the first reason is kept."""
        if self.problem is None:
            words = self._stdio.log_tail if self._stdio is not None else ""
            self.problem = f"{problem}: {words}" if words else problem
        self.changed.set()

    def explain_failure(self, error: Exception) -> str:
        """Why there is no connection: what was seen of its end, unless we ended it ourselves."""
        if isinstance(error, TimeoutError):
            self.problem = None
        self.mark_lost(describe_error(error))
        return self.problem or ""

    def require_login(self, challenge: str) -> None:
        """The server wants somebody to log in."""
        self.login_challenge = challenge

    def make_login_error(self) -> AuthRequired:
        said = f" ({self.login_challenge})" if self.login_challenge else ""
        return AuthRequired(
            self._name,
            f"the server {self._name} at {self._config.url} wants a login: it answered 401{said}; "
            "the user has to provide its authorization",
        )

    # --- what it offers ------------------------------------------------------------------

    async def list_tools(self) -> list[types.Tool]:
        """Every page of the list."""
        found: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self.client.list_tools(cursor=cursor, cache_mode="refresh")
            found += page.tools
            cursor = page.next_cursor
            if not cursor or len(found) >= MAX_TOOLS:
                break
        return found[:MAX_TOOLS]

    @property
    def _supports_list_changed(self) -> bool:
        tools = self.client.server_capabilities.tools
        return bool(tools and tools.list_changed)

    async def on_message(self, message: object) -> None:
        """A notification of the older protocol; what the transport could not read is noise."""
        if isinstance(message, types.ToolListChangedNotification):
            self.mark_tools_changed()

    def mark_tools_changed(self) -> None:
        self.has_new_tools = True
        self.changed.set()

    async def watch_tool_changes(self) -> None:
        """The newer protocol tells of changes only to those who listen."""
        if self.client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        while self._supports_list_changed and self.problem is None:
            try:
                async with self.client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self.mark_tools_changed()
            except (SubscriptionLost, MCPError, TimeoutError):
                pass
            await asyncio.sleep(1.0)  # what changed in between is seen after the next event

    # --- calls ---------------------------------------------------------------------------

    async def call_tool(
        self, tool: str, arguments: dict[str, Any], report: Callable[[str], None]
    ) -> ToolOutput:
        """Call a tool; a failure is a ToolError in words for the model."""
        limit, loop = self._config.timeout, asyncio.get_running_loop()
        last = loop.time() + limit * MAX_TIMEOUT_FACTOR
        deadline = asyncio.timeout(limit)

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            with contextlib.suppress(RuntimeError):  # the call has just ended
                deadline.reschedule(min(loop.time() + limit, last))
            amount = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            report(f"{message[:200]} ({amount})" if message else amount)

        began = time.monotonic()
        try:
            async with deadline:
                result = await self.client.call_tool(tool, arguments, progress_callback=on_progress)
        except TimeoutError as error:
            took = time.monotonic() - began
            raise ToolError(
                f"the server {self._name} did not answer {tool} within {took:.0f} s; "
                "it was told to stop, and what it did until then is not known"
            ) from error
        except MCPError as error:
            raise self._make_call_error(tool, error) from error
        except (RuntimeError, ValueError) as error:
            # The SDK's own findings: an answer that does not fit what the server declared.
            raise ToolError(f"the server {self._name} answered {tool} wrongly: {error}") from error
        return convert_result(result)

    def _make_call_error(self, tool: str, error: MCPError) -> ToolError:
        if self.login_challenge is not None:
            self.mark_lost("it wants a login")  # the next connection asks for headers again
            return self.make_login_error()
        # A server may use this very code for its own ends: a process that lives was not lost.
        is_remote = self._config.transport != "stdio"
        if self.is_lost() or (is_remote and error.message == "Connection closed"):
            self.mark_lost("the connection was lost")
            return ToolError(
                f"the server {self._name} went away during {tool} ({self.problem}); what it did "
                "until then is not known, and it is being started again"
            )
        if is_remote and error.message == "Session terminated":
            self.mark_lost("it does not know our session any more")
        return ToolError(f"the server {self._name} failed at {tool}: {error.message}")


@asynccontextmanager
async def connect(
    name: str,
    config: McpServerConfig,
    *,
    start: StartProcess | None,
    root: Path | None,
    headers: Mapping[str, str],
    mode: str = "auto",
) -> AsyncIterator[McpConnection]:
    """A connection to a server, after its handshake; whatever it holds is gone at the end."""
    link = McpConnection(name, config)
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(config.startup_timeout):
                client = Client(
                    _open_transport(link, config, start, root, headers),
                    mode=mode,
                    cache=None,
                    message_handler=link.on_message,
                    list_roots_callback=_make_roots_callback(root),
                    client_info=types.Implementation(name="treadle", version=__version__),
                )
                link._client = await stack.enter_async_context(client)
        except BaseException as error:
            if link.login_challenge is not None and isinstance(error, Exception):
                raise link.make_login_error() from error
            if isinstance(error, Exception):
                raise ToolError(link.explain_failure(error)) from error
            raise
        listening = asyncio.create_task(link.watch_tool_changes())
        try:
            yield link
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


def _open_transport(
    connection: McpConnection,
    config: McpServerConfig,
    start: StartProcess | None,
    root: Path | None,
    headers: Mapping[str, str],
) -> Any:
    if config.transport != "stdio":
        from treadle.tools.mcp.http_transport import open_http_transport

        return open_http_transport(config, {**config.headers, **headers}, connection.require_login)
    assert start is not None, "checked when the source is made"
    connection._stdio = StdioTransport(
        start,
        (config.command, *config.args),
        cwd=config.cwd or (str(root) if root else None),
        env=config.env,
        on_lost=connection.mark_lost,
    )
    return connection._stdio


def _make_roots_callback(root: Path | None) -> Any:
    if root is None:
        return None
    folder = types.Root.model_validate({"uri": root.as_uri(), "name": root.name})

    async def roots(context: object) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[folder])

    return roots
