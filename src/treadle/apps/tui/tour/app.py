"""The terminal UI of the tour: the real one, with the step above the prompt; and the steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.text import Text

from treadle.apps.assembly import SessionOptions
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.tui.app import TerminalApp
from treadle.apps.tui.render.markdown import styled_prefix, wrap_text
from treadle.apps.tui.widgets.lines import LinesWidget
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.transcript.items import ToolResultItem, UserItem
from treadle.core.transcript.usage import Usage
from treadle.models.scripted import Say, Scripted

FILE = "greet.py"
BROKEN = 'name = "world"\nprnt(f"Hello, {name}!")\n'
FIXED = BROKEN.replace("prnt", "print")


class TourFacts(msgspec.Struct, frozen=True):
    """What the tour knows: the file's text, the mode, and how the session stands."""

    text: str = BROKEN
    mode: str = "ask"
    messages: int = 0
    is_busy: bool = False

    @property
    def is_fixed(self) -> bool:
        return self.text == FIXED


class TourStep(msgspec.Struct, frozen=True):
    title: str
    text: str
    is_done: Callable[[TourFacts], bool]
    short: str = ""  # beside a dialog on a small screen


STEPS: tuple[TourStep, ...] = (
    TourStep(
        "Prompt",
        f'{FILE} has a typing error. Type "fix {FILE}" and press enter. '
        "(ctrl+d leaves the tour at any moment.)",
        lambda facts: facts.messages > 0,
    ),
    TourStep(
        "Approval",
        "The agent reads the file, then it wants to change it and waits for you. Look at the diff, "
        "then press y to allow it once. (If you have denied it, send another message.)",
        lambda facts: facts.is_fixed and not facts.is_busy,
        "y allows it once",
    ),
    TourStep(
        "Undo",
        "The file is changed. Take it back: type /undo and press enter. (/redo would bring it "
        "back again.)",
        lambda facts: not facts.is_fixed,
    ),
    TourStep(
        "Modes",
        "Press shift+tab until the line at the bottom says accept-edits: then files of this folder "
        "are changed without a question.",
        lambda facts: facts.mode == "accept-edits",
    ),
    TourStep(
        "Work without questions",
        "Send another message, such as: fix it again. Nothing is asked this time.",
        lambda facts: facts.is_fixed and not facts.is_busy,
    ),
    TourStep(
        "Rewind",
        "Press esc twice: your messages are listed. Select the first one with the arrow keys and "
        "enter, then b for the conversation and the files.",
        lambda facts: facts.messages == 0 and not facts.is_fixed,
        "first message, enter, b",
    ),
    TourStep(
        "The end",
        "All is as at the beginning. /help lists commands and keys. ctrl+d ends the tour; "
        "`treadle` in a folder of yours starts the work.",
        lambda facts: False,
    ),
)


class Tour:
    """Which step the user is at; steps that are done are left in their order."""

    def __init__(self) -> None:
        self.position = 0

    @property
    def step(self) -> TourStep:
        return STEPS[self.position]

    @property
    def is_finished(self) -> bool:
        return self.position == len(STEPS) - 1

    def update(self, facts: TourFacts) -> bool:
        """Go on if the step is done; whether it was."""
        if not self.step.is_done(facts):
            return False
        self.position += 1
        return True


CARD = ModelCard("tour", window=200_000, input_price=0.0, output_price=0.0)
USED = Usage(input=1_200, output=60, requests=1, cost=0.0)


def make_tour_model() -> Scripted:
    return Scripted(_answer, name="tour", card=CARD)


def _answer(request: ModelRequest) -> Say:
    last = request.transcript[-1]
    if not isinstance(last, ToolResultItem):
        calls = [("read", {"file_path": FILE})]
        return Say("I look at the file first.", calls=calls, usage=USED)
    if last.name == "read" and "prnt" in last.text:
        edit = {"file_path": FILE, "old_string": "prnt(", "new_string": "print("}
        text = "`prnt` is no function of Python. It has to be `print`."
        return Say(text, calls=[("edit", edit)], usage=USED)
    if last.is_error:
        return Say("I did not change the file. Send another message to try again.", usage=USED)
    text = "The file is correct already." if last.name == "read" else "Done: it says hello now."
    return Say(text, usage=USED)


SMALL_SCREEN_ROWS = 20  # below it a dialog needs the rows of the step
FLAGS = {"permission_mode": "ask"}


def make_tour_session(folder: Path) -> HostedSession:
    """A session in this folder, which is trusted: the tour has made it."""
    (folder / FILE).write_text(BROKEN, encoding="utf-8")
    session = HostedSession(folder, FLAGS, SessionOptions(model=make_tour_model()))
    session.trust.give()
    return session


class TourApp(TerminalApp):
    """The app with a Tour."""

    tour: Tour

    async def on_mount(self) -> None:
        self.tour = Tour()
        await self.query_one("#footer").mount(LinesWidget(id="tour"), before="#activity")
        self._show_step()
        self.set_interval(0.25, self._update_tour)

    def _update_tour(self) -> None:
        if self._conversation is not None:
            self.tour.update(self._gather_facts())
            self._show_step()

    def _gather_facts(self) -> TourFacts:
        conversation, file = self.conversation, self.session.folder / FILE
        history = conversation.driver.history
        return TourFacts(
            text=file.read_text(encoding="utf-8", errors="replace") if file.exists() else "",
            mode=self.session.permissions.mode,
            messages=sum(isinstance(item, UserItem) for item in history),
            is_busy=conversation.view.is_busy,
        )

    def _show_step(self) -> None:
        width, palette, step = max(self.size.width, 20), self.palette, self.tour.step
        is_crowded = self.dialogs.is_open and self.size.height < SMALL_SCREEN_ROWS
        title = "" if is_crowded and step.short else f"{step.title}: "
        head = f"tour {self.tour.position + 1}/{len(STEPS)} · {title}"
        text = step.short or step.text if is_crowded else step.text
        line = styled_prefix(head, palette.accent + palette.bold).append(text)
        rows = wrap_text(line, width)[: 1 if is_crowded else None]
        lines = [Text("─" * width, palette.faint), *rows]
        widget = self.query_one("#tour", LinesWidget)
        if [line.plain for line in lines] != [line.plain for line in widget.lines]:
            self.reserved_rows = len(lines)
            widget.set_lines(lines)
            self.schedule_frame()

    def action_end(self) -> None:
        """Leave at any moment: what stands in the prompt of a tour is not needed again."""
        self.start_task(self._close(0))

    def on_resize(self) -> None:  # Textual calls that of the base class, too
        self.call_later(self._show_step)
