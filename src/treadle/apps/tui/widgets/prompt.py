"""The prompt: the text area that the user types into.

    enter sends · shift+enter, alt+enter, ctrl+j or \\ at the end of the line start a new line
    up and down browse the history; up edits a queued message · tab accepts a completion
    ctrl+r searches the history · ctrl+g opens the editor · ? shows the keys
    ctrl+v pastes text or an image from the desktop's clipboard

The app handles the submitted text.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from textual import events
from textual.message import Message

from treadle.apps.conversation.attachments import Attachments
from treadle.apps.conversation.completion import (
    Completion,
    find_completions,
    is_mention,
    list_project_files,
)
from treadle.apps.tui.input.clipboard import read_clipboard
from treadle.apps.tui.input.prompt_history import HistorySearch, PromptHistory
from treadle.apps.tui.widgets.vim_text_area import VimTextArea

NEW_LINE_KEYS = frozenset({"shift+enter", "alt+enter", "ctrl+j", "ctrl+enter"})
FILES_SECONDS = 10.0  # so long a list of the folder's files is used
MAX_QUERY_CHARS = 1_000  # of a paste into the search
MAX_EDITED_LINES, MAX_EDITED_CHARS = 50, 10_000  # of an earlier message


class PromptWidget(VimTextArea):
    """A text area with history, completions and attachments. `search` is the search in the history
    that is open."""

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

    class SearchChanged(Message):
        """`search` has changed."""

    class EditorRequested(Message):
        """The user wants to edit the text in an editor."""

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
        folder: Path,
        has_queue: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(id="prompt", compact=True, highlight_cursor_line=False)
        self.cursor_blink = False  # less to draw, especially over ssh
        self.prompt_history = history
        self.attachments = attachments
        self.project_files: Sequence[str] = ()
        self._folder = folder
        self._listed_at = float("-inf")
        self.list_resources: Callable[[], Sequence[str]] = tuple  # of MCP servers
        self.completions: list[Completion] = []
        self._searched = self._shown_for = ""  # the text that they are for
        self.selected_completion = 0
        self.search: HistorySearch | None = None
        self.show_keys: Callable[[], bool] = lambda: False  # the list of keys; False if it cannot
        self.can_submit: Callable[[], bool] = lambda: True
        self._has_chord = False  # ctrl+x was pressed: ctrl+e opens the editor
        self._list_commands = list_commands
        self._has_queue = has_queue

    # --- keys ----------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        has_chord, self._has_chord = self._has_chord, False
        if (
            self._handle_search_key(event)
            or (has_chord and event.key == "ctrl+e" and self._open_editor())
            or (event.character == "?" and not self.text and self.show_keys())
            or self.handle_vim_key(event)
            or await self._handle_key(event.key)
        ):
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)

    def use_escape(self, event: events.Key) -> bool:
        """Handle escape; False if it is for the app."""
        self._has_chord = False
        return self._handle_search_key(event) or self.handle_vim_key(event)

    async def _handle_key(self, key: str) -> bool:
        if key == "ctrl+v":
            self.run_worker(self._paste_clipboard())
            return True
        if key == "ctrl+g":
            return self._open_editor()
        if key == "ctrl+x" and self.selection.is_empty:
            self._has_chord = True
            return True
        if key == "ctrl+r":
            return self._begin_search()
        if self.vim_mode == "normal" and key in ("j", "k"):
            key = "down" if key == "j" else "up"
        if key in NEW_LINE_KEYS:
            self.insert("\n")
            return True
        if key == "enter":
            return await self._handle_enter()
        if key in ("tab", "up", "down"):
            await self._settle_completions()
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

    async def _handle_enter(self) -> bool:
        row, column = self.cursor_location
        line = self.document.get_line(row)
        if column and line[column - 1] == "\\" and column == len(line):
            self.replace("\n", (row, column - 1), (row, column))
            return True
        await self._settle_completions()
        selected = self.completions[self.selected_completion].text if self.completions else ""
        if selected and selected.strip() != self.text.strip():
            is_command = self.text.startswith("/")
            self._accept_completion()
            if not is_command:
                return True
        self.submit()
        return True

    def _open_editor(self) -> bool:
        self.post_message(self.EditorRequested())
        return True

    # --- search in the history -----------------------------------------------------------

    def _begin_search(self) -> bool:
        draft = self.find_draft()
        self.prompt_history.stop_browsing()
        self.dismiss_completions()
        self.search = HistorySearch(self.prompt_history.lines, draft)
        self.post_message(self.SearchChanged())
        return True

    def _handle_search_key(self, event: events.Key) -> bool:
        """While a search is open: typing changes it, any other key takes the match."""
        search = self.search
        if search is None:
            return False
        if event.key == "escape":
            self.stop_search()
            return True
        if event.key in ("enter", "tab"):
            self._close_search()
            return True
        if event.key == "ctrl+r":
            search.find_older()
        elif event.key == "backspace":
            search.shorten()
        elif event.is_printable and event.character is not None:
            search.extend(event.character)
        else:
            self._close_search()
            return False
        self._show_match(search)
        return True

    def _show_match(self, search: HistorySearch) -> None:
        match = search.match
        if match is not None:
            match = self.attachments.shorten(match, MAX_EDITED_LINES, MAX_EDITED_CHARS)
        self.load_text(search.draft if match is None else match)
        self.move_cursor(self.document.end)
        self.post_message(self.SearchChanged())

    def stop_search(self) -> None:
        """Close the search; the text from before is back."""
        if self.search is not None:
            self.set_text(self.search.draft)

    def _close_search(self) -> None:
        self.search = None
        self.post_message(self.SearchChanged())

    def on_blur(self) -> None:
        self.stop_search()

    # --- the text ------------------------------------------------------------------------

    def submit(self) -> None:
        if self.can_submit():
            self.post_message(self.Submitted(self.clear_text()))

    def clear_text(self) -> str:
        """Empty the prompt and return its text; the history keeps it, with the pasted texts. An
        open search is closed instead."""
        if self.search is not None:
            self.stop_search()
            return ""
        text = self.text
        expanded = self.attachments.expand_pastes(text) if len(text) < 10_000 else text
        self.prompt_history.add(expanded)
        self.set_text("")
        return text

    def _show_from_history(self, text: str | None) -> bool:
        if text is None:
            return False
        # One that fits on a screen can be edited.
        self.set_text(self.attachments.shorten(text, MAX_EDITED_LINES, MAX_EDITED_CHARS))
        return True

    def find_draft(self) -> str:
        """What the user has typed and not sent; "" for an entry of the history."""
        if self.search is not None:
            return self.search.draft
        history, expanded = self.prompt_history, self.attachments.expand_pastes(self.text)
        draft = history.find_draft(expanded)
        return self.text if draft == expanded else draft

    def set_text(self, text: str) -> None:
        """Replace the text; the cursor is at its end."""
        if self.search is not None:
            self._close_search()
        self.reset_vim()
        self.load_text(text)
        self.move_cursor(self.document.end)
        self._update_completions()

    # --- completions ---------------------------------------------------------------------

    def on_text_area_changed(self) -> None:
        self._update_completions()

    def _update_completions(self) -> None:
        before = self._completed_text()
        if not is_mention(before):
            self._show_completions(before, find_completions(before, (), self._list_commands()))
        elif before != self._searched:
            self._searched = before
            self.call_after_refresh(self._search_files, before)  # first the letter is drawn

    def _completed_text(self) -> str:
        """The text before the cursor, if it may have completions."""
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        is_other = self.prompt_history.is_browsing or self.search is not None
        return "" if is_other or (row and before.startswith("/")) else before

    def _search_files(self, before: str) -> None:
        if before == self._searched:
            self.run_worker(self._show_files(before), group="files", exclusive=True)

    async def _show_files(self, before: str) -> None:
        if time.monotonic() - self._listed_at > FILES_SECONDS:
            await self.list_files_again()
        found = await asyncio.to_thread(
            find_completions, before, self._list_files(), (), lambda: before != self._searched
        )
        if before == self._searched:
            self._show_completions(before, found)

    async def list_files_again(self) -> None:
        self.project_files = await list_project_files(self._folder)
        self._listed_at = time.monotonic()

    def _list_files(self) -> list[str]:
        return [*self.list_resources(), *self.project_files]

    async def _settle_completions(self) -> None:
        """Before a key that uses the completions: they may be older than the text. The screen is
        drawn meanwhile; the next keys wait."""
        before = self._completed_text()
        if before == self._shown_for or not (self.completions or is_mention(before)):
            return
        self._searched = before  # a search that runs is for this text, or is stale
        if is_mention(before):
            found = await asyncio.to_thread(find_completions, before, self._list_files(), ())
        else:
            found = find_completions(before, (), self._list_commands())
        if before == self._completed_text():
            self._show_completions(before, found)

    def _show_completions(self, before: str, completions: list[Completion]) -> None:
        self._searched = self._shown_for = before
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
        self._searched = self._shown_for = self._completed_text()
        if not self.completions:
            return False
        self.completions = []
        self.post_message(self.CompletionsChanged())
        return True

    # --- pasting -------------------------------------------------------------------------

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if self.search is not None and event.text:
            self.search.extend(event.text.partition("\n")[0][:MAX_QUERY_CHARS])
            self._show_match(self.search)
        elif event.text:
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
