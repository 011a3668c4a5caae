"""An MCP server as a tool source: started in the background, watched, started again.

    starting ──▶ up ──▶ down ──(pause)──▶ starting      failed and login wait until somebody asks

A slow or broken server delays nobody: until it is up it offers nothing, and while it is away it
offers what it last had, whose calls then say that it is away. No call is ever sent twice. The
connection itself is link.py's; who may be started is decided above.
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
from treadle.tools.mcp.config import ServerConfig, server_config
from treadle.tools.mcp.process import Start, plain
from treadle.tools.mcp.tool import McpTool, server_word, tool_name, tool_spec

if TYPE_CHECKING:
    from treadle.tools.mcp.link import Link

DELAYS = (0.5, 1.0, 2.0, 5.0, 15.0, 60.0)
STABLE = 60.0  # a server that lived this long has not failed at starting
PATIENCE = 5.0  # how long a call waits for a server that is away
RELIST_PAUSE = 0.1
CLOSING = 3.0  # longer than a server is given to end by itself
INSTRUCTION_CHARS = 2_000

State = Literal["closed", "starting", "up", "down", "failed", "login"]


class _NotAllowed(Exception):
    """It may not be started as it is now; said by whoever decides above."""


class McpStatus(msgspec.Struct, frozen=True):
    """How a server is, for a person."""

    name: str
    state: State
    tools: int
    problem: str = ""

    @property
    def line(self) -> str:
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
        config: ServerConfig | Mapping[str, Any],
        *,
        start: Start | None = None,
        root: Path | None = None,
        headers: Callable[[], Mapping[str, str]] = dict,
        on_change: Callable[[McpStatus], None] | None = None,
        objection: Callable[[bool], str] | None = None,
        delays: Sequence[float] = DELAYS,
        patience: float = PATIENCE,
    ) -> None:
        self._config = config if isinstance(config, ServerConfig) else server_config(name, config)
        if self._config.kind == "stdio" and start is None:
            raise ConfigError(f"server {name!r} is a program: pass start=workspace.spawn to run it")
        self._name = name
        self._start = start
        self._root = root
        self._headers = headers
        self._on_change = on_change
        self._objection = objection
        self._ran = False
        self._delays = tuple(delays)
        self._patience = patience
        self._tools: tuple[Tool, ...] = ()
        self._instructions = ""
        self._link: Link | None = None
        self._life: asyncio.Task[None] | None = None
        self._state: State = "closed"
        self._problem = ""
        self._changed = asyncio.Event()
        self._wanted = asyncio.Event()
        self._mode = "auto"
        self._is_first = True
        self._told: tuple[McpStatus, tuple[Tool, ...]] | None = None

    # --- the source ----------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._name

    def tools(self) -> Sequence[Tool]:
        return self._tools

    def instructions(self) -> str:
        if not self._instructions:
            return ""
        return f"# Tools of {self._name} (mcp__{server_word(self._name)}__*)\n{self._instructions}"

    async def open(self) -> None:
        """Begin to start it, and go on."""
        if self._life is None:
            self._become("starting")
            self._life = asyncio.create_task(self._live())

    async def aclose(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            while not life.done():
                life.cancel()
                await asyncio.wait({life}, timeout=CLOSING)
            self._become("closed")

    # --- for a host ----------------------------------------------------------------------

    @property
    def status(self) -> McpStatus:
        return McpStatus(self._name, self._state, len(self._tools), self._problem)

    async def ready(self, timeout: float | None = None) -> bool:
        """Wait until it is up or has failed for now; whether it is up."""
        try:
            async with asyncio.timeout(timeout):
                while self._state == "starting":
                    await self._next_change()
        except TimeoutError:
            pass
        return self._state == "up"

    def retry(self) -> None:
        """Somebody did something about it, such as a login: try again now."""
        self._wanted.set()

    # --- calls ---------------------------------------------------------------------------

    async def call(self, tool: str, arguments: Arguments, context: ToolContext) -> ToolOutput:
        link = await self._reached(tool)
        return await link.call(tool, arguments, context.progress)

    async def _reached(self, tool: str) -> Link:
        """The connection; a server that is just away is waited for, for a moment."""
        if self._state in ("failed", "login"):
            self.retry()
            await self._next_change()
        try:
            async with asyncio.timeout(self._patience):
                while self._state in ("starting", "up", "down"):
                    if self._link is not None and not self._link.is_lost():
                        return self._link
                    await self._next_change()
        except TimeoutError:
            pass
        if self._state == "login":
            raise AuthRequired(self._name, self._problem)
        why = self._problem or "it is still starting"
        raise ToolError(f"the server {self._name} is not running ({why}); {tool} was not called")

    # --- its life ------------------------------------------------------------------------

    async def _live(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            state: State = "down"
            try:
                problem = await self._connection()
            except AuthRequired as error:
                state, problem = "login", str(error)
            except _NotAllowed as error:
                state, problem = "failed", str(error)
            except Exception as error:  # noqa: BLE001 - whatever a server does, others go on
                problem = plain(error)
            finally:
                self._link = None
            task = asyncio.current_task()
            if self._life is None or (task is not None and task.cancelling()):
                return  # a cancellation may get lost in what is just being torn down
            lived = time.monotonic() - began
            if state == "down" and self._is_greeted_anew(lived):
                continue
            failures = 0 if lived > STABLE else failures
            if state == "down" and failures >= len(self._delays):
                state = "failed"
            self._wanted.clear()
            self._become(state, problem)
            if state == "down":
                await asyncio.sleep(self._delays[failures])
                failures += 1
            else:
                await self._wanted.wait()
                failures = 0
            self._become("starting", problem)

    def _is_greeted_anew(self, lived: float) -> bool:
        """Whether a program died of the first hello: it gets the other one at once."""
        is_first, self._is_first = self._is_first, False
        is_anew = is_first and self._mode == "legacy" and lived < self._config.startup
        self._ran = self._ran and not is_anew  # both hellos are one start
        return is_anew

    async def _connection(self) -> str:
        """From one start to the end of it; the reason why it is over."""
        # Importing the SDK takes a second of work: a thread's, so that a prompt can be typed.
        link_module = await asyncio.to_thread(import_module, "treadle.tools.mcp.link")
        if self._objection is not None:
            # Last of all, so that little time is left to change what was looked at.
            if problem := await asyncio.to_thread(self._objection, self._ran):
                raise _NotAllowed(problem)
            self._ran = True
        mode = self._mode
        if self._config.kind == "stdio":
            # A program may die of the newer protocol's hello: the next time it is the older one.
            self._mode = "legacy" if mode == "auto" else "auto"
        async with link_module.connected(
            self._name,
            self._config,
            start=self._start,
            root=self._root,
            headers=self._headers(),
            mode=mode,
        ) as link:
            self._mode, self._is_first = mode, False
            async with asyncio.timeout(self._config.startup):
                await self._learn(link)
            self._link = link
            self._become("up")
            await self._attend(link)
            return link.problem or "it ended"

    async def _attend(self, link: Link) -> None:
        """Until it is lost: learn its tools anew whenever they changed."""
        while not link.is_lost():
            await link.stirred.wait()
            link.stirred.clear()
            if link.is_stale and not link.is_lost():
                link.is_stale = False
                try:
                    async with asyncio.timeout(self._config.startup):
                        await self._learn(link)
                except Exception as error:  # noqa: BLE001 - it keeps what it had
                    self._become("up", f"its new tools could not be listed ({plain(error)})")
                else:
                    self._become("up")
                await asyncio.sleep(RELIST_PAUSE)  # a server that never stops changing

    async def _learn(self, link: Link) -> None:
        made: dict[str, Tool] = {}
        longest = self._config.timeout * 10 + 30
        for tool in await link.tools():
            name = tool_name(self._name, tool.name, made)
            hints = tool.annotations
            spec = tool_spec(
                name,
                tool.description or tool.title or "",
                tool.input_schema,
                is_read_only=bool(hints and hints.read_only_hint),
                timeout=longest,
            )
            made.setdefault(name, McpTool(tool.name, spec, self.call))
        self._instructions = link.instructions[:INSTRUCTION_CHARS]
        if [tool.spec for tool in made.values()] != [tool.spec for tool in self._tools]:
            self._tools = tuple(made.values())

    def _become(self, state: State, problem: str = "") -> None:
        self._state, self._problem = state, problem[:500]
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        told, self._told = self._told, (self.status, self._tools)
        if self._on_change is not None and told != self._told:
            try:
                self._on_change(self.status)
            except Exception:  # noqa: BLE001 - whoever watches may break; the server goes on
                pass

    async def _next_change(self) -> None:
        await self._changed.wait()
