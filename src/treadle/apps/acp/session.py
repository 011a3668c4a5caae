"""One session of an editor: an HostedSession, its updates and its questions.

A prompt runs one turn to its end; a second prompt meanwhile is refused. Opened by agent.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from acp import RequestError
from acp.interfaces import Client
from acp.schema import (
    AvailableCommand,
    AvailableCommandsUpdate,
    ClientCapabilities,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    PromptResponse,
    SessionModeState,
    StopReason,
    TextContentBlock,
)
from acp.schema import Usage as PromptUsage

from treadle.apps.acp import commands, session_options
from treadle.apps.acp.outbox import Outbox, SessionUpdate
from treadle.apps.acp.prompt_content import PromptBlock, read_prompt
from treadle.apps.acp.questions import EditorQuestions
from treadle.apps.acp.terminals import ClientTerminals
from treadle.apps.acp.updates import SessionUpdates
from treadle.apps.acp.workspace import ClientFiles, EditorWorkspace
from treadle.apps.assembly import SessionOptions
from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.conversation.choices import ModelQuestion
from treadle.apps.conversation.commands.answers import CommandAnswer
from treadle.apps.conversation.commands.trust import DECLINED_NOTE
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.session.callbacks import HostCallbacks
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.state.blocks import Tone
from treadle.core.errors import InputBlocked
from treadle.core.events import TerminalReason, TurnResult
from treadle.core.steps import Approval, Denial, PendingApproval
from treadle.core.transcript import AskModel, RunTools, pending
from treadle.core.transcript.content import Text, UserContent
from treadle.core.transcript.usage import Usage

STOP_SECONDS = 10.0  # the loop stops sooner; what it runs may not
INVALID_REQUEST, INTERNAL_ERROR = -32600, -32603
UNFINISHED_NOTE = "The last turn of this session is not finished: your message continues it."
_STOP_REASONS: Mapping[TerminalReason, StopReason] = {
    "max_turns": "max_turn_requests",
    "aborted": "cancelled",
    "refused": "refusal",
}


class EditorSession(HostCallbacks):
    """A session that is open in the editor. `notes` are lines for the user about it."""

    kind = "editor"
    runs_turns = False

    def __init__(
        self,
        client: Client,
        capabilities: ClientCapabilities,
        folder: Path,
        flags: Mapping[str, object],
        options: SessionOptions,
        notes: Sequence[str] = (),
    ) -> None:
        self._client = client
        self._capabilities = capabilities
        self._files = ClientFiles(client, capabilities)
        self._terminals: ClientTerminals | None = None
        if capabilities.terminal:
            self._terminals = ClientTerminals(client, self._on_terminal)
        options = msgspec.structs.replace(options, wrap_workspace=self._wrap_workspace)
        self.session = HostedSession(folder, flags, options)
        self._notes = list(notes)
        self._shown_commands: list[AvailableCommand] = []
        self._server_wait: asyncio.Task[None] | None = None
        self._outbox = Outbox(self._send)
        self._updates = SessionUpdates(
            self._outbox,
            str(self.session.folder),
            self._get_usage,
            lambda: self.session.model.card.window,
        )
        self._questions: EditorQuestions | None = None
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._is_cancelled = False
        self.id = ""

    @property
    def is_busy(self) -> bool:
        return not self._is_idle.is_set()

    # --- open and close ------------------------------------------------------------------

    async def open(self, *, resume: str | None = None, fork: bool = False) -> None:
        await self.session.open(self, resume=resume, fork=fork)
        if not self.session.trust.is_given and self.session.trust.list_files():
            self._notes.append(DECLINED_NOTE)

    def prepare_conversation(self, conversation: Conversation, notes: Sequence[str]) -> None:
        self._notes += notes[1:]  # the first one is about the model, which editors show

    def attach_conversation(self, conversation: Conversation, *, is_shown: bool) -> None:
        """Watch the driver: of a new session, or of one that was opened again."""
        driver = conversation.driver
        self.id = self._files.session_id = driver.session_id
        if self._terminals is not None:
            self._terminals.session_id = self.id
        self._questions = EditorQuestions(
            *(self._client, self._capabilities, self.id, self.session.folder),
            *(self._outbox, self._updates),
            interrupt=self.cancel,
            allow_for_session=self.session.permissions.allow_for_session,
        )
        driver.watch(self._updates)
        self._stop_server_wait()
        if self.session.servers.list_servers():
            self._server_wait = asyncio.get_running_loop().create_task(self._wait_for_servers())

    async def show_history(self) -> None:
        self._updates.replay(self.session.driver.history)
        await self._outbox.flush()

    def show_commands(self) -> None:
        """To be called last: the update comes after the response that names the session."""
        available = commands.list_available(self.session)
        if available == self._shown_commands:
            return
        self._shown_commands = available
        self._outbox.put(
            AvailableCommandsUpdate(
                session_update="available_commands_update", available_commands=available
            )
        )

    async def _wait_for_servers(self) -> None:
        """Offer the prompts of MCP servers once these are up."""
        await self.session.servers.wait()
        self.show_commands()

    def _stop_server_wait(self) -> None:
        if self._server_wait is not None:
            self._server_wait.cancel()

    async def aclose(self) -> None:
        """Stop the turn, and wait until its end is in the log."""
        self.cancel()
        self._stop_server_wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_idle.wait(), STOP_SECONDS)
        try:
            await self.session.aclose()
        finally:
            await self._outbox.aclose()

    # --- prompt --------------------------------------------------------------------------

    async def prompt(self, blocks: Sequence[PromptBlock]) -> PromptResponse:
        if self._questions is not None and self._questions.answer_with_text(_join_text(blocks)):
            return PromptResponse(stop_reason="end_turn")  # the turn that asked goes on
        self.check_idle("send another prompt")
        self._is_idle.clear()
        self._is_cancelled = False
        try:
            return await self._run_prompt(blocks)
        finally:
            self._is_idle.set()
            self.show_commands()  # a server may have other prompts now
            await self._outbox.flush()

    async def _run_prompt(self, blocks: Sequence[PromptBlock]) -> PromptResponse:
        added = self.session.list_added_folders()
        message = read_prompt(blocks, self.session.folder, added)
        self._show_notes()
        first = message[0].text.strip() if message and isinstance(message[0], Text) else ""
        if first.startswith("/"):
            answer = await self._run_command(first)
            if answer is not None and answer.message is None:
                self._updates.show_text(redact_for_display(answer.note))
                return PromptResponse(stop_reason="cancelled" if self._is_cancelled else "end_turn")
            if answer is not None and answer.message is not None:
                message = (*answer.message.content, *message[1:])
        return await self._run_turn(message)

    async def _run_turn(self, message: tuple[UserContent, ...]) -> PromptResponse:
        if self._is_cancelled:
            return PromptResponse(stop_reason="cancelled")
        driver = self.session.driver
        if not driver.submit(message):
            raise RequestError(INVALID_REQUEST, "the prompt is empty: write a message")
        try:
            result = await self.session.finish_turn()
        except InputBlocked as error:
            self._updates.show_note(f"a hook blocked this message: {error}")
            return PromptResponse(stop_reason="refusal")
        if result.reason == "error":
            problem = redact_for_display(str(result.error or "the turn failed"))
            raise RequestError(INTERNAL_ERROR, problem, {"kind": type(result.error).__name__})
        if result.reason in ("budget_exceeded", "goal_not_met"):
            detail = result.metadata.get("detail") or result.reason.replace("_", " ")
            self._updates.show_note(f"the turn ended: {detail}")
        return PromptResponse(stop_reason=_get_stop_reason(result), usage=_make_usage(result))

    async def _run_command(self, line: str) -> CommandAnswer | None:
        assert self._questions is not None, "an open session can ask"
        before = self.list_options()
        answer = await commands.run_command(line, self.session, self._questions)
        if self.list_options() != before:
            self._show_options()
        return answer

    def _show_notes(self) -> None:
        if isinstance(pending(self.session.driver.transcript), AskModel | RunTools):
            self._notes.append(UNFINISHED_NOTE)
        notes, self._notes = self._notes, []
        for note in notes:
            self._updates.show_note(redact_for_display(note))

    def cancel(self) -> None:
        """Stop the turn, if one runs; asked twice, it is stopped once."""
        if self.is_busy and not self._is_cancelled:
            self._is_cancelled = True
            self.session.driver.interrupt()

    def check_idle(self, action: str) -> None:
        if self.is_busy:
            problem = (
                f"session {self.id} runs a prompt: wait for its end, or cancel it, to {action}"
            )
            raise RequestError(INVALID_REQUEST, problem)

    # --- settings ------------------------------------------------------------------------

    @property
    def modes(self) -> SessionModeState:
        return session_options.describe_modes(self.session)

    def list_options(self) -> list[session_options.ConfigOption]:
        return session_options.list_options(self.session)

    async def change_option(self, option: str, value: object) -> None:
        if option != session_options.MODE:
            self.check_idle(f"change the {option}")
        await session_options.change_option(self.session, option, value)

    def show_mode(self) -> None:
        """In both forms of the protocol: an editor knows one of them."""
        mode = self.session.permissions.mode
        self._outbox.put(
            CurrentModeUpdate(session_update="current_mode_update", current_mode_id=mode)
        )
        self._show_options()

    def _show_options(self) -> None:
        options = self.list_options()
        self._outbox.put(
            ConfigOptionUpdate(session_update="config_option_update", config_options=options)
        )

    # --- callbacks -----------------------------------------------------------------------

    async def _send(self, update: SessionUpdate) -> None:
        await self._client.session_update(session_id=self.id, update=update)

    def _get_usage(self) -> Usage:
        return self.session.driver.total_usage

    def _on_terminal(self, command: str, terminal_id: str) -> None:
        self._updates.attach_terminal(command, terminal_id)

    def show_message(self, text: str, tone: Tone = "plain") -> None:
        if self.is_busy:
            self._updates.show_note(redact_for_display(text))
        else:
            self._notes.append(text)  # shown with the next prompt

    async def ask_approval(
        self, conversation: Conversation, approval: PendingApproval
    ) -> Approval | Denial | None:
        assert self._questions is not None, "an open session can ask"
        return await self._questions.ask_approval(approval)

    async def ask_user(self, conversation: Conversation, question: ModelQuestion) -> str | None:
        assert self._questions is not None, "an open session can ask"
        return await self._questions.ask_user(question)

    def _wrap_workspace(self, workspace: LazyWorkspace) -> EditorWorkspace | None:
        if not self._files.can_read and not self._files.can_write and self._terminals is None:
            return None
        folders = (self.session.folder, *self.session.list_added_folders())
        run = self._terminals.run if self._terminals is not None else None
        return EditorWorkspace(workspace, self._files, folders, run)


def _get_stop_reason(result: TurnResult) -> StopReason:
    if result.metadata.get("truncated"):
        return "max_tokens"
    return _STOP_REASONS.get(result.reason, "end_turn")


def _make_usage(result: TurnResult) -> PromptUsage:
    usage: Any = result.total_usage
    return PromptUsage(
        total_tokens=usage.total,
        input_tokens=usage.input,
        output_tokens=usage.output,
        thought_tokens=usage.reasoning,
        cached_read_tokens=usage.cache_read,
        cached_write_tokens=usage.cache_write,
    )


def _join_text(blocks: Sequence[PromptBlock]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, TextContentBlock))
