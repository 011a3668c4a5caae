"""One connection to a server, from the handshake to its loss. The SDK is used only from here.

It lists what the server offers and calls its tools; server.py decides when to reconnect. Importing
this module imports the SDK.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from treadle._version import __version__
from treadle.core.contracts.tool import ToolContext, ToolOutput
from treadle.core.errors import AuthRequired, ToolError
from treadle.tools.mcp.catalog import McpCatalog, PromptMessage
from treadle.tools.mcp.catalog_reader import read_catalog, read_tools
from treadle.tools.mcp.change_watcher import ChangeWatcher, is_modern, send_plain
from treadle.tools.mcp.client_callbacks import ClientCallbacks, RunningCall
from treadle.tools.mcp.client_options import McpClientOptions
from treadle.tools.mcp.lenient import LenientReader
from treadle.tools.mcp.results import convert_block, convert_resource, convert_result
from treadle.tools.mcp.server_config import McpServerConfig
from treadle.tools.mcp.server_errors import describe_error, unwrap_error
from treadle.tools.mcp.stdio_transport import StdioTransport
from treadle.tools.mcp.task_call import call_as_task
from treadle.tools.piped_process import StartProcess

PROBE_TIMEOUT = 5.0
PING_PAUSE = 5.0  # while calls run

# The SDK warns through logging, which a program without handlers prints on the screen.
for _name in ("mcp", "client"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class McpConnection:
    """A live connection. `changed` is set when it was lost or what it offers changed."""

    def __init__(self, name: str, config: McpServerConfig, options: McpClientOptions) -> None:
        self._name = name
        self._config = config
        self._options = options
        self._client: Client | None = None
        self._stdio: StdioTransport | None = None
        self.callbacks = ClientCallbacks(name, options)
        self.reader = LenientReader(self.callbacks.warn)
        self.changed = asyncio.Event()
        self.changes = ChangeWatcher(self.changed.set)
        self.problem: str | None = None
        self.login_challenge: str | None = None
        self.is_slow = False
        self.on_slow_change: Callable[[], None] = lambda: None
        self._is_pinging = False
        self._has_session_ended = False
        self._unsent_calls: list[tuple[str, Any]] = []
        self._background: set[asyncio.Task[None]] = set()
        self._task_tools: frozenset[str] = frozenset()

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
        """Why there is no connection: how it ended, unless the start timed out, or the client
        refused the server (a RuntimeError), which then ends."""
        if isinstance(unwrap_error(error), (TimeoutError, RuntimeError)):
            self.problem = None
        self.mark_lost(describe_error(error))
        return self.problem or ""

    # --- reports of the HTTP transport -----------------------------------------------------

    def require_login(self, challenge: str) -> None:
        """The server answered 401, or wants more scopes: the user has to log in."""
        self.login_challenge = challenge

    def clear_login(self) -> None:
        self.login_challenge = None

    def end_session(self) -> None:
        """The server answered 404 to our session id: it has ended the session."""
        self._has_session_ended = True

    def report_unreachable(self, problem: str, call: tuple[str, Any] | None) -> None:
        """No server answers at the URL."""
        if call is not None:
            self._unsent_calls.append(call)
        self.mark_lost(f"no server answers at {self._config.url} ({problem})")

    def report_stream_ended(self) -> None:
        """The server's own stream broke. It may have only been closed: a ping tells."""
        if self._config.transport == "sse":
            self.mark_lost("the server closed the connection")
        elif self._client is not None:
            self._run_in_background(self._answers_ping())

    def _run_in_background(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _answers_ping(self) -> bool:
        try:
            await send_plain(self.client, types.PingRequest())
        except TimeoutError:
            return False
        except MCPError:  # an answer, too; one that is unreachable is reported by the transport
            pass
        return True

    async def _ping_while_calls_run(self) -> None:
        """A call may take long, but a server that does not answer a ping either is slow."""
        try:
            while not self.is_lost() and (self.callbacks.calls or self.is_slow):
                await asyncio.sleep(PING_PAUSE)
                if self.callbacks.calls or self.is_slow:
                    self._set_slow(not await self._answers_ping())
        finally:
            self._is_pinging = False

    def _set_slow(self, is_slow: bool) -> None:
        if self.is_slow != is_slow:
            self.is_slow = is_slow
            self.on_slow_change()

    def make_login_error(self) -> AuthRequired:
        challenge = f" ({self.login_challenge})" if self.login_challenge else ""
        return AuthRequired(
            self._name,
            f"the server {self._name} at {self._config.url} requires a login{challenge}: the user "
            f"has to run `treadle mcp login {self._name}`, or to correct its headers; then the "
            "next call reconnects",
            url=self._config.url,
            challenge=self.login_challenge or "",
        )

    # --- what it offers -------------------------------------------------------------------

    async def list_tools(self) -> list[types.Tool]:
        try:
            tools = await read_tools(self.client)
        except MCPError as error:
            if self.login_challenge is not None:  # the handshake needed none
                raise self.make_login_error() from error
            raise
        if self.client.server_capabilities.tasks is not None and not is_modern(self.client):
            with_tasks = [t for t in tools if t.execution and t.execution.task_support]
            wanted = [t.name for t in with_tasks if t.execution.task_support != "forbidden"]  # type: ignore[union-attr]
            self._task_tools = frozenset(wanted)
        return tools

    async def list_catalog(self) -> McpCatalog:
        return await read_catalog(self.client)

    async def read_resource(self, uri: str) -> ToolOutput:
        """The content of a resource; where it is offered, changes of it are reported later."""
        try:
            async with asyncio.timeout(self._config.timeout):
                result = await self.client.read_resource(uri, cache_mode="refresh")
        except (MCPError, TimeoutError, ValueError) as error:
            raise ToolError(
                f"the server {self._name} has no resource {uri}: {describe_error(error)}"
            ) from error
        self.changes.updated_resources.discard(uri)
        with contextlib.suppress(MCPError, TimeoutError):
            await self.changes.subscribe(uri)
        save_file = self._options.save_file
        parts = [convert_resource(part, save_file) for part in result.contents]
        return ToolOutput(tuple(parts) or "the resource is empty")

    async def get_prompt(self, prompt: str, arguments: dict[str, str]) -> list[PromptMessage]:
        try:
            async with asyncio.timeout(self._config.timeout):
                result = await self.client.get_prompt(prompt, arguments)
        except (MCPError, TimeoutError, ValueError) as error:
            why = describe_error(error)
            raise ToolError(f"the server {self._name} failed at {prompt}: {why}") from error
        save_file = self._options.save_file
        messages = result.messages
        return [PromptMessage(one.role, convert_block(one.content, save_file)) for one in messages]

    async def complete_argument(self, prompt: str, argument: str, text: str) -> list[str]:
        """What the server proposes for an argument of a prompt."""
        reference = types.PromptReference(name=prompt)
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                result = await self.client.complete(reference, {"name": argument, "value": text})
        except (MCPError, TimeoutError, ValueError):
            return []
        return result.completion.values

    # --- calls ---------------------------------------------------------------------------

    async def call_tool(
        self, tool: str, arguments: dict[str, Any], context: ToolContext
    ) -> ToolOutput:
        """Call a tool; a failure is a ToolError with a message for the model."""
        try:
            return await self._call_once(tool, arguments, context)
        except MCPError as error:
            if error.code != types.URL_ELICITATION_REQUIRED or not self._options.can_ask:
                raise await self._make_call_error(tool, arguments, error) from error
            await self._open_required_pages(tool, error, context)
        try:  # the server did nothing the first time: it wants the user to open a page before
            return await self._call_once(tool, arguments, context)
        except MCPError as error:
            raise await self._make_call_error(tool, arguments, error) from error

    async def _call_once(
        self, tool: str, arguments: dict[str, Any], context: ToolContext
    ) -> ToolOutput:
        deadline = asyncio.timeout(self._config.timeout)
        running = RunningCall(context, deadline, self._config.timeout)
        report = context.report_progress

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            running.extend()
            amount = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            report(f"{message[:200]} ({amount})" if message else amount)

        started = time.monotonic()
        self.callbacks.calls.append(running)
        if not self._is_pinging:
            self._is_pinging = True
            self._run_in_background(self._ping_while_calls_run())
        try:
            async with deadline:
                if tool in self._task_tools:
                    result = await call_as_task(self.client.session, tool, arguments, on_progress)
                else:
                    result = await self.client.call_tool(
                        tool, arguments, progress_callback=on_progress
                    )
        except TimeoutError as error:
            took = time.monotonic() - started
            raise ToolError(
                f"the server {self._name} did not answer {tool} within {took:.0f} s; "
                "the call was cancelled, and it is not known what it did until then"
            ) from error
        except (RuntimeError, ValueError) as error:
            # Raised by the SDK: the result does not fit the schema that the server declared.
            problem = f"returned an invalid result for {tool}: {error}"
            raise ToolError(f"the server {self._name} {problem}") from error
        finally:
            self.callbacks.calls.remove(running)
        self._set_slow(False)
        return convert_result(result, self._options.save_file)

    async def _open_required_pages(self, tool: str, error: MCPError, context: ToolContext) -> None:
        try:
            pages = types.ElicitationRequiredErrorData.model_validate(error.error.data).elicitations
        except ValueError:
            raise await self._make_call_error(tool, {}, error) from error
        running = RunningCall(context, asyncio.timeout(None), self._config.timeout)
        self.callbacks.calls.append(running)
        try:
            for page in pages:
                answer = await self.callbacks.elicit(None, page)
                if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
                    raise ToolError(
                        f"{tool} of the server {self._name} needs the user to open {page.url}, and "
                        "the user did not"
                    )
        finally:
            self.callbacks.calls.remove(running)

    async def _make_call_error(
        self, tool: str, arguments: dict[str, Any], error: MCPError
    ) -> ToolError:
        if self.login_challenge is not None:
            self.mark_lost("it requires a login")  # the next connection reads the headers again
            return self.make_login_error()
        if (tool, arguments) in self._unsent_calls:
            return ToolError(
                f"{tool} was not called: {self.problem}; the server {self._name} is tried again"
            )
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

    async def aclose_background(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)


@asynccontextmanager
async def connect(
    name: str,
    config: McpServerConfig,
    options: McpClientOptions,
    *,
    start: StartProcess | None,
    mode: str = "auto",
) -> AsyncIterator[McpConnection]:
    """A connection to a server, after its handshake; closed at the end of the block."""
    connection = McpConnection(name, config, options)
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(config.startup_timeout):
                client = Client(
                    _open_transport(connection, config, options, start),
                    mode=mode,
                    cache=None,
                    message_handler=connection.changes.on_message,
                    client_info=types.Implementation(name="treadle", version=__version__),
                    **connection.callbacks.as_client_arguments(),
                )
                connection._client = await stack.enter_async_context(client)
                connection.changes.attach(client)
        except Exception as error:
            if connection.login_challenge is not None and options.login is None:
                raise connection.make_login_error() from error
            raise ToolError(connection.explain_failure(error)) from error
        watching = asyncio.create_task(connection.changes.watch(client))
        try:
            yield connection
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await connection.aclose_background()


def _open_transport(
    connection: McpConnection,
    config: McpServerConfig,
    options: McpClientOptions,
    start: StartProcess | None,
) -> Any:
    if config.transport != "stdio":
        from treadle.tools.mcp.http_transport import HttpReports, open_http_transport

        reports = HttpReports(
            connection.require_login,
            connection.clear_login,
            connection.end_session,
            connection.report_stream_ended,
            connection.report_unreachable,
        )
        headers = {**config.headers, **options.headers()}
        auth = _make_auth(connection, config, options, headers)
        reader = connection.reader
        return reader.mend_all(open_http_transport(config, headers, auth, reports, reader))
    assert start is not None, "checked by McpServer"
    root = options.roots[0] if options.roots else None
    connection._stdio = StdioTransport(
        start,
        (config.command, *config.args),
        cwd=config.cwd or (str(root) if root else None),
        env=config.env,
        on_lost=connection.mark_lost,
        reader=connection.reader,
    )
    return connection._stdio


def _make_auth(
    connection: McpConnection,
    config: McpServerConfig,
    options: McpClientOptions,
    headers: dict[str, str],
) -> Any:
    """The authorization by OAuth, unless the user configured one in a header."""
    if options.tokens is None or any(key.lower() == "authorization" for key in headers):
        return None
    from treadle.tools.mcp.auth.oauth import make_auth

    on_needed: Callable[[str], None] = connection.require_login
    return make_auth(
        connection._name, config, options.tokens, login=options.login, on_login_needed=on_needed
    )
