"""The prompt: the text area that the user types into.

    enter sends · shift+enter, alt+enter, ctrl+j or \\ at the end of the line start a new line
    up and down browse the history; up edits a queued message · tab accepts a completion
    ctrl+v pastes text or an image from the desktop's clipboard

The app handles the submitted text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from treadle.apps.conversation.attachments import Attachments
from treadle.apps.conversation.completion import Completion, find_completions
from treadle.apps.tui.input.clipboard import read_clipboard
from treadle.apps.tui.input.prompt_history import PromptHistory

NEW_LINE_KEYS = frozenset({"shift+enter", "alt+enter", "ctrl+j", "ctrl+enter"})


class PromptWidget(TextArea):
    """A text area with history, completions and attachments."""

    DEFAULT_CSS = """
    PromptWidget, PromptWidget:focus {
        height: auto; max-height: 40vh; min-height: 1; border: none; padding: 0;
        background: transparent; scrollbar-size-vertical: 0; scrollbar-size-horizontal: 0;
    }
    """

    class Submitted(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class CompletionsChanged(Message):
        """`completions` or `selected_completion` has changed."""

    class QueueRequested(Message):
        """The user wants to edit the last queued message."""

    class HintRaised(Message):
        """A hint for the status area."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(
        self,
        history: PromptHistory,
        attachments: Attachments,
        list_commands: Callable[[], Sequence[tuple[str, str]]],
        has_queue: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(id="prompt", compact=True, highlight_cursor_line=False)
        self.cursor_blink = False  # less to draw, especially over ssh
        self.prompt_history = history
        self.attachments = attachments
        self.project_files: Sequence[str] = ()
        self.completions: list[Completion] = []
        self.selected_completion = 0
        self._list_commands = list_commands
        self._has_queue = has_queue

    # --- keys ----------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        if self._handle_key(event.key):
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)

    def _handle_key(self, key: str) -> bool:
        if key == "ctrl+v":
            self.run_worker(self._paste_clipboard())
            return True
        if key in NEW_LINE_KEYS:
            self.insert("\n")
            return True
        if key == "enter":
            return self._handle_enter()
        if self.completions and key in ("tab", "up", "down"):
            if key == "tab":
                self._accept_completion()
            else:
                selected = self.selected_completion + (1 if key == "down" else -1)
                self.selected_completion = selected % len(self.completions)
                self.post_message(self.CompletionsChanged())
            return True
        is_browsing = self.prompt_history.is_browsing
        if key == "up" and self.cursor_at_first_line and not is_browsing and self._has_queue():
            self.post_message(self.QueueRequested())
            return True
        if key == "up" and (self.cursor_at_first_line or is_browsing):
            return self._show_from_history(self.prompt_history.previous(self.text))
        if key == "down" and self.prompt_history.is_browsing:
            return self._show_from_history(self.prompt_history.next())
        return False

    def _handle_enter(self) -> bool:
        row, column = self.cursor_location
        line = self.document.get_line(row)
        if column and line[column - 1] == "\\" and column == len(line):
            self.replace("\n", (row, column - 1), (row, column))
            return True
        if self.completions:
            self._update_completions()  # they may be older than the text
        selected = self.completions[self.selected_completion].text if self.completions else ""
        if selected and selected.strip() != self.text.strip():
            is_command = self.text.startswith("/")
            self._accept_completion()
            if not is_command:
                return True
        self.submit()
        return True

    def submit(self) -> None:
        self.post_message(self.Submitted(self.clear_text()))

    def clear_text(self) -> str:
        """Empty the prompt and return its text; the history keeps it, with the pasted texts."""
        text = self.text
        expanded = self.attachments.expand_pastes(text) if len(text) < 10_000 else text
        self.prompt_history.add(expanded)
        self.set_text("")
        return text

    def _show_from_history(self, text: str | None) -> bool:
        if text is None:
            return False
        self.set_text(text)
        return True

    def set_text(self, text: str) -> None:
        """Replace the text; the cursor is at its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)
        self._update_completions()

    # --- completions ---------------------------------------------------------------------

    def on_text_area_changed(self) -> None:
        self._update_completions()

    def _update_completions(self) -> None:
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        if row and before.startswith("/"):
            before = ""
        completions: list[Completion] = []
        if not self.prompt_history.is_browsing:
            completions = find_completions(before, self.project_files, self._list_commands())
        if completions != self.completions:
            self.completions, self.selected_completion = completions, 0
            self.post_message(self.CompletionsChanged())

    def _accept_completion(self) -> None:
        row, column = self.cursor_location
        selected = self.completions[self.selected_completion]
        self.replace(selected.text, (row, selected.start), (row, column))
        self.move_cursor((row, selected.start + len(selected.text)))
        self._update_completions()

    def dismiss_completions(self) -> bool:
        """Close the completions; False if there were none."""
        if not self.completions:
            return False
        self.completions = []
        self.post_message(self.CompletionsChanged())
        return True

    # --- pasting -------------------------------------------------------------------------

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if event.text:
            self.insert(self.attachments.add_paste(event.text))
        else:  # a terminal sends an empty paste for an image
            self.run_worker(self._paste_clipboard())

    async def _paste_clipboard(self) -> None:
        """Insert the content of the desktop's clipboard, or else of the app's own."""
        content = await read_clipboard()
        if content.image is not None:
            self.insert(self.attachments.add_image(content.image))
        elif content.text or self.app.clipboard:
            self.insert(self.attachments.add_paste(content.text or self.app.clipboard))
        else:
            self.post_message(self.HintRaised(content.problem))
