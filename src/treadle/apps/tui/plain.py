"""The plain frontend: line by line, for screen readers, simple terminals and pipes.

No alternate screen and no cursor movement. A message sent while the agent works is steered in;
ctrl+c interrupts, twice quits. Choices are numbered and answered by a line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import TextIO

from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.tui import commands
from treadle.apps.tui.conversation import Conversation
from treadle.apps.tui.frontend import Frontend
from treadle.apps.tui.host import Host
from treadle.apps.tui.options import TerminalOptions
from treadle.apps.tui.questions import ApprovalAnswer
from treadle.apps.tui.render import diffs, render
from treadle.apps.tui.render.markdown import replace_controls
from treadle.apps.tui.state.blocks import (
    CodeBlock,
    MarkdownBlock,
    NoteBlock,
    ShellBlock,
    ThinkingBlock,
    Tone,
    ToolCallBlock,
    UserMessageBlock,
    ViewBlock,
)
from treadle.apps.tui.state.choice_option import ChoiceOption
from treadle.core.sanitize import escape_invisible
from treadle.core.steps import PendingApproval
from treadle.core.text import plural


def run_plain(host: Host, options: TerminalOptions) -> int:
    return asyncio.run(PlainFrontend(host, options).run())


class PlainFrontend(Frontend):
    """The frontend on two streams; also a questions.QuestionView."""

    hidden_answers: frozenset[ApprovalAnswer] = frozenset({"edit"})  # a line has no initial text

    def __init__(self, host: Host, options: TerminalOptions, out: TextIO | None = None) -> None:
        super().__init__(host, options, question_view=self)
        self._out = out or sys.stdout
        self._unread_lines: deque[str | None] = deque()  # None is the end of input
        self._line_future: asyncio.Future[str | None] | None = None
        self._is_tty = os.isatty(0)
        self._printed_blocks = 0  # complete ones
        self._printed_chars = 0  # of the growing block
        self._closing: asyncio.Event = asyncio.Event()
        self._exit_code = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._interrupts = 0

    # --- start and end -------------------------------------------------------------------

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_sigint)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._exit_with, 143)
        reader = _LineReader(self._on_line)
        try:
            if await self._start_up():
                self._process_lines()
                await self._closing.wait()
        finally:
            reader.close()
            for task in list(self._tasks):
                task.cancel()
            await self._close_session(self._conversation)
        return self._exit_code

    def _on_session_attached(self, conversation: Conversation) -> None:
        self._printed_blocks = self._printed_chars = 0
        self._on_change()
        if not len(conversation.view.blocks):
            self._print_prompt()

    def _exit_with(self, code: int, message: str = "") -> None:
        if message:
            print(message, file=sys.stderr)
        self._exit_code = code
        self._closing.set()

    def quit(self) -> None:
        self._exit_with(0)

    def _on_sigint(self) -> None:
        self._interrupts += 1
        conversation = self._conversation
        if conversation is not None and conversation.view.is_busy and self._interrupts == 1:
            conversation.interrupt()
        elif self._interrupts == 1 and self.shell_commands.stop():
            self._interrupts = 0
        else:
            self._exit_with(130 if self._interrupts > 1 else 0)

    def run_command(self, line: str) -> None:
        running = commands.run_command(self, line)
        self._track_task(asyncio.get_running_loop().create_task(running))

    def _track_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.show_message(f"{type(task.exception()).__name__}: {task.exception()}", "error")
        self._process_lines()

    # --- input ---------------------------------------------------------------------------

    def _on_line(self, line: str | None) -> None:
        self._unread_lines.append(line)
        self._process_lines()

    def _process_lines(self) -> None:
        """Take the lines that can be taken now: as the answer to a question, else as a message.

        From a terminal a message is taken at any time. Lines of a file or a pipe wait until the
        agent is idle, so that an answer among them is not taken as a message.
        """
        while self._unread_lines:
            if self._line_future is not None:
                if not self._line_future.done():
                    line = self._unread_lines[0] and self._unread_lines.popleft()
                    self._line_future.set_result(line)
                return
            conversation = self._conversation
            if conversation is None:
                return
            is_resting = conversation.is_idle and not conversation.questions and not self._tasks
            if not is_resting and not (self._is_tty and self._unread_lines[0]):
                return
            line = self._unread_lines.popleft()
            self._interrupts = 0
            if line is None:
                self._exit_with(0)
            else:
                self._send(line)

    # --- output --------------------------------------------------------------------------

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (BrokenPipeError, ValueError):
            self._exit_with(141)

    def _print_prompt(self) -> None:
        self._write(f"[{self.host.mode}] > " if self._out.isatty() else "")

    def _on_change(self) -> None:
        """Print what is new, of the growing block as much as there is."""
        if self._conversation is None:
            return
        view = self._conversation.view
        was_busy = self._printed_chars or self._printed_blocks < len(view.blocks)
        while self._printed_blocks < len(view.blocks):
            block = view.blocks[self._printed_blocks]
            is_growing = self._printed_blocks == view.stream_index
            is_detached = isinstance(block, ToolCallBlock) and block.state == "background"
            is_open = isinstance(block, ToolCallBlock | ShellBlock) and not block.is_finished
            if is_open and not is_detached:
                break
            if isinstance(block, MarkdownBlock | CodeBlock):
                self._write(replace_controls(block.text[self._printed_chars :]))
                self._printed_chars = len(block.text)
            elif not is_growing:
                self._write(replace_controls(self._format_block(block)))
            if is_growing:
                break
            if isinstance(block, MarkdownBlock | CodeBlock):
                self._write("" if block.text.endswith("\n") else "\n")
            self._printed_blocks, self._printed_chars = self._printed_blocks + 1, 0
        self._show_first_question()
        if was_busy and not view.is_busy and self._printed_blocks == len(view.blocks):
            self._print_prompt()
        if self._unread_lines:
            asyncio.get_running_loop().call_soon(self._process_lines)

    def _format_block(self, block: ViewBlock) -> str:
        match block:
            case UserMessageBlock(text=text, steered=steered):
                return f"You{' (while it worked)' if steered else ''}: {text}\n"
            case ThinkingBlock(text=text, is_continuation=is_continuation):
                return "" if is_continuation else f"Thinking: {' '.join(text.split())[:200]}\n"
            case ToolCallBlock():
                return self._format_call(block)
            case ShellBlock(exit_code=code):
                exit_line = f"exit code {code}\n" if code else ""
                return f"{render.plain_text(block)}\n{exit_line}"
            case NoteBlock(text=text, tone=tone):
                return f"{'Error: ' if tone == 'error' else ''}{text}\n"
        return ""

    def _format_call(self, call: ToolCallBlock) -> str:
        line = f"Tool {render.format_call_title(call)}: {call.state}"
        if diffs.is_diff(call.display):
            return f"{line}\n{call.display}\n"
        first, *rest = (call.reason if call.state == "denied" else call.result).strip().split("\n")
        more = f" (and {plural(len(rest), 'more line')})" if rest else ""
        return f"{line}. {first[:200]}{more}\n"

    def show_message(self, text: str, tone: Tone = "plain") -> None:
        self._write(replace_controls(redact_for_display(text)) + "\n")

    def set_prompt_text(self, text: str) -> None:
        self.show_message(f"your message was: {text}")

    def change_theme(self, name: str) -> None:
        self.show_message("plain mode uses no colours")

    def show_mode(self) -> None:
        self.show_message(commands.describe_mode(self.host.mode))

    # --- questions -----------------------------------------------------------------------

    async def choose_approval(
        self, title: str, approval: PendingApproval, options: Sequence[ChoiceOption]
    ) -> str | None:
        shown = approval.preview.text if approval.preview is not None else approval.call.raw
        parts = (title, escape_invisible(shown, keep="\n\t"), escape_invisible(approval.reason))
        self._write("\n" + "".join(f"{part}\n" for part in parts if part))
        return await self.choose("Allow", options)

    async def ask_text(self, prompt: str, text: str = "") -> str | None:
        return await self._ask_line(f"{prompt}\n> ")

    async def _ask_line(self, prompt: str) -> str | None:
        self._write(replace_controls(prompt))
        self._line_future = asyncio.get_running_loop().create_future()
        self._process_lines()
        try:
            return await self._line_future
        finally:
            self._line_future = None

    async def choose(
        self,
        title: str,
        options: Sequence[ChoiceOption],
        *,
        filterable: bool = False,
        message: str = "",
        current: str = "",
    ) -> str | None:
        if message:
            self._write(replace_controls(f"{message}\n\n"))
        for number, option in enumerate(options, 1):
            description = f" ({option.description})" if option.description else ""
            self._write(replace_controls(f"  {number} {option.label}{description}\n"))
        separator = "" if title.endswith("?") else ","
        while True:
            line = await self._ask_line(f"{title}{separator} 1 to {len(options)}: ")
            answer = (line or "").strip().lower()
            if not answer:
                return None
            if answer.isdigit() and 1 <= int(answer) <= len(options):
                return options[int(answer) - 1].value
            for option in options:
                if answer in (option.key, option.value.lower(), option.label.lower()):
                    return option.value


class _LineReader:
    """Reads lines from standard input without a thread. It stays blocking: the terminal shares
    the setting with standard output."""

    def __init__(self, on_line: Callable[[str | None], None]) -> None:
        self._on_line = on_line
        self._buffer = b""
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        try:
            self._loop.add_reader(0, self._read)
        except PermissionError:  # a regular file: read to its end
            while not self._is_closed:
                self._read()

    def _read(self) -> None:
        try:
            data = os.read(0, 65_536)
        except OSError:
            data = b""
        if not data:
            if self._buffer:
                self._on_line(self._buffer.decode(errors="replace"))
            self._buffer = b""
            self._on_line(None)
            self.close()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._on_line(line.decode(errors="replace"))

    def close(self) -> None:
        self._is_closed = True
        try:
            self._loop.remove_reader(0)
        except (OSError, ValueError):
            pass
