"""The panel above the prompt: the list of keys, the search in earlier messages, or small images.

Draws only; prompt_screen.py, which uses it, has the handlers.
"""

from __future__ import annotations

from rich.text import Text

from treadle.apps.tui.render.markdown import styled_prefix
from treadle.apps.tui.screen import FullScreen
from treadle.apps.tui.widgets.lines import LinesWidget
from treadle.apps.tui.widgets.thumbnails import Thumbnails

KEY_COLUMN = 10
RESERVED_ROWS = 6  # of the screen, that the list of keys leaves free


class PromptPanel:
    def __init__(self, screen: FullScreen) -> None:
        self._screen = screen
        self._thumbnails = Thumbnails(screen.session.folder, self.draw)
        self.are_keys_shown = False

    def open_keys(self) -> bool:
        """Whether they are shown: not while a dialog is open."""
        if not self._screen.dialogs.is_open:
            self.show_keys(True)
        return self.are_keys_shown

    def show_keys(self, is_shown: bool) -> None:
        self.are_keys_shown = is_shown
        self.draw()

    def update_images(self) -> None:
        """The text of the prompt has changed."""
        contents = self._screen.attachments.find_contents(self._screen.prompt.text)
        self._thumbnails.update(contents, self._screen.palette)
        self.draw()

    def draw(self) -> None:
        if not self._screen.screen_stack:  # an image was decoded too late
            return
        if self.are_keys_shown:
            lines = self._render_keys()
        elif self._screen.prompt.search is not None:
            lines = [self._render_search()]
        else:
            lines = self._thumbnails.lines[: max(self._screen.size.height // 4, 1)]
        for line in lines:
            line.truncate(max(self._screen.size.width, 1), overflow="ellipsis")
        panel = self._screen.query_one("#prompt-panel", LinesWidget)
        if lines or panel.lines:
            panel.set_lines(lines)

    def _render_keys(self) -> list[Text]:
        keys = self._screen.key_descriptions
        room = max(self._screen.size.height - RESERVED_ROWS, 2)
        shown = keys if len(keys) < room else keys[: room - 1]
        lines = [
            styled_prefix(f"{key:{KEY_COLUMN}} ", self._screen.palette.accent).append(description)
            for key, description in shown
        ]
        end = "any key closes this" if shown is keys else "/help shows all keys"
        return [*lines, Text(end, self._screen.palette.faint)]

    def _render_search(self) -> Text:
        search = self._screen.prompt.search
        assert search is not None, "the caller has checked it"
        line = styled_prefix("search earlier messages: ", self._screen.palette.accent)
        line.append(search.query[-200:])
        if search.is_failed:
            line.append("  no older message has it" if search.match else "  no message has it")
        hint = self._screen.key_map.replace("ctrl+r older · enter takes it · esc cancels")
        return line.append(f"  {hint}", self._screen.palette.faint)
