"""The full screen: the conversation, what goes on, the prompt, one line of facts.

Puts the parts together; what keys mean is said by app.py, above. What is seen is the conversation's
view; frames are made of it at most thirty times a second, however fast events come.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Static

from treadle.apps.tui import commands, trust_dialog
from treadle.apps.tui.conversation import Conversation, PendingQuestion
from treadle.apps.tui.custom_commands import CustomCommand, find_custom_commands
from treadle.apps.tui.host import Host, HostCallbacks, ModelQuestion, TurnLine
from treadle.apps.tui.input import completion
from treadle.apps.tui.input.attachments import Attachments
from treadle.apps.tui.input.keyboard import KeyboardDriver
from treadle.apps.tui.input.prompt_history import PromptHistory
from treadle.apps.tui.input.shell_commands import ShellCommands
from treadle.apps.tui.options import TerminalOptions
from treadle.apps.tui.render.markdown import wrap_text
from treadle.apps.tui.render.palette import Palette, select_palette
from treadle.apps.tui.render.status_area import StatusArea, render_completions
from treadle.apps.tui.render.themes import build_themes
from treadle.apps.tui.state.blocks import NoteBlock, Tone
from treadle.apps.tui.state.choice_option import ChoiceOption
from treadle.apps.tui.widgets.choices import Choices
from treadle.apps.tui.widgets.dialogs import Dialogs, render_file_changes
from treadle.apps.tui.widgets.lines import LinesWidget
from treadle.apps.tui.widgets.prompt import PromptWidget
from treadle.apps.tui.widgets.text_entry import TextEntry
from treadle.apps.tui.widgets.transcript import TranscriptWidget
from treadle.core.errors import TreadleError
from treadle.core.loop.driver import Driver
from treadle.core.steps import PendingApproval

FRAME_SECONDS = 1 / 30
RESIZE_SETTLE_SECONDS = 0.15  # seconds after which a terminal has taken its new size
SMALL_SCREEN_ROWS = 15  # rows
CLOSE_TIMEOUT = 1.5  # seconds that closing may take


class FullScreen(App[int]):
    """Implements commands.Face and dialogs.Stage."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: transparent; }
    #foot { height: auto; max-height: 90vh; }
    #rule { height: 1; }
    #row { height: auto; }
    #sign { width: 2; height: 1; }
    #row PromptWidget { width: 1fr; }
    #status { height: 1; }
    """

    def __init__(self, host: Host, options: TerminalOptions | None = None) -> None:
        self.options = options or TerminalOptions()
        self.palette: Palette = select_palette(self.options.theme)
        super().__init__(driver_class=KeyboardDriver)
        self.host = host
        self.custom_commands: Sequence[CustomCommand] = ()
        self.dialogs = Dialogs(self)
        self.callbacks = HostCallbacks(
            self._ask_approval, self._ask_user, lambda text: self.show_message(text, "faint")
        )
        self._conversation: Conversation | None = None
        self._is_frame_due = False
        self.status_area = StatusArea(host)
        self.shell_commands = ShellCommands(host)
        self._shown_question: PendingQuestion | None = None
        self._question_task: asyncio.Task[None] | None = None
        self.resume_hint = ""  # how to come back, once there is something to come back to
        self.frame_count = 0
        for theme in build_themes():
            self.register_theme(theme)
        self.theme = f"treadle-{self.palette.name}"

    # --- the screen ----------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        history = PromptHistory(self.options.history_file)
        attachments = Attachments(self.host.folder, self.host.list_added_folders)
        prompt = PromptWidget(history, attachments, self._list_command_names, id="prompt")
        yield TranscriptWidget(self.palette, id="transcript")
        with Vertical(id="foot"):
            yield LinesWidget(id="tray")
            yield LinesWidget(id="rule")
            yield LinesWidget(id="offers")
            with Horizontal(id="row"):
                yield Static(Text("› ", self.palette.accent), id="sign")
                yield prompt
        yield LinesWidget(id="status")

    @property
    def prompt(self) -> PromptWidget:
        return self.query_one("#prompt", PromptWidget)

    @property
    def transcript(self) -> TranscriptWidget:
        return self.query_one("#transcript", TranscriptWidget)

    @property
    def conversation(self) -> Conversation:
        assert self._conversation is not None, "there is a session by now"
        return self._conversation

    def _list_command_names(self) -> list[tuple[str, str]]:
        known = [(one.name, one.summary) for one in commands.list_commands(self.host)]
        return known + [(one.name, one.summary) for one in self.custom_commands]

    # --- beginning and end ---------------------------------------------------------------

    async def on_mount(self) -> None:
        self.query_one("#status", LinesWidget).styles.height = 1
        self.prompt.focus()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            try:
                loop.add_signal_handler(number, self._terminate)
            except (ValueError, RuntimeError):
                pass  # not in the main thread: whoever started us listens
        self.app_resume_signal.subscribe(self, lambda _: self.redraw())
        self.set_interval(0.25, self._tick)
        self._spawn(self._start_up())

    async def _start_up(self) -> None:
        """Trust, a session, and the first words."""
        self.status_area.branch = await completion.read_git_branch(self.host.folder)
        try:
            goes_on = await trust_dialog.ask_at_start(self.host, self.choose)
        except (TreadleError, OSError) as error:
            self._exit_with(2, f"treadle: {error}")
            return
        if not goes_on:
            self._exit_with(0)
            return
        if not await self._open_session(
            lambda: self.host.open(self.callbacks, resume=self.options.resume)
        ):
            return
        if self.options.prompt:
            self._send(self.options.prompt)
        self.prompt.project_files = await completion.list_project_files(self.host.folder)

    async def _open_session(self, open_driver: Callable[[], Awaitable[Driver]]) -> bool:
        try:
            driver = await open_driver()
        except (TreadleError, OSError) as error:
            self._exit_with(2, f"treadle: {error}")
            return False
        self._attach_driver(driver)
        return True

    def _attach_driver(self, driver: Driver) -> None:
        self._conversation = Conversation(driver, self.schedule_frame)
        folders = [self.host.folder] if self.host.is_trusted else []
        self.custom_commands, problems = find_custom_commands(
            [*folders, Path.home()], home=Path.home()
        )
        conversation = self.conversation
        if self.host.is_trust_declined and not self.host.is_trusted:
            conversation.show_block(NoteBlock(trust_dialog.DECLINED_NOTE))
        for note in (*self.host.notes, *problems):
            conversation.show_block(NoteBlock(note))
        if conversation.has_unfinished_turn:
            conversation.show_note(
                "the last turn was not finished: enter goes on with it", "warning"
            )
        if not len(driver.history):
            self.status_area.hint = "/help lists commands and keys"
        conversation.start()
        self.transcript.reset(conversation.view)
        self.schedule_frame()

    async def switch_session(self, open_driver: Callable[[], Awaitable[Driver]]) -> None:
        """Leave the session for another; if that fails, come back."""
        conversation, driver = self.conversation, self.conversation.driver
        before = driver.session_id if len(driver.history) else None
        self._conversation = None  # nothing is shown or said while there is no session
        await conversation.aclose()
        try:
            driver = await open_driver()
        except (TreadleError, OSError) as error:
            if await self._open_session(lambda: self.host.open(self.callbacks, resume=before)):
                self.show_message(str(error), "error")
            return
        self._attach_driver(driver)

    def quit(self) -> None:
        self._spawn(self._close(0))

    def _terminate(self) -> None:
        self._spawn(self._close(143))

    async def _close(self, code: int, message: str = "") -> None:
        """Stop what runs, write everything down, leave. Never takes long."""
        conversation, self._conversation = self._conversation, None
        if conversation is not None and len(conversation.driver.history):
            session = conversation.driver.session_id
            self.resume_hint = f"treadle --resume {session} goes on with this session"
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT):
                if conversation is not None:
                    await conversation.aclose()
                await self.host.aclose()
        except TimeoutError:
            pass  # the journal is only appended to: it is whole as it is
        finally:
            self._exit_with(code, message)

    def _exit_with(self, code: int, message: str = "") -> None:
        self.exit(code, return_code=code, message=message or None)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.run_worker(coroutine, exit_on_error=True)

    # --- frames --------------------------------------------------------------------------

    def schedule_frame(self) -> None:
        """Something can be seen that could not before."""
        if not self._is_frame_due and self.is_running:
            self._is_frame_due = True
            self.set_timer(FRAME_SECONDS, self._draw_frame)

    def _draw_frame(self) -> None:
        self._is_frame_due = False
        if self._conversation is None or not self.screen_stack:
            return
        self.frame_count += 1
        view = self._conversation.view
        if self.status_area.update_clock(view.is_busy):
            self._notify_user("done")
        self.transcript.update_view(view)
        self._show_first_question()
        self._draw_status_area(self._conversation)

    def _tick(self) -> None:
        self.status_area.tick += 1
        if self._conversation is not None and self._conversation.view.is_busy:
            self.status_area.update_clock(True)
            self._draw_status_area(self._conversation)

    def _draw_status_area(self, conversation: Conversation) -> None:
        width = self.size.width
        above, status = self.status_area.render(
            conversation.view,
            self.palette,
            (width, self.size.height),
            is_scrolled=not self.transcript.is_following,
        )
        # On a tiny screen a question needs the room, and says all that there is to say.
        is_crowded = self.dialogs.is_open and self.size.height < SMALL_SCREEN_ROWS
        self.query_one("#tray", LinesWidget).set_lines([] if is_crowded else above)
        self.query_one("#rule", LinesWidget).set_lines([Text("─" * width, self.palette.faint)])
        self.query_one("#status", LinesWidget).set_lines([status])

    def on_resize(self) -> None:
        self.schedule_frame()
        self.call_later(self._on_completions_changed)  # once the size is the new one
        # What was on its way to the old size may have landed on the new one.
        self.set_timer(RESIZE_SETTLE_SECONDS, self.redraw)

    def redraw(self) -> None:
        self.transcript.restyle(self.palette)
        self.screen.refresh(layout=True)

    # --- questions -----------------------------------------------------------------------

    async def _ask_approval(self, approval: PendingApproval) -> bool | str:
        return await self.conversation.ask_approval(approval)

    async def _ask_user(self, question: ModelQuestion) -> str | None:
        return await self.conversation.ask_user(question)

    def _show_first_question(self) -> None:
        """The first open question is asked; one that is gone is taken down."""
        questions = self.conversation.questions
        first = questions[0] if questions else None
        if first is self._shown_question:
            return
        if self._question_task is not None:
            self._question_task.cancel()
        self._shown_question = first
        if first is not None:
            self._notify_user("waits for your answer")
            work = self.dialogs.ask_question(self.conversation, first)
            self._question_task = asyncio.get_running_loop().create_task(work)

    async def show_dialog(self, *widgets: Widget) -> None:
        self.query_one("#row").display = False
        self.query_one("#offers").display = False
        await self.query_one("#foot").mount_all(widgets)
        widgets[-1].focus()

    async def hide_dialog(self, *widgets: Widget) -> None:
        for widget in widgets:
            if widget.is_attached:
                await widget.remove()
        if self.is_running:
            self.query_one("#row").display = True
            self.query_one("#offers").display = True
            self.prompt.focus()

    @on(Choices.Selected)
    def _on_choice_selected(self, event: Choices.Selected) -> None:
        self.dialogs.submit_answer(event.value)

    @on(Choices.Highlighted)
    def _on_choice_highlighted(self, event: Choices.Highlighted) -> None:
        self.dialogs.highlight_choice(event.value)

    @on(TextEntry.Submitted)
    def _on_text_submitted(self, event: TextEntry.Submitted) -> None:
        self.dialogs.submit_answer(event.text)

    async def choose(
        self,
        title: str,
        options: Sequence[ChoiceOption],
        *,
        filterable: bool = False,
        message: str = "",
        current: str = "",
    ) -> str | None:
        faint = Text(message, self.palette.faint)
        return await self.dialogs.choose(
            title,
            options,
            filterable=filterable,
            current=current,
            body=(lambda width: [*wrap_text(faint, width), Text()]) if message else None,
        )

    async def rewind(self) -> None:
        answer = await self.dialogs.choose_rewind(self._preview_rewind, self._spawn)
        if answer is None:
            return
        turn, with_files = answer
        done: list[str] = []

        async def opening() -> Driver:
            driver, words = await self.host.rewind(turn.turn_id, files=with_files)
            done.append(words)
            return driver

        await self.switch_session(opening)
        self.prompt.set_text(turn.text)
        self.show_message("went back" + (f"; files: {done[0]}" if done and done[0] else ""))

    async def _preview_rewind(self, widget: Choices, turn: TurnLine) -> None:
        try:
            changes = await self.host.preview_rewind(turn.turn_id) if turn.has_files else []
        except TreadleError:
            changes = []
        if widget.is_attached:
            lines = render_file_changes(changes, self.palette) or [
                Text("no file would change", self.palette.faint)
            ]
            widget.set_body(lambda width: lines[:12])

    # --- what is typed -------------------------------------------------------------------

    @on(PromptWidget.Submitted)
    def _on_submitted(self, event: PromptWidget.Submitted) -> None:
        if self._conversation is not None:
            self._send(event.text)
        else:
            self.prompt.set_text(event.text)

    def _send(self, text: str) -> None:
        self.status_area.hint = ""
        self.transcript.action_bottom()
        line = text.strip()
        if not line:
            if self.conversation.has_unfinished_turn:
                self.conversation.resume()
        elif line.startswith("/") and not line.startswith(("//", "/ ")):
            self.run_command(line)
        elif line.startswith("!") and len(line) > 1:
            self.shell_commands.start(self.conversation, line[1:].strip())
        else:
            item = self.prompt.attachments.build_item(text.rstrip())
            self.conversation.submit(self.shell_commands.attach_outputs(item))
            self.prompt.attachments.clear()
        self.schedule_frame()

    @on(PromptWidget.CompletionsChanged)
    def _on_completions_changed(self) -> None:
        most = min(completion.MAX_SHOWN, max(self.size.height // 3, 1))
        lines = render_completions(
            self.prompt.completions,
            self.prompt.selected_completion,
            self.size.width,
            most,
            self.palette,
        )
        self.query_one("#offers", LinesWidget).set_lines(lines)

    @on(PromptWidget.HintRaised)
    def _on_hint_raised(self, event: PromptWidget.HintRaised) -> None:
        self.status_area.hint = event.text
        self.schedule_frame()

    def run_command(self, line: str) -> None:
        self._spawn(commands.run_command(self, line))

    def show_message(self, text: str, tone: Tone = "plain") -> None:
        if self._conversation is not None:
            self._conversation.show_block(NoteBlock(text, tone))

    def set_prompt_text(self, text: str) -> None:
        self.prompt.set_text(text)

    def change_theme(self, name: str) -> None:
        self.palette = select_palette(name)
        self.theme = f"treadle-{self.palette.name}"
        self.query_one("#sign", Static).update(Text("› ", self.palette.accent))
        self.transcript.restyle(self.palette)
        if self.palette.name != name:
            self.show_message("NO_COLOR is set: there are no colours here", "warning")
        self.schedule_frame()

    def show_mode(self) -> None:
        self.status_area.hint = (
            f"{self.host.mode}: {commands.MODE_DESCRIPTIONS.get(self.host.mode, '')}"
        )
        self.schedule_frame()

    def _notify_user(self, message: str) -> None:
        """A bell, and a word for terminals that show one, when nobody may be looking."""
        self.bell()
        if not self.app_focus and self._driver is not None and not self.is_headless:
            self._driver.write(f"\x1b]9;treadle: {message}\x07")
