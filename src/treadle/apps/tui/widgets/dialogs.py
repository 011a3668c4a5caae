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

from treadle.apps.tui.conversation import Conversation, PendingQuestion
from treadle.apps.tui.host import FileChange, Host, TurnLine
from treadle.apps.tui.render import diffs, status_area
from treadle.apps.tui.render.markdown import highlight_code, styled_prefix, wrap_text
from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.render.render import format_call_title
from treadle.apps.tui.state.blocks import ToolCallBlock
from treadle.apps.tui.state.choice_option import ChoiceOption
from treadle.apps.tui.widgets.choices import BodyRenderer, Choices
from treadle.apps.tui.widgets.text_entry import TextEntry
from treadle.core.errors import TreadleError
from treadle.core.sanitize import escape_invisible
from treadle.core.steps import PendingApproval
from treadle.core.transcript.content import Arguments


class DialogHost(Protocol):
    """Where dialogs are shown: the app."""

    palette: Palette

    @property
    def host(self) -> Host: ...

    async def show_dialog(self, *widgets: Widget) -> None:
        """Show these instead of the prompt, the last one focused."""

    async def hide_dialog(self, *widgets: Widget) -> None: ...


class Dialogs:
    def __init__(self, dialog_host: DialogHost) -> None:
        self._dialog_host = dialog_host
        self._lock = asyncio.Lock()
        self._answer: asyncio.Future[str | None] | None = None
        self._on_highlight: Callable[[str], None] | None = None

    # --- the two forms -------------------------------------------------------------------

    async def choose(
        self,
        title: str,
        options: Sequence[ChoiceOption],
        *,
        filterable: bool = False,
        body: BodyRenderer | None = None,
        hint: str = "",
        current: str = "",
        on_highlight: Callable[[Choices, str], None] | None = None,
    ) -> str | None:
        """The value of a choice, or None if the person leaves."""
        widget = Choices(
            title,
            options,
            self._dialog_host.palette,
            body=body,
            filterable=filterable,
            hint=hint,
            current=current,
        )
        async with self._open_dialog(widget) as answer:
            if on_highlight is not None and options:
                self._on_highlight = lambda value: on_highlight(widget, value)
                on_highlight(widget, options[0].value)
            return await answer

    async def ask_text(
        self, question: str, text: str = "", *, select_all: bool = False
    ) -> str | None:
        """A text; None if the person leaves. With `anew`, typing replaces what stands there."""
        from textual.widgets import Static

        label = Static(Text(question, self._dialog_host.palette.bold))
        entry = TextEntry(text)
        async with self._open_dialog(label, entry) as answer:
            if select_all:
                entry.select_all()
            return await answer

    @asynccontextmanager
    async def _open_dialog(self, *widgets: Widget) -> AsyncIterator[asyncio.Future[str | None]]:
        async with self._lock:
            self._answer = asyncio.get_running_loop().create_future()
            await self._dialog_host.show_dialog(*widgets)
            try:
                yield self._answer
            finally:
                self._answer = self._on_highlight = None
                await self._dialog_host.hide_dialog(*widgets)

    def submit_answer(self, value: str | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(value)

    def highlight_choice(self, value: str) -> None:
        if self._on_highlight is not None:
            self._on_highlight(value)

    @property
    def is_open(self) -> bool:
        return self._answer is not None

    # --- approvals and questions ---------------------------------------------------------

    async def ask_question(self, conversation: Conversation, question: PendingQuestion) -> None:
        """Ask the person, and hand the answer on."""
        if question.model_question is not None:
            await self._ask_model_question(conversation, question)
        elif question.approval is not None:
            await self._ask_approval(conversation, question, question.approval)

    async def _ask_model_question(
        self, conversation: Conversation, question: PendingQuestion
    ) -> None:
        ask = question.model_question
        assert ask is not None, "only questions of the model come here"
        options = [ChoiceOption(label, label, about) for label, about in ask.choices]
        if options:
            options.append(ChoiceOption("", "Something else"))
            picked = await self.choose(ask.text, options)
            if picked:
                conversation.answer(question, picked)
                return
            if picked is None:
                conversation.answer(question, None)
                return
        conversation.answer(question, await self.ask_text(ask.text))

    async def _ask_approval(
        self, conversation: Conversation, question: PendingQuestion, approval: PendingApproval
    ) -> None:
        diff = await self._dialog_host.host.preview_call(approval.call)
        options = [ChoiceOption("once", "Yes", key="y")]
        if approval.rules and not question.is_child:
            rules = escape_invisible(", ".join(approval.rules))
            options.append(ChoiceOption("always", f"Yes, and always: {rules}", key="a"))
        edited = _find_editable_argument(approval)
        if edited is not None and not question.is_child:
            options.append(ChoiceOption("edit", "Edit first", key="e"))
        options.append(ChoiceOption("deny", "No, and say why", key="n"))
        answer = await self.choose(
            _format_approval_title(approval),
            options,
            body=lambda width: self._describe_call(approval, diff, width),
            hint="esc stops the turn",
        )
        match answer:
            case "once":
                conversation.approve(question)
            case "always":
                conversation.approve(question, always=True)
            case "edit" if edited is not None:
                await self._edit_argument(conversation, question, approval, edited)
            case "deny":
                reason = await self.ask_text(
                    "Why not? It reads this. (enter alone gives no reason)"
                )
                if reason is None:
                    await self._ask_approval(conversation, question, approval)
                else:
                    conversation.deny(question, reason.strip())
            case _:
                conversation.interrupt()

    async def _edit_argument(
        self,
        conversation: Conversation,
        question: PendingQuestion,
        approval: PendingApproval,
        argument: tuple[str, str],
    ) -> None:
        name, before = argument
        text = await self.ask_text(f"{approval.call.name}: change {name}, enter runs it", before)
        if text is None:
            await self._ask_approval(conversation, question, approval)
            return
        arguments: Arguments = {**(approval.call.arguments or {}), name: text}
        conversation.approve(question, arguments=arguments)

    def _describe_call(self, approval: PendingApproval, diff: str, width: int) -> list[Text]:
        """What is to happen, in full: a diff, a command, or the arguments. Keys in them stand as
        they are, for consent is to what will run."""
        palette, call = self._dialog_host.palette, approval.call
        lines: list[Text] = []
        if diffs.is_diff(diff):
            lines += diffs.render_diff(escape_invisible(diff, keep="\n\t"), width, palette)
        else:
            for name, value in (call.arguments or {}).items():
                text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
                text = escape_invisible(text, keep="\n\t")
                if name == "command":
                    for row in highlight_code(text, "bash", palette):
                        lines += wrap_text(row, width)
                elif text:
                    label = styled_prefix(f"{name} ", palette.faint)
                    lines += wrap_text(label + Text(text), width)
        if approval.reason:
            lines += wrap_text(Text(escape_invisible(approval.reason), palette.warning), width)
        return [*lines, Text()]

    # --- going back ----------------------------------------------------------------------

    async def choose_rewind(
        self, preview: Callable[[Choices, TurnLine], Awaitable[None]], spawn: Callable[..., None]
    ) -> tuple[TurnLine, bool] | None:
        """Which turn to go back to before, and whether the files go back with it."""
        turns = self._dialog_host.host.list_turns()
        if not turns:
            return None
        by_id = {turn.turn_id: turn for turn in turns}
        now = time.time()
        options = [
            ChoiceOption(
                one.turn_id, one.text or "(went on)", status_area.format_age(now - one.time)
            )
            for one in reversed(turns)
        ]
        chosen = await self.choose(
            "Go back to before",
            options,
            filterable=True,
            on_highlight=lambda widget, value: spawn(preview(widget, by_id[value])),
        )
        if chosen is None:
            return None
        turn = by_id[chosen]
        try:
            changes = await self._dialog_host.host.preview_rewind(chosen) if turn.has_files else []
        except TreadleError:
            changes = []
        if not changes:
            return turn, False
        answer = await self.choose(
            f"{len(changes)} files would change",
            [
                ChoiceOption("both", "Conversation and files", key="b"),
                ChoiceOption("words", "Conversation only", key="c"),
            ],
            body=lambda width: render_file_changes(changes, self._dialog_host.palette),
        )
        return None if answer is None else (turn, answer == "both")


def render_file_changes(changes: Sequence[FileChange], palette: Palette) -> list[Text]:
    """What going back would do to files, a line each."""
    signs = {"added": ("+", palette.good), "removed": ("-", palette.error)}
    lines = []
    for change in changes:
        sign, style = signs.get(change.kind, ("~", palette.warning))
        lines.append(styled_prefix(f"{sign} ", style).append(change.path))
    return lines


def _format_approval_title(approval: PendingApproval) -> str:
    call = ToolCallBlock(approval.call.id, approval.call.name, summary=approval.summary)
    subject = escape_invisible(format_call_title(call).replace(": ", " ", 1))
    return "Run this command?" if call.name == "bash" else f"Allow {subject}?"


def _find_editable_argument(approval: PendingApproval) -> tuple[str, str] | None:
    """The argument that a person would want to change, and its text."""
    given = approval.call.arguments or {}
    for name in ("command", "content", "new_string", "url"):
        if isinstance(given.get(name), str):
            return name, given[name]
    return None
