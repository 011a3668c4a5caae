"""The app: the full screen (screen.py) with its key bindings.

Each action calls the conversation, the transcript or a dialog. `/help` shows KEY_DESCRIPTIONS.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from textual import events, on
from textual.binding import Binding
from textual.widget import Widget
from textual.widgets import TextArea

from treadle.apps.conversation.block_text import describe_tasks
from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands.answers import Question
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.tui.options import TerminalOptions
from treadle.apps.tui.prompt_screen import PromptScreen
from treadle.apps.tui.terminal.key_screen import KeyScreen
from treadle.apps.tui.widgets.choices import Choices
from treadle.apps.tui.widgets.text_entry import TextEntry
from treadle.apps.tui.widgets.transcript import TranscriptWidget
from treadle.lib.text.text import plural

MODE_KEY = "shift+tab"
GUARDED_KEYS = ("enter", "up", "down", "escape", "backspace")  # besides text: footer.py
QUIT_HINT = "press ctrl+c again to quit"
DETACHED_HINT = "it continues in the background: /tasks lists it, the agent is told when it ends"
MAX_SEARCH_CHARS = 1_000
KEY_SECONDS = 1.0  # a key waits at most so long for those before it
QUIT_SECONDS = 3.0  # for the second ctrl+c
KEY_DESCRIPTIONS: tuple[tuple[str, str], ...] = (
    ("enter", "send; shift+enter, or \\ at the end of the line, starts a new line"),
    ("@ ! # /", "a file, a shell command, a line to remember, a slash command"),
    ("ctrl+v", "paste text or an image from the clipboard"),
    ("shift+tab", "next permission mode"),
    ("esc", "interrupt; clear the prompt; twice on an empty prompt: rewind"),
    ("up", "earlier messages; with a queued message: edit it"),
    ("ctrl+r", "search in earlier messages; again: an older one, enter takes it"),
    ("ctrl+g", "write the message in your editor (VISUAL or EDITOR); also ctrl+x ctrl+e"),
    ("?", "on an empty prompt: show these keys"),
    ("ctrl+c", "interrupt or clear the prompt; twice: quit"),
    ("ctrl+o", "expand or fold the last call"),
    ("tab", "select blocks above: enter expands, c copies (code first), o opens a link"),
    ("pgup pgdn", "scroll; ctrl+end returns to the end"),
    ("ctrl+f", "search; then n and N for more matches"),
    ("ctrl+y", "copy the last reply"),
    ("ctrl+t", "show the todo list"),
    ("ctrl+b", "move the running command to the background; else show the agents at work"),
    ("ctrl+z", "suspend"),
)


class TerminalApp(PromptScreen):
    """The screen with its keys."""

    BINDINGS = [  # noqa: RUF012 - textual's form
        Binding(MODE_KEY, "next_mode", "mode", priority=True, show=False),
        Binding("escape", "escape", "stop", show=False),
        Binding("ctrl+c", "stop", "stop", priority=True, show=False),
        Binding("ctrl+d", "end", "quit", priority=True, show=False),
        Binding("ctrl+o", "unfold", "open the last call", priority=True, show=False),
        Binding("ctrl+t", "todos", "todos", priority=True, show=False),
        Binding("ctrl+b", "detach", "background", priority=True, show=False),
        Binding("ctrl+f", "search", "search", priority=True, show=False),
        Binding("ctrl+y", "copy_reply", "copy", priority=True, show=False),
        Binding("ctrl+z", "suspend_process", "suspend", priority=True, show=False),
        Binding("ctrl+l", "redraw", "redraw", priority=True, show=False),
        Binding("pageup", "page(-1)", "up", priority=True, show=False),
        Binding("pagedown", "page(1)", "down", priority=True, show=False),
        Binding("ctrl+up", "line(-1)", "up", priority=True, show=False),
        Binding("ctrl+down", "line(1)", "down", priority=True, show=False),
        Binding("ctrl+end", "bottom", "end", priority=True, show=False),
        Binding("alt+1", "resume_listed(1)", "continue", priority=True, show=False),
        Binding("alt+2", "resume_listed(2)", "continue", priority=True, show=False),
        Binding("alt+3", "resume_listed(3)", "continue", priority=True, show=False),
    ]

    _last_key = _previous_key = ""

    def __init__(
        self,
        session: HostedSession,
        options: TerminalOptions | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(session, options, clock)
        self.key_descriptions = self.key_map.show(KEY_DESCRIPTIONS)

    async def hide_dialog(self, *widgets: Widget) -> None:
        """A key that closed a dialog is not the first of two."""
        await super().hide_dialog(*widgets)
        self._previous_key = self._last_key = ""

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Paste) and not event.is_forwarded:
            self._route_paste()
        if isinstance(event, events.Key) and not event.is_forwarded:
            known = self.key_map.translate(event)
            if known is None:
                return
            event = known
            if isinstance(self.screen, KeyScreen):
                self.screen.expect_key()
            if self.focused is None and self.footer.dialog is None:
                self.screen.set_focus(self.prompt)  # typed before the screen was there
            await self._wait_for_earlier_keys()  # before the focus is set: it may move meanwhile
            await self.footer.wait_for_dialog()
            if not self._route_key(event):
                return
            self._previous_key, self._last_key = self._last_key, event.key
            if event.key not in ("escape", "ctrl+c") and self.status_area.hint:
                self.status_area.hint = ""
                self.schedule_frame()
            if (
                event.key == "escape"
                and self.focused is self.prompt
                and not self.panel.are_keys_shown
            ):
                if not self.prompt.use_escape(event):
                    self.action_escape()
                return
        await super().on_event(event)

    async def _wait_for_earlier_keys(self) -> None:
        """Keys of the app and of the text area that has the focus keep their order."""
        handled = asyncio.Event()
        if self.focused is not None and self.focused.call_later(handled.set):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(handled.wait(), KEY_SECONDS)

    def _route_key(self, event: events.Key) -> bool:
        """Move the focus to where the key belongs; False if it is dropped."""
        now = self.footer.clock() - (time.monotonic() - event.time)  # when it was read
        dialog, is_text = self.footer.dialog, event.is_printable and bool(event.character)
        mode_answer = dialog.mode_answer if isinstance(dialog, Choices) else ""
        is_mode_answer = event.key == MODE_KEY and bool(mode_answer)
        if not is_text and not is_mode_answer and event.key not in GUARDED_KEYS:
            return True
        if dialog is None or self.transcript.has_focus:
            self.footer.key_guard.note_typing(now)
            return True
        options = dialog if isinstance(dialog, Choices) and not dialog.is_filterable else None
        character = (event.character or "") if is_text else ""
        is_answer = not is_text or options is None or options.has_answer(character)
        if options is not None and options.typed and not is_answer:
            self.prompt.insert(options.take_typed())  # with this character it is a word
        has_draft = bool(self.prompt.text)
        was_ready = self.footer.key_guard.is_ready(now, has_draft=has_draft)
        target = self.footer.key_guard.route(
            event.key, now, has_draft=has_draft, is_answer=is_answer
        )
        if target == "dialog" and is_mode_answer:
            self.dialogs.submit_answer(mode_answer)
            return False
        if target != "dropped":
            self.footer.focus_for_input(self.prompt if target == "prompt" else dialog)
        if target == "dialog" and options is not None and character:
            return not options.mark(character)
        # The arrow that selects the dialog only marks its first answer.
        is_selecting = target == "dialog" and not was_ready and event.key in ("up", "down")
        return target != "dropped" and not is_selecting

    def _route_paste(self) -> None:
        dialog = self.footer.dialog
        takes_no_text = isinstance(dialog, Choices) and not dialog.is_filterable
        if takes_no_text and not self.transcript.has_focus:
            if isinstance(dialog, Choices) and dialog.typed:
                self.prompt.insert(dialog.take_typed())
            self.footer.key_guard.note_typing(self.footer.clock())
            self.footer.focus_for_input(self.prompt)

    def action_escape(self) -> None:
        """Close the completions, stop the side question, the turn or the command, or clear the
        prompt; pressed twice on an empty prompt, rewind."""
        if self._use_escape():
            self._last_key = ""  # it had its effect: it is not the first of two
        elif self._conversation is None:
            return
        elif self._previous_key == "escape":
            self.status_area.hint = ""
            self.run_command("/rewind")
        else:
            self.status_area.hint = "press esc again to rewind to an earlier turn"
        self.schedule_frame()

    def _use_escape(self) -> bool:
        """What escape does besides a rewind; False if there is nothing to do."""
        conversation = self._conversation
        if self.prompt.dismiss_completions():
            return True
        if self.prompt.text and self.dialogs.is_open:
            self._clear_prompt()
        elif conversation is not None and conversation.driver.stop_aside():
            pass  # the work continues
        elif conversation is not None and conversation.view.is_busy:
            conversation.interrupt()
        elif conversation is not None and self.shell_commands.stop():
            pass
        elif conversation is not None and self.prompt.text:
            if not self.prompt.vim_mode:  # a habit there: it must not clear anything
                self._clear_prompt()
        else:
            return False
        return True

    def _clear_prompt(self) -> None:
        self.prompt.clear_text()
        self.footer.update_focus()

    def action_stop(self) -> None:
        """Stop the side question or the turn, close the dialog, stop the command or clear the
        prompt; if there is none, quit, at the second time."""
        conversation = self._conversation
        if conversation is None:
            if self.prompt.text:
                self._clear_prompt()
            else:
                self._exit_with(130)
        elif conversation.driver.stop_aside():
            pass
        elif conversation.view.is_busy and not conversation.driver.is_interrupted:
            conversation.interrupt()
        elif self.dialogs.is_open:
            self.dialogs.submit_answer(None)
        elif self.shell_commands.stop():
            pass
        elif self.prompt.text:
            self._clear_prompt()
        elif self._previous_key == "ctrl+c" and self.status_area.hint == QUIT_HINT:
            self.start_task(self._close(130 if conversation.view.is_busy else 0))
        else:
            self.status_area.hint = QUIT_HINT
            self.set_timer(QUIT_SECONDS, self._forget_quit)
        self.schedule_frame()

    def _forget_quit(self) -> None:
        if self.status_area.hint == QUIT_HINT:
            self.status_area.hint = ""
            self.schedule_frame()

    def action_end(self) -> None:
        if not self.prompt.text and not self._find_typed():
            tasks = self._conversation.view.tasks if self._conversation is not None else ()
            if tasks and self._previous_key != "ctrl+d":
                self.show_hint(f"ctrl+d again quits and ends {describe_tasks(tasks)}")
            else:
                self.start_task(self._close(0))
        elif isinstance(self.focused, TextArea):
            self.focused.action_delete_right()

    def _find_typed(self) -> str:
        """What the user has typed into the open dialog."""
        dialog = self.footer.dialog
        if isinstance(dialog, Choices):
            return dialog.typed or dialog.filter_text
        return dialog.text if isinstance(dialog, TextEntry) else ""

    def action_next_mode(self) -> None:
        if self._conversation is None:
            return
        permissions = self.session.permissions
        modes, mode = permissions.modes, permissions.mode
        current = modes.index(mode) if mode in modes else -1
        permissions.change_mode(modes[(current + 1) % len(modes)])

    def action_unfold(self) -> None:
        self.transcript.viewport.toggle_last()

    def action_detach(self) -> None:
        if self._conversation is None or self.dialogs.is_open:
            return
        agents = [one for one in self._conversation.children.list() if one.is_agent]
        if not any(one.is_running for one in agents) and self._conversation.detach():
            self.show_hint(DETACHED_HINT)
        elif self.shell_commands.is_running:
            self.show_hint("a command of yours cannot be moved to the background; esc stops it")
        else:
            self.run_command("/agents")

    def action_todos(self) -> None:
        self.run_command("/todo")

    def action_page(self, by: int) -> None:
        if isinstance(self.focused, Choices):
            self.focused.scroll_body(by)
        else:
            self.transcript.viewport.scroll_pages(by)
        self.schedule_frame()

    def action_resume_listed(self, number: int) -> None:
        self.resume_listed(number)

    def action_line(self, by: int) -> None:
        self.transcript.viewport.scroll_lines(by)
        self.schedule_frame()

    def action_bottom(self) -> None:
        self.transcript.action_bottom()
        self.schedule_frame()

    def action_copy_reply(self) -> None:
        self._copy(self.transcript.last_reply())

    @on(TranscriptWidget.CopyRequested)
    def _on_copy_requested(self, event: TranscriptWidget.CopyRequested) -> None:
        self._copy(event.text)

    @on(TranscriptWidget.PartsFound)
    def _on_parts_found(self, event: TranscriptWidget.PartsFound) -> None:
        self.start_task(self._use_part(event))

    async def _use_part(self, event: TranscriptWidget.PartsFound) -> None:
        """Copy or open the only part, or the one that the user chooses."""
        part = event.parts[-1] if event.parts else ""
        if len(event.parts) > 1 and not self.dialogs.is_open:
            options = [ChoiceOption(str(n), one[:200]) for n, one in enumerate(event.parts)]
            title = "Copy which code?" if event.action == "copy" else "Open which link?"
            chosen = await self.dialogs.choose(Question(title, options))
            self.transcript.focus()
            if chosen is None:
                return
            part = event.parts[int(chosen)]
        if event.action == "copy":
            self._copy(part)
            return
        if part:
            self.open_url(part)
        self.show_hint(f"opened {part}" if part else "there is no link in this block")

    def _copy(self, text: str) -> None:
        text = self.screen.get_selected_text() or text
        if text:
            self.copy_to_clipboard(text)
        copied = f"copied {plural(len(text), 'character')}"
        self.show_hint(copied if text else "nothing to copy")

    @on(TranscriptWidget.Exited)
    def _on_exited(self) -> None:
        self.footer.focus_input()
        self.schedule_frame()

    @on(TranscriptWidget.SearchRequested)
    def action_search(self) -> None:
        is_question = self._shown_question is not None and isinstance(self.footer.dialog, Choices)
        if is_question or not self.dialogs.is_open:
            self.start_task(self._search_above_question())
        else:
            self.show_hint("esc closes this; then ctrl+f searches")

    async def _search_above_question(self) -> None:
        """Search; an open question is asked again afterwards."""
        self._is_question_hidden = True
        try:
            if self._conversation is not None:
                self._show_first_question()
            await self._search()
        finally:
            self._is_question_hidden = False
            self.schedule_frame()

    async def _search(self) -> None:
        text = await self.dialogs.ask_text(
            "Search", self.transcript.viewport.search_text, select_all=True
        )
        text = text if text is None else text[:MAX_SEARCH_CHARS]
        if text is None:
            self.transcript.search("")
        elif self.transcript.search(text.strip()):
            self.transcript.focus()
            self.status_area.hint = "n: match above, N: match below, enter: open, esc: back"
        elif text.strip():
            self.status_area.hint = f"no matches for {text.strip()!r}"
        self.schedule_frame()
