"""Base of the two frontends: opening, switching and closing sessions, input, questions, rewind.

Subclassed by screen.py (full screen) and plain.py (line by line); commands.py uses it. Draws
nothing itself. Not an ABC: Textual's App has a metaclass of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from treadle.apps.conversation import trust_dialog
from treadle.apps.conversation.attachments import Attachments
from treadle.apps.conversation.child_views import ChildWork
from treadle.apps.conversation.choice_option import ChoiceOption
from treadle.apps.conversation.conversation import Conversation, PendingQuestion
from treadle.apps.conversation.custom_commands import begins_with_path, find_host_commands
from treadle.apps.conversation.first_screen import FirstScreen, build_first_screen
from treadle.apps.conversation.host import (
    FileChange,
    Host,
    HostCallbacks,
    ModelQuestion,
    PlanAnswer,
    TurnLine,
)
from treadle.apps.conversation.limits import LimitReport
from treadle.apps.conversation.shell_commands import ShellCommands
from treadle.apps.conversation.state.blocks import NoteBlock, Tone
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.conversation.undo import describe_changes
from treadle.apps.settings.command_files import CustomCommand
from treadle.apps.tui import agent_commands, questions, queue_menu
from treadle.apps.tui.dialog_lock import DialogLock
from treadle.apps.tui.options import TerminalOptions
from treadle.core.errors import TreadleError
from treadle.core.loop.driver import Driver
from treadle.core.steps import Approval, Denial, PendingApproval
from treadle.core.transcript.items import UserItem
from treadle.lib.text.text import format_age, plural

CLOSE_TIMEOUT = 1.5  # seconds
EXIT_USAGE = 2
COMMAND_WORDS = ("exit", "quit", "help")  # alone, they are commands and no message
MEMORY_HINT = "# begins a message here; /remember TEXT adds a line to AGENTS.md or CLAUDE.md"

REWIND_SCOPES = (
    ChoiceOption("both", "Conversation and files", key="b"),
    ChoiceOption("conversation", "Conversation only", key="c"),
)


def rewind_scopes(changes: Sequence[FileChange]) -> tuple[ChoiceOption, ...]:
    """With a choice for the files that the agent and then the user changed, by their names. What
    changes no file of the user comes first."""
    both = [change for change in changes if change.author == "both"]
    may_be_users = any(change.is_doubtful for change in changes)
    scopes = REWIND_SCOPES[::-1] if both or may_be_users else REWIND_SCOPES
    if not both:
        return scopes
    label = f"Conversation and files, and {_name_users_changes(both)}"
    return (*scopes, ChoiceOption("all", label, key="a"))


def restore_options(action: str, changes: Sequence[FileChange]) -> list[ChoiceOption]:
    """Which files an undo or redo restores: values are authors, separated by spaces. The first one
    changes nothing: files of the user are concerned. If there are no others, it counts as done."""
    both = [change for change in changes if change.author == "both"]
    doubtful = [change for change in changes if change.is_doubtful]
    agent = [change for change in changes if change.author == "agent"]
    options = [ChoiceOption("", "Change nothing", key="n")]
    if not (doubtful or agent):
        label = f"Change nothing; the next /{action.lower()} goes on to another turn"
        options = [ChoiceOption("agent", label, key="n")]
    if doubtful:
        label = _capitalize(describe_changes([*agent, *doubtful]))
        options.append(ChoiceOption("agent unknown", label, key="y"))
    if agent:
        label = f"Only what the agent changed: {describe_changes(agent)}"
        options.append(ChoiceOption("agent", label, key="o"))
    if both:
        label = _capitalize(_name_users_changes(both))
        options.append(ChoiceOption("agent unknown both", label, key="a"))
    return options


def _name_users_changes(changes: Sequence[FileChange]) -> str:
    contain = "it contains" if len(changes) == 1 else "they contain"
    return f"{describe_changes(changes)} too ({contain} your changes)"


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]


def format_resume_hint(conversation: Conversation | None) -> str:
    """How to continue the session after the program has ended; "" if it is empty."""
    if conversation is None or not len(conversation.driver.history):
        return ""
    return f"to continue this session: treadle --resume {conversation.driver.session_id}"


class Frontend:
    """Shows the session to the user. `key_descriptions` are its keys, for `/help`."""

    key_descriptions: Sequence[tuple[str, str]] = ()

    def __init__(
        self,
        host: Host,
        options: TerminalOptions,
        question_view: questions.QuestionView,
        dialog_lock: DialogLock,
    ) -> None:
        self.host = host
        self.options = options
        self.custom_commands: Sequence[CustomCommand] = ()
        self.callbacks = HostCallbacks(
            self._ask_approval, self._ask_user, lambda text: self.show_message(text, "faint")
        )
        self.attachments = Attachments(host.folder, host.list_added_folders)
        self.shell_commands = ShellCommands(host)
        self._question_view = question_view
        self.dialog_lock = dialog_lock
        self._conversation: Conversation | None = None
        self._shown_question: PendingQuestion | None = None
        self._question_task: asyncio.Task[None] | None = None
        self._is_question_hidden = False
        self._is_editor_open = False
        self.first_screen: FirstScreen | None = None
        # came while no session was open: shown in the next one, or printed at the end
        self.unshown_messages: list[str] = []

    @property
    def conversation(self) -> Conversation:
        assert self._conversation is not None, "a session is open"
        return self._conversation

    # --- for the frontends to fill in ----------------------------------------------------

    def show_message(self, text: str, tone: Tone = "plain") -> None:
        """Show lines to the user; they are not part of the session."""
        raise NotImplementedError

    async def choose(
        self,
        title: str,
        options: Sequence[ChoiceOption],
        *,
        filterable: bool = False,
        message: str = "",
        current: str = "",
        by_user: bool = True,
    ) -> str | None:
        """The value of the chosen option, or None if the user cancels. `message` is shown above
        the options; `current` is the value to start at; `by_user`: the user has just opened it."""
        raise NotImplementedError

    def run_command(self, line: str) -> None:
        """Run a slash command."""
        raise NotImplementedError

    def _is_command(self, name: str) -> bool:
        """Whether there is a slash command of this name."""
        raise NotImplementedError

    def set_prompt_text(self, text: str, *, is_selected: bool = False) -> None:
        """`is_selected`: what the user types next replaces the text."""
        raise NotImplementedError

    def change_theme(self, name: str) -> None:
        raise NotImplementedError

    def show_mode(self) -> None:
        raise NotImplementedError

    def show_hint(self, text: str) -> None:
        """Show a line until something else happens; "" removes it."""

    async def show_panel(self, title: str, text: str, note: str) -> None:
        """Show Markdown until the user closes it; it is not part of the session."""
        self.show_message(f"{title}\n{text}\n{note}")

    async def run_in_terminal(self, *argv: str) -> bool:
        """Run a program in the terminal, in place of this one; False if that is not possible."""
        return False

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
            command = find_editor(self.host.folder)
            with self._release_terminal():
                try:  # Textual takes the screen back only if nothing is raised
                    return await edit_text(text, command, self.host.folder), ""
                except (EditorError, asyncio.CancelledError) as error:
                    problem = error
            raise problem
        except EditorError as error:
            return text, str(error)
        finally:
            self._is_editor_open = False

    def apply_settings(self) -> None:
        """The settings of the user have changed."""

    def quit(self) -> None:
        raise NotImplementedError

    def _on_change(self) -> None:
        """The view has changed."""
        raise NotImplementedError

    def _on_session_attached(self, conversation: Conversation, *, is_shown: bool) -> None:
        """Another session is open."""
        raise NotImplementedError

    def _exit_with(self, code: int, message: str = "") -> None:
        raise NotImplementedError

    def _track_task(self, task: asyncio.Task[None]) -> None:
        """A task that the frontend may want to wait for."""

    def _notify_user(self, message: str) -> None:
        """Something needs attention; the user may be looking at another window."""

    async def choose_with_preview(
        self,
        title: str,
        options: Sequence[ChoiceOption],
        preview: Callable[[str], Awaitable[Sequence[str]]],
    ) -> str | None:
        """A choice that shows lines about the marked option, where that is possible."""
        return await self.choose(title, options, filterable=True)

    async def show_agents(self) -> None:
        """Show the agents at work, then those that can be started."""
        self.show_message(agent_commands.format_agents(self.conversation.children, self.host))

    def watch_agent(self, work: ChildWork | None) -> str:
        """Show what an agent does from now on; None: no more. Returns a message."""
        return "ctrl+b shows the agents; enter watches one"

    async def _choose_turn(
        self, turns: Mapping[str, TurnLine], options: Sequence[ChoiceOption]
    ) -> str | None:
        return await self.choose("Rewind to before this message", options, filterable=True)

    async def _choose_for_files(
        self, title: str, changes: Sequence[FileChange], options: Sequence[ChoiceOption]
    ) -> str | None:
        """A choice below a list of files."""
        lines = [f"{change.sign} {change.path}{change.note}" for change in changes]
        return await self.choose(title, options, message="\n".join(lines))

    # --- sessions ------------------------------------------------------------------------

    async def _start_up(self) -> bool:
        """Ask for trust, open the session, send the first message; False if it exits."""
        try:
            if not await trust_dialog.ask_at_start(self.host, self.choose):
                self._exit_with(0)
                return False
        except (TreadleError, OSError) as error:
            self._exit_with(EXIT_USAGE, f"treadle: {error}")
            return False
        resume = self.options.resume
        if self.options.picks_session:
            resume = await self._pick_first_session()
        if not await self._open_session(resume):
            return False
        if self.options.prompt:
            self._send(self.options.prompt)
        return True

    async def _pick_first_session(self) -> str | None:
        from treadle.apps.tui.session_picker import NO_SESSION, list_session_options, pick_session

        options = list_session_options(self.host)
        if not options:
            self.unshown_messages.append(NO_SESSION)
            return None
        title = "Resume a session (esc starts a new one)"
        return await pick_session(self, options, title)

    async def _open_session(self, resume: str | None) -> bool:
        try:
            driver = await self.host.open(self.callbacks, resume=resume)
        except (TreadleError, OSError) as error:
            self._exit_with(EXIT_USAGE, f"treadle: {error}")
            return False
        self._attach_driver(driver)
        return True

    def _attach_driver(
        self, driver: Driver, *, has_notes: bool = True, view: ViewState | None = None
    ) -> None:
        """Show a session; `view` is what the user sees of it already."""
        self.custom_commands, problems = find_host_commands(self.host)
        conversation = Conversation(
            driver, self._on_change, self.edit_messages, view, self.host.allow_for_session
        )
        if "budget" in self.host.abilities:
            driver.watch(LimitReport(self.host.list_limits, conversation.show_note))
        if has_notes and self.host.is_trust_declined and not self.host.is_trusted:
            conversation.show_block(NoteBlock(trust_dialog.DECLINED_NOTE))
        for note in (*self.host.notes, *problems) if has_notes else ():
            conversation.show_block(NoteBlock(note))
        unshown, self.unshown_messages = self.unshown_messages, []
        for text in unshown:
            conversation.show_block(NoteBlock(text))
        if conversation.has_unfinished_turn:
            unfinished = "the last turn is not finished; press enter to continue it"
            conversation.show_note(unfinished, "warning")
        self._conversation = conversation
        conversation.start()
        self._on_session_attached(conversation, is_shown=view is not None)

    async def _load_first_screen(self, conversation: Conversation) -> bool:
        """Set `first_screen`; False if that is not possible, or another session is open."""
        session_id = conversation.driver.session_id
        try:
            loaded = await asyncio.to_thread(build_first_screen, self.host, session_id)
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

    async def reopen_session(
        self, open_driver: Callable[[], Awaitable[Driver]], *, has_notes: bool = True
    ) -> bool:
        """The same for the same session, whose messages and notes stay on the screen."""
        return await self.switch_session(open_driver, has_notes=has_notes, keeps_view=True)

    async def switch_session(
        self,
        open_driver: Callable[[], Awaitable[Driver]],
        *,
        has_notes: bool = True,
        keeps_view: bool = False,
    ) -> bool:
        """Close the session and open another one. If that fails, show the error, reopen the first
        session and return False. Without `has_notes` the user has seen the notes of the session."""
        conversation, driver = self.conversation, self.conversation.driver
        previous = driver.session_id if len(driver.history) else None
        self._conversation = None  # no input and no drawing without a session
        await conversation.aclose()
        try:
            driver = await open_driver()
        except (TreadleError, OSError) as error:
            if await self._open_session(previous):
                self.show_message(str(error), "error")
            return False
        keeps_view = keeps_view and not conversation.view.is_busy
        view = conversation.view if keeps_view else None
        self._attach_driver(driver, has_notes=has_notes, view=view)
        return True

    async def _close_session(self, conversation: Conversation | None) -> None:
        task = self._question_task
        if task is not None and task is not asyncio.current_task():
            task.cancel()  # an answer would come too late
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                if conversation is not None:
                    await conversation.aclose()
                await self.host.aclose()
        except TimeoutError:
            pass  # the journal is append-only: it is valid at any point

    # --- input ---------------------------------------------------------------------------

    def _send(self, text: str) -> None:
        """Send a message, or run a `/command` or a `!command`. An empty line continues an
        unfinished turn; a word of COMMAND_WORDS is a command; `//`, `/ ` and a single `!` begin a
        message."""
        line = text.strip()
        if line in ("1", "2", "3") and self.resume_listed(int(line)):
            return
        if not line:
            if self.conversation.has_unfinished_turn:
                self.conversation.resume()
        elif line in COMMAND_WORDS:
            self.run_command(f"/{line}")
        elif line.startswith("/") and not self._is_path(line):
            self.run_command(line)
        elif line.startswith("!") and len(line) > 1:
            self._track_task(self.shell_commands.start(self.conversation, line[1:].strip()))
        else:
            self.first_screen = None
            item = self.attachments.build_item(text.rstrip())
            self.conversation.submit(self.shell_commands.attach_outputs(item))
            self.attachments.clear()
            if line.startswith("# ") and "\n" not in line:
                self.show_message(MEMORY_HINT)

    def _is_path(self, line: str) -> bool:
        return begins_with_path(line, self._is_command)

    def edit_messages(self, items: Sequence[UserItem]) -> None:
        """Put messages that were queued back into the prompt."""
        self.set_prompt_text("\n".join(self.attachments.restore(item) for item in items))

    async def edit_queue(self) -> None:
        """Let the user edit, move or remove queued messages."""
        await queue_menu.edit_queue(self)

    def toggle_vim_keys(self) -> str:
        """Turn the vim keys of the prompt on or off; a message about it."""
        return "vim keys work only on the full screen"

    # --- questions -----------------------------------------------------------------------

    async def _ask_approval(self, approval: PendingApproval) -> Approval | Denial | None:
        return await self.conversation.ask_approval(approval)

    async def _ask_user(self, question: ModelQuestion) -> str | PlanAnswer | None:
        return await self.conversation.ask_user(question)

    def _show_first_question(self) -> None:
        """Ask the first open question; one that is no longer open is taken down."""
        open_questions = self.conversation.questions
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

    # --- undo, redo, rewind --------------------------------------------------------------

    async def undo(self, path: str = "") -> None:
        named = [path] if path else []
        changes = await self.host.preview_undo(named)
        unnamed = [change for change in changes if change.path != path]
        include = await self._choose_files("Undo", unnamed)
        if include is not None:
            self.show_message(await self.host.undo([*named, *include]))

    async def redo(self, path: str = "") -> None:
        named = [path] if path else []
        changes = await self.host.preview_redo(named)
        unnamed = [change for change in changes if change.path != path]
        include = await self._choose_files("Redo", unnamed)
        if include is not None:
            self.show_message(await self.host.redo([*named, *include]))

    async def _choose_files(self, action: str, changes: Sequence[FileChange]) -> list[str] | None:
        """The files to restore beside those that only the agent changed; asks if there may be
        some. None: the user changed their mind."""
        asked = [one for one in changes if one.is_doubtful or one.author == "both"]
        if not asked:
            return []
        title = f"{action}: some of these changes are yours or may be yours"
        chosen = await self._choose_for_files(title, changes, restore_options(action, changes))
        authors = (chosen or "").split()
        return [change.path for change in asked if change.author in authors] if authors else None

    async def rewind(self) -> None:
        turns = {turn.turn_id: turn for turn in reversed(self.host.list_turns())}
        if not turns:
            self.show_message("there is no turn to rewind to")
            return
        now = time.time()
        options = []
        for turn in turns.values():
            label = " ".join(turn.text.split())[:200] or "(continued without a message)"
            options.append(ChoiceOption(turn.turn_id, label, format_age(now - turn.time)))
        chosen = await self._choose_turn(turns, options)
        if chosen is None:
            return
        changes = await self._preview_rewind(turns[chosen])
        doubtful = [change.path for change in changes if change.is_doubtful]
        restored = [change for change in changes if change.is_doubtful or change.author == "agent"]
        both = [change.path for change in changes if change.author == "both"]
        scope: str | None = "conversation"
        if restored or both:
            title = f"{plural(len(restored), 'file')} would change"
            scope = await self._choose_for_files(title, changes, rewind_scopes(changes))
        if scope is not None:
            included = [*doubtful, *both] if scope == "all" else doubtful
            await self._rewind_to(turns[chosen], with_files=scope in ("both", "all"), also=included)

    async def _rewind_to(self, turn: TurnLine, *, with_files: bool, also: Sequence[str]) -> None:
        summary = ""

        async def open_driver() -> Driver:
            nonlocal summary
            driver, summary = await self.host.rewind(turn.turn_id, files=with_files, include=also)
            return driver

        if await self.switch_session(open_driver):
            self.set_prompt_text(turn.text, is_selected=True)
            files = f"; files: {summary}" if summary else ""
            self.show_message(f"rewound to before turn {turn.number}{files}")

    async def _preview_rewind(self, turn: TurnLine) -> list[FileChange]:
        try:
            return await self.host.preview_rewind(turn.turn_id) if turn.has_files else []
        except TreadleError:
            return []
