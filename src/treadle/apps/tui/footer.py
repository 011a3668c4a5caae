"""The footer of the full screen: the activity, a dialog or the prompt, and the status line.

Draws these lines, and gives the keys to the dialog or to the prompt. Used by screen.py, which has
the handlers; widgets/dialogs.py has the dialogs.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Literal

from rich.text import Text
from textual.widget import Widget

from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.tui.render.markdown import wrap_text
from treadle.apps.tui.render.status_area import StatusArea
from treadle.apps.tui.terminal.terminal_screen import TerminalScreen
from treadle.apps.tui.widgets.choices import Choices
from treadle.apps.tui.widgets.dialogs import Dialogs
from treadle.apps.tui.widgets.lines import LinesWidget

SMALL_SCREEN_ROWS = 15
FOOTER_SHARE = 0.9  # of the screen: as in CSS
OPENING_SECONDS = 1.0  # a key waits at most so long for the dialog that it is for


class Footer:
    """`dialog` is the part of the open dialog that takes keys."""

    def __init__(
        self,
        app: TerminalScreen,
        dialogs: Dialogs,
        status_area: StatusArea,
        clock: Callable[[], float],
    ) -> None:
        self._app = app
        self._dialogs = dialogs
        self._status_area = status_area
        self.clock = clock
        self.key_guard = KeyGuard()
        self.dialog: Widget | None = None
        self._opening: asyncio.Event | None = None

    # --- drawing -------------------------------------------------------------------------

    def draw(self, view: ViewState) -> None:
        width, is_scrolled = self._app.size.width, self._app.transcript.viewport.is_scrolled
        self._status_area.is_dialog_open = self.dialog is not None
        activity, status = self._status_area.render(
            view, self._app.palette, self._app.size, is_scrolled
        )
        activity = activity[max(len(activity) - self._count_activity_rows(), 0) :]
        self._app.query_one("#activity", LinesWidget).set_lines(activity)
        separator = Text("─" * width, self._app.palette.faint)
        self._app.query_one("#separator", LinesWidget).set_lines([separator])
        self._app.query_one("#status", LinesWidget).set_lines(status)

    def _count_activity_rows(self) -> int:
        """The rows for the activity: on a small screen a dialog needs them."""
        if not self._dialogs.is_open:
            return self._app.size.height
        if self._app.size.height < SMALL_SCREEN_ROWS:
            return 0
        return max(int(self._app.size.height * FOOTER_SHARE) - 1 - self.count_dialog_rows(), 0)

    def count_dialog_rows(self) -> int:
        dialog = self.dialog
        return dialog.count_rows(self._app.size) if isinstance(dialog, Choices) else 0

    @property
    def is_dialog_read(self) -> bool:
        """Whether the dialog was on the screen for long enough to be read."""
        return self.key_guard.is_read(self.clock())

    # --- dialogs -------------------------------------------------------------------------

    async def show_dialog(self, *widgets: Widget, by_user: bool, is_touched: bool) -> None:
        if isinstance(widgets[-1], Choices):  # also in the first frame
            widgets[-1].is_waiting = not (by_user or is_touched)
        self.key_guard.open_dialog(by_user=by_user, is_touched=is_touched)
        self._opening = opening = asyncio.Event()
        try:
            await self._app.query_one("#footer").mount_all(widgets, before="#completions")
            self.dialog = widgets[-1]
        finally:
            self._opening = None
            opening.set()
        self._app.mark_changed()
        if by_user:
            self._app.screen.set_focus(widgets[-1])
        self.update_focus()
        self._app.call_after_refresh(self._set_dialog_drawn, widgets[-1])

    async def wait_for_dialog(self) -> None:
        """A dialog that is about to open takes the keys that come from now on."""
        if self._opening is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._opening.wait(), OPENING_SECONDS)

    def _set_dialog_drawn(self, widget: Widget) -> None:
        if widget is self.dialog:
            self.key_guard.set_drawn(self.clock())
            self.update_focus()

    async def hide_dialog(self, *widgets: Widget) -> None:
        self.dialog = None
        if self._app.is_running:
            self._app.query_one("#prompt-row").display = True
            self._app.query_one("#dialog-hint", LinesWidget).set_lines([])
            self.focus_input()  # a removed widget would give its focus to the transcript
        for widget in widgets:
            if widget.is_attached:
                await widget.remove()
        if self._app.is_running:
            self._app.mark_changed()

    def update_focus(self) -> None:
        """Give the keys to the dialog or to the prompt, and show which of them has them."""
        dialog = self.dialog
        if dialog is None or not dialog.is_attached:
            return
        now, draft = self.clock(), self._app.prompt.text
        is_ready = self.key_guard.is_ready(now, has_draft=bool(draft))
        is_typing = not is_ready and (bool(draft) or self.key_guard.is_typing(now))
        self._app.query_one("#prompt-row").display = bool(draft) or is_typing
        is_browsing = self._app.transcript.has_focus
        if not is_browsing:
            self._app.screen.set_focus(self._app.prompt if is_typing else dialog)
        hint = ""
        if is_browsing:
            hint = "esc returns to the question"
        elif draft and not is_ready:
            conversation = self._app.session.conversation
            sending = "enter sends it, " if conversation is not None else ""
            if conversation is not None and conversation.questions.takes_text:
                sending = "enter sends it as your answer, "
            what = "select an answer" if isinstance(dialog, Choices) else "go to the question"
            hint = f"your message is not sent: {sending}esc clears it, ↑ ↓ {what}"
        elif draft and isinstance(dialog, Choices):
            hint = "your message is not sent; enter takes the marked answer"
        lines = (
            wrap_text(Text(hint, self._app.palette.warning), self._app.size.width) if hint else []
        )
        self._app.query_one("#dialog-hint", LinesWidget).set_lines(lines)
        if isinstance(dialog, Choices):
            prompt_rows = self._app.prompt.wrapped_document.height if draft or is_typing else 0
            is_waiting, rows = is_browsing or not is_ready, len(lines) + prompt_rows
            dialog.set_waiting(is_waiting, rows, shows_hint=not hint or not is_waiting)

    def focus_input(self) -> None:
        """Focus what takes keys: the dialog if it does, else the prompt."""
        if self.dialog is None:
            self._app.screen.set_focus(self._app.prompt)
        else:
            self._app.screen.set_focus(self.dialog)
            self.update_focus()

    def focus_for_input(self, widget: Widget) -> None:
        """A key that has just been typed goes to this widget."""
        is_prompt = widget is self._app.prompt
        self._app.query_one("#prompt-row").display = is_prompt or bool(self._app.prompt.text)
        self._app.screen.set_focus(widget)
        self._app.call_later(self.update_focus)

    def look_again(self) -> None:
        """The screen is back: only from now on can an open dialog be read."""
        now = self.clock()
        self.key_guard.note_typing(now)
        if self.key_guard.is_drawn:
            self.key_guard.set_drawn(now)
        self.update_focus()


PAUSE_SECONDS = 0.5  # in less time a person cannot have read the dialog

KeyTarget = Literal["dialog", "prompt", "dropped"]


class KeyGuard:
    """`has_draft`: the prompt has text that is not sent yet.

    A dialog that the user opened takes keys at once. Any other takes them when the prompt is empty
    and no key came for PAUSE_SECONDS; with a draft only an arrow key selects it. Text that is no
    answer goes to the prompt. Enter counts only after PAUSE_SECONDS, or after a key that marks.
    """

    def __init__(self) -> None:
        self._drawn_at = float("-inf")
        self._typed_at = float("-inf")  # the last key that was not for a dialog
        self._is_by_user = True
        self._is_touched = False
        self._was_for_dialog = False  # the last key

    def open_dialog(self, *, by_user: bool, is_touched: bool = False) -> None:
        """A dialog opens. `by_user`: the user opened it."""
        self._drawn_at, self._is_by_user, self._is_touched = float("inf"), by_user, is_touched

    def set_drawn(self, now: float) -> None:
        """The dialog is on the screen; only from now on can it be read."""
        self._drawn_at = now

    @property
    def is_drawn(self) -> bool:
        return self._drawn_at != float("inf")

    def is_read(self, now: float) -> bool:
        """Whether a person can have read the dialog."""
        return now - self._drawn_at >= PAUSE_SECONDS

    def touch(self) -> None:
        """The user selects the dialog, with an arrow key or the mouse."""
        self._is_touched = True

    def note_typing(self, now: float) -> None:
        """A key goes to the prompt or to the transcript."""
        self._typed_at, self._was_for_dialog = now, False

    def is_typing(self, now: float) -> bool:
        """Whether the user has just typed something that was not for a dialog."""
        return now - self._typed_at < PAUSE_SECONDS

    def is_ready(self, now: float, *, has_draft: bool) -> bool:
        """Whether the dialog takes keys."""
        return self._is_by_user or self._is_touched or (self._is_quiet(now) and not has_draft)

    def _is_quiet(self, now: float) -> bool:
        return now - max(self._drawn_at, self._typed_at) >= PAUSE_SECONDS

    def route(self, key: str, now: float, *, has_draft: bool, is_answer: bool = True) -> KeyTarget:
        """Where a key goes while a dialog is open. `is_answer`: the dialog has a use for it."""
        if key in ("up", "down") and (self._is_by_user or self._is_quiet(now)):
            self._is_touched = True
        is_refusal = key == "escape" and not has_draft  # closing a dialog is always safe
        if is_refusal or (self._is_touched and is_answer):
            self._was_for_dialog = True
            return "dialog"
        is_new = not self.is_read(now)
        if not (is_answer and self.is_ready(now, has_draft=has_draft)):
            if self._was_for_dialog and is_new:
                return "dropped"  # meant for the dialog before this one
            self.note_typing(now)
            self._is_touched = False
            return "prompt"
        self._was_for_dialog = True
        if key == "enter":
            return "dropped" if is_new else "dialog"
        self._is_touched = True
        return "dialog"
