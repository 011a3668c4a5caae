"""The full screen: transcript, activity, prompt and status line, as a Textual app.

Puts the widgets together; app.py adds the keys. Draws the conversation's view at most thirty times
a second, independent of the rate of events.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Static

from treadle.apps.conversation import completion
from treadle.apps.conversation.commands.table import list_summaries
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.session.session_permissions import describe_mode
from treadle.apps.conversation.state.blocks import NoteBlock, Tone
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.tui.dialog_lock import DialogLock
from treadle.apps.tui.frontend import Frontend, format_resume_hint
from treadle.apps.tui.input.key_guard import KeyGuard
from treadle.apps.tui.input.keyboard import KeyboardDriver
from treadle.apps.tui.input.prompt_history import PromptHistory
from treadle.apps.tui.options import TerminalOptions
from treadle.apps.tui.render.markdown import wrap_text
from treadle.apps.tui.render.palette import Palette, build_themes, select_palette
from treadle.apps.tui.render.render import render_first_screen
from treadle.apps.tui.render.status_area import StatusArea, render_completions
from treadle.apps.tui.terminal.terminal_screen import TerminalScreen
from treadle.apps.tui.widgets.choices import Choices
from treadle.apps.tui.widgets.dialogs import Dialogs
from treadle.apps.tui.widgets.lines import LinesWidget
from treadle.apps.tui.widgets.prompt import PromptWidget
from treadle.apps.tui.widgets.text_entry import TextEntry
from treadle.apps.tui.widgets.transcript import TranscriptWidget
from treadle.core.transcript.items import UserItem
from treadle.lib.git.repository import read_branch

FRAME_SECONDS = 1 / 30
RESIZE_SETTLE_SECONDS = 0.15  # until the terminal has its new size
SMALL_SCREEN_ROWS = 15
FOOTER_ROWS = 5  # of an empty prompt, with the lines around it
FOOTER_SHARE = 0.9  # of the screen: as in CSS


class FullScreen(TerminalScreen):
    """The frontend as a Textual app; also a dialogs.DialogHost."""

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = "#prompt"  # from the first key on, also one typed before the screen was there
    kind = "screen"
    CSS = """
    Screen { background: transparent; }
    #footer { height: auto; max-height: 90vh; }
    #separator { height: 1; }
    #prompt-row { height: auto; }
    #prompt-sign { width: 2; height: 1; }
    #prompt-row PromptWidget { width: 1fr; }
    #status { height: 1; }
    """

    def __init__(
        self,
        session: HostedSession,
        options: TerminalOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        options = options or TerminalOptions()
        self.palette: Palette = select_palette(options.theme)
        # The terminal's own colours; with NO_COLOR Textual draws black on black otherwise.
        App.__init__(self, driver_class=KeyboardDriver, ansi_color=True)
        self.clock = clock
        self.key_guard = KeyGuard()
        self.dialog_lock = DialogLock()
        self.dialogs = Dialogs(self, self.dialog_lock)
        self._dialog_widget: Widget | None = None  # the part of the open dialog that takes keys
        Frontend.__init__(self, session, options, self.dialogs, self.dialog_lock)
        self._is_frame_due = False
        self._seen_work: tuple[object, ...] = ()  # when the branch was read
        self.status_area = StatusArea(session)
        self.reserved_rows = 0  # that a subclass shows above the prompt
        self._find_watched: Callable[[], ViewState] | None = None
        self.init_terminal(options)
        self.resume_hint = ""  # printed after the screen is closed
        self.frame_count = 0
        for theme in build_themes():
            self.register_theme(theme)
        self.theme = f"treadle-{self.palette.name}"

    # --- widgets -------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        history = PromptHistory(self.options.history_file)
        yield TranscriptWidget(self.palette, id="transcript")
        yield LinesWidget(id="first-screen")
        with Vertical(id="footer"):
            yield LinesWidget(id="activity")
            yield LinesWidget(id="separator")
            yield LinesWidget(id="completions")
            yield LinesWidget(id="prompt-panel")
            yield LinesWidget(id="dialog-hint")
            with Horizontal(id="prompt-row"):
                yield Static(Text("› ", self.palette.accent), id="prompt-sign")
                yield PromptWidget(
                    history,
                    self.attachments,
                    lambda: list_summaries(self.session),
                    lambda: bool(self._conversation and self._conversation.view.queued_messages),
                )
        yield LinesWidget(id="status")

    @property
    def prompt(self) -> PromptWidget:
        return self.query_one("#prompt", PromptWidget)

    @property
    def transcript(self) -> TranscriptWidget:
        return self.query_one("#transcript", TranscriptWidget)

    # --- start and end -------------------------------------------------------------------

    async def on_mount(self) -> None:
        self.query_one("#status", LinesWidget).styles.height = 1
        self.prompt.focus()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            try:
                loop.add_signal_handler(number, self._terminate)
            except (ValueError, RuntimeError):
                pass  # not in the main thread: the caller handles signals
        self._spawn(self.set_up_terminal())
        self.app_resume_signal.subscribe(self, lambda _: self.redraw())
        self.set_interval(0.25, self._tick)
        self._spawn(self._start())

    async def _start(self) -> None:
        await self._read_branch()
        if await self._start_up():
            self.prompt.list_resources = self.session.servers.list_resources
            self.prompt.project_files = await completion.list_project_files(self.session.folder)

    async def _read_branch(self) -> None:
        branch = await asyncio.to_thread(read_branch, self.session.folder)
        if branch != self.status_area.branch:
            self.status_area.branch = branch
            self.schedule_frame()

    def _follow_branch(self, view: ViewState) -> None:
        """Read the branch again when a call or a command of the user has begun or ended."""
        work = (view.activity.kind, *view.open_calls, self.shell_commands.is_running)
        if work != self._seen_work:
            self._seen_work = work
            self._spawn(self._read_branch())

    def attach_conversation(self, conversation: Conversation, *, is_shown: bool) -> None:
        self.first_screen = self._find_watched = None
        self.status_area.turn_seconds = 0.0
        if not len(conversation.driver.history):
            self.status_area.hint = "/help lists commands and keys"
            self._spawn(self._show_first_screen(conversation))
        if not is_shown:
            self.transcript.reset(conversation.view)
        self.schedule_frame()

    async def _show_first_screen(self, conversation: Conversation) -> None:
        if await self._load_first_screen(conversation):
            self.schedule_frame()

    def _draw_first_screen(self, conversation: Conversation) -> None:
        """Shown until the first message; below a dialog there is no room for it."""
        lines: list[Text] = []
        if conversation.view.is_busy or len(conversation.driver.history):
            self.first_screen = None
        elif self.first_screen is not None and not self.dialogs.is_open:
            used = FOOTER_ROWS + self.reserved_rows + self._count_note_rows(conversation)
            size = self.size.width, self.size.height - used
            lines = render_first_screen(self.first_screen, self.session, size, self.palette)
        self.query_one("#first-screen", LinesWidget).set_lines(lines)

    def _count_note_rows(self, conversation: Conversation) -> int:
        """The rows of the transcript of a session without a message."""
        notes = range(len(conversation.view.blocks))
        return sum(len(self.transcript.block_strips(index)) for index in notes)

    def resume_listed(self, number: int) -> bool:
        return not self.dialogs.is_open and super().resume_listed(number)

    def quit(self) -> None:
        self._spawn(self._close(0))

    def _terminate(self) -> None:
        self._spawn(self._close(143))

    async def _close(self, code: int, message: str = "") -> None:
        """Interrupt the turn, write the log, exit; takes at most CLOSE_TIMEOUT."""
        conversation = self.session.detach()
        self.resume_hint = format_resume_hint(conversation)
        try:
            await self._close_session(conversation)
        finally:
            self._exit_with(code, message)

    def _exit_with(self, code: int, message: str = "") -> None:
        self.exit(code, return_code=code, message=message or None)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.run_worker(coroutine, exit_on_error=True)

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._spawn(work)

    # --- frames --------------------------------------------------------------------------

    def schedule_frame(self) -> None:
        """Draw soon; several calls make one frame."""
        if not self._is_frame_due and self.is_running:
            self._is_frame_due = True
            # Not `set_timer`: on a busy machine Textual may skip a timer that is late.
            loop = asyncio.get_running_loop()
            loop.call_later(FRAME_SECONDS, self.call_later, self._draw_frame)

    mark_changed = schedule_frame

    def _draw_frame(self) -> None:
        self._is_frame_due = False
        if self._conversation is None or not self.screen_stack:
            return
        self.frame_count += 1
        view = self._conversation.view
        if self.status_area.update_clock(view.is_busy):
            self._notify_user("done")
        self.transcript.update_view(view if self._find_watched is None else self._find_watched())
        self._draw_first_screen(self._conversation)
        self._follow_branch(view)
        self._show_first_question()
        is_waiting = bool(self._conversation.questions.waiting)
        self.terminal_status.update(is_busy=view.is_busy, is_waiting=is_waiting)
        self._draw_status_area(self._conversation)

    def watch_view(self, find_view: Callable[[], ViewState] | None) -> None:
        """Show another view in place of the session's, such as a child agent's; None: no more."""
        self._find_watched = find_view
        if self._conversation is None:
            return  # the session is being closed
        self.transcript.reset(self.conversation.view if find_view is None else find_view())
        self.schedule_frame()

    def _tick(self) -> None:
        self.status_area.tick += not self.is_motion_reduced
        self.update_dialog_focus()
        if self._conversation is not None and self._conversation.view.is_busy:
            self.status_area.update_clock(True)
            self._draw_status_area(self._conversation)

    def _draw_status_area(self, conversation: Conversation) -> None:
        width, is_scrolled = self.size.width, not self.transcript.is_following
        self.status_area.is_dialog_open = self._dialog_widget is not None
        activity, status = self.status_area.render(
            conversation.view, self.palette, self.size, is_scrolled
        )
        activity = activity[max(len(activity) - self._count_activity_rows(), 0) :]
        self.query_one("#activity", LinesWidget).set_lines(activity)
        separator = Text("─" * width, self.palette.faint)
        self.query_one("#separator", LinesWidget).set_lines([separator])
        self.query_one("#status", LinesWidget).set_lines([status])

    def _count_activity_rows(self) -> int:
        """The rows for the activity: on a small screen a dialog needs them."""
        if not self.dialogs.is_open:
            return self.size.height
        if self.size.height < SMALL_SCREEN_ROWS:
            return 0
        return max(int(self.size.height * FOOTER_SHARE) - 1 - self.count_dialog_rows(), 0)

    def count_dialog_rows(self) -> int:
        dialog = self._dialog_widget
        return dialog.count_rows(self.size) if isinstance(dialog, Choices) else 0

    def on_resize(self) -> None:
        self.schedule_frame()
        self.call_later(self._on_completions_changed)  # when the new size is set
        # Output for the old size may have been drawn at the new one.
        self.set_timer(RESIZE_SETTLE_SECONDS, self.redraw)

    def redraw(self) -> None:
        self.transcript.restyle(self.palette)
        self.screen.refresh(layout=True)

    # --- dialogs -------------------------------------------------------------------------

    async def show_dialog(self, *widgets: Widget, by_user: bool, is_touched: bool) -> None:
        if isinstance(widgets[-1], Choices):  # also in the first frame
            widgets[-1].is_waiting = not (by_user or is_touched)
        await self.query_one("#footer").mount_all(widgets, before="#completions")
        self._dialog_widget = widgets[-1]
        self.key_guard.open_dialog(by_user=by_user, is_touched=is_touched)
        self.schedule_frame()
        if by_user:
            self.screen.set_focus(widgets[-1])
        self.update_dialog_focus()
        self.call_after_refresh(self._set_dialog_drawn, widgets[-1])

    def _set_dialog_drawn(self, widget: Widget) -> None:
        if widget is self._dialog_widget:
            self.key_guard.set_drawn(self.clock())
            self.update_dialog_focus()

    async def hide_dialog(self, *widgets: Widget) -> None:
        self._dialog_widget = None
        if self.is_running:
            self.query_one("#prompt-row").display = True
            self.query_one("#dialog-hint", LinesWidget).set_lines([])
            self.focus_input()  # a removed widget would give its focus to the transcript
        for widget in widgets:
            if widget.is_attached:
                await widget.remove()
        if self.is_running:
            self.schedule_frame()

    def update_dialog_focus(self) -> None:
        """Give the keys to the dialog or to the prompt, and show which of them has them."""
        dialog = self._dialog_widget
        if dialog is None or not dialog.is_attached:
            return
        now, draft = self.clock(), self.prompt.text
        is_ready = self.key_guard.is_ready(now, has_draft=bool(draft))
        is_typing = not is_ready and (bool(draft) or self.key_guard.is_typing(now))
        self.query_one("#prompt-row").display = bool(draft) or is_typing
        is_browsing = self.transcript.has_focus
        if not is_browsing:
            self.screen.set_focus(self.prompt if is_typing else dialog)
        hint = ""
        if is_browsing:
            hint = "esc returns to the question"
        elif draft and not is_ready:
            sending = "enter sends it, " if self._conversation is not None else ""
            what = "select an answer" if isinstance(dialog, Choices) else "go to the question"
            hint = f"your message is not sent: {sending}esc clears it, ↑ ↓ {what}"
        elif draft and isinstance(dialog, Choices):
            hint = "your message is not sent; enter takes the marked answer"
        lines = wrap_text(Text(hint, self.palette.warning), self.size.width) if hint else []
        self.query_one("#dialog-hint", LinesWidget).set_lines(lines)
        if isinstance(dialog, Choices):
            prompt_rows = self.prompt.wrapped_document.height if draft or is_typing else 0
            is_waiting, rows = is_browsing or not is_ready, len(lines) + prompt_rows
            dialog.set_waiting(is_waiting, rows, shows_hint=not hint or not is_waiting)

    def focus_input(self) -> None:
        """Focus what takes keys: the dialog if it does, else the prompt."""
        if self._dialog_widget is None:
            self.screen.set_focus(self.prompt)
        else:
            self.screen.set_focus(self._dialog_widget)
            self.update_dialog_focus()

    @on(Choices.Clicked)
    def _on_choices_clicked(self) -> None:
        self.key_guard.touch()
        self.update_dialog_focus()

    @on(Choices.Selected)
    def _on_choice_selected(self, event: Choices.Selected) -> None:
        self.dialogs.submit_answer(event.value)

    @on(Choices.Highlighted)
    def _on_choice_highlighted(self, event: Choices.Highlighted) -> None:
        self.dialogs.highlight_choice(event.value)

    @on(TextEntry.Submitted)
    def _on_text_submitted(self, event: TextEntry.Submitted) -> None:
        self.dialogs.submit_answer(event.text)

    # --- input ---------------------------------------------------------------------------

    @on(PromptWidget.Submitted)
    def _on_submitted(self, event: PromptWidget.Submitted) -> None:
        if self._conversation is not None:
            self._send(event.text)
        else:
            self.prompt.set_text(event.text)

    def _send(self, text: str) -> None:
        self.status_area.hint = ""
        self.transcript.action_bottom()
        super()._send(text)
        self.schedule_frame()

    @on(PromptWidget.CompletionsChanged)
    def _on_completions_changed(self) -> None:
        found, selected = self.prompt.completions, self.prompt.selected_completion
        rows = min(completion.MAX_SHOWN, max(self.size.height // 3, 1))
        lines = render_completions(found, selected, self.size.width, rows, self.palette)
        self.query_one("#completions", LinesWidget).set_lines(lines)

    @on(PromptWidget.HintRaised)
    def _on_hint_raised(self, event: PromptWidget.HintRaised) -> None:
        self.status_area.hint = event.text
        self.schedule_frame()

    def show_message(self, text: str, tone: Tone = "plain") -> None:
        if self._conversation is not None:
            self._conversation.show_block(NoteBlock(text, tone))
        else:  # between two sessions, or while the last one is closed
            self.unshown_messages.append(text)

    def set_prompt_text(self, text: str, *, is_selected: bool = False) -> None:
        self.prompt.set_text(text)
        if is_selected and text:
            self.prompt.select_all()
            self.status_area.hint = "typing replaces the message, → keeps it to edit"

    def return_messages(self, items: Sequence[UserItem]) -> None:
        draft = self.prompt.find_draft()
        self.prompt.prompt_history.stop_browsing()
        super().return_messages(items)
        if draft.strip():
            self.prompt.set_text(f"{self.prompt.text}\n{draft}")

    @on(PromptWidget.QueueRequested)
    def _on_queue_requested(self) -> None:
        """Put the last queued message back into the prompt."""
        if self._conversation is None:
            return
        queued = self._conversation.list_queued()
        if queued and self._conversation.withdraw(queued[-1]):
            self.return_messages(queued[-1:])

    def show_palette(self) -> None:
        self.query_one("#prompt-sign", Static).update(Text("› ", self.palette.accent))
        self.transcript.restyle(self.palette)
        self.schedule_frame()

    def show_hint(self, text: str) -> None:
        self.status_area.hint = text
        self.schedule_frame()

    def show_mode(self) -> None:
        self.status_area.hint = describe_mode(self.session.permissions.mode)
        self.schedule_frame()
