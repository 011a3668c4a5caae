"""An MCP server as a tool source: started in the background, watched, restarted.

    starting ──▶ up ──▶ down ──(pause)──▶ starting      failed and login wait for a retry
                 ▲▼
                slow   a call runs, and it does not answer a ping

A server that an agent needs is up before the first request, or the run fails. An optional one
delays nothing: before it is up it has no tools. While it is down a server keeps its last tools,
whose calls fail. A restart sends no call again. The connection is connection.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.core.contracts.source import BaseSource
from treadle.core.contracts.tool import Tool, ToolContext, ToolOutput
from treadle.core.errors import AuthRequired, ConfigError, ToolError, ToolsUnavailable
from treadle.core.extras import require_extra
from treadle.core.transcript.content import Arguments
from treadle.lib.logger import logger
from treadle.lib.shielded import complete
from treadle.tools.mcp.catalog import NO_CATALOG, McpCatalog, PromptMessage
from treadle.tools.mcp.client_options import McpClientOptions, McpLogMessage
from treadle.tools.mcp.resource_tool import ResourceTool
from treadle.tools.mcp.server_config import McpServerConfig, parse_server_config
from treadle.tools.mcp.server_errors import describe_error, unwrap_error
from treadle.tools.mcp.status import SLOW_PROBLEM, McpState, McpStatus
from treadle.tools.mcp.tool import make_tool_prefix, make_tools
from treadle.tools.piped_process import StartProcess

if TYPE_CHECKING:
    from treadle.tools.mcp.auth.login import ReadPaste, ShowLink
    from treadle.tools.mcp.connection import McpConnection

RESTART_DELAYS = (0.5, 1.0, 2.0, 5.0, 15.0, 60.0)
STABLE_SECONDS = 60.0  # a server that lived this long has not failed at starting
START_WAIT_SECONDS = 10.0
CALL_WAIT_SECONDS = 5.0  # how long a call waits for a server that is down
RELIST_PAUSE = 0.1
CLOSE_TIMEOUT = 3.0  # longer than the time for a server to end by itself
MAX_INSTRUCTION_CHARS = 2_000


class _StartDenied(Exception):
    """`start_objection` refused the start."""


class McpServer(BaseSource):
    """One server. `config` is a raw definition, or a checked one.

    start            starts its process, if it has a command: a workspace's `spawn`; else an Agent
    root             the folder that is passed to it as its root
    headers          called at each connection: further headers for its URL
    options          what it gets of its client: questions to the user, sampling, logins
    on_change        called whenever the status or the tools changed
    start_objection  called before each start, with whether it ran before: why not, or ""
    delays           the pauses before each restart; after the last it waits for `retry`
    required         if it does not start within its `startup_timeout`, a run is ToolsUnavailable
    start_wait       seconds that the first request waits for one that is not required
    call_wait        seconds that a call waits for a server that is down
    """

    def __init__(
        self,
        name: str,
        config: McpServerConfig | Mapping[str, Any],
        *,
        start: StartProcess | None = None,
        root: Path | None = None,
        headers: Callable[[], Mapping[str, str]] | None = None,
        options: McpClientOptions | None = None,
        on_change: Callable[[McpStatus], None] | None = None,
        start_objection: Callable[[bool], str] | None = None,
        delays: Sequence[float] = RESTART_DELAYS,
        required: bool = True,
        start_wait: float = START_WAIT_SECONDS,
        call_wait: float = CALL_WAIT_SECONDS,
    ) -> None:
        require_extra("mcp")
        if not isinstance(config, McpServerConfig):
            config = parse_server_config(name, config)
        self._config, self.is_program = config, config.transport == "stdio"
        self.name = name
        self.start = start
        self.close_start: Callable[[], Awaitable[None]] | None = None  # after its process
        self._options = (options or McpClientOptions()).complete(root, headers)
        self._on_change, self._start_objection = on_change, start_objection
        self._has_run = False
        self._delays = tuple(delays)
        self._required, self._start_wait, self._call_wait = required, start_wait, call_wait
        self._tools: tuple[Tool, ...] = ()
        self._catalog = NO_CATALOG
        self._last_logs: tuple[McpLogMessage, ...] = ()  # of the connection before
        self._instructions = ""
        self._current_connection: McpConnection | None = None
        self._run_task: asyncio.Task[None] | None = None
        self._state: McpState = "closed"
        self._problem = ""
        self._changed = asyncio.Event()
        self._retry_requested = asyncio.Event()
        self._login_challenge = ""
        self._used_expired_token = False
        self._protocol_mode = "auto"
        self._is_first_handshake = True
        self._login_headers: Mapping[str, str] = {}  # see `authenticate`
        self._last_reported: tuple[McpStatus, tuple[Tool, ...]] | None = None

    # --- the source ----------------------------------------------------------------------

    def tools(self) -> Sequence[Tool]:
        return self._tools

    def instructions(self) -> str:
        if not self._instructions:
            return ""
        names = f"{make_tool_prefix(self.name)}*"
        return f"# Tools of {self.name} ({names})\n{self._instructions}"

    async def open(self) -> None:
        """Start it, and wait for it; one that is not required goes on in the background.
        ToolsUnavailable if a required one is not up."""
        if self._run_task is not None:
            return
        if self.is_program and self.start is None:
            raise ConfigError(
                f"server {self.name!r} is a program: give it to an Agent, or pass "
                "start=workspace.spawn to run it"
            )
        self._set_state("starting")
        self._run_task = asyncio.create_task(self._run())
        if self._required:
            await self._wait_required()
        elif self._start_wait > 0 and not await self.wait_ready(self._start_wait):
            logger.warning("MCP server %s has no tools yet: %s", self.name, self.status.summary)

    async def _wait_required(self) -> None:
        try:
            if await self.wait_ready():
                return
            state, problem = self._state, self._problem
        except BaseException:
            await complete(self.aclose())
            raise
        await self.aclose()
        mend = "Log in with server.log_in()" if state == "login" else "Mend it"
        raise ToolsUnavailable(
            f"MCP server {self.name!r} does not start: {problem or state}. {mend}, or give "
            "McpServer(required=False) to work without it"
        )

    async def aclose(self) -> None:
        task, self._run_task = self._run_task, None
        if task is not None:
            while not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=CLOSE_TIMEOUT)
            self._set_state("closed")
            if self.close_start is not None:
                await self.close_start()

    # --- for a host ----------------------------------------------------------------------

    @property
    def status(self) -> McpStatus:
        state, problem, connection = self._state, self._problem, self._current_connection
        if state == "up" and connection is not None and connection.is_slow:
            state, problem = "slow", SLOW_PROBLEM
        return McpStatus(self.name, state, len(self._tools), problem)

    async def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until it is up or has failed for now; returns whether it is up. False at once before
        an agent has opened it."""
        try:
            async with asyncio.timeout(timeout):
                while self._state == "starting":
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self._state == "up"

    def retry(self) -> None:
        """Try to start it again now, for example after a login."""
        self._retry_requested.set()

    @property
    def catalog(self) -> McpCatalog:
        """Its resources and prompts, as it listed them last."""
        return self._catalog

    @property
    def logs(self) -> tuple[McpLogMessage, ...]:
        """Its last log messages, oldest first."""
        connection = self._current_connection
        return tuple(connection.callbacks.logs) if connection is not None else self._last_logs

    async def read_resource(self, uri: str) -> ToolOutput:
        """The content of a resource. Later changes of it are in `take_updated_resources`."""
        return await (await self._wait_connected(f"resource {uri}")).read_resource(uri)

    def take_updated_resources(self) -> frozenset[str]:
        """The resources that were read and have changed since; each is returned once."""
        connection = self._current_connection
        if connection is None or not connection.changes.updated_resources:
            return frozenset()
        updated = frozenset(connection.changes.updated_resources)
        connection.changes.updated_resources.clear()
        return updated

    async def get_prompt(self, prompt: str, arguments: dict[str, str]) -> list[PromptMessage]:
        """The messages of a prompt."""
        return await (await self._wait_connected(prompt)).get_prompt(prompt, arguments)

    async def complete_argument(self, prompt: str, argument: str, text: str) -> list[str]:
        """What the server proposes for an argument of a prompt."""
        connection = self._current_connection
        if connection is None or connection.is_lost():
            return []
        return await connection.complete_argument(prompt, argument, text)

    async def log_in(self, show_link: ShowLink, read_paste: ReadPaste | None = None) -> bool:
        """Log in with OAuth: `show_link` gets the page for the browser, `read_paste` the address
        that it was redirected to, if that does not arrive by itself. Then connect; whether it is
        up. The tokens are kept in `options.tokens`."""
        from treadle.tools.mcp.auth.login import LOGIN_TIMEOUT, open_loopback

        if self._config.transport == "stdio" or self._options.tokens is None:
            raise ConfigError(
                f"server {self.name!r} has no login: it needs a url and a token store"
            )
        connection_module = await asyncio.to_thread(import_module, "treadle.tools.mcp.connection")
        config = msgspec.structs.replace(self._config, startup_timeout=LOGIN_TIMEOUT)
        port = config.oauth.callback_port
        async with open_loopback(port, show_link, read_paste) as login:
            options = msgspec.structs.replace(self._options, login=login)
            try:
                connecting = connection_module.connect(self.name, config, options, start=None)
                async with connecting as connection:
                    await connection.list_tools()
            except Exception as error:
                problem = describe_error(error)
                raise ToolError(f"the login to {self.name} failed: {problem}") from error
        return await self._reconnect()

    async def authenticate(
        self, headers: Mapping[str, str] | None = None, *, token: str = ""
    ) -> bool:
        """Answer AuthRequired: connect again with these headers, or with a bearer token. Returns
        whether it is up; the next call uses the new connection. They are kept in memory only."""
        if self._config.transport == "stdio":
            raise ConfigError(f"server {self.name!r} is a program: set its key in its environment")
        bearer = {"Authorization": f"Bearer {token}"} if token else {}
        self._login_headers = {**(headers or {}), **bearer}
        return await self._reconnect()

    async def _reconnect(self) -> bool:
        """Connect with a new login; whether it is up. Nothing happens if it is not open."""
        if self._run_task is None:
            return False
        if self._current_connection is not None and self._state == "up":
            self._current_connection.mark_lost("it got a new login")
            await self._changed.wait()
        await self._wait_settled()  # an attempt that runs may still use the headers from before
        if self._state in ("failed", "login"):
            self.retry()
            await self._changed.wait()
            await self._wait_settled()
        return self._state == "up"

    async def _wait_settled(self) -> None:
        while self._state in ("starting", "down"):
            await self._changed.wait()

    # --- calls ---------------------------------------------------------------------------

    async def call(self, tool: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        connection = await self._wait_connected(tool)
        return await connection.call_tool(tool, arguments, context)

    async def _wait_connected(self, tool: str) -> McpConnection:
        """The connection; waits a moment for a server that is down."""
        if self._state in ("failed", "login"):
            self.retry()
            await self._changed.wait()
        try:
            async with asyncio.timeout(self._call_wait):
                while self._state in ("starting", "up", "down"):
                    connection = self._current_connection
                    if connection is not None and not connection.is_lost():
                        return connection
                    await self._changed.wait()
        except TimeoutError:
            pass
        if self._state == "login":
            needs = {"url": self._config.url, "challenge": self._login_challenge}
            raise AuthRequired(self.name, self._problem, **needs)
        why = self._problem or "it is still starting"
        raise ToolError(f"the server {self.name} is not running ({why}); {tool} was not called")

    # --- start and restart ---------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        while True:
            started = time.monotonic()
            state: McpState = "down"
            try:
                problem = await self._run_connection()
            except _StartDenied as error:
                state, problem = "failed", str(error)
            except Exception as error:  # noqa: BLE001 - one server must not affect the others
                problem, first = describe_error(error), unwrap_error(error)
                if isinstance(first, AuthRequired):
                    state, self._login_challenge = "login", first.challenge
            finally:
                self._last_logs, self._current_connection = self.logs, None
            task = asyncio.current_task()
            if self._run_task is None or (task is not None and task.cancelling()):
                return  # a cancellation may get lost while the connection is closed
            if state == "login" and self._should_refresh():
                continue
            lived = time.monotonic() - started
            if state == "down" and self._should_retry_handshake(lived):
                continue
            failures = 0 if lived > STABLE_SECONDS else failures
            if state == "down" and failures >= len(self._delays):
                state = "failed"
            self._retry_requested.clear()
            self._set_state(state, problem)
            if state == "down":
                await asyncio.sleep(self._delays[failures])
                failures += 1
            else:
                await self._retry_requested.wait()
                failures = 0
            self._set_state("starting", problem)

    def _should_refresh(self) -> bool:
        """Whether the tokens may have been refused only because they are old: they are refreshed
        at the next connection, which is made at once."""
        tokens, is_first = self._options.tokens, not self._used_expired_token
        self._used_expired_token = True
        return is_first and tokens is not None and tokens.has_login(self.name, self._config.url)

    def _should_retry_handshake(self, lived: float) -> bool:
        """Whether a program died of the first handshake: it gets the other one at once."""
        is_first, self._is_first_handshake = self._is_first_handshake, False
        was_newer = self._protocol_mode == "legacy"
        is_second_try = is_first and was_newer and lived < self._config.startup_timeout
        self._has_run = self._has_run and not is_second_try  # both handshakes are one start
        return is_second_try

    async def _run_connection(self) -> str:
        """Connect and watch until the connection ends; returns the reason."""
        # Importing the SDK takes a second; in a thread, so that the UI stays responsive.
        connection_module = await asyncio.to_thread(import_module, "treadle.tools.mcp.connection")
        if self._start_objection is not None:
            # Checked last, to leave little time for a change of the files that it checks.
            if problem := await asyncio.to_thread(self._start_objection, self._has_run):
                raise _StartDenied(problem)
            self._has_run = True
        mode = self._protocol_mode
        if self._config.transport == "stdio":
            # A program may die of the newer protocol's handshake: next time use the older one.
            self._protocol_mode = "legacy" if mode == "auto" else "auto"
        headers = {**self._options.headers(), **self._login_headers}
        options = msgspec.structs.replace(self._options, headers=lambda: headers)
        made: McpConnection | None = None
        try:
            async with connection_module.connect(
                self.name, self._config, options, start=self.start, mode=mode
            ) as made:
                self._protocol_mode, self._is_first_handshake = mode, False
                await self._serve(made)
        except Exception as error:
            was_up = made is not None and self._current_connection is made
            if not was_up or isinstance(unwrap_error(error), AuthRequired):
                raise
        # What it reported says more than the error that the SDK raises then.
        return (made.problem if made is not None else None) or "it ended"

    async def _serve(self, connection: McpConnection) -> None:
        """Be up until the connection ends."""
        async with asyncio.timeout(self._config.startup_timeout):
            await self._load_lists(connection)
        self._current_connection = connection
        connection.on_slow_change = self._report
        self._used_expired_token = False
        self._set_state("up")
        await self._watch_connection(connection)

    async def _watch_connection(self, connection: McpConnection) -> None:
        """List what it offers again whenever that changes, until the connection is lost."""
        while not connection.is_lost():
            await connection.changed.wait()
            connection.changed.clear()
            if connection.changes.has_new_lists and not connection.is_lost():
                connection.changes.has_new_lists = False
                try:
                    async with asyncio.timeout(self._config.startup_timeout):
                        await self._load_lists(connection)
                except Exception as error:  # noqa: BLE001 - it keeps its old tools
                    why = describe_error(error)
                    self._set_state("up", f"its new tools could not be listed ({why})")
                else:
                    self._set_state("up")
                await asyncio.sleep(RELIST_PAUSE)  # for a server that changes all the time

    async def _load_lists(self, connection: McpConnection) -> None:
        listed = await connection.list_tools()
        self._catalog = await connection.list_catalog()
        tools = make_tools(self.name, listed, self.call, self._config.background_after)
        if self._catalog.has_resources:
            reader = ResourceTool(self)
            tools.setdefault(reader.spec.name, reader)
        self._instructions = connection.instructions[:MAX_INSTRUCTION_CHARS]
        if [tool.spec for tool in tools.values()] != [tool.spec for tool in self._tools]:
            self._tools = tuple(tools.values())

    def _set_state(self, state: McpState, problem: str = "") -> None:
        self._state, self._problem = state, problem[:500]
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        self._report()

    def _report(self) -> None:
        last, self._last_reported = self._last_reported, (self.status, self._tools)
        if self._on_change is not None and last != self._last_reported:
            try:
                self._on_change(self.status)
            except Exception:  # noqa: BLE001 - a broken callback must not stop the server
                pass
