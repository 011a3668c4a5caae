"""The full screen: transcript, activity, prompt and status line, as a Textual app.

Puts the widgets together; prompt_screen.py adds what the prompt does, app.py the keys. Draws the
conversation's view at most thirty times a second, independent of the rate of events.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from rich.console import RenderableType
from rich.text import Text
from textual import on
from textual._compositor import ChopsUpdate, CompositorUpdate
from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from treadle.apps.conversation.commands.table import list_summaries
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.session.session_permissions import describe_mode
from treadle.apps.conversation.state.blocks import NoteBlock, Tone
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.tui.dialog_lock import DialogLock
from treadle.apps.tui.footer import Footer
from treadle.apps.tui.frontend import Frontend, format_resume_hint
from treadle.apps.tui.input.key_map import KeyMap
from treadle.apps.tui.input.keyboard import KeyboardDriver
from treadle.apps.tui.input.prompt_history import PromptHistory
from treadle.apps.tui.options import TerminalOptions
from treadle.apps.tui.render.palette import Palette, build_themes, select_palette
from treadle.apps.tui.render.render import render_first_screen
from treadle.apps.tui.render.status_area import StatusArea
from treadle.apps.tui.render.status_command import StatusCommand
from treadle.apps.tui.terminal.hang_up import EXIT_TERMINATED, end_with_terminal
from treadle.apps.tui.terminal.painter import FramePainter, PaintedFrame
from treadle.apps.tui.terminal.terminal_screen import TerminalScreen
from treadle.apps.tui.widgets.choices import Choices
from treadle.apps.tui.widgets.dialogs import Dialogs
from treadle.apps.tui.widgets.lines import LinesWidget, UnscrolledColumn
from treadle.apps.tui.widgets.prompt import PromptWidget
from treadle.apps.tui.widgets.text_entry import TextEntry
from treadle.apps.tui.widgets.transcript import TranscriptWidget
from treadle.lib.git.repository import read_branch

FRAME_SECONDS = 1 / 30
RESIZE_SETTLE_SECONDS = 0.15  # until the terminal has its new size
FOOTER_ROWS = 5  # of an empty prompt, with the lines around it


class FullScreen(TerminalScreen):
    """The frontend as a Textual app; also a dialogs.DialogHost."""

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = "#prompt"  # from the first key on, also one typed before the screen was there
    kind = "screen"
    busy_frame_seconds = 1 / 12  # while a reply streams: a frame costs bytes on a slow link
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
        dialog_lock = DialogLock()
        self.dialogs = Dialogs(self, dialog_lock)
        Frontend.__init__(self, session, options, self.dialogs, dialog_lock)
        self.key_map = KeyMap(self.options.keys)
        self._is_frame_due = False
        self._seen_work: tuple[object, ...] = ()  # when the branch was read
        self.status_area = StatusArea(session)
        self._status_command = StatusCommand(
            session, self.start_task, self._show_own_status, self.show_hint
        )
        self.footer = Footer(self, self.dialogs, self.status_area, clock)
        self.reserved_rows = 0  # that a subclass shows above the prompt
        self._find_watched: Callable[[], ViewState] | None = None
        self.init_terminal(options)
        self.resume_hint = ""  # printed after the screen is closed
        self.frame_count = 0
        self._painter = FramePainter()
        for theme in build_themes():
            self.register_theme(theme)
        self.theme = f"treadle-{self.palette.name}"

    # --- widgets -------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        history = PromptHistory(self.options.history_file)
        yield LinesWidget(id="first-screen")
        yield TranscriptWidget(self.palette, id="transcript")
        with UnscrolledColumn(id="footer"):
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
                    self.session.folder,
                    lambda: bool(self._conversation and self._conversation.view.queued_messages),
                )
        yield LinesWidget(id="status")

    # --- start and end -------------------------------------------------------------------

    async def on_mount(self) -> None:
        self.query_one("#status", LinesWidget).styles.height = 1
        self.prompt.focus()
        if not self.is_headless:
            end_with_terminal(lambda: self.start_task(self._close(EXIT_TERMINATED)))
        self.start_task(self.set_up_terminal())
        self.app_resume_signal.subscribe(self, lambda _: self.action_redraw())
        self.set_interval(0.25, self._tick)
        self.start_task(self._start())

    async def _start(self) -> None:
        await self._read_branch()
        if await self._start_up():
            self.prompt.list_resources = self.session.servers.list_resources
            await self.prompt.list_files_again()

    async def _read_branch(self) -> None:
        branch = await asyncio.to_thread(read_branch, self.session.folder)
        if branch != self.status_area.branch:
            self.status_area.branch = branch
            self.schedule_frame()

    def attach_conversation(self, conversation: Conversation, *, is_shown: bool) -> None:
        self.first_screen = self._find_watched = None
        self.status_area.turn_seconds = 0.0
        if not len(conversation.driver.history):
            self.status_area.hint = "/help lists commands and keys"
            self.start_task(self._show_first_screen(conversation))
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
            used = FOOTER_ROWS + self.reserved_rows
            if self.transcript.display:
                notes = range(len(conversation.view.blocks))  # there is no message yet
                used += sum(len(self.transcript.viewport.render_strips(one)) for one in notes)
            size = self.size.width, self.size.height - used
            lines = render_first_screen(self.first_screen, self.session, size, self.palette)
        self.query_one("#first-screen", LinesWidget).set_lines(lines)

    def resume_listed(self, number: int) -> bool:
        return not self.dialogs.is_open and super().resume_listed(number)

    def quit(self, message: str = "") -> None:
        self.start_task(self._close(0, message))

    async def _close(self, code: int, message: str = "") -> None:
        """Interrupt the turn, write the log, exit; takes at most CLOSE_TIMEOUT."""
        conversation = self.session.detach()
        self.resume_hint = format_resume_hint(conversation, self.options.program)
        try:
            await self._close_session(conversation)
        finally:
            self._exit_with(code, message)

    def _exit_with(self, code: int, message: str = "") -> None:
        self.exit(code, return_code=code, message=message or None)

    def start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self.run_worker(work, exit_on_error=True)

    # --- frames --------------------------------------------------------------------------

    def schedule_frame(self) -> None:
        """Draw soon; several calls make one frame."""
        if not self._is_frame_due and self.is_running:
            self._is_frame_due = True
            # Not `set_timer`: on a busy machine Textual may skip a timer that is late.
            loop = asyncio.get_running_loop()
            is_busy = self._conversation is not None and self._conversation.view.is_busy
            seconds = self.busy_frame_seconds if is_busy else FRAME_SECONDS
            loop.call_later(seconds, self.call_later, self._draw_frame)

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
        work = (view.activity.kind, *view.open_calls, self.shell_commands.is_running)
        if work != self._seen_work:  # a call or a command of the user has begun or ended
            self._seen_work = work
            self.start_task(self._read_branch())
        self._show_first_question()
        is_waiting = bool(self._conversation.questions.waiting)
        name = self.session.saved.name
        self.terminal_status.update(name, is_busy=view.is_busy, is_waiting=is_waiting)
        self.footer.draw(self._conversation.view)

    def _show_own_status(self) -> None:
        self.status_area.own_lines = self._status_command.lines
        self.schedule_frame()

    def watch_view(self, find_view: Callable[[], ViewState] | None) -> None:
        """Show another view in place of the session's, such as a child agent's; None: no more."""
        self._find_watched = find_view
        if self._conversation is None:
            return  # the session is being closed
        self.transcript.reset(self.conversation.view if find_view is None else find_view())
        self.schedule_frame()

    def _tick(self) -> None:
        self.status_area.tick += not self.is_motion_reduced
        self.footer.update_focus()
        self._status_command.update()
        if self._conversation is not None and self._conversation.view.is_busy:
            self.status_area.update_clock(True)
            self.footer.draw(self._conversation.view)

    def on_resize(self) -> None:
        self.schedule_frame()
        # Output for the old size may have been drawn at the new one.
        self.set_timer(RESIZE_SETTLE_SECONDS, self.action_redraw)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Textual's frames are painted with fewer bytes; an inline screen knows no rows."""
        frame: Any = renderable
        is_own = self._driver is not None and not self._driver.is_inline
        if is_own and isinstance(frame, CompositorUpdate) and screen is self.screen:
            changes = frame if isinstance(frame, ChopsUpdate) else None
            frame = PaintedFrame(self._painter, screen, changes)
        super()._display(screen, frame)

    def action_redraw(self) -> None:
        self._painter.reset()
        self.transcript.viewport.restyle(self.palette)
        self.screen.refresh(layout=True)

    # --- dialogs -------------------------------------------------------------------------

    async def show_dialog(self, *widgets: Widget, by_user: bool, is_touched: bool) -> None:
        await self.footer.show_dialog(*widgets, by_user=by_user, is_touched=is_touched)

    async def hide_dialog(self, *widgets: Widget) -> None:
        await self.footer.hide_dialog(*widgets)

    @on(Choices.Clicked)
    def _on_choices_clicked(self) -> None:
        self.footer.key_guard.touch()
        self.footer.update_focus()

    @on(Choices.Selected)
    @on(TextEntry.Submitted)
    def _on_answered(self, event: Choices.Selected | TextEntry.Submitted) -> None:
        self.dialogs.submit_answer(event.value)

    @on(Choices.Highlighted)
    def _on_choice_highlighted(self, event: Choices.Highlighted) -> None:
        self.dialogs.highlight_choice(event.value)

    # --- messages ------------------------------------------------------------------------

    def show_message(self, text: str, tone: Tone = "plain") -> None:
        if self._conversation is not None:
            self._conversation.show_block(NoteBlock(text, tone))
        else:  # between two sessions, or while the last one is closed
            self.unshown_messages.append(text)

    def show_palette(self) -> None:
        self.query_one("#prompt-sign", Static).update(Text("› ", self.palette.accent))
        self.transcript.viewport.restyle(self.palette)
        self.schedule_frame()

    def show_hint(self, text: str) -> None:
        self.status_area.hint = text
        self.schedule_frame()

    def show_mode(self) -> None:
        self.show_hint(describe_mode(self.session.permissions.mode))
