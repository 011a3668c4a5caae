"""The full screen: the conversation, what goes on, the prompt, one line of facts.

Puts the parts together; what keys mean is said by app.py, above. What is seen is the conversation's
view; frames are made of it at most thirty times a second, however fast events come.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widget import Widget
from textual.widgets import Static

from treadle.apps.tui import commands, completing, trusting
from treadle.apps.tui.attaching import Attachments
from treadle.apps.tui.blocks import Note, Tone
from treadle.apps.tui.choice import Option
from treadle.apps.tui.choosing import Choices
from treadle.apps.tui.conversation import Conversation, Question
from treadle.apps.tui.custom import CustomCommand, custom_commands
from treadle.apps.tui.dialogs import Dialogs, changed_lines
from treadle.apps.tui.edges import Edges, offer_lines
from treadle.apps.tui.entry import Entry
from treadle.apps.tui.host import Ask, Doors, Host, TurnLine
from treadle.apps.tui.keyboard import KeyboardDriver
from treadle.apps.tui.lines import Lines
from treadle.apps.tui.markdown import wrapped
from treadle.apps.tui.options import Options
from treadle.apps.tui.palette import Palette, chosen
from treadle.apps.tui.prompt import Prompt
from treadle.apps.tui.remembering import PromptHistory
from treadle.apps.tui.shelling import OwnCommands
from treadle.apps.tui.themes import themes
from treadle.apps.tui.transcript import Transcript
from treadle.core.errors import TreadleError
from treadle.core.loop.driver import Driver
from treadle.core.loop.steps import PendingApproval

FRAME = 1 / 30
SETTLED = 0.15  # seconds after which a terminal has taken its new size
TINY = 15  # rows
PATIENCE = 1.5  # seconds that closing may take


class FullScreen(App[int]):
    """Implements commands.Face and dialogs.Stage."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: transparent; }
    #foot { height: auto; max-height: 90vh; }
    #rule { height: 1; }
    #row { height: auto; }
    #sign { width: 2; height: 1; }
    #row Prompt { width: 1fr; }
    #status { height: 1; }
    """

    def __init__(self, host: Host, options: Options | None = None) -> None:
        self.options = options or Options()
        self.palette: Palette = chosen(self.options.theme)
        super().__init__(driver_class=KeyboardDriver)
        self.host = host
        self.custom: Sequence[CustomCommand] = ()
        self.dialogs = Dialogs(self)
        self.doors = Doors(self._approve, self._ask, lambda text: self.tell(text, "faint"))
        self._conversation: Conversation | None = None
        self._is_frame_due = False
        self.edges = Edges(host)
        self.own = OwnCommands(host)
        self._asked: Question | None = None
        self._asking: asyncio.Task[None] | None = None
        self.farewell = ""  # how to come back, once there is something to come back to
        self.frames = 0
        for theme in themes():
            self.register_theme(theme)
        self.theme = f"treadle-{self.palette.name}"

    # --- the screen ----------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        history = PromptHistory(self.options.history)
        attachments = Attachments(self.host.folder, self.host.added)
        prompt = Prompt(history, attachments, self._command_names, id="prompt")
        yield Transcript(self.palette, id="transcript")
        with Vertical(id="foot"):
            yield Lines(id="tray")
            yield Lines(id="rule")
            yield Lines(id="offers")
            with Horizontal(id="row"):
                yield Static(Text("› ", self.palette.accent), id="sign")
                yield prompt
        yield Lines(id="status")

    @property
    def prompt(self) -> Prompt:
        return self.query_one("#prompt", Prompt)

    @property
    def transcript(self) -> Transcript:
        return self.query_one("#transcript", Transcript)

    @property
    def conversation(self) -> Conversation:
        assert self._conversation is not None, "there is a session by now"
        return self._conversation

    def _command_names(self) -> list[tuple[str, str]]:
        known = [(one.name, one.summary) for one in commands.available(self.host)]
        return known + [(one.name, one.summary) for one in self.custom]

    # --- beginning and end ---------------------------------------------------------------

    async def on_mount(self) -> None:
        self.query_one("#status", Lines).styles.height = 1
        self.prompt.focus()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            try:
                loop.add_signal_handler(number, self._terminated)
            except (ValueError, RuntimeError):
                pass  # not in the main thread: whoever started us listens
        self.app_resume_signal.subscribe(self, lambda _: self.redraw())
        self.set_interval(0.25, self._beat)
        self._do(self._begin())

    async def _begin(self) -> None:
        """Trust, a session, and the first words."""
        self.edges.branch = await completing.branch(self.host.folder)
        try:
            goes_on = await trusting.at_the_start(self.host, self.choose)
        except (TreadleError, OSError) as error:
            self._end(2, f"treadle: {error}")
            return
        if not goes_on:
            self._end(0)
            return
        if not await self._open(lambda: self.host.open(self.doors, resume=self.options.resume)):
            return
        if self.options.prompt:
            self._send(self.options.prompt)
        self.prompt.files = await completing.project_files(self.host.folder)

    async def _open(self, opening: Callable[[], Awaitable[Driver]]) -> bool:
        try:
            driver = await opening()
        except (TreadleError, OSError) as error:
            self._end(2, f"treadle: {error}")
            return False
        self._take_up(driver)
        return True

    def _take_up(self, driver: Driver) -> None:
        self._conversation = Conversation(driver, self.changed)
        folders = [self.host.folder] if self.host.is_trusted else []
        self.custom, problems = custom_commands([*folders, Path.home()], home=Path.home())
        conversation = self.conversation
        if self.host.is_declined and not self.host.is_trusted:
            conversation.show(Note(trusting.DECLINED))
        for note in (*self.host.notes, *problems):
            conversation.show(Note(note))
        if conversation.is_unfinished:
            conversation.note("the last turn was not finished: enter goes on with it", "warning")
        if not len(driver.history):
            self.edges.hint = "/help lists commands and keys"
        conversation.start()
        self.transcript.begin(conversation.view)
        self.changed()

    async def move(self, opening: Callable[[], Awaitable[Driver]]) -> None:
        """Leave the session for another; if that fails, come back."""
        conversation, driver = self.conversation, self.conversation.driver
        before = driver.session_id if len(driver.history) else None
        self._conversation = None  # nothing is shown or said while there is no session
        await conversation.aclose()
        try:
            driver = await opening()
        except (TreadleError, OSError) as error:
            if await self._open(lambda: self.host.open(self.doors, resume=before)):
                self.tell(str(error), "error")
            return
        self._take_up(driver)

    def quit(self) -> None:
        self._do(self._close(0))

    def _terminated(self) -> None:
        self._do(self._close(143))

    async def _close(self, code: int, message: str = "") -> None:
        """Stop what runs, write everything down, leave. Never takes long."""
        conversation, self._conversation = self._conversation, None
        if conversation is not None and len(conversation.driver.history):
            session = conversation.driver.session_id
            self.farewell = f"treadle --resume {session} goes on with this session"
        try:
            async with asyncio.timeout(PATIENCE):
                if conversation is not None:
                    await conversation.aclose()
                await self.host.aclose()
        except TimeoutError:
            pass  # the journal is only appended to: it is whole as it is
        finally:
            self._end(code, message)

    def _end(self, code: int, message: str = "") -> None:
        self.exit(code, return_code=code, message=message or None)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        self.run_worker(work, exit_on_error=True)

    # --- frames --------------------------------------------------------------------------

    def changed(self) -> None:
        """Something can be seen that could not before."""
        if not self._is_frame_due and self.is_running:
            self._is_frame_due = True
            self.set_timer(FRAME, self._frame)

    def _frame(self) -> None:
        self._is_frame_due = False
        if self._conversation is None or not self.screen_stack:
            return
        self.frames += 1
        view = self._conversation.view
        if self.edges.keep_time(view.is_busy):
            self._notify("done")
        self.transcript.show(view)
        self._sync_questions()
        self._paint_edges(self._conversation)

    def _beat(self) -> None:
        self.edges.tick += 1
        if self._conversation is not None and self._conversation.view.is_busy:
            self.edges.keep_time(True)
            self._paint_edges(self._conversation)

    def _paint_edges(self, conversation: Conversation) -> None:
        width = self.size.width
        above, status = self.edges.lines(
            conversation.view,
            self.palette,
            (width, self.size.height),
            is_scrolled=not self.transcript.is_following,
        )
        # On a tiny screen a question needs the room, and says all that there is to say.
        is_crowded = self.dialogs.is_open and self.size.height < TINY
        self.query_one("#tray", Lines).set([] if is_crowded else above)
        self.query_one("#rule", Lines).set([Text("─" * width, self.palette.faint)])
        self.query_one("#status", Lines).set([status])

    def on_resize(self) -> None:
        self.changed()
        self.call_later(self._on_offering)  # once the size is the new one
        # What was on its way to the old size may have landed on the new one.
        self.set_timer(SETTLED, self.redraw)

    def redraw(self) -> None:
        self.transcript.restyle(self.palette)
        self.screen.refresh(layout=True)

    # --- questions -----------------------------------------------------------------------

    async def _approve(self, approval: PendingApproval) -> bool | str:
        return await self.conversation.ask_approval(approval)

    async def _ask(self, ask: Ask) -> str | None:
        return await self.conversation.ask(ask)

    def _sync_questions(self) -> None:
        """The first open question is asked; one that is gone is taken down."""
        questions = self.conversation.questions
        first = questions[0] if questions else None
        if first is self._asked:
            return
        if self._asking is not None:
            self._asking.cancel()
        self._asked = first
        if first is not None:
            self._notify("waits for your answer")
            work = self.dialogs.settle(self.conversation, first)
            self._asking = asyncio.get_running_loop().create_task(work)

    async def enter(self, *widgets: Widget) -> None:
        self.query_one("#row").display = False
        self.query_one("#offers").display = False
        await self.query_one("#foot").mount_all(widgets)
        widgets[-1].focus()

    async def leave(self, *widgets: Widget) -> None:
        for widget in widgets:
            if widget.is_attached:
                await widget.remove()
        if self.is_running:
            self.query_one("#row").display = True
            self.query_one("#offers").display = True
            self.prompt.focus()

    @on(Choices.Chosen)
    def _on_chosen(self, event: Choices.Chosen) -> None:
        self.dialogs.answered(event.value)

    @on(Choices.Looked)
    def _on_looked(self, event: Choices.Looked) -> None:
        self.dialogs.looked_at(event.value)

    @on(Entry.Given)
    def _on_given(self, event: Entry.Given) -> None:
        self.dialogs.answered(event.text)

    async def choose(
        self,
        title: str,
        options: Sequence[Option],
        *,
        filters: bool = False,
        words: str = "",
        now: str = "",
    ) -> str | None:
        faint = Text(words, self.palette.faint)
        return await self.dialogs.choose(
            title,
            options,
            filters=filters,
            now=now,
            body=(lambda width: [*wrapped(faint, width), Text()]) if words else None,
        )

    async def rewind(self) -> None:
        answer = await self.dialogs.rewind(self._preview_rewind, self._do)
        if answer is None:
            return
        turn, with_files = answer
        done: list[str] = []

        async def opening() -> Driver:
            driver, words = await self.host.rewind(turn.turn_id, files=with_files)
            done.append(words)
            return driver

        await self.move(opening)
        self.prompt.put(turn.text)
        self.tell("went back" + (f"; files: {done[0]}" if done and done[0] else ""))

    async def _preview_rewind(self, widget: Choices, turn: TurnLine) -> None:
        try:
            changes = await self.host.changes(turn.turn_id) if turn.has_files else []
        except TreadleError:
            changes = []
        if widget.is_attached:
            lines = changed_lines(changes, self.palette) or [
                Text("no file would change", self.palette.faint)
            ]
            widget.rebody(lambda width: lines[:12])

    # --- what is typed -------------------------------------------------------------------

    @on(Prompt.Sent)
    def _on_sent(self, event: Prompt.Sent) -> None:
        if self._conversation is not None:
            self._send(event.text)
        else:
            self.prompt.put(event.text)

    def _send(self, text: str) -> None:
        self.edges.hint = ""
        self.transcript.action_bottom()
        line = text.strip()
        if not line:
            if self.conversation.is_unfinished:
                self.conversation.go_on()
        elif line.startswith("/") and not line.startswith(("//", "/ ")):
            self.order(line)
        elif line.startswith("!") and len(line) > 1:
            self.own.start(self.conversation, line[1:].strip())
        else:
            item = self.prompt.attachments.item(text.rstrip())
            self.conversation.say(self.own.with_ran(item))
            self.prompt.attachments.clear()
        self.changed()

    @on(Prompt.Offering)
    def _on_offering(self) -> None:
        most = min(completing.MOST_SHOWN, max(self.size.height // 3, 1))
        lines = offer_lines(
            self.prompt.offers, self.prompt.picked, self.size.width, most, self.palette
        )
        self.query_one("#offers", Lines).set(lines)

    @on(Prompt.Noted)
    def _on_noted(self, event: Prompt.Noted) -> None:
        self.edges.hint = event.text
        self.changed()

    def order(self, line: str) -> None:
        self._do(commands.perform(self, line))

    def tell(self, text: str, tone: Tone = "plain") -> None:
        if self._conversation is not None:
            self._conversation.show(Note(text, tone))

    def put(self, text: str) -> None:
        self.prompt.put(text)

    def change_theme(self, name: str) -> None:
        self.palette = chosen(name)
        self.theme = f"treadle-{self.palette.name}"
        self.query_one("#sign", Static).update(Text("› ", self.palette.accent))
        self.transcript.restyle(self.palette)
        if self.palette.name != name:
            self.tell("NO_COLOR is set: there are no colours here", "warning")
        self.changed()

    def changed_mode(self) -> None:
        self.edges.hint = f"{self.host.mode}: {commands.MODES.get(self.host.mode, '')}"
        self.changed()

    def _notify(self, what: str) -> None:
        """A bell, and a word for terminals that show one, when nobody may be looking."""
        self.bell()
        if not self.app_focus and self._driver is not None and not self.is_headless:
            self._driver.write(f"\x1b]9;treadle: {what}\x07")
