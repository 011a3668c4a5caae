"""`/agents` on the full screen: the agents and background tasks at work; one can be watched, sent a
message, or stopped.

The data is the conversation's (child_views.py); actions go to the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from treadle.apps.conversation.child_views import ChildWork
from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands.agents import list_agents, steer_work, stop_work
from treadle.apps.conversation.commands.answers import Question
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.tui.widgets.agent_list import AgentList, WatchLine

if TYPE_CHECKING:
    from treadle.apps.tui.screen import FullScreen

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
