"""The terminal UI of the tour: the real one, with the step above the prompt."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from treadle.apps.assembly import SessionOptions
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.tui.app import TerminalApp
from treadle.apps.tui.render.markdown import styled_prefix, wrap_text
from treadle.apps.tui.tour.steps import BROKEN, FILE, STEPS, Tour, TourFacts, make_tour_model
from treadle.apps.tui.widgets.lines import LinesWidget
from treadle.core.transcript.items import UserItem

SMALL_SCREEN_ROWS = 20  # below it a dialog needs the rows of the step
FLAGS = {"sandbox": "off", "permission_mode": "ask"}


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
            has_question=bool(conversation.questions.waiting),
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
