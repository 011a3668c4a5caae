"""The dialogs of the full screen, shown in place of the prompt, one at a time.

A dialog is a coroutine that returns the answer; cancelling it closes the dialog. The app (a
DialogHost) mounts the widgets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Protocol

import msgspec
from rich.text import Text
from textual.widget import Widget

from treadle.apps.conversation.approval_text import (
    ApprovalAnswer,
    has_whole_file,
    list_risk_lines,
)
from treadle.apps.conversation.choices import ChoiceOption
from treadle.apps.conversation.commands.answers import Question
from treadle.apps.conversation.undo import FileChange
from treadle.apps.tui.dialog_lock import DialogLock
from treadle.apps.tui.input.key_map import KeyMap
from treadle.apps.tui.questions import ApprovalQuestion
from treadle.apps.tui.render import diffs
from treadle.apps.tui.render.markdown import (
    highlight_code,
    render_markdown,
    styled_prefix,
    wrap_text,
)
from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.widgets.choices import BodyRenderer, Choices, PlanChoices
from treadle.apps.tui.widgets.text_entry import TextEntry
from treadle.core.steps import PendingApproval
from treadle.lib.text.sanitize import escape_invisible

BACK_HINT = " · esc goes back"  # to the question that opened the text
QUESTION_HINT = "↑ ↓ or a number mark, enter answers, or type an answer · esc: none"
MENU_HINT = "↑ ↓ move, enter selects, esc closes"
MAX_PREVIEW_ROWS = 12


class DialogHost(Protocol):
    """Shows the dialogs: the app."""

    palette: Palette
    key_map: KeyMap

    def start_task(self, work: Coroutine[Any, Any, None]) -> None: ...

    async def show_dialog(self, *widgets: Widget, by_user: bool, is_touched: bool) -> None:
        """Show the widgets above the prompt. The last one gets the keys: at once if the user opened
        it, else when footer.py says so. `is_touched`: enter counts at once."""

    async def hide_dialog(self, *widgets: Widget) -> None: ...

    async def run_editor(self, text: str) -> tuple[str, str]:
        """See questions.QuestionView."""


class Dialogs:
    """Implements questions.QuestionView."""

    # esc stops or keeps planning, and a key shows the whole file
    hidden_answers: frozenset[ApprovalAnswer] = frozenset({"stop", "whole"})
    hidden_plan_answers: frozenset[str] = frozenset({"keep", "editor"})  # ctrl+g

    def __init__(self, dialog_host: DialogHost, lock: DialogLock) -> None:
        self._dialog_host = dialog_host
        self._lock = lock
        self._answer: asyncio.Future[str | None] | None = None
        self._on_highlight: Callable[[str], None] | None = None
        self._drafts: dict[str, str] = {}  # texts that were not submitted
        self._opened_call = ""  # of the list of calls that wait, by ID
        self._marked_calls: frozenset[str] = frozenset()

    # --- choices and texts ---------------------------------------------------------------

    async def choose(self, question: Question) -> str | None:
        """What the question is about is shown above its options."""
        palette, message = self._dialog_host.palette, question.message
        marked = ""

        def body(width: int) -> list[Text]:
            if question.changes:
                return render_file_changes(question.changes, palette)
            return [*wrap_text(Text(message, palette.faint), width), Text()] if message else []

        async def show_preview(widget: Choices, value: str) -> None:
            nonlocal marked
            marked = value
            assert question.preview is not None, "the caller has checked it"
            lines = await question.preview(value)
            if widget.is_attached and marked == value:
                widget.set_body(lambda width: _render_preview(lines, width, palette))

        def highlight(widget: Choices, value: str) -> None:
            self._dialog_host.start_task(show_preview(widget, value))

        question_hint = QUESTION_HINT if question.takes_text else ""
        return await self.show_choices(
            question.title,
            question.options,
            filterable=question.is_filterable,
            current=question.current,
            body=body,
            hint=MENU_HINT if question.by_user or question.is_filterable else question_hint,
            on_highlight=highlight if question.preview is not None else None,
            by_user=question.by_user,
        )

    async def show_choices(
        self,
        title: str,
        options: Sequence[ChoiceOption],
        *,
        filterable: bool = False,
        body: BodyRenderer | None = None,
        hint: str = "",
        shows_enter: bool = False,
        current: str = "",
        on_highlight: Callable[[Choices, str], None] | None = None,
        other_body: BodyRenderer | None = None,
        other_hint: str = "",
        by_user: bool = True,
        mode_answer: str = "",
        find_start: Callable[[Sequence[Text]], int] | None = None,
    ) -> str | None:
        """The value of the chosen option, or None if the user closes the dialog. `by_user`: the
        user has just opened it. `shows_enter`: the hint begins with what enter would do.
        `mode_answer`: the option that the key of the mode selects.
        `find_start`: the first line of a body that does not fit."""
        palette = self._dialog_host.palette
        widget = Choices(
            title,
            options,
            palette,
            body,
            filterable,
            hint,
            current,
            other_body=other_body,
            other_hint=other_hint,
        )
        widget.mode_answer, widget.find_start = mode_answer, find_start
        widget.shows_enter = shows_enter
        async with self._open_dialog(widget, by_user=by_user) as answer:
            if on_highlight is not None and options:
                self._on_highlight = lambda value: on_highlight(widget, value)
                on_highlight(widget, options[0].value)
            return await answer

    async def choose_several(self, title: str, options: Sequence[ChoiceOption]) -> list[int] | None:
        hint = "space marks, enter sends the marked ones, or type an answer · esc: none"
        widget = Choices(title, options, self._dialog_host.palette, hint=hint, multiple=True)
        async with self._open_dialog(widget, by_user=False) as answer:
            chosen = await answer
        return None if chosen is None else [int(position) for position in chosen.split(",")]

    async def ask_text(
        self,
        prompt: str,
        text: str = "",
        *,
        select_all: bool = False,
        by_user: bool = True,
        draft: str = "",
    ) -> str | None:
        """The text of the user, or None if the user closes the dialog. With `select_all`, typing
        replaces the initial text. `draft`: a dialog of this name that was closed before shows what
        the user typed into it."""
        from textual.widgets import Static

        palette = self._dialog_host.palette
        label = Static(
            Text.assemble((prompt, palette.bold), (BACK_HINT if draft else "", palette.faint))
        )
        entry = TextEntry(self._drafts.pop(draft, text))
        opening = self._open_dialog(label, entry, by_user=by_user, is_touched=by_user and not text)
        async with opening as answer:
            if select_all:
                entry.select_all()
            typed = None
            try:
                typed = await answer
            finally:
                if typed is None and draft and entry.text != text:
                    self._drafts[draft] = entry.full_text
            return typed

    async def show_widget(
        self, widget: Widget, on_highlight: Callable[[str], None] | None = None
    ) -> str | None:
        """The answer of a widget that posts Choices.Selected, and that the user has opened."""
        async with self._open_dialog(widget, by_user=True) as answer:
            self._on_highlight = on_highlight
            return await answer

    @asynccontextmanager
    async def _open_dialog(
        self, *widgets: Widget, by_user: bool, is_touched: bool = False
    ) -> AsyncIterator[asyncio.Future[str | None]]:
        async with self._lock.dialog():
            self._answer = asyncio.get_running_loop().create_future()
            show = self._dialog_host.show_dialog
            try:  # also around the opening: a question may be withdrawn meanwhile
                await show(*widgets, by_user=by_user, is_touched=is_touched)
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

    # --- approvals -----------------------------------------------------------------------

    async def choose_approval(self, question: ApprovalQuestion) -> str | None:
        approval, options = question.approval, question.options
        preview = approval.preview
        whole = (
            msgspec.structs.replace(preview, text=preview.whole) if preview is not None else None
        )
        hint = "esc returns to the list" if question.is_in_list else "esc stops the turn"
        other_hint, other_body = "", None
        if has_whole_file(approval):
            hint, other_hint = f"{hint} · w: whole file", f"{hint} · w: changed lines"
            other_body = self._make_body(msgspec.structs.replace(approval, preview=whole))
        body = self._make_body(approval)
        can_widen = approval.wider_mode and any(one.value == "session" for one in options)
        return await self.show_choices(
            question.title,
            options,
            body=body,
            hint=hint,
            shows_enter=True,
            other_body=other_body,
            other_hint=other_hint,
            by_user=False,
            mode_answer="session" if can_widen else "",
            find_start=diffs.find_first_change,
        )

    async def choose_plan(
        self, title: str, plan: str, options: Sequence[ChoiceOption]
    ) -> str | None:
        shown, palette = escape_invisible(plan, keep="\n\t"), self._dialog_host.palette

        @lru_cache(maxsize=2)
        def body(width: int) -> list[Text]:
            return [*render_markdown(shown, width, palette), Text()]

        hint = self._dialog_host.key_map.replace("esc: keep planning · ctrl+g: your editor")
        widget = PlanChoices(title, options, palette, body, hint=hint)
        async with self._open_dialog(widget, by_user=False) as answer:
            return await answer

    async def run_editor(self, text: str) -> tuple[str, str]:
        return await self._dialog_host.run_editor(text)

    async def choose_calls(
        self, title: str, approvals: Sequence[PendingApproval], options: Sequence[ChoiceOption]
    ) -> tuple[str, list[int]] | None:
        hint = "space/* mark · y/n, then enter: answer · enter alone opens"
        ids = [approval.call.id for approval in approvals]
        opened, marked = self._opened_call, self._marked_calls
        widget = Choices(
            title,
            options,
            self._dialog_host.palette,
            hint=hint,
            multiple=True,
            actions={"y": "once", "n": "deny"},
            current=str(ids.index(opened)) if opened in ids else "",
            marked=[place for place, name in enumerate(ids) if name in marked],
        )
        bodies = [self._make_body(approval) for approval in approvals]

        def show(value: str) -> None:
            widget.set_body(bodies[int(value)])

        async with self._open_dialog(widget, by_user=False) as answer:
            self._on_highlight = show
            show(options[widget.cursor].value)
            chosen = await answer
        self._opened_call, self._marked_calls = "", frozenset()
        if chosen is None:
            return None
        action, _, positions = chosen.partition(" ")
        if action == "open":  # the list comes back as it was left
            self._opened_call = ids[widget.cursor]
            self._marked_calls = frozenset(ids[place] for place in widget.marked)
        return action, [int(position) for position in positions.split(",")]

    def _make_body(self, approval: PendingApproval) -> BodyRenderer:
        """Describes the call; made once for each width, since colouring takes time."""
        return lru_cache(maxsize=2)(lambda width: self._describe_call(approval, width))

    def _describe_call(self, approval: PendingApproval, width: int) -> list[Text]:
        """What the call would do, complete: a diff, a command, or the arguments. Secrets are shown:
        the user approves exactly what will run."""
        palette, preview = self._dialog_host.palette, approval.preview
        lines: list[Text] = []
        shown = escape_invisible(preview.text, keep="\n\t") if preview is not None else ""
        if preview is not None and preview.kind == "diff":
            lines += diffs.render_diff(shown, width, palette, highlights=True, wraps=True)
        elif preview is not None and preview.kind == "command":
            for row in highlight_code(shown, "bash", palette):
                row.stylize(palette.bold)  # the clearest lines of the dialog
                lines += wrap_text(row, width)
        elif shown:
            lines += wrap_text(Text(shown), width)
        if preview is None or preview.kind != "diff":
            lines += self._describe_arguments(approval, shown, width)
        for risk in list_risk_lines(approval):
            sign = styled_prefix("! " if risk.is_marked else "· ", palette.error)
            style = palette.error if risk.is_marked else palette.plain
            lines += wrap_text(sign + Text(risk.text, style), width)
        if approval.reason:
            lines += wrap_text(Text(escape_invisible(approval.reason), palette.faint), width)
        return [*lines, Text()]

    def _describe_arguments(self, approval: PendingApproval, shown: str, width: int) -> list[Text]:
        """The arguments that the preview does not show already."""
        lines: list[Text] = []
        for name, value in approval.arguments.items():
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            text = escape_invisible(text, keep="\n\t")
            if text and text != shown:
                label = styled_prefix(f"{name} ", self._dialog_host.palette.faint)
                lines += wrap_text(label + Text(text), width)
        return lines


def render_file_changes(changes: Sequence[FileChange], palette: Palette) -> list[Text]:
    """What a rewind would do to files, a line each."""
    styles = {"added": palette.good, "removed": palette.error, "changed": palette.warning}
    return [
        styled_prefix(f"{one.sign} ", styles[one.kind]).append(one.path).append(one.note)
        for one in changes
    ]


def _render_preview(lines: Sequence[str | FileChange], width: int, palette: Palette) -> list[Text]:
    changes = [line for line in lines if isinstance(line, FileChange)]
    if changes:
        return render_file_changes(changes, palette)[:MAX_PREVIEW_ROWS]
    rows = [Text(line, palette.faint) for line in lines if isinstance(line, str)]
    for row in rows:
        row.truncate(max(width, 1), overflow="ellipsis")
    return rows
