"""An MCP server as a tool source: started in the background, watched, started again.

    starting ──▶ up ──▶ down ──(pause)──▶ starting      failed and login wait until somebody asks

A slow or broken server delays nobody: until it is up it offers nothing, and while it is away it
offers what it last had, whose calls then say that it is away. No call is ever sent twice. The
connection itself is connection.py's; who may be started is decided above.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from treadle.core.contracts.tool import Tool, ToolContext, ToolOutput
from treadle.core.errors import AuthRequired, ConfigError, ToolError
from treadle.core.transcript.content import Arguments
from treadle.tools.mcp.config import McpServerConfig, parse_server_config
from treadle.tools.mcp.process import StartProcess, describe_error
from treadle.tools.mcp.tool import McpTool, make_tool_name, make_tool_spec, sanitize_server_name

if TYPE_CHECKING:
    from treadle.tools.mcp.connection import McpConnection

RESTART_DELAYS = (0.5, 1.0, 2.0, 5.0, 15.0, 60.0)
STABLE_SECONDS = 60.0  # a server that lived this long has not failed at starting
CALL_WAIT_SECONDS = 5.0  # how long a call waits for a server that is away
RELIST_PAUSE = 0.1
CLOSE_TIMEOUT = 3.0  # longer than a server is given to end by itself
MAX_INSTRUCTION_CHARS = 2_000

McpState = Literal["closed", "starting", "up", "down", "failed", "login"]


class _StartDenied(Exception):
    """It may not be started as it is now; said by whoever decides above."""


class McpStatus(msgspec.Struct, frozen=True):
    """How a server is, for a person."""

    name: str
    state: McpState
    tools: int
    problem: str = ""

    @property
    def summary(self) -> str:
        said = f": {self.problem}" if self.problem else ""
        return f"{self.name}: {self.state}, {self.tools} tools{said}"


class McpServer:
    """One server. `config` is a definition as files hold it, or one that was checked already.

    start      starts its process, for servers with a command: the workspace's `spawn`
    root       the folder it is told to work in
    headers    asked at each connection for what an address wants beside its configured headers
    on_change  told whenever the status or the tools changed
    objection  asked before each start, with whether it ran before: why it may not start, or ""
    delays     the pauses before each new start; after the last it waits until somebody asks
    """

    def __init__(
        self,
        name: str,
        config: McpServerConfig | Mapping[str, Any],
        *,
        start: StartProcess | None = None,
        root: Path | None = None,
        headers: Callable[[], Mapping[str, str]] = dict,
        on_change: Callable[[McpStatus], None] | None = None,
        start_objection: Callable[[bool], str] | None = None,
        delays: Sequence[float] = RESTART_DELAYS,
        call_wait: float = CALL_WAIT_SECONDS,
    ) -> None:
        self._config = (
            config if isinstance(config, McpServerConfig) else parse_server_config(name, config)
        )
        if self._config.transport == "stdio" and start is None:
            raise ConfigError(f"server {name!r} is a program: pass start=workspace.spawn to run it")
        self._name = name
        self._start = start
        self._root = root
        self._headers = headers
        self._on_change = on_change
        self._start_objection = start_objection
        self._has_run = False
        self._delays = tuple(delays)
        self._call_wait = call_wait
        self._tools: tuple[Tool, ...] = ()
        self._instructions = ""
        self._current_connection: McpConnection | None = None
        self._run_task: asyncio.Task[None] | None = None
        self._state: McpState = "closed"
        self._problem = ""
        self._changed = asyncio.Event()
        self._retry_requested = asyncio.Event()
        self._protocol_mode = "auto"
        self._is_first_handshake = True
        self._last_reported: tuple[McpStatus, tuple[Tool, ...]] | None = None

    # --- the source ----------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._name

    def tools(self) -> Sequence[Tool]:
        return self._tools

    def instructions(self) -> str:
        if not self._instructions:
            return ""
        return f"# Tools of {self._name} (mcp__{sanitize_server_name(self._name)}__*)\n{self._instructions}"

    async def open(self) -> None:
        """Begin to start it, and go on."""
        if self._run_task is None:
            self._set_state("starting")
            self._run_task = asyncio.create_task(self._run())

    async def aclose(self) -> None:
        life, self._run_task = self._run_task, None
        if life is not None:
            while not life.done():
                life.cancel()
                await asyncio.wait({life}, timeout=CLOSE_TIMEOUT)
            self._set_state("closed")

    # --- for a host ----------------------------------------------------------------------

    @property
    def status(self) -> McpStatus:
        return McpStatus(self._name, self._state, len(self._tools), self._problem)

    async def wait_ready(self, timeout: float | None = None) -> bool:
        """Wait until it is up or has failed for now; whether it is up."""
        try:
            async with asyncio.timeout(timeout):
                while self._state == "starting":
                    await self._wait_change()
        except TimeoutError:
            pass
        return self._state == "up"

    def retry(self) -> None:
        """Somebody did something about it, such as a login: try again now."""
        self._retry_requested.set()

    # --- calls ---------------------------------------------------------------------------

    async def call(self, tool: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        link = await self._wait_connected(tool)
        return await link.call_tool(tool, arguments, context.report_progress)

    async def _wait_connected(self, tool: str) -> McpConnection:
        """The connection; a server that is just away is waited for, for a moment."""
        if self._state in ("failed", "login"):
            self.retry()
            await self._wait_change()
        try:
            async with asyncio.timeout(self._call_wait):
                while self._state in ("starting", "up", "down"):
                    if (
                        self._current_connection is not None
                        and not self._current_connection.is_lost()
                    ):
                        return self._current_connection
                    await self._wait_change()
        except TimeoutError:
            pass
        if self._state == "login":
            raise AuthRequired(self._name, self._problem)
        why = self._problem or "it is still starting"
        raise ToolError(f"the server {self._name} is not running ({why}); {tool} was not called")

    # --- its life ------------------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            state: McpState = "down"
            try:
                problem = await self._run_connection()
            except AuthRequired as error:
                state, problem = "login", str(error)
            except _StartDenied as error:
                state, problem = "failed", str(error)
            except Exception as error:  # noqa: BLE001 - whatever a server does, others go on
                problem = describe_error(error)
            finally:
                self._current_connection = None
            task = asyncio.current_task()
            if self._run_task is None or (task is not None and task.cancelling()):
                return  # a cancellation may get lost in what is just being torn down
            lived = time.monotonic() - began
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

    def _should_retry_handshake(self, lived: float) -> bool:
        """Whether a program died of the first hello: it gets the other one at once."""
        is_first, self._is_first_handshake = self._is_first_handshake, False
        is_anew = (
            is_first and self._protocol_mode == "legacy" and lived < self._config.startup_timeout
        )
        self._has_run = self._has_run and not is_anew  # both hellos are one start
        return is_anew

    async def _run_connection(self) -> str:
        """From one start to the end of it; the reason why it is over."""
        # Importing the SDK takes a second of work: a thread's, so that a prompt can be typed.
        connection_module = await asyncio.to_thread(import_module, "treadle.tools.mcp.connection")
        if self._start_objection is not None:
            # Last of all, so that little time is left to change what was looked at.
            if problem := await asyncio.to_thread(self._start_objection, self._has_run):
                raise _StartDenied(problem)
            self._has_run = True
        mode = self._protocol_mode
        if self._config.transport == "stdio":
            # A program may die of the newer protocol's hello: the next time it is the older one.
            self._protocol_mode = "legacy" if mode == "auto" else "auto"
        async with connection_module.connect(
            self._name,
            self._config,
            start=self._start,
            root=self._root,
            headers=self._headers(),
            mode=mode,
        ) as link:
            self._protocol_mode, self._is_first_handshake = mode, False
            async with asyncio.timeout(self._config.startup_timeout):
                await self._load_tools(link)
            self._current_connection = link
            self._set_state("up")
            await self._watch_connection(link)
            return link.problem or "it ended"

    async def _watch_connection(self, connection: McpConnection) -> None:
        """Until it is lost: learn its tools anew whenever they changed."""
        while not connection.is_lost():
            await connection.changed.wait()
            connection.changed.clear()
            if connection.has_new_tools and not connection.is_lost():
                connection.has_new_tools = False
                try:
                    async with asyncio.timeout(self._config.startup_timeout):
                        await self._load_tools(connection)
                except Exception as error:  # noqa: BLE001 - it keeps what it had
                    self._set_state(
                        "up", f"its new tools could not be listed ({describe_error(error)})"
                    )
                else:
                    self._set_state("up")
                await asyncio.sleep(RELIST_PAUSE)  # a server that never stops changing

    async def _load_tools(self, connection: McpConnection) -> None:
        made: dict[str, Tool] = {}
        longest = self._config.timeout * 10 + 30
        for tool in await connection.list_tools():
            name = make_tool_name(self._name, tool.name, made)
            hints = tool.annotations
            spec = make_tool_spec(
                name,
                tool.description or tool.title or "",
                tool.input_schema,
                is_read_only=bool(hints and hints.read_only_hint),
                timeout=longest,
            )
            made.setdefault(name, McpTool(tool.name, spec, self.call))
        self._instructions = connection.instructions[:MAX_INSTRUCTION_CHARS]
        if [tool.spec for tool in made.values()] != [tool.spec for tool in self._tools]:
            self._tools = tuple(made.values())

    def _set_state(self, state: McpState, problem: str = "") -> None:
        self._state, self._problem = state, problem[:500]
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        told, self._last_reported = self._last_reported, (self.status, self._tools)
        if self._on_change is not None and told != self._last_reported:
            try:
                self._on_change(self.status)
            except Exception:  # noqa: BLE001 - whoever watches may break; the server goes on
                pass

    async def _wait_change(self) -> None:
        await self._changed.wait()
