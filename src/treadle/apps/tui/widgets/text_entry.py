"""A text area in which the user answers a question. A long paste is a placeholder in it."""

from __future__ import annotations

from pathlib import Path

from textual import events
from textual.message import Message

from treadle.apps.conversation.attachments import Attachments
from treadle.apps.tui.widgets.prompt import MAX_EDITED_CHARS, MAX_EDITED_LINES, NEW_LINE_KEYS
from treadle.apps.tui.widgets.vim_text_area import OrderedTextArea


class TextEntry(OrderedTextArea):
    """Enter submits the text, escape submits None, ctrl+g asks for the editor."""

    # A background of its own: Textual fails to draw a text area that is just being removed, which
    # has none of its parents'.
    DEFAULT_CSS = """
    TextEntry, TextEntry:focus {
        height: auto; max-height: 50vh; min-height: 1; border: none; padding: 0;
        background: ansi_default; scrollbar-size-vertical: 0; scrollbar-size-horizontal: 0;
    }
    """

    class Submitted(Message):
        def __init__(self, value: str | None) -> None:
            super().__init__()
            self.value = value

    class EditorRequested(Message):
        """The user wants to edit the text in an editor."""

        def __init__(self, entry: TextEntry) -> None:
            super().__init__()
            self.entry = entry

    def __init__(self, text: str = "") -> None:
        super().__init__(text, compact=True, highlight_cursor_line=False)
        self.cursor_blink = False
        self._pastes = Attachments(Path.cwd())
        self.move_cursor(self.document.end)

    @property
    def full_text(self) -> str:
        """The text with the pastes that the placeholders stand for."""
        return self._pastes.expand_pastes(self.text)

    def set_text(self, text: str) -> None:
        """Replace the text; the cursor is at its end."""
        self.load_text(self._pastes.shorten(text, MAX_EDITED_LINES, MAX_EDITED_CHARS))
        self.move_cursor(self.document.end)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        self.insert(self._pastes.shorten(text, MAX_EDITED_LINES, MAX_EDITED_CHARS))

    async def _on_key(self, event: events.Key) -> None:
        if event.key in NEW_LINE_KEYS:
            self.insert("\n")
        elif event.key == "enter":
            self.post_message(self.Submitted(self.full_text))
        elif event.key == "ctrl+g":
            self.post_message(self.EditorRequested(self))
        elif event.key == "escape":
            self.post_message(self.Submitted(None))
        else:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
