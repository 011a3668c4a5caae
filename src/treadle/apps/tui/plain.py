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
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from textwrap import indent
from typing import Any, TextIO

from treadle.apps.assembly.redaction import redact_for_display
from treadle.apps.conversation.block_text import replace_controls
from treadle.apps.conversation.child_views import ChildViews
from treadle.apps.conversation.commands.answers import ScreenChange
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.first_screen import format_first_screen
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.session.session_permissions import describe_mode
from treadle.apps.conversation.state.blocks import Tone
from treadle.apps.tui.dialog_lock import DialogLock
from treadle.apps.tui.frontend import Frontend, format_resume_hint
from treadle.apps.tui.input.line_reader import LineReader
from treadle.apps.tui.options import TerminalOptions
from treadle.apps.tui.plain_questions import PlainQuestions
from treadle.apps.tui.render.plain_transcript import PlainTranscript, wrap_words
from treadle.apps.tui.terminal.hang_up import EXIT_TERMINATED, end_with_terminal

BEGUN_MESSAGE = (
    "You began a message before this question: {}\n"
    "The next line that you type continues it and does not answer the question.\n"
)
MESSAGE_SENT = "your message was sent; the question is still open"


def run_plain(session: HostedSession, options: TerminalOptions) -> int:
    async def run() -> int:
        frontend = PlainFrontend(session, options)
        end_with_terminal(lambda: frontend._exit_with(EXIT_TERMINATED))
        return await frontend.run()

    return asyncio.run(run())


class PlainFrontend(Frontend):
    """The frontend on two streams; also a plain_questions.LineTerminal."""

    kind = "plain"
    key_descriptions = (
        ("enter", "send the line; an empty line continues an unfinished turn"),
        ("@ ! # /", "a file, a shell command, a line to remember, a slash command"),
        ("ctrl+c", "interrupt the turn or discard the line; twice: quit"),
        ("ctrl+d", "quit"),
    )

    def __init__(
        self, session: HostedSession, options: TerminalOptions, out: TextIO | None = None
    ) -> None:
        lock = DialogLock()
        super().__init__(session, options, PlainQuestions(self, lock), lock)
        self._out = out or sys.stdout
        self._unread_lines: deque[str | None] = deque()  # None is the end of input
        self._line_future: asyncio.Future[str | None] | None = None
        self._is_menu_open = False  # which the user opened: the reply is printed after it
        self._is_tty = os.isatty(0)
        self._transcript = PlainTranscript(self.write, self._width)
        self._is_started = False
        self._has_prompt = False  # the last line of the output is the prompt
        self._early_lines: list[str] = []  # typed before the first question: messages
        self._draft = ""  # the line that was being typed when the question was asked
        self._watched: str | None = None  # the key of a child agent
        self._watched_output: list[str] = []  # to be printed
        self._watched_transcript = PlainTranscript(
            self._watched_output.append, lambda: 0, prints_growing=False
        )
        self._closing: asyncio.Event = asyncio.Event()
        self._exit_code = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._interrupts = 0
        self._is_quit_announced = False
        self._reader: LineReader | None = None

    # --- start and end -------------------------------------------------------------------

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_sigint)
        reader = self._reader = LineReader(self._on_line)
        try:
            if await self._start_up():
                if self._is_tty:  # an enter from before the session is shown continues no turn
                    reader.read_waiting()
                    lines = [line for line in self._unread_lines if line is None or line.strip()]
                    self._unread_lines = deque(lines)
                self._is_started = True
                self._unread_lines.extendleft(reversed(self._early_lines))
                self._process_lines()
                self._print_prompt_if_idle()
                await self._closing.wait()
        finally:
            reader.close()
            for task in list(self._tasks):
                task.cancel()
            conversation = self._conversation
            await self._close_session(conversation)
            self._transcript.print_messages()
            if self._out.isatty():
                hint = format_resume_hint(conversation, self.options.program)
                self.write(f"{hint}\n" if hint else "\n")
        return self._exit_code

    def attach_conversation(self, conversation: Conversation, *, is_shown: bool) -> None:
        if not is_shown:
            self._transcript.reset()
        self.first_screen = self._watched = None
        self.mark_changed()
        if self._out.isatty() and not is_shown and not len(conversation.driver.history):
            self.start_task(self._print_first_screen(conversation))

    async def _print_first_screen(self, conversation: Conversation) -> None:
        is_loaded = await self._load_first_screen(conversation)
        if conversation.view.is_busy or len(conversation.driver.history):
            self.first_screen = None  # the work has begun
        elif is_loaded and self.first_screen is not None:
            self.show_message(format_first_screen(self.first_screen, self.session))

    def _exit_with(self, code: int, message: str = "") -> None:
        if message:
            print(message, file=sys.stderr)
        self._exit_code = code
        self._closing.set()

    def quit(self, message: str = "") -> None:
        self._exit_with(0, message)

    def _on_sigint(self) -> None:
        if self._is_editor_open:
            return  # it is for the editor
        self._interrupts += 1
        conversation = self._conversation
        if conversation is None:
            self._exit_with(0)
        elif self._interrupts > 1 and (self._is_quit_announced or not self._is_tty):
            self._exit_with(0 if self._is_quit_announced else 130)
        elif conversation.driver.stop_aside():
            self._interrupts = 0
        elif conversation.view.is_busy and not conversation.driver.is_interrupted:
            self._is_quit_announced = False
            conversation.interrupt()
        elif self.shell_commands.stop():
            self._interrupts = 0
        elif self._line_future is not None and not self._line_future.done():
            self._interrupts = 0
            self.write("\n")
            self._line_future.set_result(None)  # closes the menu
        else:  # the terminal has discarded what was typed
            self._is_quit_announced = True
            self.show_message("press ctrl+c again to quit")
            self._print_prompt_if_idle()

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._track_task(asyncio.get_running_loop().create_task(work))

    def _track_task(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.show_message(f"{type(task.exception()).__name__}: {task.exception()}", "error")
        self._process_lines()
        self._print_prompt_if_idle()

    # --- input ---------------------------------------------------------------------------

    def _on_line(self, line: str | None) -> None:
        self._has_prompt = self._has_prompt and line is None  # the end of input ends no line
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
            if conversation is None or not self._is_started:
                return
            is_resting = (
                conversation.is_idle and not conversation.questions.waiting and not self._tasks
            )
            if not is_resting and not (self._is_tty and self._unread_lines[0]):
                return
            line = self._unread_lines.popleft()
            self._interrupts = 0
            if line is None:
                self._exit_with(0)
            else:
                self._send_line(line)

    def _send_line(self, line: str, *, is_answer: bool = True) -> None:
        if self._is_tty and not line.startswith(("/", "!")):
            self._transcript.typed_messages.append(line.strip())
        self._send(line, is_answer=is_answer)
        self._print_prompt_if_idle()

    # --- output --------------------------------------------------------------------------

    def write(self, text: str) -> None:
        if not text:
            return
        if self._has_prompt:
            self._has_prompt, text = False, "\n" + text.removeprefix("\n")
        try:
            self._out.write(text)
            self._out.flush()
        except (OSError, ValueError):  # the pipe or the terminal is closed
            self._exit_with(141)

    @property
    def is_in_reply(self) -> bool:
        return self._transcript.is_in_reply

    def write_wrapped(self, text: str) -> None:
        self.write(wrap_words(replace_controls(text), self._width()))

    def _width(self) -> int:
        """Of the terminal; 0 if there is none."""
        try:
            return os.get_terminal_size(self._out.fileno()).columns
        except (OSError, ValueError):
            return 0

    def _print_prompt_if_idle(self) -> None:
        """Print the prompt, unless it is there, or the agent works, a question is open, or the user
        quits."""
        conversation = self._conversation
        if conversation is None or not self._is_started or not self._out.isatty():
            return
        if self._closing.is_set():
            return
        is_complete = self._transcript.is_complete(conversation.view)
        is_working = conversation.view.is_busy or not conversation.is_idle or self._tasks
        if is_complete and not is_working and not self._has_prompt:
            self.write(f"[{self.session.permissions.mode}] > ")
            self._has_prompt = True

    def mark_changed(self) -> None:
        """Print what is new, of the growing block as much as there is."""
        if self._conversation is None:
            return
        if not self._is_menu_open:
            self._transcript.print_news(self._conversation.view)
            if self._watched is not None:
                self._print_watched(self._watched, self._conversation.children)
        self._show_first_question()
        self._print_prompt_if_idle()
        if self._unread_lines:
            asyncio.get_running_loop().call_soon(self._process_lines)

    async def change_screen(self, change: ScreenChange) -> bool:
        if change.name != "watch":
            return await super().change_screen(change)
        self._watched = change.value or None
        self._watched_transcript.reset()
        if change.value:
            asyncio.get_running_loop().call_soon(self.mark_changed)  # what there is already
        return False

    def _print_watched(self, key: str, children: ChildViews) -> None:
        """Print what is new of the watched agent, between two paragraphs of the reply."""
        work = children.get(key)
        if work is None or self._transcript.is_in_reply:
            return
        self._watched_transcript.print_news(work.view)
        self.write(indent("".join(self._watched_output), f"[{work.number}] "))
        self._watched_output.clear()
        if not work.is_running:
            self._watched = None
            self.show_message(f"{work.number} {work.title}  {work.describe(children.clock())}")

    def show_message(self, text: str, tone: Tone = "plain") -> None:
        self._transcript.print_message(redact_for_display(text) + "\n")

    def set_prompt_text(self, text: str, *, is_selected: bool = False) -> None:
        self.show_message(f"not sent; to send it, type it again: {text}")

    def change_theme(self, name: str) -> None:
        self.show_message("plain mode uses no colours")

    def show_mode(self) -> None:
        self.show_message(describe_mode(self.session.permissions.mode))

    # --- questions -----------------------------------------------------------------------

    @contextmanager
    def _release_terminal(self) -> Iterator[None]:
        """Nothing is read or printed meanwhile."""
        assert self._reader is not None, "questions are asked while it runs"
        self._is_menu_open = True
        self._reader.pause()
        try:
            yield
        finally:
            self._reader.resume()
            self._is_menu_open = False

    async def run_editor(self, text: str) -> tuple[str, str]:
        if not self._is_tty:
            return text, "your editor needs a terminal: the text is unchanged"
        return await super().run_editor(text)

    async def ask_line(
        self, prompt: str, by_user: bool, is_answer: Callable[[str], bool]
    ) -> str | None:
        while True:
            if self._is_tty and not by_user:
                self._take_early_lines()
            begun = BEGUN_MESSAGE.format(self._draft) if self._draft else ""
            self.write(replace_controls(begun + prompt))
            loop = asyncio.get_running_loop()
            self._line_future, self._is_menu_open = loop.create_future(), by_user
            self._process_lines()
            try:
                line = await self._line_future
            finally:
                self._line_future, self._is_menu_open = None, False
                loop.call_soon(self.mark_changed)
            draft, self._draft = self._draft, ""
            if line is None or not draft:
                return line
            # A line that was begun before the question never answers it.
            if is_answer(line.removeprefix(draft)):
                self.show_message(f"neither sent nor taken as an answer: {line}")
            elif self._conversation is None:
                self._early_lines.append(line)
            else:
                self._send_line(line, is_answer=False)
                self.show_message(MESSAGE_SENT)

    def _take_early_lines(self) -> None:
        """Lines that were typed before the question was there are messages, not answers."""
        assert self._reader is not None, "questions are asked while it runs"
        self._draft = self._reader.read_available()
        early = [line for line in self._unread_lines if line is not None and line.strip()]
        if any(line is None for line in self._unread_lines):
            return  # the end of input: these lines are all that will come
        self._unread_lines.clear()
        if self._conversation is None:
            self._early_lines += early
            return
        for line in early:
            self._send_line(line, is_answer=False)

    def take_other_line(self, line: str, count: int, by_user: bool) -> bool:
        """A line that names no option: the answer to a question of the model, else a message to the
        agent, if it works."""
        conversation = self._conversation
        if conversation is not None and conversation.questions.takes_text and not by_user:
            asked = conversation.questions.waiting[0]
            self._send_line(line)
            return asked not in conversation.questions.waiting
        if self._is_tty and conversation is not None and conversation.view.is_busy:
            self._send_line(line)
            self.show_message(MESSAGE_SENT)
        else:
            self.show_message(f"answer with a number from 1 to {count}")
        return False
