"""`/agents` on the full screen: the agents and background tasks at work; one can be watched, sent a
message, or stopped.

The data is the conversation's (child_views.py); actions go to the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual import events
from textual.widget import Widget

from treadle.apps.conversation.child_views import ChildWork
from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands.agents import list_agents, steer_work, stop_work
from treadle.apps.conversation.commands.answers import Question
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.widgets.choices import Choices

if TYPE_CHECKING:
    from treadle.apps.tui.screen import FullScreen


REFRESH_SECONDS = 0.5
ACTIONS = {"enter": "watch", "s": "steer", "x": "stop"}  # by key
ListOptions = Callable[[], Sequence[ChoiceOption]]
HINT = "enter watches it, s sends a message, x stops it, esc closes"
SHORT_HINT = "enter watch · s message · x stop · esc"
WATCH_HINT = "esc returns, s sends a message, x stops it, pgup and pgdn scroll"
SHORT_WATCH_HINT = "esc back · s message · x stop · pgup"


class AgentList(Choices):
    """Choices that are listed again twice a second; `footer` are lines below them."""

    def __init__(
        self,
        format_title: Callable[[], str],
        list_options: ListOptions,
        palette: Palette,
        footer: Sequence[Text],
        current: str = "",
    ) -> None:
        super().__init__(format_title(), list_options(), palette, hint=HINT, current=current)
        self._format_title = format_title
        self._list_options = list_options
        self._footer = footer

    def on_mount(self) -> None:
        self.set_interval(REFRESH_SECONDS, self._update_options)

    def _update_options(self) -> None:
        marked = self.matching_options[self.cursor].value if self.matching_options else ""
        self.title = self._format_title()
        self.options = self.matching_options = list(self._list_options())
        values = [option.value for option in self.options]
        nearest = max(min(self.cursor, len(values) - 1), 0)
        self.cursor = values.index(marked) if marked in values else nearest
        self.refresh(layout=True)

    def _build_lines(self, width: int, height: int) -> list[Text]:
        self._hint = HINT if len(HINT) <= width else SHORT_HINT
        lines = super()._build_lines(width, height)
        room = max(height - len(lines) - 1, 0)
        below = [line.copy() for line in self._footer[:room]]
        for line in below:
            line.truncate(max(width, 1), overflow="ellipsis")
        return [*lines, Text(), *below] if below else lines

    def _handle_key(self, event: events.Key) -> bool:
        action = ACTIONS.get(event.key)
        if action is None or not self.matching_options:
            return super()._handle_key(event)
        key = self.matching_options[self.cursor].value
        self.post_message(self.Selected(f"{action} {key}"))
        return True

    def has_answer(self, character: str) -> bool:
        return character in ACTIONS or super().has_answer(character)

    def mark(self, character: str) -> bool:
        return character not in ACTIONS and super().mark(character)


class WatchLine(Widget, can_focus=True):
    """A line about the watched agent, in place of the prompt; the transcript above is the agent's.
    Posts the answers of AgentList."""

    DEFAULT_CSS = "WatchLine { height: 2; }"

    def __init__(self, key: str, describe: Callable[[], str], palette: Palette) -> None:
        super().__init__()
        self._key = key
        self._describe = describe
        self._palette = palette

    def on_mount(self) -> None:
        self.set_interval(REFRESH_SECONDS, self.refresh)

    def render(self) -> Text:
        lines = [Text(self._describe(), self._palette.accent)]
        is_narrow = self.size.width < len(WATCH_HINT)
        lines.append(Text(SHORT_WATCH_HINT if is_narrow else WATCH_HINT, self._palette.faint))
        for line in lines:
            line.truncate(max(self.size.width, 1), overflow="ellipsis")
        text = Text("\n").join(lines)
        text.no_wrap = True
        return text

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            self.post_message(Choices.Selected(None))
        elif event.key in ("s", "x"):
            self.post_message(Choices.Selected(f"{ACTIONS[event.key]} {self._key}"))
        else:
            return
        event.stop()
        event.prevent_default()


QUESTION_WAITS = " · a question waits for you: esc"


class AgentsView:
    """One visit to the view, until the user closes it."""

    def __init__(self, screen: FullScreen) -> None:
        self._screen = screen
        self._children = screen.conversation.children
        self._current = ""  # the row of the list that the cursor is on

    async def show(self) -> None:
        watched = ""
        while True:
            answer = await (self._watch(watched) if watched else self._choose())
            if answer is None and not watched:
                return
            action, _, key = (answer or "list ").partition(" ")
            work = self._children.get(key)
            self._current = key or self._current
            if action == "watch":
                watched = key
            elif action == "list" or work is None:
                watched = ""
            elif action == "steer":
                await self._steer(work)
            else:
                await self._stop(work)

    async def _choose(self) -> str | None:
        palette = self._screen.palette
        rows = list_agents(self._screen.session)
        width = max((len(name) for name, _ in rows), default=0)
        footer = [Text(f"{name:<{width}}  {text}", palette.faint) for name, text in rows]
        if footer:
            footer.insert(0, Text("agents that can be started", palette.faint))
        widget = AgentList(self._format_title, self._list_options, palette, footer, self._current)
        return await self._screen.dialogs.show_widget(widget)

    def _format_title(self) -> str:
        return "Agents and tasks at work" + self._format_question()

    def _format_question(self) -> str:
        return QUESTION_WAITS if self._screen.conversation.questions.waiting else ""

    def _list_options(self) -> Sequence[ChoiceOption]:
        now = self._children.clock()
        options = []
        for work in self._children.list():
            indent = "  " * work.key.count("/")
            options.append(ChoiceOption(work.key, indent + work.title, work.describe(now)))
        return options

    async def _watch(self, key: str) -> str | None:
        """Show the transcript of a child, live, until a key."""

        def find_view() -> ViewState:
            work = self._children.get(key)
            return work.view if work is not None else ViewState()

        def describe() -> str:
            work = self._children.get(key)
            if work is None:
                return "it has ended"
            status = work.describe(self._children.clock())
            return f"watching {work.title} · {status}{self._format_question()}"

        widget = WatchLine(key, describe, self._screen.palette)
        self._screen.watch_view(find_view)
        try:
            return await self._screen.dialogs.show_widget(widget)
        finally:
            self._screen.watch_view(None)

    async def _steer(self, work: ChildWork) -> None:
        if not work.is_agent or not work.is_running:
            self._screen.show_hint("only an agent at work takes a message")
            return
        text = await self._screen.dialogs.ask_text(f"Message to {work.title}")
        if text and text.strip():
            self._screen.show_hint(steer_work(self._screen.session, work, text))

    async def _stop(self, work: ChildWork) -> None:
        if not work.is_running:
            self._screen.show_hint("it has ended already")
            return
        no, yes = ChoiceOption("no", "No", key="n"), ChoiceOption("yes", "Stop it", key="y")
        if await self._screen.dialogs.choose(Question(f"Stop {work.title}?", [no, yes])) != "yes":
            return
        self._screen.show_hint(await stop_work(self._screen.session, work))
