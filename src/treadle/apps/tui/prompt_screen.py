"""The full screen with what belongs to the prompt: editor, keys, drafts, images, queue, vim keys.

Between screen.py and app.py. Each part is its own module; here they meet the widgets.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.text import Text
from textual import events, on
from textual.widget import Widget

from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands.answers import ScreenChange
from treadle.apps.conversation.commands.sessions import QUEUE_CHANGED
from treadle.apps.conversation.conversation import Conversation
from treadle.apps.tui.agents_view import AgentsView
from treadle.apps.tui.input.drafts import Draft, Drafts, make_draft
from treadle.apps.tui.render.markdown import render_markdown, styled_prefix, wrap_text
from treadle.apps.tui.screen import FullScreen
from treadle.apps.tui.widgets.lines import LinesWidget
from treadle.apps.tui.widgets.prompt import (
    MAX_EDITED_CHARS,
    MAX_EDITED_LINES,
    PromptWidget,
)
from treadle.apps.tui.widgets.queue_list import CHANGED, EDIT, QueueList
from treadle.apps.tui.widgets.text_entry import TextEntry
from treadle.apps.tui.widgets.thumbnails import Thumbnails
from treadle.core.transcript.items import UserItem

DRAFT_SECONDS = 1.0
KEY_COLUMN = 10
RESERVED_ROWS = 6  # of the screen, that the list of keys leaves free
DRAFT_PROBLEM = "what you type is not kept if the program ends before you send it: {problem}"
DRAFT_LOST = "the message that you had not sent is not kept: {problem}"
DRAFT_HINT = "the message that you had not sent is back; esc clears it"


class PromptScreen(FullScreen):
    """Handles the messages of the prompt widget that screen.py does not."""

    _are_keys_shown = False
    _saved_draft = ""
    _is_draft_problem_told = False
    _drafts: Drafts | None = None

    async def on_mount(self) -> None:
        # Textual calls the handler of the base class, too.
        self._drafts = Drafts(self.options.drafts_dir, self.session.folder)
        self._thumbnails = Thumbnails(self.session.folder, self._draw_panel)
        self.prompt.show_keys = self._open_keys
        self.prompt.use_vim_keys(self.options.has_vim_keys)
        self.app_resume_signal.subscribe(self.prompt, lambda _: self._look_again())
        self.set_interval(DRAFT_SECONDS, self._save_draft)

    # --- the panel above the prompt: keys, search, images ---------------------------------

    async def on_event(self, event: events.Event) -> None:
        is_key = isinstance(event, events.Key) and not event.is_forwarded
        if self._are_keys_shown and (is_key or isinstance(event, events.Paste)):
            self._show_keys(False)
            if isinstance(event, events.Key) and event.key == "escape":
                return
            if isinstance(event, events.Key) and event.character == "?":
                self.prompt.insert("?")
                return
        await super().on_event(event)

    def _open_keys(self) -> bool:
        if not self.dialogs.is_open:
            self._show_keys(True)
        return self._are_keys_shown

    def _show_keys(self, is_shown: bool) -> None:
        self._are_keys_shown = is_shown
        self._draw_panel()

    @on(PromptWidget.SearchChanged)
    def _on_search_changed(self) -> None:
        self._draw_panel()

    @on(PromptWidget.Changed)
    def _on_prompt_changed(self) -> None:
        self._thumbnails.update(self.attachments.find_contents(self.prompt.text), self.palette)
        self._draw_panel()

    def _draw_panel(self) -> None:
        if not self.screen_stack:  # an image was decoded too late
            return
        if self._are_keys_shown:
            lines = self._render_keys()
        elif self.prompt.search is not None:
            lines = [self._render_search()]
        else:
            lines = self._thumbnails.lines[: max(self.size.height // 4, 1)]
        for line in lines:
            line.truncate(max(self.size.width, 1), overflow="ellipsis")
        panel = self.query_one("#prompt-panel", LinesWidget)
        if lines or panel.lines:
            panel.set_lines(lines)

    def _render_keys(self) -> list[Text]:
        keys = self.key_descriptions
        room = max(self.size.height - RESERVED_ROWS, 2)
        shown = keys if len(keys) < room else keys[: room - 1]
        lines = [
            styled_prefix(f"{key:{KEY_COLUMN}} ", self.palette.accent).append(description)
            for key, description in shown
        ]
        end = "any key closes this" if shown is keys else "/help shows all keys"
        return [*lines, Text(end, self.palette.faint)]

    def _render_search(self) -> Text:
        search = self.prompt.search
        assert search is not None, "the caller has checked it"
        line = styled_prefix("search earlier messages: ", self.palette.accent)
        line.append(search.query[-200:])
        if search.is_failed:
            line.append("  no older message has it" if search.match else "  no message has it")
        return line.append("  ctrl+r older · enter takes it · esc cancels", self.palette.faint)

    async def show_dialog(self, *widgets: Widget, by_user: bool, is_touched: bool) -> None:
        self._show_keys(False)
        await super().show_dialog(*widgets, by_user=by_user, is_touched=is_touched)

    def on_resize(self) -> None:
        super().on_resize()
        self.call_later(self._draw_panel)

    # --- the editor ----------------------------------------------------------------------

    @on(PromptWidget.EditorRequested)
    def _on_editor_requested(self) -> None:
        if not self._is_editor_open:
            self._spawn(self._edit_prompt())

    async def _edit_prompt(self) -> None:
        """Edit the prompt's text in the user's editor; the agent works on meanwhile."""
        draft = self.attachments.expand_pastes(self.prompt.text)
        edited, problem = await self.run_editor(draft)
        self.show_hint(problem)
        if edited != draft:
            self.prompt.prompt_history.stop_browsing()
            short = self.attachments.shorten(edited, MAX_EDITED_LINES, MAX_EDITED_CHARS)
            self.prompt.set_text(short)

    @on(TextEntry.EditorRequested)
    def _on_entry_editor_requested(self, event: TextEntry.EditorRequested) -> None:
        if not self._is_editor_open:
            self._spawn(self._edit_entry(event.entry))

    async def _edit_entry(self, entry: TextEntry) -> None:
        """The same for the text of a dialog."""
        draft = entry.full_text
        edited, problem = await self.run_editor(draft)
        self.show_hint(problem)
        if edited != draft and entry.is_attached:
            entry.set_text(edited)

    @contextmanager
    def _release_terminal(self) -> Iterator[None]:
        """Give the terminal to another program; nothing is drawn meanwhile."""
        if self._driver is None or not self._driver.can_suspend:
            yield
            return
        with self.batch_update(), self.suspend():
            yield

    def _look_again(self) -> None:
        """The screen is back: only from now on can an open dialog be read."""
        now = self.clock()
        self.key_guard.note_typing(now)
        if self.key_guard.is_drawn:
            self.key_guard.set_drawn(now)
        self.update_dialog_focus()

    def _notify_user(self, message: str) -> None:
        if not self._is_editor_open:  # the terminal belongs to the editor
            super()._notify_user(message)

    # --- drafts --------------------------------------------------------------------------

    def attach_conversation(self, conversation: Conversation, *, is_shown: bool) -> None:
        super().attach_conversation(conversation, is_shown=is_shown)
        if self._drafts is not None and not self.prompt.text:
            driver = conversation.driver
            draft = self._drafts.take(driver.session_id, is_new=not len(driver.history))
            if draft is not None:
                self._restore_draft(draft)

    def _restore_draft(self, draft: Draft) -> None:
        files = {number: Path(name) for number, name in draft.files.items()}
        text, lost = self.attachments.put_back(draft.text, {**draft.pastes, **files})
        self.prompt.set_text(text)
        removed = f"; not kept: {', '.join(lost)}" if lost else ""
        self.status_area.hint = DRAFT_HINT + removed

    async def _save_draft(self) -> None:
        drafts = self._drafts
        if drafts is None or self._conversation is None or not self.screen_stack:
            return
        text = self.prompt.find_draft()
        if text == self._saved_draft:
            return
        self._saved_draft = text
        if text.strip():
            problem = await asyncio.to_thread(drafts.save, self._make_draft(text))
            if problem and not self._is_draft_problem_told:
                self._is_draft_problem_told = True
                self.show_message(DRAFT_PROBLEM.format(problem=problem), "warning")
            if not self._saved_draft:  # sent meanwhile
                drafts.remove()
        else:
            drafts.remove()

    def _make_draft(self, text: str) -> Draft:
        session = self._conversation.driver.session_id if self._conversation is not None else ""
        return make_draft(session, text, self.attachments.find_contents(text))

    def _send(self, text: str) -> None:
        super()._send(text)
        self._saved_draft = ""
        if self._drafts is not None:
            self._drafts.remove()

    async def _close(self, code: int, message: str = "") -> None:
        if self._drafts is not None:
            text = self.prompt.find_draft()
            if text.strip():
                problem = self._drafts.save(self._make_draft(text))
                if problem:
                    self.unshown_messages.append(DRAFT_LOST.format(problem=problem))
            else:  # cleared since it was saved
                self._drafts.remove()
            self._drafts.close()
        await super()._close(code, message)

    # --- screens of commands ---------------------------------------------------------------

    async def change_screen(self, change: ScreenChange) -> bool:
        match change.name:
            case "agents":
                await AgentsView(self).show()
            case "panel":
                await self._show_panel(change)
            case "tour":
                return self._run_in_terminal(sys.executable, "-I", "-m", "treadle", "tour")
            case "queue":
                await self._edit_queue(self.conversation)
            case "settings":
                self.apply_settings()
                return False
            case "vim":
                self.show_message(self._toggle_vim_keys(), "faint")
            case "watch":
                self.show_message("ctrl+b shows the agents; enter watches one")
            case _:
                return await super().change_screen(change)
        return True

    def _run_in_terminal(self, *argv: str) -> bool:
        """Run a program in the terminal, in place of this one; False if that is not possible."""
        if self.is_headless:
            return False
        with self.suspend():  # nothing else may use the terminal meanwhile
            subprocess.run(argv, check=False)
        self.redraw()
        return True

    async def _show_panel(self, panel: ScreenChange) -> None:
        def body(width: int) -> list[Text]:
            lines = render_markdown(panel.value, width, self.palette)
            note = wrap_text(Text(panel.note, self.palette.faint), width)
            return [*lines, Text(), *note, Text()]

        options = [ChoiceOption("", "Close", key="q"), ChoiceOption("copy", "Copy", key="c")]
        hint = "pgup pgdn scroll, esc closes"
        if await self.dialogs.show_choices(
            panel.title, options, body=body, hint=hint, by_user=False
        ):
            self.copy_to_clipboard(panel.value)

    # --- the queue -----------------------------------------------------------------------

    async def _edit_queue(self, conversation: Conversation) -> None:
        widget = QueueList(conversation, self.palette, self._keep_removed)
        following = asyncio.ensure_future(_follow_queue(conversation, widget))
        try:
            answer = await self.dialogs.show_widget(widget)
        finally:
            following.cancel()
        if answer == CHANGED:
            self.show_message(QUEUE_CHANGED)
        elif answer == EDIT and conversation.withdraw(widget.item):
            self.return_messages([widget.item])

    def _keep_removed(self, item: UserItem) -> None:
        """A removed message can be found in the history."""
        self.prompt.prompt_history.add(item.text)

    # --- vim keys ------------------------------------------------------------------------

    @on(PromptWidget.VimModeChanged)
    def _on_vim_mode_changed(self) -> None:
        self.status_area.vim_mode = self.prompt.vim_mode
        self.schedule_frame()

    def _toggle_vim_keys(self) -> str:
        is_on = not self.prompt.vim_mode
        self.prompt.use_vim_keys(is_on)
        saved = self.session.settings.save("vim_keys", is_on)
        return f"vim keys are {'on: esc leads to normal mode' if is_on else 'off'}: {saved}"


async def _follow_queue(conversation: Conversation, widget: QueueList) -> None:
    while True:
        await conversation.wait_for_queue_change()
        if widget.is_attached:
            widget.update_queue()
