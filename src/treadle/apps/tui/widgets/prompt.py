"""The prompt: where the person types.

    enter sends · shift+enter, alt+enter, ctrl+j or \\ at the end begin a new line
    up and down walk through what was typed before · tab takes what is offered
    ctrl+v pastes what the desktop's clipboard holds, also a picture

A text area with manners; what is sent, and what a slash means, is the app's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from treadle.apps.tui.input.attachments import Attachments
from treadle.apps.tui.input.clipboard import read_clipboard
from treadle.apps.tui.input.completion import Completion, find_completions
from treadle.apps.tui.input.prompt_history import PromptHistory

NEW_LINE_KEYS = frozenset({"shift+enter", "alt+enter", "ctrl+j", "ctrl+enter"})


class PromptWidget(TextArea):
    """Several lines, a history, offers and attachments."""

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
        """What is offered has changed."""

    class HintRaised(Message):
        """A word for the person about what was done here."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(
        self,
        history: PromptHistory,
        attachments: Attachments,
        list_commands: Callable[[], Sequence[tuple[str, str]]],
        id: str | None = None,
    ) -> None:
        super().__init__(
            id=id,
            soft_wrap=True,
            show_line_numbers=False,
            highlight_cursor_line=False,
            compact=True,
            tab_behavior="focus",
        )
        self.cursor_blink = False  # nothing moves on its own: calmer, and less to send over ssh
        self.prompt_history = history
        self.attachments = attachments
        self.project_files: Sequence[str] = ()
        self.completions: list[Completion] = []
        self.selected_completion = 0
        self._list_commands = list_commands

    # --- keys ----------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        taken = self._handle_key(event.key)
        if taken:
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
                self.selected_completion = (
                    self.selected_completion + (1 if key == "down" else -1)
                ) % len(self.completions)
                self.post_message(self.CompletionsChanged())
            return True
        if key == "up" and (self.cursor_at_first_line or self.prompt_history.is_browsing):
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
            self._update_completions()  # of what stands here now: who types fast is ahead of the last offer
        if (
            self.completions
            and self.completions[self.selected_completion].text.strip() != self.text.strip()
        ):
            is_command = self.text.startswith("/")
            self._accept_completion()
            if not is_command:
                return True
        self.submit()
        return True

    def submit(self) -> None:
        text = self.text
        self.prompt_history.add(
            self.attachments.expand_pastes(text) if len(text) < 10_000 else text
        )
        self._replace_text("")
        self.post_message(self.Submitted(text))

    def _show_from_history(self, text: str | None) -> bool:
        if text is None:
            return False
        self._replace_text(text)
        return True

    def _replace_text(self, text: str) -> None:
        self.load_text(text)
        self.move_cursor(self.document.end)
        self._update_completions()

    def set_text(self, text: str) -> None:
        """Another text, the cursor at its end."""
        self._replace_text(text)

    # --- offers --------------------------------------------------------------------------

    def on_text_area_changed(self) -> None:
        self._update_completions()

    def _update_completions(self) -> None:
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        if row and before.startswith("/"):
            before = ""
        found = (
            []
            if self.prompt_history.is_browsing
            else find_completions(before, self.project_files, self._list_commands())
        )
        if found != self.completions:
            self.completions, self.selected_completion = found, 0
            self.post_message(self.CompletionsChanged())

    def _accept_completion(self) -> None:
        row, column = self.cursor_location
        offer = self.completions[self.selected_completion]
        self.replace(offer.text, (row, offer.start), (row, column))
        self.move_cursor((row, offer.start + len(offer.text)))
        self._update_completions()

    def dismiss_completions(self) -> bool:
        """Whether there was something to drop."""
        had = bool(self.completions)
        self.completions = []
        if had:
            self.post_message(self.CompletionsChanged())
        return had

    # --- pasting -------------------------------------------------------------------------

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if event.text:
            self.insert(self.attachments.add_paste(event.text))
        else:  # so does a terminal paste what is no text
            self.run_worker(self._paste_clipboard())

    async def _paste_clipboard(self) -> None:
        """What the desktop's clipboard holds, or else what was last cut or copied here."""
        found = await read_clipboard()
        if found.image is not None:
            self.insert(self.attachments.add_image(found.image))
        elif found.text or self.app.clipboard:
            self.insert(self.attachments.add_paste(found.text or self.app.clipboard))
        else:
            self.post_message(self.HintRaised(found.problem))
