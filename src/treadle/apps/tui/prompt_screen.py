"""The full screen with what belongs to the prompt: editor, keys, drafts, images, queue, vim keys.

Between screen.py and app.py. Each part is its own module; here they meet the widgets.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.text import Text
from textual import events, on
from textual.widget import Widget
from textual.worker import Worker

from treadle.apps.conversation import completion
from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands.answers import ScreenChange
from treadle.apps.conversation.commands.sessions import QUEUE_CHANGED
from treadle.apps.conversation.conversation import Conversation, wait_for_queue_change
from treadle.apps.tui.agents_view import AgentsView
from treadle.apps.tui.input.drafts import Draft, Drafts, make_draft
from treadle.apps.tui.prompt_panel import PromptPanel
from treadle.apps.tui.render.markdown import render_markdown, wrap_text
from treadle.apps.tui.render.status_area import render_completions
from treadle.apps.tui.screen import FullScreen
from treadle.apps.tui.widgets.lines import LinesWidget
from treadle.apps.tui.widgets.prompt import (
    MAX_EDITED_CHARS,
    MAX_EDITED_LINES,
    PromptWidget,
)
from treadle.apps.tui.widgets.queue_list import CHANGED, EDIT, QueueList
from treadle.apps.tui.widgets.review_view import ReviewView
from treadle.apps.tui.widgets.text_entry import TextEntry
from treadle.core.transcript.items import UserItem

DRAFT_SECONDS = FORECAST_SECONDS = 1.0


class PromptScreen(FullScreen):
    """Handles the messages of the prompt widget."""

    def on_load(self) -> None:
        self.panel = PromptPanel(self)
        self._draft = PromptDraft(self)
        self._forecast_worker: Worker[None] | None = None

    async def on_mount(self) -> None:
        # Textual calls the handler of the base class, too.
        self.prompt.show_keys = self.panel.open_keys
        self.prompt.can_submit = lambda: self._conversation is not None
        self.prompt.use_vim_keys(self.options.has_vim_keys)
        self.app_resume_signal.subscribe(self.prompt, lambda _: self.footer.look_again())
        self.set_interval(DRAFT_SECONDS, self._draft.save)
        self.set_interval(FORECAST_SECONDS, self._update_forecast)

    # --- input ---------------------------------------------------------------------------

    @on(PromptWidget.Submitted)
    def _on_submitted(self, event: PromptWidget.Submitted) -> None:
        if self._conversation is not None:
            self._send(event.text, is_answer=self.footer.is_dialog_read)
        else:
            self.prompt.set_text(event.text)

    def _send(self, text: str, *, is_answer: bool = True) -> None:
        self.status_area.hint = ""
        self.transcript.action_bottom()
        super()._send(text, is_answer=is_answer)
        self._draft.forget()
        self.schedule_frame()

    def _update_forecast(self) -> None:
        """In a worker: keys do not wait for the thread that reads the sessions."""
        draft = self.prompt.find_draft() if self.screen_stack else ""
        worker = self._forecast_worker
        is_idle = worker is None or worker.is_finished

        async def show() -> None:
            if await self.session.forecast.update(draft):
                self.schedule_frame()

        if is_idle and (draft or self.session.forecast.text):
            self._forecast_worker = self.run_worker(show(), group="forecast")

    @on(PromptWidget.CompletionsChanged)
    def _on_completions_changed(self) -> None:
        found, selected = self.prompt.completions, self.prompt.selected_completion
        rows = min(completion.MAX_SHOWN, max(self.size.height // 3, 1))
        lines = render_completions(found, selected, self.size.width, rows, self.palette)
        self.query_one("#completions", LinesWidget).set_lines(lines)

    @on(PromptWidget.HintRaised)
    def _on_hint_raised(self, event: PromptWidget.HintRaised) -> None:
        self.show_hint(event.text)

    def set_prompt_text(self, text: str, *, is_selected: bool = False) -> None:
        self.prompt.set_text(text)
        if is_selected and text:
            self.prompt.select_all()
            self.status_area.hint = "typing replaces the message, → keeps it to edit"

    def return_messages(self, items: Sequence[UserItem]) -> None:
        draft = self.prompt.find_draft()
        self.prompt.prompt_history.stop_browsing()
        super().return_messages(items)
        if draft.strip():
            self.prompt.set_text(f"{self.prompt.text}\n{draft}")

    @on(PromptWidget.QueueRequested)
    def _on_queue_requested(self) -> None:
        """Put the last queued message back into the prompt."""
        if self._conversation is None:
            return
        queued = self._conversation.list_queued()
        if queued and self._conversation.withdraw(queued[-1]):
            self.return_messages(queued[-1:])

    # --- the panel above the prompt: keys, search, images ---------------------------------

    async def on_event(self, event: events.Event) -> None:
        is_key = isinstance(event, events.Key) and not event.is_forwarded
        if (is_key or isinstance(event, events.Paste)) and self.panel.are_keys_shown:
            self.panel.show_keys(False)
            if isinstance(event, events.Key) and event.key == "escape":
                return
            if isinstance(event, events.Key) and event.character == "?":
                self.prompt.insert("?")
                return
        await super().on_event(event)

    @on(PromptWidget.SearchChanged)
    def _on_search_changed(self) -> None:
        self.panel.draw()

    @on(PromptWidget.Changed)
    def _on_prompt_changed(self) -> None:
        self.panel.update_images()

    async def show_dialog(self, *widgets: Widget, by_user: bool, is_touched: bool) -> None:
        self.panel.show_keys(False)
        await super().show_dialog(*widgets, by_user=by_user, is_touched=is_touched)

    def on_resize(self) -> None:
        self.call_later(self._on_completions_changed)  # when the new size is set
        self.call_later(self.panel.draw)

    # --- the editor ----------------------------------------------------------------------

    @on(PromptWidget.EditorRequested)
    def _on_editor_requested(self) -> None:
        if not self._is_editor_open:
            self.start_task(self._edit_prompt())

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
            self.start_task(self._edit_entry(event.entry))

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

    def _notify_user(self, message: str) -> None:
        if not self._is_editor_open:  # the terminal belongs to the editor
            super()._notify_user(message)

    # --- drafts --------------------------------------------------------------------------

    def attach_conversation(self, conversation: Conversation, *, is_shown: bool) -> None:
        super().attach_conversation(conversation, is_shown=is_shown)
        if not self.prompt.text:
            self._draft.restore(conversation)

    async def _close(self, code: int, message: str = "") -> None:
        self._draft.close()  # it knows the session now
        await super()._close(code, message)

    def _exit_with(self, code: int, message: str = "") -> None:
        self._draft.close()
        super()._exit_with(code, message)

    # --- screens of commands ---------------------------------------------------------------

    async def change_screen(self, change: ScreenChange) -> bool:
        match change.name:
            case "agents":
                await AgentsView(self).show()
            case "panel":
                await self._show_panel(change)
            case "tour":
                return self._run_in_terminal(sys.executable, "-I", "-m", "treadle", "tour")
            case "help":
                await super().change_screen(change)
                if self.transcript.display:  # it is longer than the screen: from its beginning on
                    self.transcript.update_view(self.conversation.view)
                    self.transcript.viewport.show_block(len(self.conversation.view.blocks) - 1)
            case "review":
                await ReviewView(self).show(change.value)
            case "queue":
                await self._edit_queue(self.conversation)
            case "changed-settings":
                self.apply_settings()
                return False
            case "vim":
                self.show_message(self._toggle_vim_keys(), "faint")
            case "watch":
                self.show_message(
                    self.key_map.replace("ctrl+b shows the agents; enter watches one")
                )
            case _:
                return await super().change_screen(change)
        return True

    def _run_in_terminal(self, *argv: str) -> bool:
        """Run a program in the terminal, in place of this one; False if that is not possible."""
        if self.is_headless:
            return False
        with self.suspend():  # nothing else may use the terminal meanwhile
            subprocess.run(argv, check=False)
        self.action_redraw()
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
        # A removed message can be found in the history.
        history = self.prompt.prompt_history
        widget = QueueList(conversation, self.palette, lambda item: history.add(item.text))
        following = asyncio.ensure_future(_follow_queue(conversation, widget))
        try:
            answer = await self.dialogs.show_widget(widget)
        finally:
            following.cancel()
        if answer == CHANGED:
            self.show_message(QUEUE_CHANGED)
        elif answer == EDIT and conversation.withdraw(widget.item):
            self.return_messages([widget.item])

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
        await wait_for_queue_change(conversation)
        if widget.is_attached:
            widget.update_queue()


DRAFT_PROBLEM = "what you type is not kept if the program ends before you send it: {problem}"
DRAFT_LOST = "the message that you had not sent is not kept: {problem}"
DRAFT_HINT = "the message that you had not sent is back; esc clears it"


class PromptDraft:
    def __init__(self, screen: FullScreen) -> None:
        self._screen = screen
        self._drafts = Drafts(screen.options.drafts_dir, screen.session.folder)
        self._saved = ""
        self._is_problem_told = False

    def restore(self, conversation: Conversation) -> None:
        driver, screen = conversation.driver, self._screen
        draft = self._drafts.take(driver.session_id, is_new=not len(driver.history))
        if draft is not None:
            files = {number: Path(name) for number, name in draft.files.items()}
            text, lost = screen.attachments.put_back(draft.text, {**draft.pastes, **files})
            screen.prompt.set_text(text)
            removed = f"; not kept: {', '.join(lost)}" if lost else ""
            screen.status_area.hint = DRAFT_HINT + removed

    async def save(self) -> None:
        if self._screen.session.conversation is None or not self._screen.screen_stack:
            return
        text = self._screen.prompt.find_draft()
        if text == self._saved:
            return
        self._saved = text
        if text.strip():
            problem = await asyncio.to_thread(self._drafts.save, self._make_draft(text))
            if problem and not self._is_problem_told:
                self._is_problem_told = True
                self._screen.show_message(DRAFT_PROBLEM.format(problem=problem), "warning")
            if not self._saved:  # sent meanwhile
                self._drafts.remove()
        else:
            self._drafts.remove()

    def _make_draft(self, text: str) -> Draft:
        conversation = self._screen.session.conversation
        session_id = conversation.driver.session_id if conversation is not None else ""
        return make_draft(session_id, text, self._screen.attachments.find_contents(text))

    def forget(self) -> None:
        """It was sent."""
        self._saved = ""
        self._drafts.remove()

    def close(self) -> None:
        text = self._screen.prompt.find_draft()
        if text.strip():
            problem = self._drafts.save(self._make_draft(text))
            if problem:
                self._screen.unshown_messages.append(DRAFT_LOST.format(problem=problem))
        else:  # cleared since it was saved
            self._drafts.remove()
        self._drafts.close()
