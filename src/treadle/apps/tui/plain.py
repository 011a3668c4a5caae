"""The terminal line by line: for screen readers, for terminals that can do no more, for pipes.

No alternate screen, no cursor movement, nothing is drawn over. What is said while it works is
steered in; ctrl+c stops, twice leaves. Questions are numbered, and answered by a line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TextIO

from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.tui import commands, trust_dialog
from treadle.apps.tui.conversation import Conversation, PendingQuestion
from treadle.apps.tui.custom_commands import CustomCommand, find_custom_commands
from treadle.apps.tui.host import Host, HostCallbacks, ModelQuestion
from treadle.apps.tui.input.attachments import Attachments
from treadle.apps.tui.input.shell_commands import ShellCommands
from treadle.apps.tui.options import TerminalOptions
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
from treadle.core import sanitize
from treadle.core.errors import TreadleError
from treadle.core.loop.driver import Driver
from treadle.core.steps import PendingApproval

CLOSE_TIMEOUT = 1.5


def run_plain(host: Host, options: TerminalOptions) -> int:
    return asyncio.run(PlainFrontend(host, options).run())


class PlainFrontend:
    """Implements commands.Face on two streams."""

    def __init__(self, host: Host, options: TerminalOptions, out: TextIO | None = None) -> None:
        self.host = host
        self.custom_commands: Sequence[CustomCommand] = ()
        self.callbacks = HostCallbacks(self._ask_approval, self._ask_user, self.show_message)
        self._options = options
        self._out = out or sys.stdout
        self._attachments = Attachments(host.folder, host.list_added_folders)
        self._shell_commands = ShellCommands(host)
        self._conversation: Conversation | None = None
        self._unread_lines: deque[str | None] = deque()  # typed, not yet taken; None is the end
        self._line_future: asyncio.Future[str | None] | None = None
        self._is_tty = os.isatty(0)
        self._printed_blocks = 0  # blocks that are on the screen, whole
        self._printed_chars = 0  # characters of the block that grows
        self._closing: asyncio.Event = asyncio.Event()
        self._exit_code = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._shown_question: PendingQuestion | None = None
        self._interrupts = 0

    @property
    def conversation(self) -> Conversation:
        assert self._conversation is not None, "there is a session by now"
        return self._conversation

    # --- the whole -----------------------------------------------------------------------

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_sigint)
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._exit_with, 143)
        reader = _LineReader(self._on_line)
        try:
            if await self._start_up():
                await self._closing.wait()
        finally:
            reader.close()
            for task in list(self._tasks):
                task.cancel()
            await self._close()
        return self._exit_code

    async def _start_up(self) -> bool:
        try:
            if not await trust_dialog.ask_at_start(self.host, self.choose):
                return False
            driver = await self.host.open(self.callbacks, resume=self._options.resume)
        except (TreadleError, OSError) as error:
            print(f"treadle: {error}", file=sys.stderr)
            self._exit_code = 2
            return False
        self._attach_driver(driver)
        if self._options.prompt:
            self._send(self._options.prompt)
        self._process_lines()
        return True

    def _attach_driver(self, driver: Driver) -> None:
        folders = [self.host.folder] if self.host.is_trusted else []
        self.custom_commands, problems = find_custom_commands(
            [*folders, Path.home()], home=Path.home()
        )
        self._conversation = Conversation(driver, self._print_new_blocks)
        if self.host.is_trust_declined and not self.host.is_trusted:
            self.conversation.show_block(NoteBlock(trust_dialog.DECLINED_NOTE))
        for note in (*self.host.notes, *problems):
            self.conversation.show_block(NoteBlock(note))
        if self.conversation.has_unfinished_turn:
            self.conversation.show_note(
                "the last turn was not finished: an empty line goes on with it"
            )
        self.conversation.start()
        self._printed_blocks = self._printed_chars = 0
        self._print_new_blocks()
        self._print_prompt()

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                if self._conversation is not None:
                    await self._conversation.aclose()
                await self.host.aclose()
        except TimeoutError:
            pass  # the journal is only appended to: it is whole as it is

    def _exit_with(self, code: int) -> None:
        self._exit_code = code
        self._closing.set()

    def _on_sigint(self) -> None:
        self._interrupts += 1
        if (
            self._conversation is not None
            and self._conversation.view.is_busy
            and self._interrupts == 1
        ):
            self._conversation.interrupt()
        elif self._interrupts == 1 and self._shell_commands.stop():
            self._interrupts = 0
        else:
            self._exit_with(130 if self._interrupts > 1 else 0)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self._track_task(asyncio.get_running_loop().create_task(coroutine))

    def _track_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.show_message(f"{type(task.exception()).__name__}: {task.exception()}", "error")
        self._process_lines()

    # --- what is typed -------------------------------------------------------------------

    def _on_line(self, line: str | None) -> None:
        self._unread_lines.append(line)
        self._process_lines()

    def _process_lines(self) -> None:
        """Hand on the lines that can be taken now: an answer to a question, else a message.

        From a terminal a message may come at any time; lines of a file or a pipe wait their turn,
        so that an answer in them is not taken for a message.
        """
        while self._unread_lines:
            if self._line_future is not None:
                if not self._line_future.done():
                    self._line_future.set_result(
                        self._unread_lines[0] and self._unread_lines.popleft()
                    )
                return
            is_resting = (
                self._conversation is not None
                and self._conversation.is_idle
                and not self._conversation.questions
                and not self._tasks
            )
            if self._conversation is None or not (
                is_resting or (self._is_tty and self._unread_lines[0])
            ):
                return
            line = self._unread_lines.popleft()
            self._interrupts = 0
            if line is None:
                self._exit_with(0)
            else:
                self._send(line)

    def _send(self, text: str) -> None:
        line = text.strip()
        if not line:
            if self.conversation.has_unfinished_turn:
                self.conversation.resume()
        elif line.startswith("/"):
            self._spawn(commands.run_command(self, line))
        elif line.startswith("!"):
            self._track_task(self._shell_commands.start(self.conversation, line[1:].strip()))
        else:
            self.conversation.submit(
                self._shell_commands.attach_outputs(self._attachments.build_item(text))
            )

    # --- what is shown -------------------------------------------------------------------

    def _write(self, text: str) -> None:
        try:
            self._out.write(text)
            self._out.flush()
        except (BrokenPipeError, ValueError):
            self._exit_with(141)

    def _print_prompt(self) -> None:
        self._write(f"[{self.host.mode}] > " if self._out.isatty() else "")

    def _print_new_blocks(self) -> None:
        """Print what is new; a block that still grows, as far as it is."""
        if self._conversation is None:
            return
        view = self._conversation.view
        was_busy = self._printed_chars or self._printed_blocks < len(view.blocks)
        while self._printed_blocks < len(view.blocks):
            block = view.blocks[self._printed_blocks]
            is_growing = self._printed_blocks == view.stream_index
            if isinstance(block, ToolCallBlock) and not (
                block.is_finished or block.state == "background"
            ):
                break
            if isinstance(block, ShellBlock) and not block.is_finished:
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
                return f"You{' (meanwhile)' if steered else ''}: {text}\n"
            case ThinkingBlock(text=text, is_continuation=tight):
                return "" if tight else f"Thinking: {' '.join(text.split())[:200]}\n"
            case ToolCallBlock():
                return self._format_call(block)
            case ShellBlock(exit_code=code):
                ended = f"exit code {code}\n" if code else ""
                return f"{render.plain_text(block)}\n{ended}"
            case NoteBlock(text=text, tone=tone):
                return f"{'Error: ' if tone == 'error' else ''}{text}\n"
        return ""

    def _format_call(self, call: ToolCallBlock) -> str:
        line = f"Tool {render.format_call_title(call)}: {call.state}"
        if diffs.is_diff(call.display):
            return f"{line}\n{call.display}\n"
        first = (call.reason if call.state == "denied" else call.result).strip().split("\n")
        more = f" (and {len(first) - 1} more lines)" if len(first) > 1 else ""
        return f"{line}. {first[0][:200]}{more}\n"

    def show_message(self, text: str, tone: Tone = "plain") -> None:
        self._write(replace_controls(redact_for_display(text)) + "\n")

    # --- questions -----------------------------------------------------------------------

    async def _ask_approval(self, approval: PendingApproval) -> bool | str:
        return await self.conversation.ask_approval(approval)

    async def _ask_user(self, question: ModelQuestion) -> str | None:
        return await self.conversation.ask_user(question)

    def _show_first_question(self) -> None:
        questions = self.conversation.questions
        first = questions[0] if questions else None
        if first is not None and first is not self._shown_question:
            self._shown_question = first
            self._spawn(self._ask_question(first))

    async def _ask_question(self, question: PendingQuestion) -> None:
        if question.model_question is not None:
            options = [
                ChoiceOption(label, label, about)
                for label, about in question.model_question.choices
            ]
            self._write(replace_controls(question.model_question.text) + "\n")
            answer = await self.choose("Answer", options) if options else await self._ask_line("> ")
            self.conversation.answer(question, answer)
            return
        approval = question.approval
        assert approval is not None, "a question is one or the other"
        asked = f"May it {approval.summary.strip('[]')}? {approval.reason}"
        self._write(f"\n{sanitize.escape_invisible(asked)}\n")
        preview = await self.host.preview_call(approval.call)
        self._write(sanitize.escape_invisible(preview or approval.call.raw, keep="\n\t") + "\n")
        options = [ChoiceOption("y", "yes")]
        if approval.rules and not question.is_child:
            options.append(
                ChoiceOption("a", sanitize.escape_invisible(f"always: {', '.join(approval.rules)}"))
            )
        options += [ChoiceOption("n", "no, and say why"), ChoiceOption("s", "stop")]
        match await self.choose("Allow", options):
            case "y":
                self.conversation.approve(question)
            case "a":
                self.conversation.approve(question, always=True)
            case "n":
                self.conversation.deny(question, (await self._ask_line("Why not? ") or "").strip())
            case _:
                self.conversation.interrupt()

    async def _ask_line(self, question: str) -> str | None:
        self._write(question)
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
            about = f" ({option.description})" if option.description else ""
            self._write(replace_controls(f"  {number} {option.label}{about}\n"))
        while True:
            line = await self._ask_line(
                f"{title}{'' if title[-1] == '?' else ','} 1 to {len(options)}: "
            )
            given = (line or "").strip()
            if not given:
                return None
            if given.isdigit() and 1 <= int(given) <= len(options):
                return options[int(given) - 1].value
            for option in options:
                if given.lower() in (option.value.lower(), option.label.lower()):
                    return option.value

    async def rewind(self) -> None:
        turns = self.host.list_turns()
        options = [
            ChoiceOption(one.turn_id, one.text[:80] or "(went on)") for one in reversed(turns)
        ]
        chosen = await self.choose("Go back to before", options)
        if chosen is None:
            return
        changes = await self.host.preview_rewind(chosen)
        for change in changes:
            self.show_message(f"  {change.path} would be {change.kind}")
        files = bool(changes) and (
            await self.choose(
                "Files", [ChoiceOption("y", "files too"), ChoiceOption("n", "only the words")]
            )
            == "y"
        )

        async def opening() -> Driver:
            driver, words = await self.host.rewind(chosen, files=files)
            self.show_message(words or "went back")
            return driver

        await self.switch_session(opening)

    async def switch_session(self, open_driver: Callable[[], Awaitable[Driver]]) -> None:
        driver = self.conversation.driver
        before = driver.session_id if len(driver.history) else None
        await self.conversation.aclose()
        try:
            driver = await open_driver()
        except (TreadleError, OSError) as error:
            self.show_message(str(error), "error")
            driver = await self.host.open(self.callbacks, resume=before)
        self._attach_driver(driver)

    def set_prompt_text(self, text: str) -> None:
        self.show_message(f"the text was: {text}")

    def change_theme(self, name: str) -> None:
        self.show_message("there are no colours here")

    def show_mode(self) -> None:
        self.show_message(f"{self.host.mode}: {commands.MODE_DESCRIPTIONS.get(self.host.mode, '')}")

    def quit(self) -> None:
        self._exit_with(0)


class _LineReader:
    """Lines from standard input, without a thread and without making it non-blocking: the terminal
    is shared with what we write to."""

    def __init__(self, on_line: Callable[[str | None], None]) -> None:
        self._on_line = on_line
        self._buffer = b""
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        try:
            self._loop.add_reader(0, self._read)
        except PermissionError:  # a file: it can be read to its end at once
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
