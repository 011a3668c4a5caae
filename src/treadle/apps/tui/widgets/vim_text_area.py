"""Text areas: one that handles its keys in order, and one with vim keys, if they are switched on.

vim/vim_keys.py decides what a key does. Used by prompt.py and text_entry.py.
"""

from __future__ import annotations

import msgspec
from textual import events
from textual.message import Message
from textual.widgets import TextArea
from textual.widgets.text_area import Selection

from treadle.apps.tui.vim.vim_keys import VimState, press


class OrderedTextArea(TextArea):
    """Textual's text area inserts a letter at once, but a key with a binding, such as backspace,
    travels up to the app first. Of keys that arrive together, over a slow line or in a busy moment,
    the letters would come before the backspace that was typed before them."""

    async def _on_key(self, event: events.Key) -> None:
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return
        await super()._on_key(event)


class VimTextArea(OrderedTextArea):
    """`vim` is None while the vim keys are off."""

    class VimModeChanged(Message):
        """`vim_mode` has changed."""

    vim: VimState | None = None

    @property
    def vim_mode(self) -> str:
        """What the status line shows; "" without vim keys."""
        return self.vim.mode if self.vim is not None else ""

    def use_vim_keys(self, is_on: bool) -> None:
        self.vim = VimState() if is_on else None
        self.post_message(self.VimModeChanged())

    def reset_vim(self) -> None:
        """Another text is in the prompt: it is not undone, and typing goes on."""
        if self.vim is not None:
            register, has_lines = self.vim.register, self.vim.has_lines
            before = self.vim.mode
            self.vim = VimState(register=register, has_lines=has_lines)
            if before != "insert":
                self.post_message(self.VimModeChanged())

    def handle_vim_key(self, event: events.Key) -> bool:
        """False if the key is not for vim."""
        if self.vim is None:
            return False
        state = msgspec.structs.replace(self.vim, text=self.text)
        if state.mode != "visual":
            state = msgspec.structs.replace(state, cursor=self._find_offset())
        is_text = event.is_printable and event.character is not None
        after = press(state, event.character or "" if is_text else event.key)
        if after is None:
            self.vim = msgspec.structs.replace(self.vim, keys="")
            return False
        if state.mode == "normal" and not state.keys and self._is_at_edge(event.character):
            return False  # it browses the history
        self._show_vim_state(state, after)
        # On an empty prompt escape is for the app, too: it interrupts.
        return not (event.key == "escape" and not self.text)

    def _is_at_edge(self, character: str | None) -> bool:
        """Whether j or k has no line to go to."""
        if character == "j":
            return self.cursor_location[0] == self.document.line_count - 1
        return character == "k" and self.cursor_location[0] == 0

    def _show_vim_state(self, before: VimState, after: VimState) -> None:
        if after.text != before.text:
            self.load_text(after.text)
        self.vim = after
        if after.mode == "visual":
            first, last = after.selection
            self.selection = Selection(self._locate(first), self._locate(last))
        else:
            self.move_cursor(self._locate(after.cursor))
        if after.mode != before.mode:
            self.post_message(self.VimModeChanged())

    def _locate(self, index: int) -> tuple[int, int]:
        before = self.text[:index]
        return before.count("\n"), index - before.rfind("\n") - 1

    def _find_offset(self) -> int:
        """Where the cursor is in the text."""
        row, column = self.cursor_location
        return sum(len(line) + 1 for line in self.text.split("\n")[:row]) + column
