"""The lines around the prompt: what runs, what waits, what it costs. Pure painting.

tray      todos, background tasks, messages that wait, and what is happening right now
status    model, mode, folder and branch · context, cost, time
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.cells import cell_len
from rich.text import Text

from treadle.apps.tui.host import Host
from treadle.apps.tui.input.completion import Completion
from treadle.apps.tui.render import status_area
from treadle.apps.tui.render.markdown import styled_prefix
from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.state.view_state import ViewState

MAX_TODOS = 6
_SPINNER = "◐◓◑◒"
_CHECKBOXES = {"open": "☐", "active": "▸", "done": "☑"}


class StatusInfo(msgspec.Struct, frozen=True):
    """What the view does not know."""

    model: str = ""
    context_window: int = 0
    mode: str = ""
    folder: Path = Path()
    branch: str = ""
    turn_seconds: float = 0.0
    tick: int = 0
    hint: str = ""
    is_scrolled: bool = False


def render_activity(view: ViewState, info: StatusInfo, width: int, palette: Palette) -> list[Text]:
    """The lines above the prompt, none if nothing goes on."""
    lines: list[Text] = []
    if any(todo.state != "done" for todo in view.todos):
        lines += _render_todos(view, palette)
    for task in view.tasks:
        name = task.summary.strip("[]")
        lines.append(Text(f"◌ {task.task_id} {name}", palette.accent))
    lines += [
        styled_prefix("↳ ", palette.accent).append(_collapse_whitespace(text), palette.faint)
        for text in view.queued_messages[-4:]
    ]
    if view.is_busy:
        lines.append(_render_activity_line(view, info, palette))
    elif info.hint:
        lines.append(Text(info.hint, palette.faint))
    for line in lines:
        line.truncate(max(width, 1), overflow="ellipsis")
    return lines


def _render_todos(view: ViewState, palette: Palette) -> list[Text]:
    done = sum(todo.state == "done" for todo in view.todos)
    left = [todo for todo in view.todos if todo.state != "done"]
    lines = []
    for todo in left[:MAX_TODOS]:
        style = palette.accent if todo.state == "active" else palette.faint
        lines.append(
            styled_prefix(f"{_CHECKBOXES[todo.state]} ", style).append(
                _collapse_whitespace(todo.text), style
            )
        )
    rest = []
    if len(left) > MAX_TODOS:
        rest.append(f"{len(left) - MAX_TODOS} more")
    if done:
        rest.append(f"{done} of {len(view.todos)} done")
    if rest:
        lines.append(Text("  " + " · ".join(rest), palette.faint))
    return lines


def _render_activity_line(view: ViewState, info: StatusInfo, palette: Palette) -> Text:
    if view.activity == "asking":
        return Text("? waits for your answer", palette.warning)
    line = styled_prefix(f"{_SPINNER[info.tick % 4]} ", palette.accent)
    line.append(view.activity or "working")
    parts = [format_duration(info.turn_seconds)] if info.turn_seconds >= 1 else []
    if view.turn_usage.output:
        parts.append(f"↓ {format_count(view.turn_usage.output)}")
    parts.append(info.hint or "esc stops")
    return line.append(" · " + " · ".join(parts), palette.faint)


def render_status_line(view: ViewState, info: StatusInfo, width: int, palette: Palette) -> Text:
    """One line. What does not fit is left out, the least important first."""
    where = _shorten_path(info.folder) + (f" ({info.branch})" if info.branch else "")
    mode = Text(info.mode, palette.warning if info.mode in ("auto", "bypass") else palette.faint)
    left = [(1, mode), (2, Text(info.model, palette.faint)), (5, Text(where, palette.faint))]
    right: list[tuple[int, Text]] = []
    if info.is_scrolled:
        right.append((0, Text("↓ end", palette.accent)))
    if view.context_tokens and info.context_window:
        share = view.context_tokens / info.context_window
        style = palette.faint if share < 0.7 else palette.warning
        right.append((3, Text(f"{share:.0%} of {format_count(info.context_window)}", style)))
    if view.usage.cost:
        right.append((4, Text(format_cost(view.usage.cost), palette.faint)))
    elif view.usage.total:
        right.append((4, Text(f"{format_count(view.usage.total)} tokens", palette.faint)))
    if info.turn_seconds >= 1:
        right.append((6, Text(format_duration(info.turn_seconds), palette.faint)))
    while left or right:
        line = _justify([t for _, t in left], [t for _, t in right], width)
        if line is not None:
            return line
        least = max([*left, *right], key=lambda part: part[0])
        (left if least in left else right).remove(least)
    return Text()


def _justify(left: Sequence[Text], right: Sequence[Text], width: int) -> Text | None:
    first, last = Text(" · ").join(left), Text(" · ").join(right)
    gap = width - first.cell_len - last.cell_len
    if gap < (2 if last else 0):
        return None
    return Text().append_text(first).append(" " * gap).append_text(last)


def format_count(number: int) -> str:
    """1234 -> 1.2k"""
    if number < 1_000:
        return str(number)
    if number < 1_000_000:
        return f"{number / 1_000:.1f}k" if number < 100_000 else f"{number // 1_000}k"
    return f"{number / 1_000_000:.1f}M".replace(".0M", "M")


def format_cost(dollars: float) -> str:
    return f"${dollars:.2f}" if dollars >= 0.1 else f"${dollars:.3f}"


def format_duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3_600}h {whole % 3_600 // 60:02}m"


def format_age(seconds: float) -> str:
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{name} ago"
    return "now"


def _shorten_path(folder: Path) -> str:
    text = str(folder)
    home = str(Path.home())
    text = "~" + text[len(home) :] if text == home or text.startswith(home + "/") else text
    return text if cell_len(text) <= 40 else "…" + text[-39:]


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())


MAX_NAME_WIDTH = 20  # of what is offered, beyond which what is said about it is not aligned
LONG_TURN_SECONDS = 10.0  # seconds after which the end of a turn is worth a bell


class StatusArea:
    """What the app knows beside the view, and the lines made of both."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.branch = ""
        self.hint = ""
        self.tick = 0
        self.turn_seconds = 0.0
        self._started: float | None = None

    def update_clock(self, is_busy: bool) -> bool:
        """Follow the turns; whether one has just ended that took long."""
        now = time.monotonic()
        if is_busy and self._started is None:
            self._started, self.hint = now, ""
        if self._started is not None:
            self.turn_seconds = now - self._started
        if is_busy or self._started is None:
            return False
        self._started = None
        return self.turn_seconds > LONG_TURN_SECONDS

    def render(
        self, view: ViewState, palette: Palette, size: tuple[int, int], *, is_scrolled: bool
    ) -> tuple[list[Text], Text]:
        """The tray and the status."""
        width, height = size
        card = self._host.model
        facts = status_area.StatusInfo(
            model=view.model or card.name,
            context_window=card.window,
            mode=self._host.mode,
            folder=self._host.folder,
            branch=self.branch,
            turn_seconds=self.turn_seconds,
            tick=self.tick,
            hint=self.hint,
            is_scrolled=is_scrolled,
        )
        above = status_area.render_activity(view, facts, width, palette)[-max(height // 3, 1) :]
        return above, status_area.render_status_line(view, facts, width, palette)


def render_completions(
    completions: list[Completion], selected: int, width: int, max_rows: int, palette: Palette
) -> list[Text]:
    """What is offered, around what the cursor is on."""
    lines: list[Text] = []
    column = max((len(offer.text.strip()) for offer in completions if offer.description), default=0)
    first = max(0, min(selected - max_rows // 2, len(completions) - max_rows))
    for place, offer in enumerate(completions[first : first + max_rows], first):
        is_at = place == selected
        line = styled_prefix("▸ " if is_at else "  ", palette.accent)
        line.append(offer.text.strip(), palette.accent if is_at else palette.plain)
        if offer.description:
            gap = max(min(column, MAX_NAME_WIDTH) - len(offer.text.strip()), 0) + 2
            line.append(" " * gap + offer.description, palette.faint)
        line.truncate(max(width, 1), overflow="ellipsis")
        lines.append(line)
    return lines
