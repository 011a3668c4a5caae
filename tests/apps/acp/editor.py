"""An editor for tests: the client of the official SDK, and `treadle acp` as a process."""

# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from acp import RequestError, connect_to_agent
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    CreateTerminalResponse,
    DeniedOutcome,
    FileSystemCapabilities,
    PermissionOption,
    PromptResponse,
    ReadTextFileResponse,
    ReleaseTerminalResponse,
    RequestPermissionResponse,
    TerminalExitStatus,
    TerminalOutputResponse,
    TextContentBlock,
    ToolCallUpdate,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)

from tests.apps.program import environment, start
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

Answer = Callable[[ToolCallUpdate, Sequence[PermissionOption]], str | None]


def say(text: str) -> list[Any]:
    return [TextContentBlock(type="text", text=text)]


def call(name: str, **arguments: object) -> FakeReply:
    return FakeReply(calls=(FakeCall(name, arguments),))


def allow(question: ToolCallUpdate, options: Sequence[PermissionOption]) -> str | None:
    return options[0].option_id


class Editor:
    """Records what the agent sends. `answer` decides on permissions; None means cancelled."""

    def __init__(self, answer: Answer = allow) -> None:
        self.answer = answer
        self.updates: list[Any] = []
        self.permissions: list[tuple[ToolCallUpdate, list[PermissionOption]]] = []
        self.buffers: dict[str, str] = {}  # unsaved texts
        self.read: list[str] = []
        self.written: dict[str, str] = {}
        self.saves = True
        self.terminals: dict[str, Process] = {}
        self.outputs: dict[str, str] = {}
        self.forms: list[Any] = []
        self.form_answer: dict[str, Any] | None = None
        self.changed = asyncio.Event()
        self.never = asyncio.Event()
        self.hangs = False  # on permissions
        self.messages: list[tuple[str, dict[str, Any]]] = []  # all of them: incoming, outgoing

    def on_connect(self, conn: Any) -> None:
        pass

    def _note(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            await self.changed.wait()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append(update)
        self._note()

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        self.permissions.append((tool_call, options))
        self._note()
        if self.hangs:
            await self.never.wait()
        chosen = self.answer(tool_call, options)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        outcome = AllowedOutcome(outcome="selected", option_id=chosen)
        return RequestPermissionResponse(outcome=outcome)

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **_: Any,
    ) -> ReadTextFileResponse:
        self.read.append(path)
        if path in self.buffers:
            return ReadTextFileResponse(content=self.buffers[path])
        try:
            return ReadTextFileResponse(content=Path(path).read_text())
        except OSError as error:
            raise RequestError.resource_not_found(path) from error

    async def write_text_file(
        self, session_id: str, path: str, content: str, **_: Any
    ) -> WriteTextFileResponse:
        self.written[path] = content
        if self.saves:
            Path(path).write_text(content)
            self.buffers.pop(path, None)
        else:
            self.buffers[path] = content
        return WriteTextFileResponse()

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: Sequence[Any] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_: Any,
    ) -> CreateTerminalResponse:
        variables = {**environment(), "EDITOR_KEY": "of the editor"}
        variables |= {one.name: one.value for one in env or []}
        name = f"terminal-{len(self.terminals) + 1}"
        self.terminals[name] = await asyncio.create_subprocess_exec(
            command,
            *(args or []),
            cwd=cwd,
            env=variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=asyncio.subprocess.STDOUT,
            process_group=0,
        )
        self._note()
        return CreateTerminalResponse(terminal_id=name)

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> WaitForTerminalExitResponse:
        process = self.terminals[terminal_id]
        out, _err = await process.communicate()
        self.outputs[terminal_id] = out.decode()
        return WaitForTerminalExitResponse(exit_code=process.returncode)

    async def terminal_output(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> TerminalOutputResponse:
        status = TerminalExitStatus(exit_code=self.terminals[terminal_id].returncode)
        output = self.outputs.get(terminal_id, "")
        return TerminalOutputResponse(output=output, truncated=False, exit_status=status)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> None:
        if self.terminals[terminal_id].returncode is None:
            os.killpg(self.terminals[terminal_id].pid, signal.SIGKILL)  # as a terminal does

    async def release_terminal(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> ReleaseTerminalResponse:
        return ReleaseTerminalResponse()

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        from acp.schema import AcceptElicitationResponse, DeclineElicitationResponse

        self.forms.append((message, mode))
        if self.form_answer is None:
            return DeclineElicitationResponse(action="decline")
        return AcceptElicitationResponse(action="accept", content=self.form_answer)

    async def complete_elicitation(self, elicitation_id: str, **_: Any) -> None: ...

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None: ...

    # --- what it has seen ----------------------------------------------------------------

    def of_kind(self, kind: str) -> list[Any]:
        return [update for update in self.updates if update.session_update == kind]

    @property
    def text(self) -> str:
        return "".join(one.content.text for one in self.of_kind("agent_message_chunk"))

    @property
    def thoughts(self) -> str:
        return "".join(one.content.text for one in self.of_kind("agent_thought_chunk"))

    def get_call(self, title: str) -> dict[str, Any]:
        """A call as an editor keeps it: all its updates joined."""
        calls: dict[str, dict[str, Any]] = {}
        for update in self.updates:
            if update.session_update in ("tool_call", "tool_call_update"):
                fields = {name: getattr(update, name) for name in update.model_fields_set}
                calls.setdefault(update.tool_call_id, {}).update(fields)
        return next((one for one in calls.values() if title in one.get("title", "")), {})

    def find_status(self, title: str) -> str:
        return str(self.get_call(title).get("status", ""))


class Connected:
    """A started agent."""

    def __init__(self, editor: Editor, process: Process, agent: ClientSideConnection) -> None:
        self.editor = editor
        self.process = process
        self.agent = agent
        self.folder = Path.cwd()

    async def new(self, **options: Any) -> str:
        session = await self.agent.new_session(cwd=str(self.folder), mcp_servers=[], **options)
        return session.session_id

    async def prompt(self, session: str, text: str) -> PromptResponse:
        return await self.agent.prompt(session_id=session, prompt=say(text))

    async def end(self) -> int:
        """Close the input, as an editor that quits does; the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.process.wait()


@asynccontextmanager
async def connect(
    server: ProviderServer | None,
    *arguments: str,
    editor: Editor | None = None,
    files: bool = False,
    terminal: bool = False,
    more: dict[str, Any] | None = None,
    **variables: str,
) -> AsyncIterator[Connected]:
    """`treadle acp`, connected and initialized; it ends with the block."""
    editor = editor or Editor()
    process = await start(server, "acp", *arguments, stdin=PIPE, cwd=None, **variables)
    assert process.stdin is not None
    agent = connect_to_agent(
        editor,
        process.stdin,
        process.stdout,
        use_unstable_protocol=True,
        observers=[lambda event: editor.messages.append((event.direction.value, event.message))],
    )
    try:
        capabilities = ClientCapabilities(
            fs=FileSystemCapabilities(read_text_file=files, write_text_file=files),
            terminal=terminal,
            **(more or {}),
        )
        await agent.initialize(protocol_version=1, client_capabilities=capabilities)
        yield Connected(editor, process, agent)
    finally:
        process.stdin.close()
        await process.wait()
        with suppress(ConnectionError):  # an answer to the agent that has ended
            await agent.close()
