"""One connection to a server, from the handshake to its loss. The SDK is used only from here.

It lists tools and calls them; server.py decides when to reconnect. Importing this module imports
the SDK.
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
MAX_TIMEOUT_FACTOR = 10  # a call that reports progress may take this many times its limit
PROBE_TIMEOUT = 5.0

# The SDK warns through logging, which a program without handlers prints on the screen.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class McpConnection:
    """A live connection. `changed` is set when it was lost or the tools changed."""

    def __init__(self, name: str, config: McpServerConfig) -> None:
        self._name = name
        self._config = config
        self._client: Client | None = None
        self._stdio: StdioTransport | None = None
        self.changed = asyncio.Event()
        self.problem: str | None = None
        self.has_new_tools = False
        self.login_challenge: str | None = None
        self._has_session_ended = False

    @property
    def client(self) -> Client:
        assert self._client is not None, "a connection is used inside `connect`"
        return self._client

    @property
    def instructions(self) -> str:
        return (self.client.instructions or "").strip()

    def is_lost(self) -> bool:
        return self.problem is not None

    def mark_lost(self, problem: str) -> None:
        """Record that the connection is over; the first reason is kept."""
        if self.problem is None:
            log = self._stdio.log_tail if self._stdio is not None else ""
            self.problem = f"{problem}: {log}" if log else problem
        self.changed.set()

    def explain_failure(self, error: Exception) -> str:
        """Why there is no connection: how it ended, unless the start timed out."""
        if isinstance(error, TimeoutError):
            self.problem = None
        self.mark_lost(describe_error(error))
        return self.problem or ""

    def require_login(self, challenge: str) -> None:
        """The server answered 401: the user has to log in."""
        self.login_challenge = challenge

    def end_session(self) -> None:
        """The server answered 404 to our session id: it has ended the session."""
        self._has_session_ended = True

    def make_login_error(self) -> AuthRequired:
        challenge = f" ({self.login_challenge})" if self.login_challenge else ""
        return AuthRequired(
            self._name,
            f"the server {self._name} at {self._config.url} requires a login: it answered 401"
            f"{challenge}; the user has to provide its authorization",
            url=self._config.url,
            challenge=self.login_challenge or "",
        )

    # --- tools ---------------------------------------------------------------------------

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

    async def on_message(self, message: object) -> None:
        """A notification of the older protocol; exceptions of the transport are ignored."""
        if isinstance(message, types.ToolListChangedNotification):
            self.mark_tools_changed()

    def mark_tools_changed(self) -> None:
        self.has_new_tools = True
        self.changed.set()

    async def watch_tool_changes(self) -> None:
        """The newer protocol sends changes only to subscribers."""
        if self.client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        tools = self.client.server_capabilities.tools
        while tools and tools.list_changed and self.problem is None:
            try:
                async with self.client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self.mark_tools_changed()
            except (SubscriptionLost, MCPError, TimeoutError):
                pass
            await asyncio.sleep(1.0)  # changes in between are seen after the next event

    # --- calls ---------------------------------------------------------------------------

    async def call_tool(
        self, tool: str, arguments: dict[str, Any], report: Callable[[str], None]
    ) -> ToolOutput:
        """Call a tool; a failure is a ToolError with a message for the model."""
        limit, loop = self._config.timeout, asyncio.get_running_loop()
        last = loop.time() + limit * MAX_TIMEOUT_FACTOR
        deadline = asyncio.timeout(limit)

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            with contextlib.suppress(RuntimeError):  # the call has just ended
                deadline.reschedule(min(loop.time() + limit, last))
            amount = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            report(f"{message[:200]} ({amount})" if message else amount)

        started = time.monotonic()
        try:
            async with deadline:
                result = await self.client.call_tool(tool, arguments, progress_callback=on_progress)
        except TimeoutError as error:
            took = time.monotonic() - started
            raise ToolError(
                f"the server {self._name} did not answer {tool} within {took:.0f} s; "
                "the call was cancelled, and it is not known what it did until then"
            ) from error
        except MCPError as error:
            raise await self._make_call_error(tool, error) from error
        except (RuntimeError, ValueError) as error:
            # Raised by the SDK: the result does not fit the schema that the server declared.
            problem = f"returned an invalid result for {tool}: {error}"
            raise ToolError(f"the server {self._name} {problem}") from error
        return convert_result(result)

    async def _make_call_error(self, tool: str, error: MCPError) -> ToolError:
        if self.login_challenge is not None:
            self.mark_lost("it requires a login")  # the next connection reads the headers again
            return self.make_login_error()
        if self.is_lost() or await self._is_closed(error):
            self.mark_lost("the connection was lost")
            return ToolError(
                f"the server {self._name} went away during {tool} ({self.problem}); it is being "
                "restarted, and it is not known what the call did until then"
            )
        if self._has_session_ended and error.code == types.INVALID_REQUEST:
            self.mark_lost("the server has ended the session")
        return ToolError(f"the server {self._name} failed at {tool}: {error.message}")

    async def _is_closed(self, error: MCPError) -> bool:
        """Whether the SDK has closed a remote connection. Servers use the same code for their own
        errors, so a second request has to fail with it as well. A lost process is noticed by its
        transport."""
        if self._config.transport == "stdio" or error.code != types.CONNECTION_CLOSED:
            return False
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                await self.client.list_tools(cache_mode="refresh")
        except MCPError as second_error:
            return second_error.code == types.CONNECTION_CLOSED
        except TimeoutError:
            return True
        return False


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
    """A connection to a server, after its handshake; closed at the end of the block."""
    connection = McpConnection(name, config)
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(config.startup_timeout):
                client = Client(
                    _open_transport(connection, config, start, root, headers),
                    mode=mode,
                    cache=None,
                    message_handler=connection.on_message,
                    list_roots_callback=_make_roots_callback(root),
                    client_info=types.Implementation(name="treadle", version=__version__),
                )
                connection._client = await stack.enter_async_context(client)
        except Exception as error:
            if connection.login_challenge is not None:
                raise connection.make_login_error() from error
            raise ToolError(connection.explain_failure(error)) from error
        listening = asyncio.create_task(connection.watch_tool_changes())
        try:
            yield connection
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

        return open_http_transport(
            config,
            {**config.headers, **headers},
            on_unauthorized=connection.require_login,
            on_session_ended=connection.end_session,
        )
    assert start is not None, "checked by McpServer"
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
