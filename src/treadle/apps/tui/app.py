"""The app: the full screen, and what its keys mean.

Everything here is a reaction to a key, and asks the conversation, the transcript or a dialog to do
something. The table of keys for people is commands.KEYS; what is seen is screen.py's business.
"""

from __future__ import annotations

from textual import events, on
from textual.binding import Binding

from treadle.apps.tui.choosing import Choices
from treadle.apps.tui.screen import FullScreen
from treadle.apps.tui.transcript import Transcript


class TerminalApp(FullScreen):
    """The screen with its keys."""

    BINDINGS = [  # noqa: RUF012 - textual's form
        Binding("shift+tab", "next_mode", "mode", priority=True, show=False),
        Binding("escape", "escape", "stop", show=False),
        Binding("ctrl+c", "stop", "stop", priority=True, show=False),
        Binding("ctrl+d", "end", "quit", priority=True, show=False),
        Binding("ctrl+o", "unfold", "open the last call", priority=True, show=False),
        Binding("ctrl+t", "todos", "todos", priority=True, show=False),
        Binding("ctrl+f", "search", "search", priority=True, show=False),
        Binding("ctrl+y", "copy_reply", "copy", priority=True, show=False),
        Binding("ctrl+z", "suspend_process", "suspend", priority=True, show=False),
        Binding("ctrl+l", "redraw", "redraw", priority=True, show=False),
        Binding("pageup", "page(-1)", "up", priority=True, show=False),
        Binding("pagedown", "page(1)", "down", priority=True, show=False),
        Binding("ctrl+up", "line(-1)", "up", priority=True, show=False),
        Binding("ctrl+down", "line(1)", "down", priority=True, show=False),
        Binding("ctrl+end", "bottom", "end", priority=True, show=False),
    ]

    _last_key = _before = ""  # the last key that was pressed, and the one before

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded:
            self._before, self._last_key = self._last_key, event.key
            if event.key not in ("escape", "ctrl+c") and self.edges.hint:
                self.edges.hint = ""
                self.changed()
        await super().on_event(event)

    def action_escape(self) -> None:
        """Stop what runs; else drop what is offered or typed; twice on nothing goes back."""
        if self._conversation is None:
            return
        if self.prompt.drop_offers():
            return
        if self._conversation.view.is_busy:
            self._conversation.interrupt()
        elif self.own.stop():
            pass
        elif self.prompt.text:
            self.prompt.history_lines.add(self.prompt.text)
            self.prompt.put("")
        elif self._before == "escape" and "rewind" in self.host.can:
            self.edges.hint = ""
            self._do(self.rewind())
        else:
            self.edges.hint = "esc again to go back to an earlier point"
        self.changed()

    def action_stop(self) -> None:
        """ctrl+c: stop, clear, and the second one in a row leaves."""
        if self._conversation is None:
            self._end(130)
        elif self._conversation.view.is_busy:
            if self._conversation.driver.is_interrupted and self._before == "ctrl+c":
                self._do(self._close(130))
            self._conversation.interrupt()
        elif self.dialogs.is_open:
            self.dialogs.answered(None)
        elif self.prompt.text:
            self.prompt.history_lines.add(self.prompt.text)
            self.prompt.put("")
        elif self._before == "ctrl+c":
            self._do(self._close(0))
        else:
            self.edges.hint = "ctrl+c again to leave"
        self.changed()

    def action_end(self) -> None:
        if not self.prompt.text and not self.dialogs.is_open:
            self._do(self._close(0))
        elif self.prompt.has_focus:
            self.prompt.action_delete_right()

    def action_next_mode(self) -> None:
        if self._conversation is None:
            return
        modes = self.host.modes
        now = modes.index(self.host.mode) if self.host.mode in modes else -1
        self.host.change_mode(modes[(now + 1) % len(modes)])
        self.changed_mode()

    def action_unfold(self) -> None:
        self.transcript.toggle_last()

    def action_todos(self) -> None:
        self.order("/todo")

    def action_page(self, by: int) -> None:
        if isinstance(self.focused, Choices):
            self.focused.turn_page(by)
        else:
            self.transcript.scroll_pages(by)
        self.changed()

    def action_line(self, by: int) -> None:
        self.transcript.scroll_lines(by)
        self.changed()

    def action_bottom(self) -> None:
        self.transcript.action_bottom()
        self.changed()

    def action_redraw(self) -> None:
        self.redraw()

    def action_copy_reply(self) -> None:
        self._copy(self.transcript.last_reply())

    @on(Transcript.Copied)
    def _on_copied(self, event: Transcript.Copied) -> None:
        self._copy(event.text)

    def _copy(self, text: str) -> None:
        selected = self.screen.get_selected_text()
        text = selected or text
        if text:
            self.copy_to_clipboard(text)
        self.edges.hint = f"copied {len(text):,} characters" if text else "nothing to copy"
        self.changed()

    @on(Transcript.Left)
    def _on_left(self) -> None:
        self.prompt.focus()
        self.changed()

    @on(Transcript.Search)
    def action_search(self) -> None:
        if not self.dialogs.is_open:
            self._do(self._search())

    async def _search(self) -> None:
        text = await self.dialogs.write("Search", self.transcript.sought, anew=True)
        if text is None:
            self.transcript.seek("")
        elif self.transcript.seek(text.strip()):
            self.transcript.focus()
            self.edges.hint = "n goes up, N down, enter opens, esc returns"
        elif text.strip():
            self.edges.hint = f"{text.strip()!r} is nowhere"
        self.changed()
