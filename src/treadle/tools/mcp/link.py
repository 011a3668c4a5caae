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
from treadle.tools.mcp.config import ServerConfig
from treadle.tools.mcp.pipes import Pipes
from treadle.tools.mcp.process import Start, plain
from treadle.tools.mcp.results import output_of

MOST_PAGES = 100
MOST_TOOLS = 1_000
LONGEST = 10  # how many times its limit a call may take while it reports progress

# The SDK warns through logging, and a program without handlers would print that on the screen.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class Link:
    """A live connection. `stirred` is set when it was lost or the tools changed."""

    def __init__(self, name: str, config: ServerConfig) -> None:
        self._name = name
        self._config = config
        self._client: Client | None = None
        self._pipes: Pipes | None = None
        self.stirred = asyncio.Event()
        self.problem: str | None = None
        self.is_stale = False
        self.wants_login: str | None = None

    @property
    def client(self) -> Client:
        assert self._client is not None, "a link is used inside `connected`"
        return self._client

    @property
    def instructions(self) -> str:
        return (self.client.instructions or "").strip()

    def is_lost(self) -> bool:
        return self.problem is not None

    def lose(self, problem: str) -> None:
        """It is over; the first reason is kept."""
        if self.problem is None:
            words = self._pipes.last_words if self._pipes is not None else ""
            self.problem = f"{problem}: {words}" if words else problem
        self.stirred.set()

    def why(self, error: Exception) -> str:
        """Why there is no connection: what was seen of its end, unless we ended it ourselves."""
        if isinstance(error, TimeoutError):
            self.problem = None
        self.lose(plain(error))
        return self.problem or ""

    def refuse(self, challenge: str) -> None:
        """The server wants somebody to log in."""
        self.wants_login = challenge

    def login(self) -> AuthRequired:
        said = f" ({self.wants_login})" if self.wants_login else ""
        return AuthRequired(
            self._name,
            f"the server {self._name} at {self._config.url} wants a login: it answered 401{said}; "
            "the user has to provide its authorization",
        )

    # --- what it offers ------------------------------------------------------------------

    async def tools(self) -> list[types.Tool]:
        """Every page of the list."""
        found: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await self.client.list_tools(cursor=cursor, cache_mode="refresh")
            found += page.tools
            cursor = page.next_cursor
            if not cursor or len(found) >= MOST_TOOLS:
                break
        return found[:MOST_TOOLS]

    @property
    def _tells_of_changes(self) -> bool:
        tools = self.client.server_capabilities.tools
        return bool(tools and tools.list_changed)

    async def on_message(self, message: object) -> None:
        """A notification of the older protocol; what the transport could not read is noise."""
        if isinstance(message, types.ToolListChangedNotification):
            self.stale()

    def stale(self) -> None:
        self.is_stale = True
        self.stirred.set()

    async def listen(self) -> None:
        """The newer protocol tells of changes only to those who listen."""
        if self.client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        while self._tells_of_changes and self.problem is None:
            try:
                async with self.client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self.stale()
            except (SubscriptionLost, MCPError, TimeoutError):
                pass
            await asyncio.sleep(1.0)  # what changed in between is seen after the next event

    # --- calls ---------------------------------------------------------------------------

    async def call(
        self, tool: str, arguments: dict[str, Any], report: Callable[[str], None]
    ) -> ToolOutput:
        """Call a tool; a failure is a ToolError in words for the model."""
        limit, loop = self._config.timeout, asyncio.get_running_loop()
        last = loop.time() + limit * LONGEST
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
            raise self._failure(tool, error) from error
        except (RuntimeError, ValueError) as error:
            # The SDK's own findings: an answer that does not fit what the server declared.
            raise ToolError(f"the server {self._name} answered {tool} wrongly: {error}") from error
        return output_of(result)

    def _failure(self, tool: str, error: MCPError) -> ToolError:
        if self.wants_login is not None:
            self.lose("it wants a login")  # the next connection asks for headers again
            return self.login()
        # A server may use this very code for its own ends: a process that lives was not lost.
        is_remote = self._config.kind != "stdio"
        if self.is_lost() or (is_remote and error.message == "Connection closed"):
            self.lose("the connection was lost")
            return ToolError(
                f"the server {self._name} went away during {tool} ({self.problem}); what it did "
                "until then is not known, and it is being started again"
            )
        if is_remote and error.message == "Session terminated":
            self.lose("it does not know our session any more")
        return ToolError(f"the server {self._name} failed at {tool}: {error.message}")


@asynccontextmanager
async def connected(
    name: str,
    config: ServerConfig,
    *,
    start: Start | None,
    root: Path | None,
    headers: Mapping[str, str],
    mode: str = "auto",
) -> AsyncIterator[Link]:
    """A connection to a server, after its handshake; whatever it holds is gone at the end."""
    link = Link(name, config)
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(config.startup):
                client = Client(
                    _transport(link, config, start, root, headers),
                    mode=mode,
                    cache=None,
                    message_handler=link.on_message,
                    list_roots_callback=_roots(root),
                    client_info=types.Implementation(name="treadle", version=__version__),
                )
                link._client = await stack.enter_async_context(client)
        except BaseException as error:
            if link.wants_login is not None and isinstance(error, Exception):
                raise link.login() from error
            if isinstance(error, Exception):
                raise ToolError(link.why(error)) from error
            raise
        listening = asyncio.create_task(link.listen())
        try:
            yield link
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)


def _transport(
    link: Link,
    config: ServerConfig,
    start: Start | None,
    root: Path | None,
    headers: Mapping[str, str],
) -> Any:
    if config.kind != "stdio":
        from treadle.tools.mcp.remote import remote

        return remote(config, {**config.headers, **headers}, link.refuse)
    assert start is not None, "checked when the source is made"
    link._pipes = Pipes(
        start,
        (config.command, *config.args),
        cwd=config.cwd or (str(root) if root else None),
        env=config.env,
        lost=link.lose,
    )
    return link._pipes


def _roots(root: Path | None) -> Any:
    if root is None:
        return None
    folder = types.Root.model_validate({"uri": root.as_uri(), "name": root.name})

    async def roots(context: object) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[folder])

    return roots
