"""Base of the two frontends: opening and closing sessions, input, commands and their questions.

Subclassed by screen.py (full screen) and plain.py (line by line). Draws nothing itself. Not an ABC:
Textual's App has a metaclass of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from treadle.apps.console.exit_codes import IO_ERROR, USAGE_ERROR, exit_code_for
from treadle.apps.conversation.attachments import Attachments
from treadle.apps.conversation.block_text import format_table
from treadle.apps.conversation.commands import sessions, table, trust
from treadle.apps.conversation.commands.answers import (
    CommandAnswer,
    Question,
    ScreenChange,
    ask_questions,
    catch_errors,
)
from treadle.apps.conversation.commands.expansion import begins_with_path
from treadle.apps.conversation.commands.shell import ShellCommands
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.first_screen import FirstScreen, build_first_screen
from treadle.apps.conversation.open_questions import PendingQuestion
from treadle.apps.conversation.session.callbacks import HostCallbacks
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.state.blocks import NoteBlock
from treadle.apps.conversation.state.markdown_stream import split_markdown
from treadle.apps.tui import questions
from treadle.apps.tui.dialog_lock import DialogLock
from treadle.apps.tui.options import TerminalOptions
from treadle.core.errors import TreadleError
from treadle.core.transcript.items import UserItem

CLOSE_TIMEOUT = 1.5  # seconds
COMMAND_WORDS = ("exit", "quit", "help")  # alone, they are commands and no message
NO_SESSION = "there is no session in this folder yet; this is a new one"


def format_resume_hint(conversation: Conversation | None, program: str) -> str:
    """How to continue the session after the program has ended; "" if it is empty."""
    if conversation is None or not len(conversation.driver.history):
        return ""
    return f"to continue this session: {program} --resume {conversation.driver.session_id}"


class Frontend(HostCallbacks):
    """Shows the session to the user. `key_descriptions` are its keys, for `/help`."""

    key_descriptions: Sequence[tuple[str, str]] = ()

    def __init__(
        self,
        session: HostedSession,
        options: TerminalOptions,
        question_view: questions.QuestionView,
        dialog_lock: DialogLock,
    ) -> None:
        self.session = session
        self.options = options
        self.attachments = Attachments(session.folder, session.list_added_folders)
        self.shell_commands = ShellCommands(session)
        self._question_view = question_view
        self.dialog_lock = dialog_lock
        self._shown_question: PendingQuestion | None = None
        self._question_task: asyncio.Task[None] | None = None
        self._is_question_hidden = False
        self._is_editor_open = False
        self.first_screen: FirstScreen | None = None
        # came while no session was open: shown in the next one, or printed at the end
        self.unshown_messages: list[str] = []

    @property
    def _conversation(self) -> Conversation | None:
        return self.session.conversation

    @property
    def conversation(self) -> Conversation:
        assert self._conversation is not None, "a session is open"
        return self._conversation

    # --- for the frontends to fill in ----------------------------------------------------

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it beside the work of the frontend, which shows its errors."""
        raise NotImplementedError

    def set_prompt_text(self, text: str, *, is_selected: bool = False) -> None:
        """`is_selected`: what the user types next replaces the text."""
        raise NotImplementedError

    def change_theme(self, name: str) -> None:
        raise NotImplementedError

    @contextmanager
    def _release_terminal(self) -> Iterator[None]:
        """Another program may use the terminal meanwhile."""
        yield

    async def run_editor(self, text: str) -> tuple[str, str]:
        """The text, edited in the user's editor, and why it could not be edited. The agent works
        on meanwhile."""
        from treadle.apps.tui.input.external_editor import EditorError, edit_text, find_editor

        problem: EditorError | asyncio.CancelledError | None = None
        self._is_editor_open = True
        try:
            command = find_editor(self.session.folder)
            with self._release_terminal():
                try:  # Textual takes the screen back only if nothing is raised
                    return await edit_text(text, command, self.session.folder), ""
                except (EditorError, asyncio.CancelledError) as error:
                    problem = error
            raise problem
        except EditorError as error:
            return text, str(error)
        finally:
            self._is_editor_open = False

    def quit(self, message: str = "") -> None:
        raise NotImplementedError

    def _exit_with(self, code: int, message: str = "") -> None:
        raise NotImplementedError

    def _track_task(self, task: asyncio.Task[None]) -> None:
        """A task that the frontend may want to wait for."""

    def _notify_user(self, message: str) -> None:
        """Something needs attention; the user may be looking at another window."""

    # --- start and end -------------------------------------------------------------------

    async def _start_up(self) -> bool:
        """Ask for trust, open the session, send the first message; False if it exits."""
        try:
            answer = await ask_questions(trust.ask_at_start(self.session), self._ask)
        except (TreadleError, OSError) as error:
            answer = CommandAnswer(str(error), "error")
        if answer is None or answer.screen is not None:
            self._exit_with(0)
            return False
        if answer.tone == "error":
            self._exit_with(USAGE_ERROR, f"treadle: {answer.note}")
            return False
        resume = self.options.resume
        if self.options.picks_session:
            resume = await self._pick_first_session()
        try:
            await self.session.open(self, resume=resume)
        except (TreadleError, OSError) as error:
            code = IO_ERROR if isinstance(error, OSError) else exit_code_for(error)
            self._exit_with(code, f"treadle: {error}")
            return False
        if self.options.prompt:
            self._send(self.options.prompt)
        return True

    async def _pick_first_session(self) -> str | None:
        title = "Resume a session (esc starts a new one)"
        asked = sessions.ask_for_session(self.session, title)
        if asked is None:
            self.unshown_messages.append(NO_SESSION)
            return None
        assert asked.question is not None, "it asks for a session"
        # what is typed before the list can be read is for the prompt
        question = msgspec.structs.replace(asked.question, by_user=False)
        asked = msgspec.structs.replace(asked, question=question)
        answer = await ask_questions(asked, self._ask)
        return answer.screen.resume if answer is not None and answer.screen is not None else None

    def prepare_conversation(self, conversation: Conversation, notes: Sequence[str]) -> None:
        if notes and self.session.trust.is_declined and not self.session.trust.is_given:
            conversation.show_block(NoteBlock(trust.DECLINED_NOTE))
        unshown, self.unshown_messages = self.unshown_messages, []
        super().prepare_conversation(conversation, (*notes, *unshown))
        if conversation.has_unfinished_turn:
            unfinished = "the last turn is not finished; press enter to continue it"
            conversation.show_note(unfinished, "warning")

    async def _load_first_screen(self, conversation: Conversation) -> bool:
        """Set `first_screen`; False if that is not possible, or another session is open."""
        session_id = conversation.driver.session_id
        try:
            loaded = await asyncio.to_thread(build_first_screen, self.session, session_id)
        except (TreadleError, OSError):
            return False  # the work does not depend on it
        if conversation is self._conversation:
            self.first_screen = loaded
        return conversation is self._conversation

    def resume_listed(self, number: int) -> bool:
        """Continue a session of the first screen; False if it does not list one of this number."""
        listed = self.first_screen.sessions if self.first_screen is not None else ()
        if not 1 <= number <= len(listed):
            return False
        self.run_command(f"/resume {listed[number - 1].id}")
        return True

    async def _close_session(self, conversation: Conversation | None) -> None:
        task = self._question_task
        if task is not None and task is not asyncio.current_task():
            task.cancel()  # an answer would come too late
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                if conversation is not None:
                    await conversation.aclose()
                await self.session.aclose()
        except TimeoutError:
            pass  # the journal is append-only: it is valid at any point

    # --- input ---------------------------------------------------------------------------

    def _send(self, text: str, *, is_answer: bool = True) -> None:
        """Send a message, or run a `/command` or a `!command`. An empty line continues an
        unfinished turn; a word of COMMAND_WORDS is a command; `//`, `/ ` and a single `!` begin a
        message; `# TEXT` on one line adds to the memory file. `is_answer`: it may answer an open
        question of the model."""
        line = text.strip()
        if line in ("1", "2", "3") and self.resume_listed(int(line)):
            return
        if not line:
            if self.conversation.has_unfinished_turn:
                self.conversation.continue_turn()
        elif line in COMMAND_WORDS:
            self.run_command(f"/{line}")
        elif line.startswith("/") and not begins_with_path(line, self.list_summaries()):
            self.run_command(line)
        elif line.startswith("# ") and "\n" not in line:
            self.run_command(f"/remember {line[2:].strip()}")
        elif line.startswith("!") and len(line) > 1:
            self._track_task(self.shell_commands.start(line[1:].strip()))
        else:
            self.first_screen = None
            item = self.attachments.build_item(text.rstrip())
            sent = self.shell_commands.attach_outputs(item)
            self.conversation.submit(sent, is_answer=is_answer)
            self.attachments.clear()

    def list_summaries(self) -> dict[str, str]:
        """What each slash command does, by its name."""
        return dict(table.list_summaries(self.session))

    def return_messages(self, items: Sequence[UserItem]) -> None:
        """Put messages that were queued back into the prompt."""
        self.set_prompt_text("\n".join(self.attachments.restore(item) for item in items))

    # --- commands ------------------------------------------------------------------------

    def run_command(self, line: str) -> None:
        """Run a slash command."""
        self.start_task(self._run_command(line))

    async def _run_command(self, line: str) -> None:
        async with self.dialog_lock.sequence():
            answer = await table.run_command(self.session, line)
            while answer.screen is None or not await self.change_screen(answer.screen):
                if answer.is_markdown:
                    for block in split_markdown(answer.note):
                        self.conversation.show_block(block)
                elif answer.note:
                    self.show_message(answer.note, answer.tone)
                if answer.message is not None:
                    self.conversation.submit(answer.message)
                asked = await ask_questions(answer, self._ask)
                if answer.question is None or asked is None:
                    break
                answer = asked
        if not self.session.is_open and answer.tone == "error":
            self._exit_with(USAGE_ERROR, f"treadle: {answer.note}")

    async def change_screen(self, change: ScreenChange) -> bool:
        """Whether it shows all of the answer; otherwise its note follows."""
        match change.name:
            case "session":
                return await self._show_session(change)
            case "prompt":
                self.set_prompt_text(change.value, is_selected=True)
            case "theme":
                self.change_theme(change.value)
            case "help":
                parts = (format_table(change.rows), format_table(self.key_descriptions))
                self.show_message("\n\n".join(parts))
                return True
            case "export":
                from treadle.apps.pages.session_files import export_session

                exported = await catch_errors(export_session(self.session, change.value))
                self.show_message(exported.note, exported.tone)
                return True
            case "quit":
                self.quit(change.note)
        return False

    async def _show_session(self, change: ScreenChange) -> bool:
        session = self.session
        if change.folder:
            self.show_message("a session here keeps its folder; start treadle there", "warning")
            return True
        try:
            await session.switch(change.resume, fork=change.fork)
        except (TreadleError, OSError) as error:
            self.show_message(str(error), "error")
            return True
        return False

    async def _ask(self, question: Question) -> str | None:
        """The value of the chosen option, or None if the user cancels, or the question expires."""
        if question.default:
            return question.default
        if question.expires is None:
            return await self._question_view.choose(question)
        choosing = asyncio.ensure_future(self._question_view.choose(question))
        expiring = asyncio.ensure_future(question.expires())
        try:
            await asyncio.wait((choosing, expiring), return_when=asyncio.FIRST_COMPLETED)
            if choosing.done():
                return choosing.result()
            self.show_message(expiring.result())
            return None
        finally:
            choosing.cancel()
            expiring.cancel()

    # --- questions -----------------------------------------------------------------------

    def _show_first_question(self) -> None:
        """Ask the first open question; one that is no longer open is taken down."""
        open_questions = self.conversation.questions.waiting
        first = open_questions[0] if open_questions and not self._is_question_hidden else None
        if first is self._shown_question:
            return
        if self._question_task is not None and self._question_task is not asyncio.current_task():
            self._question_task.cancel()
        self._shown_question = first
        if first is not None:
            self._notify_user("needs your answer")
            asking = self._ask_question(self.conversation, first)
            self._question_task = asyncio.get_running_loop().create_task(asking)
            self._track_task(self._question_task)

    async def _ask_question(self, conversation: Conversation, question: PendingQuestion) -> None:
        async with self.dialog_lock.sequence():
            await questions.ask_question(self._question_view, conversation, question)
