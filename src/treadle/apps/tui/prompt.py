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

from treadle.apps.tui.attaching import Attachments
from treadle.apps.tui.clipboard import clip
from treadle.apps.tui.completing import Offer, offers
from treadle.apps.tui.remembering import PromptHistory

NEW_LINE = frozenset({"shift+enter", "alt+enter", "ctrl+j", "ctrl+enter"})


class Prompt(TextArea):
    """Several lines, a history, offers and attachments."""

    DEFAULT_CSS = """
    Prompt, Prompt:focus {
        height: auto; max-height: 40vh; min-height: 1; border: none; padding: 0;
        background: transparent; scrollbar-size-vertical: 0; scrollbar-size-horizontal: 0;
    }
    """

    class Sent(Message):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Offering(Message):
        """What is offered has changed."""

    class Noted(Message):
        """A word for the person about what was done here."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(
        self,
        history: PromptHistory,
        attachments: Attachments,
        commands: Callable[[], Sequence[tuple[str, str]]],
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
        self.history_lines = history
        self.attachments = attachments
        self.files: Sequence[str] = ()
        self.offers: list[Offer] = []
        self.picked = 0
        self._commands = commands

    # --- keys ----------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        taken = self._take(event.key)
        if taken:
            event.stop()
            event.prevent_default()
            return
        await super()._on_key(event)

    def _take(self, key: str) -> bool:
        if key == "ctrl+v":
            self.run_worker(self._paste_clip())
            return True
        if key in NEW_LINE:
            self.insert("\n")
            return True
        if key == "enter":
            return self._enter()
        if self.offers and key in ("tab", "up", "down"):
            if key == "tab":
                self._accept()
            else:
                self.picked = (self.picked + (1 if key == "down" else -1)) % len(self.offers)
                self.post_message(self.Offering())
            return True
        if key == "up" and (self.cursor_at_first_line or self.history_lines.is_walking):
            return self._recall(self.history_lines.before(self.text))
        if key == "down" and self.history_lines.is_walking:
            return self._recall(self.history_lines.after())
        return False

    def _enter(self) -> bool:
        row, column = self.cursor_location
        line = self.document.get_line(row)
        if column and line[column - 1] == "\\" and column == len(line):
            self.replace("\n", (row, column - 1), (row, column))
            return True
        if self.offers:
            self._offer()  # of what stands here now: who types fast is ahead of the last offer
        if self.offers and self.offers[self.picked].text.strip() != self.text.strip():
            is_command = self.text.startswith("/")
            self._accept()
            if not is_command:
                return True
        self.send()
        return True

    def send(self) -> None:
        text = self.text
        self.history_lines.add(self.attachments.expanded(text) if len(text) < 10_000 else text)
        self._set("")
        self.post_message(self.Sent(text))

    def _recall(self, text: str | None) -> bool:
        if text is None:
            return False
        self._set(text)
        return True

    def _set(self, text: str) -> None:
        self.load_text(text)
        self.move_cursor(self.document.end)
        self._offer()

    def put(self, text: str) -> None:
        """Another text, the cursor at its end."""
        self._set(text)

    # --- offers --------------------------------------------------------------------------

    def on_text_area_changed(self) -> None:
        self._offer()

    def _offer(self) -> None:
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        if row and before.startswith("/"):
            before = ""
        found = (
            [] if self.history_lines.is_walking else offers(before, self.files, self._commands())
        )
        if found != self.offers:
            self.offers, self.picked = found, 0
            self.post_message(self.Offering())

    def _accept(self) -> None:
        row, column = self.cursor_location
        offer = self.offers[self.picked]
        self.replace(offer.text, (row, offer.start), (row, column))
        self.move_cursor((row, offer.start + len(offer.text)))
        self._offer()

    def drop_offers(self) -> bool:
        """Whether there was something to drop."""
        had = bool(self.offers)
        self.offers = []
        if had:
            self.post_message(self.Offering())
        return had

    # --- pasting -------------------------------------------------------------------------

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if event.text:
            self.insert(self.attachments.pasted(event.text))
        else:  # so does a terminal paste what is no text
            self.run_worker(self._paste_clip())

    async def _paste_clip(self) -> None:
        """What the desktop's clipboard holds, or else what was last cut or copied here."""
        found = await clip()
        if found.image is not None:
            self.insert(self.attachments.pictured(found.image))
        elif found.text or self.app.clipboard:
            self.insert(self.attachments.pasted(found.text or self.app.clipboard))
        else:
            self.post_message(self.Noted(found.problem))
