"""The methods of the Agent Client Protocol: sessions by id, errors with a sentence.

The SDK (agent-client-protocol) parses and sends; this class has no state but the open sessions.
Started by main.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import msgspec
from acp import PROTOCOL_VERSION, RequestError
from acp.interfaces import Client
from acp.schema import (
    AcpMcpServer,
    AgentCapabilities,
    AuthenticateResponse,
    ClientCapabilities,
    CloseSessionResponse,
    DeleteSessionRequest,
    DeleteSessionResponse,
    ForkSessionResponse,
    HttpMcpServer,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    McpCapabilities,
    McpServerStdio,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResumeSessionResponse,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionForkCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    SetSessionConfigOptionResponse,
    SetSessionModeResponse,
    SseMcpServer,
)

from treadle._version import __version__
from treadle.apps.acp.prompt_content import PromptBlock
from treadle.apps.acp.session import EditorSession
from treadle.apps.acp.transport import DELETE_METHOD
from treadle.apps.assembly import SessionOptions
from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.console import embedded_setup
from treadle.apps.settings.folder_rules import is_trusted
from treadle.apps.settings.load import load_settings
from treadle.core.errors import ConfigError, SessionNotFound, TreadleError
from treadle.sessions.library import Library

INVALID_PARAMS, INTERNAL_ERROR, NOT_FOUND = -32602, -32603, -32002
PAGE_SESSIONS = 50

T = TypeVar("T")
P = ParamSpec("P")


def _translate_errors(
    method: Callable[P, Awaitable[T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """An error of ours becomes an error of the protocol, with our sentence as its message."""

    @functools.wraps(method)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except RequestError:
            raise
        except (TreadleError, OSError) as error:
            code = INTERNAL_ERROR
            if isinstance(error, ConfigError):
                code = INVALID_PARAMS
            elif isinstance(error, SessionNotFound):
                code = NOT_FOUND
            raise RequestError(code, redact_for_display(str(error))) from error
        except Exception as error:
            print(redact_for_display(traceback.format_exc()), file=sys.stderr)
            problem = f"{type(error).__name__}: {error}"
            raise RequestError(INTERNAL_ERROR, redact_for_display(problem)) from error

    return call


class EditorAgent:
    """Implements acp.Agent. `flags` are settings of the command line, `options` the rest of it."""

    def __init__(self, flags: Mapping[str, object], options: SessionOptions) -> None:
        self._flags = dict(flags)
        self._options = options
        self._client: Client | None = None
        self._capabilities = ClientCapabilities()
        self._sessions: dict[str, EditorSession] = {}

    def on_connect(self, conn: Client) -> None:
        self._client = conn

    async def aclose(self) -> None:
        """Stop all turns and close all sessions."""
        sessions, self._sessions = [*self._sessions.values()], {}
        await asyncio.gather(*(session.aclose() for session in sessions), return_exceptions=True)

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **kwargs: Any,
    ) -> InitializeResponse:
        self._capabilities = client_capabilities or ClientCapabilities()
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="treadle", title="Treadle", version=__version__),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(
                    image=True, embedded_context=True, audio=False
                ),
                mcp_capabilities=McpCapabilities(http=True, sse=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    fork=SessionForkCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                    delete=SessionDeleteCapabilities(),
                    additional_directories=SessionAdditionalDirectoriesCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    async def authenticate(self, method_id: str, **kwargs: Any) -> AuthenticateResponse | None:
        raise RequestError(
            INVALID_PARAMS,
            "Treadle has no login of its own: set the key of a provider, such as "
            "ANTHROPIC_API_KEY, in the environment of the editor or of this agent",
        )

    # --- sessions ------------------------------------------------------------------------

    @_translate_errors
    async def new_session(
        self,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[EditorServer] | None = None,
        **kwargs: Any,
    ) -> NewSessionResponse:
        session = await self._open(cwd, additional_directories, mcp_servers)
        session.show_commands()
        return NewSessionResponse(
            session_id=session.id, modes=session.modes, config_options=session.list_options()
        )

    @_translate_errors
    async def load_session(
        self,
        cwd: str,
        session_id: str,
        mcp_servers: list[EditorServer] | None = None,
        additional_directories: list[str] | None = None,
        **kwargs: Any,
    ) -> LoadSessionResponse | None:
        session = await self._reopen(cwd, session_id, additional_directories, mcp_servers)
        await session.show_history()
        session.show_commands()
        return LoadSessionResponse(modes=session.modes, config_options=session.list_options())

    @_translate_errors
    async def resume_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[EditorServer] | None = None,
        **kwargs: Any,
    ) -> ResumeSessionResponse:
        """Like load, without the history: the editor has it."""
        session = await self._reopen(cwd, session_id, additional_directories, mcp_servers)
        session.show_commands()
        return ResumeSessionResponse(modes=session.modes, config_options=session.list_options())

    @_translate_errors
    async def fork_session(
        self,
        session_id: str,
        cwd: str,
        additional_directories: list[str] | None = None,
        mcp_servers: list[EditorServer] | None = None,
        **kwargs: Any,
    ) -> ForkSessionResponse:
        if session_id in self._sessions:
            self._sessions[session_id].check_idle("fork it")
        session = await self._open(
            cwd, additional_directories, mcp_servers, resume=session_id, fork=True
        )
        session.show_commands()
        return ForkSessionResponse(
            session_id=session.id, modes=session.modes, config_options=session.list_options()
        )

    @_translate_errors
    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **kwargs: Any
    ) -> ListSessionsResponse:
        start = _parse_cursor(cursor)
        folder = Path(cwd) if cwd else None
        found = [one for one in Library().list_summaries(folder=folder) if one.turns]
        end = start + PAGE_SESSIONS
        return ListSessionsResponse(
            sessions=[
                SessionInfo(
                    session_id=one.id,
                    cwd=one.folder,
                    title=redact_for_display(one.title) or None,
                    updated_at=datetime.fromtimestamp(one.updated, UTC).isoformat(),
                )
                for one in found[start:end]
            ],
            next_cursor=str(end) if end < len(found) else None,
        )

    @_translate_errors
    async def close_session(self, session_id: str, **kwargs: Any) -> CloseSessionResponse | None:
        session = self._find(session_id)
        del self._sessions[session_id]
        await session.aclose()
        return CloseSessionResponse()

    # --- one session ---------------------------------------------------------------------

    @_translate_errors
    async def prompt(
        self, session_id: str, prompt: list[PromptBlock], **kwargs: Any
    ) -> PromptResponse:
        return await self._find(session_id).prompt(prompt)

    async def cancel(self, session_id: str, **kwargs: Any) -> None:
        session = self._sessions.get(session_id)  # a notification has no answer
        if session is not None:
            session.cancel()

    @_translate_errors
    async def set_session_mode(
        self, session_id: str, mode_id: str, **kwargs: Any
    ) -> SetSessionModeResponse | None:
        self._find(session_id).session.permissions.change_mode(mode_id)
        return SetSessionModeResponse()

    @_translate_errors
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool, **kwargs: Any
    ) -> SetSessionConfigOptionResponse | None:
        session = self._find(session_id)
        await session.change_option(config_id, value)
        return SetSessionConfigOptionResponse(config_options=session.list_options())

    @_translate_errors
    async def delete_session(self, session_id: str) -> DeleteSessionResponse:
        """Remove a saved session with its child agents. One that is open here is closed first."""
        opened = self._sessions.get(session_id)
        if opened is not None:
            opened.check_idle("delete it")
            del self._sessions[session_id]
            await opened.aclose()
        library = Library()
        with contextlib.suppress(SessionNotFound):  # it is gone already, or was empty
            await asyncio.to_thread(library.remove, library.find(session_id))
        return DeleteSessionResponse()

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == DELETE_METHOD:
            request = DeleteSessionRequest.model_validate(params)
            await self.delete_session(request.session_id)
            return {}
        raise RequestError.method_not_found(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """Notifications of other programs are ignored."""

    # --- details -------------------------------------------------------------------------

    def _find(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            problem = f"no session {session_id!r} is open here: session/load opens a saved one"
            raise RequestError(NOT_FOUND, problem)
        return session

    async def _reopen(
        self,
        cwd: str,
        session_id: str,
        added: Sequence[str] | None,
        servers: Sequence[EditorServer] | None,
    ) -> EditorSession:
        """A saved session. One that is open here is closed first, as it may get other servers; but
        not for a request that cannot be fulfilled."""
        opened = self._sessions.get(session_id)
        if opened is not None:
            opened.check_idle("load it")
            for path in (cwd, *(added or ())):
                _check_folder(path)
            define_servers(servers or ())
            Library().find(session_id)  # an empty one is not on disk
            del self._sessions[session_id]
            await opened.aclose()
        return await self._open(cwd, added, servers, resume=session_id)

    async def _open(
        self,
        cwd: str,
        added: Sequence[str] | None,
        servers: Sequence[EditorServer] | None,
        *,
        resume: str | None = None,
        fork: bool = False,
    ) -> EditorSession:
        assert self._client is not None, "the SDK connects the agent before its first request"
        folder = _check_folder(cwd)
        if resume is not None and Library().find(resume).name != resume:
            raise SessionNotFound(f"there is no session {resume!r}: give its whole id")
        flags = dict(self._flags)
        if added:
            flags["add_dir"] = [str(_check_folder(path)) for path in added]
        definitions, problems = define_servers(servers or ())
        options = msgspec.structs.replace(self._options, servers=definitions)
        settings = load_settings(folder, flags, is_trusted=lambda: is_trusted(folder))
        if embedded_setup.is_maybe_needed(settings):
            await embedded_setup.download_named(settings)
        session = EditorSession(self._client, self._capabilities, folder, flags, options, problems)
        await session.open(resume=resume, fork=fork)
        self._sessions[session.id] = session
        return session


def _check_folder(path: str) -> Path:
    folder = Path(path)
    if not folder.is_absolute():
        raise ConfigError(f"{path!r} is not an absolute path: name the whole path of the folder")
    if not folder.is_dir():
        raise ConfigError(f"{path} is not a folder: open a folder that exists")
    return folder.resolve()


def _parse_cursor(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdecimal():
        raise ConfigError(f"{cursor!r} is not a cursor of session/list: begin without one")
    return int(cursor)


EditorServer = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio


def define_servers(
    servers: Iterable[EditorServer],
) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """The definitions by name, and a line for each server that cannot be used."""
    definitions: dict[str, Mapping[str, Any]] = {}
    problems: list[str] = []
    for server in servers:
        if isinstance(server, AcpMcpServer):
            problems.append(
                f"MCP server {server.name} is not started: Treadle does not support MCP over ACP; "
                "configure it as a command or with a URL"
            )
            continue
        definition = _define(server)
        try:
            _check(server.name, definition)
        except ConfigError as error:
            problems.append(str(error))
            continue
        if server.name in definitions:
            problems.append(
                f"the editor has two MCP servers with the name {server.name}; only the first is "
                "started: rename the other in its settings"
            )
        definitions.setdefault(server.name, definition)
    return definitions, problems


def _define(server: HttpMcpServer | SseMcpServer | McpServerStdio) -> dict[str, Any]:
    if isinstance(server, McpServerStdio):
        variables = {variable.name: variable.value for variable in server.env}
        return {"command": server.command, "args": list(server.args), "env": variables}
    headers = {header.name: header.value for header in server.headers}
    return {"type": server.type, "url": server.url, "headers": headers}


def _check(name: str, definition: Mapping[str, Any]) -> None:
    from treadle.tools.mcp.server_config import parse_server_config

    if not name:
        raise ConfigError("an MCP server of the editor has no name and is not started")
    parse_server_config(name, definition)
