"""Renders the lines around the prompt.

activity   todos, background tasks, queued messages, and what happens right now
status     mode, model, folder and branch · context, cost, time
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.cells import cell_len
from rich.style import Style
from rich.text import Text

from treadle.apps.conversation.block_text import TODO_SIGNS, format_activity
from treadle.apps.conversation.completion import Completion
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.state.view_state import ViewState
from treadle.apps.tui.render.markdown import styled_prefix, wrap_text
from treadle.apps.tui.render.palette import Palette
from treadle.lib.text.text import format_cost, format_count, format_duration, plural, shorten_home

MAX_TODOS = 6
MAX_QUEUED_SHOWN = 4
MAX_HINT_LINES = 3
MAX_NAME_WIDTH = 20  # of completions, up to which their descriptions are aligned
FOLDER_RANK = 5  # among the parts of the status line; a higher one is left out first
MORE_STATUS_HEIGHT = 20  # of a screen with room for more than one line of the user's command
LONG_TURN_SECONDS = 10.0  # the end of a longer turn rings the bell
_SPINNER = "◐◓◑◒"


class StatusInfo(msgspec.Struct, frozen=True):
    """What the status shows beside the view."""

    model: str = ""
    context_window: int = 0
    mode: str = ""
    folder: Path = Path()
    branch: str = ""
    turn_seconds: float = 0.0
    tick: int = 0
    hint: str = ""
    is_scrolled: bool = False
    has_sandbox_problem: bool = False
    vim_mode: str = ""
    is_dialog_open: bool = False  # then esc is for the dialog
    starting_servers: tuple[str, ...] = ()
    forecast: str = ""  # of the message that is written
    own_lines: tuple[Text, ...] = ()  # of the user's command, in place of the status line


def render_activity(view: ViewState, info: StatusInfo, width: int, palette: Palette) -> list[Text]:
    """The lines above the prompt; none if there is nothing to show."""
    lines: list[Text] = []
    if any(todo.status != "completed" for todo in view.todos):
        lines += _render_todos(view, palette)
    for task in view.tasks:
        lines.append(Text(f"◌ {task.task_id} {task.summary}", palette.accent))
    if len(view.queued_messages) > MAX_QUEUED_SHOWN:
        earlier = len(view.queued_messages) - MAX_QUEUED_SHOWN
        lines.append(Text(f"↳ {plural(earlier, 'more message')} (/queue)", palette.faint))
    lines += [
        styled_prefix("↳ ", palette.accent).append(_collapse_whitespace(text), palette.faint)
        for text in view.queued_messages[-MAX_QUEUED_SHOWN:]
    ]
    hint = wrap_text(Text(info.hint, palette.faint), width)[:MAX_HINT_LINES] if info.hint else []
    if view.is_busy:
        line = _render_activity_line(view, info, palette)
        if line.cell_len > width and hint:
            line = _render_activity_line(view, msgspec.structs.replace(info, hint=""), palette)
            lines += [line, *hint]
        else:
            lines.append(line)
    else:
        lines += hint
    for line in lines:
        line.truncate(max(width, 1), overflow="ellipsis")
    return lines


def _render_todos(view: ViewState, palette: Palette) -> list[Text]:
    open_todos = [todo for todo in view.todos if todo.status != "completed"]
    lines = []
    for todo in open_todos[:MAX_TODOS]:
        style = palette.accent if todo.status == "in_progress" else palette.faint
        text = f"{TODO_SIGNS[todo.status]} {_collapse_whitespace(todo.content)}"
        lines.append(Text(text, style))
    rest = []
    if len(open_todos) > MAX_TODOS:
        rest.append(f"{len(open_todos) - MAX_TODOS} more")
    if len(open_todos) < len(view.todos):
        rest.append(f"{len(view.todos) - len(open_todos)} of {len(view.todos)} done")
    if rest:
        lines.append(Text("  " + " · ".join(rest), palette.faint))
    return lines


def _render_activity_line(view: ViewState, info: StatusInfo, palette: Palette) -> Text:
    if view.activity.kind in ("approval", "question"):
        return Text(f"? {format_activity(view.activity)}", palette.warning)
    line = styled_prefix(f"{_SPINNER[info.tick % 4]} ", palette.accent)
    line.append(format_activity(view.activity))
    parts = [format_duration(info.turn_seconds)] if info.turn_seconds >= 1 else []
    if view.turn_usage.output:
        parts.append(f"↓ {format_count(view.turn_usage.output)}")
    if info.starting_servers:
        parts.append(f"MCP starting: {', '.join(info.starting_servers)}")
    if info.hint or not info.is_dialog_open:
        parts.append(info.hint or "esc interrupts")
    return line.append("".join(f" · {part}" for part in parts), palette.faint)


def render_status_line(view: ViewState, info: StatusInfo, width: int, palette: Palette) -> Text:
    """One line; parts that do not fit are left out, the least important first. The folder is
    shortened before."""
    if info.own_lines:
        return _render_own_line(info, width, palette)
    where, *shorter = _list_places(info)
    left = [
        (1, Text(info.mode, _style_mode(info, palette))),
        (2, Text(info.model, palette.faint)),
        (FOLDER_RANK, Text(where, palette.faint)),
    ]
    if info.has_sandbox_problem:
        left.insert(1, (1, Text("no sandbox", palette.warning)))
    if info.vim_mode:
        left.insert(0, (0, Text(info.vim_mode.upper(), palette.accent)))
    right: list[tuple[int, Text]] = []
    if info.is_scrolled:
        right.append((0, Text("↓ end", palette.accent)))
    if view.context_tokens and info.context_window:
        share = view.context_tokens / info.context_window
        style = palette.faint if share < 0.7 else palette.warning
        right.append((3, Text(f"{share:.0%} of {format_count(info.context_window)}", style)))
    if view.usage.known_cost:
        cost = format_cost(view.usage.cost, view.usage.known_cost)
        right.append((4, Text(cost, palette.faint)))
    elif view.usage.total:
        right.append((4, Text(f"{format_count(view.usage.total)} tokens", palette.faint)))
    elif info.forecast:
        right.append((7, Text(info.forecast, palette.faint)))
    if info.turn_seconds >= 1:
        right.append((6, Text(format_duration(info.turn_seconds), palette.faint)))
    while left or right:
        line = _justify([t for _, t in left], [t for _, t in right], width)
        if line is not None:
            return line
        least_important = max([*left, *right], key=lambda part: part[0])
        if least_important[0] == FOLDER_RANK and shorter:
            left[-1] = (FOLDER_RANK, Text(shorter.pop(0), palette.faint))
            continue
        (left if least_important in left else right).remove(least_important)
    return Text()


def _render_own_line(info: StatusInfo, width: int, palette: Palette) -> Text:
    """The line of the user; beside it a mode that decides something, and where the keys and the
    screen are."""
    shown = [("↓ end", palette.accent)] if info.is_scrolled else []
    shown += [(info.vim_mode.upper(), palette.accent)] if info.vim_mode else []
    shown += [(info.mode, _style_mode(info, palette))] if info.mode != "ask" else []
    shown += [("no sandbox", palette.warning)] if info.has_sandbox_problem else []
    right = Text(" · ").join([Text(*part) for part in shown])
    line = info.own_lines[0].copy()
    line.truncate(max(width - right.cell_len - 2 * bool(shown), 0), overflow="ellipsis")
    return _justify([line], [right], width) or right


def _style_mode(info: StatusInfo, palette: Palette) -> Style:
    return palette.warning if info.mode in ("auto", "bypass") else palette.faint


def _justify(left: Sequence[Text], right: Sequence[Text], width: int) -> Text | None:
    first, last = Text(" · ").join(left), Text(" · ").join(right)
    gap = width - first.cell_len - last.cell_len
    if gap < (2 if last else 0):
        return None
    return Text().append_text(first).append(" " * gap).append_text(last)


def _list_places(info: StatusInfo) -> list[str]:
    """The folder with its branch, and shorter forms of it."""
    path, name = shorten_home(info.folder), info.folder.name
    path = path if cell_len(path) <= 40 else "…" + path[-39:]
    names = [path, name] if name and name != path else [path]
    end = [f"…{name[-9:]}"] if len(name) > 10 else []
    branches = [f"{one} ({info.branch})" for one in names] if info.branch else []
    return [*branches, *names, *end]


def _collapse_whitespace(text: str) -> str:
    return " ".join(text.split())


class StatusArea:
    """The state of the lines around the prompt."""

    def __init__(self, session: HostedSession) -> None:
        self._session = session
        self.branch = ""
        self.hint = ""
        self.vim_mode = ""
        self.is_dialog_open = False
        self.own_lines: tuple[Text, ...] = ()
        self.tick = 0
        self.turn_seconds = 0.0
        self._started: float | None = None

    def update_clock(self, is_busy: bool) -> bool:
        """Measure the turn; True when a long one has just ended."""
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
        self, view: ViewState, palette: Palette, size: tuple[int, int], is_scrolled: bool
    ) -> tuple[list[Text], list[Text]]:
        """The activity lines and the status lines, on a small screen one."""
        width, height = size
        card = self._session.model.card
        info = StatusInfo(
            model=view.model or card.name,
            context_window=card.window,
            mode=self._session.mode_label,
            folder=self._session.folder,
            branch=self.branch,
            turn_seconds=self.turn_seconds,
            tick=self.tick,
            hint=self.hint,
            is_scrolled=is_scrolled,
            has_sandbox_problem=bool(self._session.sandbox_problem),
            vim_mode=self.vim_mode,
            is_dialog_open=self.is_dialog_open,
            starting_servers=self._session.servers.list_starting(),
            own_lines=self.own_lines,
            forecast=self._session.forecast.text,
        )
        activity = render_activity(view, info, width, palette)[-max(height // 3, 1) :]
        more = [line.copy() for line in self.own_lines[1:]] if height >= MORE_STATUS_HEIGHT else []
        for line in more:
            line.truncate(max(width, 1), overflow="ellipsis")
        return activity, [render_status_line(view, info, width, palette), *more]


def render_completions(
    completions: list[Completion], selected: int, width: int, max_rows: int, palette: Palette
) -> list[Text]:
    """The completions around the selected one."""
    lines: list[Text] = []
    names = [completion.text.strip() for completion in completions]
    described = [len(name) for name, one in zip(names, completions, strict=True) if one.description]
    column = min(max(described, default=0), MAX_NAME_WIDTH)
    first = first_visible_row(selected, len(completions), max_rows)
    for index in range(first, min(first + max_rows, len(completions))):
        name, description = names[index], completions[index].description
        is_selected = index == selected
        line = styled_prefix("▸ " if is_selected else "  ", palette.accent)
        line.append(name, palette.accent if is_selected else palette.plain)
        if description:
            line.append(" " * max(column - len(name), 0) + f"  {description}", palette.faint)
        line.truncate(max(width, 1), overflow="ellipsis")
        lines.append(line)
    return lines


def first_visible_row(selected: int, count: int, max_rows: int) -> int:
    """The first of at most `max_rows` rows of a list, so that the selected row is visible."""
    return max(0, min(selected - max_rows // 2, count - max_rows))
