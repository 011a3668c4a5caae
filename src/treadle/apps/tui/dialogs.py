"""What is asked of the person, in the place of the prompt: one thing at a time.

Each dialog is a few awaits from question to answer. One whose question is gone (the turn was
interrupted) is taken down by cancelling it. The app mounts what is given to it here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol

import msgspec
from rich.text import Text
from textual.widget import Widget

from treadle.apps.tui import diffs, tray
from treadle.apps.tui.blocks import Call
from treadle.apps.tui.choice import Option
from treadle.apps.tui.choosing import Body, Choices
from treadle.apps.tui.conversation import Conversation, Question
from treadle.apps.tui.entry import Entry
from treadle.apps.tui.host import FileChange, Host, TurnLine
from treadle.apps.tui.markdown import coloured, lead, wrapped
from treadle.apps.tui.painting import title
from treadle.apps.tui.palette import Palette
from treadle.core.errors import TreadleError
from treadle.core.loop.steps import PendingApproval
from treadle.core.terminal import visible
from treadle.core.transcript.content import Arguments


class Stage(Protocol):
    """Where dialogs are shown: the app."""

    palette: Palette

    @property
    def host(self) -> Host: ...

    async def enter(self, *widgets: Widget) -> None:
        """Show these instead of the prompt, the last one focused."""

    async def leave(self, *widgets: Widget) -> None: ...


class Dialogs:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._turn = asyncio.Lock()
        self._answer: asyncio.Future[str | None] | None = None
        self._looked: Callable[[str], None] | None = None

    # --- the two forms -------------------------------------------------------------------

    async def choose(
        self,
        title: str,
        options: Sequence[Option],
        *,
        filters: bool = False,
        body: Body | None = None,
        hint: str = "",
        now: str = "",
        looked: Callable[[Choices, str], None] | None = None,
    ) -> str | None:
        """The value of a choice, or None if the person leaves."""
        widget = Choices(
            title, options, self._stage.palette, body=body, filters=filters, hint=hint, now=now
        )
        async with self._shown(widget) as answer:
            if looked is not None and options:
                self._looked = lambda value: looked(widget, value)
                looked(widget, options[0].value)
            return await answer

    async def write(self, question: str, text: str = "", *, anew: bool = False) -> str | None:
        """A text; None if the person leaves. With `anew`, typing replaces what stands there."""
        from textual.widgets import Static

        label = Static(Text(question, self._stage.palette.bold))
        entry = Entry(text)
        async with self._shown(label, entry) as answer:
            if anew:
                entry.select_all()
            return await answer

    @asynccontextmanager
    async def _shown(self, *widgets: Widget) -> AsyncIterator[asyncio.Future[str | None]]:
        async with self._turn:
            self._answer = asyncio.get_running_loop().create_future()
            await self._stage.enter(*widgets)
            try:
                yield self._answer
            finally:
                self._answer = self._looked = None
                await self._stage.leave(*widgets)

    def answered(self, value: str | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(value)

    def looked_at(self, value: str) -> None:
        if self._looked is not None:
            self._looked(value)

    @property
    def is_open(self) -> bool:
        return self._answer is not None

    # --- approvals and questions ---------------------------------------------------------

    async def settle(self, conversation: Conversation, question: Question) -> None:
        """Ask the person, and hand the answer on."""
        if question.ask is not None:
            await self._answer_ask(conversation, question)
        elif question.approval is not None:
            await self._approve(conversation, question, question.approval)

    async def _answer_ask(self, conversation: Conversation, question: Question) -> None:
        ask = question.ask
        assert ask is not None, "only questions of the model come here"
        options = [Option(label, label, about) for label, about in ask.choices]
        if options:
            options.append(Option("", "Something else"))
            picked = await self.choose(ask.question, options)
            if picked:
                conversation.answer(question, picked)
                return
            if picked is None:
                conversation.answer(question, None)
                return
        conversation.answer(question, await self.write(ask.question))

    async def _approve(
        self, conversation: Conversation, question: Question, approval: PendingApproval
    ) -> None:
        diff = await self._stage.host.preview(approval.call)
        options = [Option("once", "Yes", key="y")]
        if approval.rules and not question.is_child:
            rules = visible(", ".join(approval.rules))
            options.append(Option("always", f"Yes, and always: {rules}", key="a"))
        edited = _editable(approval)
        if edited is not None and not question.is_child:
            options.append(Option("edit", "Edit first", key="e"))
        options.append(Option("deny", "No, and say why", key="n"))
        answer = await self.choose(
            _question(approval),
            options,
            body=lambda width: self._described(approval, diff, width),
            hint="esc stops the turn",
        )
        match answer:
            case "once":
                conversation.approve(question)
            case "always":
                conversation.approve(question, always=True)
            case "edit" if edited is not None:
                await self._edit(conversation, question, approval, edited)
            case "deny":
                reason = await self.write("Why not? It reads this. (enter alone gives no reason)")
                if reason is None:
                    await self._approve(conversation, question, approval)
                else:
                    conversation.deny(question, reason.strip())
            case _:
                conversation.interrupt()

    async def _edit(
        self,
        conversation: Conversation,
        question: Question,
        approval: PendingApproval,
        edited: tuple[str, str],
    ) -> None:
        name, before = edited
        text = await self.write(f"{approval.call.name}: change {name}, enter runs it", before)
        if text is None:
            await self._approve(conversation, question, approval)
            return
        arguments: Arguments = {**(approval.call.arguments or {}), name: text}
        conversation.approve(question, arguments=arguments)

    def _described(self, approval: PendingApproval, diff: str, width: int) -> list[Text]:
        """What is to happen, in full: a diff, a command, or the arguments. Keys in them stand as
        they are, for consent is to what will run."""
        palette, call = self._stage.palette, approval.call
        lines: list[Text] = []
        if diffs.is_diff(diff):
            lines += diffs.lines(visible(diff, keep="\n\t"), width, palette)
        else:
            for name, value in (call.arguments or {}).items():
                text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                text = visible(text, keep="\n\t")
                if name == "command":
                    for row in coloured(text, "bash", palette):
                        lines += wrapped(row, width)
                elif text:
                    label = lead(f"{name} ", palette.faint)
                    lines += wrapped(label + Text(text), width)
        if approval.reason:
            lines += wrapped(Text(visible(approval.reason), palette.warning), width)
        return [*lines, Text()]

    # --- going back ----------------------------------------------------------------------

    async def rewind(
        self, preview: Callable[[Choices, TurnLine], Awaitable[None]], run: Callable[..., None]
    ) -> tuple[TurnLine, bool] | None:
        """Which turn to go back to before, and whether the files go back with it."""
        turns = self._stage.host.turns()
        if not turns:
            return None
        by_id = {turn.turn_id: turn for turn in turns}
        now = time.time()
        options = [
            Option(one.turn_id, one.text or "(went on)", tray.ago(now - one.time))
            for one in reversed(turns)
        ]
        chosen = await self.choose(
            "Go back to before",
            options,
            filters=True,
            looked=lambda widget, value: run(preview(widget, by_id[value])),
        )
        if chosen is None:
            return None
        turn = by_id[chosen]
        try:
            changes = await self._stage.host.changes(chosen) if turn.has_files else []
        except TreadleError:
            changes = []
        if not changes:
            return turn, False
        answer = await self.choose(
            f"{len(changes)} files would change",
            [
                Option("both", "Conversation and files", key="b"),
                Option("words", "Conversation only", key="c"),
            ],
            body=lambda width: changed_lines(changes, self._stage.palette),
        )
        return None if answer is None else (turn, answer == "both")


def changed_lines(changes: Sequence[FileChange], palette: Palette) -> list[Text]:
    """What going back would do to files, a line each."""
    signs = {"added": ("+", palette.good), "removed": ("-", palette.error)}
    lines = []
    for change in changes:
        sign, style = signs.get(change.kind, ("~", palette.warning))
        lines.append(lead(f"{sign} ", style).append(change.path))
    return lines


def _question(approval: PendingApproval) -> str:
    call = Call(approval.call.id, approval.call.name, summary=approval.summary)
    subject = visible(title(call).replace(": ", " ", 1))
    return "Run this command?" if call.name == "bash" else f"Allow {subject}?"


def _editable(approval: PendingApproval) -> tuple[str, str] | None:
    """The argument that a person would want to change, and its text."""
    given = approval.call.arguments or {}
    for name in ("command", "content", "new_string", "url"):
        if isinstance(given.get(name), str):
            return name, given[name]
    return None
