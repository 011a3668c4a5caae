"""Renders a block as lines, folded or expanded.

    ›  a user message              ●  a tool call; sign and colour show its state
    ✻  thinking, folded            ·  a note

Pure: a block, a width and a palette give lines. The two-cell gutter is part of the lines.
"""

from __future__ import annotations

import re

import msgspec
from rich.style import Style
from rich.text import Text

from treadle.apps.conversation.block_text import format_activity, format_call_title, is_diff
from treadle.apps.conversation.diff_rows import count_changes
from treadle.apps.conversation.first_screen import (
    FirstScreen,
    describe_session,
    list_facts,
)
from treadle.apps.conversation.session.hosted_session import HostedSession
from treadle.apps.conversation.state.blocks import (
    CallState,
    CodeBlock,
    MarkdownBlock,
    NoteBlock,
    ShellBlock,
    ThinkingBlock,
    ToolCallBlock,
    UserMessageBlock,
    ViewBlock,
)
from treadle.apps.conversation.tool_kinds import get_tool_kind
from treadle.apps.tui.render import diffs, markdown
from treadle.apps.tui.render.markdown import styled_prefix
from treadle.apps.tui.render.palette import Palette
from treadle.core.transcript.content import parse_arguments
from treadle.lib.text.sanitize import strip_escapes
from treadle.lib.text.text import format_count, format_duration, plural

GUTTER_WIDTH = 2
MAX_DIFF_LINES = 24
MAX_PROGRESS_LINES = 3
MAX_PREVIEW_CHARS = 4_000
MAX_EXPANDED_CHARS = 200_000
MAX_FOLDED_LINES = 12
MAX_REASON_LINES = 3

# The sign of a call, and its style: a role of the palette.
_STATE_SIGNS: dict[CallState, tuple[str, str]] = {
    "writing": ("○ ", "accent"),
    "waiting": ("… ", "faint"),
    "asking": ("? ", "warning"),
    "running": ("◐ ", "accent"),
    "background": ("◌ ", "accent"),
    "done": ("● ", "good"),
    "failed": ("✗ ", "error"),
    "denied": ("⊘ ", "warning"),
    "stopped": ("◦ ", "warning"),
    "interrupted": ("◦ ", "warning"),
}

_FIRST_COLUMN = re.compile(r"\s*\S.*?\s{2,}(?=\S)")  # of a row with at least two columns
_TONE_SIGNS = {"warning": "! ", "error": "✗ ", "good": "✓ "}


def is_foldable(block: ViewBlock) -> bool:
    """Whether the block can be folded and expanded."""
    match block:
        case ToolCallBlock() | ThinkingBlock() | ShellBlock():
            return True
        case UserMessageBlock(text=text):
            return text.count("\n") >= MAX_FOLDED_LINES or len(text) > 2_000
    return False


def is_tight(block: ViewBlock, previous: ViewBlock | None) -> bool:
    """Whether no blank line separates the block from the previous one."""
    match block:
        case (
            MarkdownBlock(is_continuation=tight)
            | CodeBlock(is_continuation=tight)
            | ThinkingBlock(is_continuation=tight)
        ):
            return tight
        case ToolCallBlock() | ThinkingBlock():
            return isinstance(previous, ToolCallBlock | ThinkingBlock)
        case NoteBlock(text=text):  # a table or list stands apart
            return isinstance(previous, NoteBlock) and "\n" not in text + previous.text
    return False


def render_block(
    block: ViewBlock, width: int, palette: Palette, *, is_expanded: bool = False
) -> list[Text]:
    """The lines of a block, each no wider than `width`."""
    room = max(width - GUTTER_WIDTH, 4)
    match block:
        case UserMessageBlock():
            lines = _render_user_message(block, room, palette, is_expanded)
            return _add_gutter(lines, "› ", palette.accent)
        case MarkdownBlock(text=text):
            return _add_gutter(markdown.render_markdown(text, room, palette))
        case CodeBlock():
            return _add_gutter(_render_code(block, room, palette))
        case ThinkingBlock():
            return _render_thinking(block, room, palette, is_expanded)
        case ToolCallBlock():
            return _render_call(block, room, palette, is_expanded)
        case ShellBlock():
            return _render_shell(block, room, palette, is_expanded)
        case NoteBlock(text=text, tone=tone):
            style, sign = palette.get_style(tone), _TONE_SIGNS.get(tone, "· ")
            rows = [line for row in text.split("\n") for line in _wrap_table_row(row, room, style)]
            return _add_gutter(rows, sign, style)


# ------------------------------------------------------------------ each kind


def _render_user_message(
    block: UserMessageBlock, room: int, palette: Palette, is_expanded: bool
) -> list[Text]:
    lines = markdown.wrap_text(Text(block.text[:MAX_EXPANDED_CHARS], palette.user_message), room)
    if not is_expanded and len(lines) > MAX_FOLDED_LINES:
        rest = max(len(lines), block.text.count("\n") + 1) - MAX_FOLDED_LINES
        more = Text(f"… {plural(rest, 'more line')}", palette.faint)
        lines = [*lines[:MAX_FOLDED_LINES], more]
    for name in block.attachments:
        lines += markdown.wrap_text(Text(f"[{name}]", palette.faint), room)
    return lines


def _render_code(block: CodeBlock, room: int, palette: Palette) -> list[Text]:
    room = max(room - block.indent - 2, 4)
    bar = styled_prefix(" " * block.indent + "▏ ", palette.faint)
    code = markdown.highlight_code(block.text.rstrip("\n"), block.language, palette)
    return [bar + row for line in code for row in markdown.wrap_text(line, room)]


def _render_thinking(
    block: ThinkingBlock, room: int, palette: Palette, is_expanded: bool
) -> list[Text]:
    style = palette.faint + Style(italic=True)
    if is_expanded:
        sign = "  " if block.is_continuation else "✻ "
        lines = markdown.wrap_text(Text(block.text.strip(), style), room)
        return _add_gutter(lines, sign, palette.faint)
    if block.is_continuation:
        return []
    beginning = " ".join(block.text[: room * 4].split()) or "thinking"
    if block.words:
        beginning = f"{_format_thinking(block)} · {beginning}"
    return _add_gutter([_truncate_line(beginning, room, style)], "✻ ", palette.faint)


def _format_thinking(block: ThinkingBlock) -> str:
    """`thought for 12s, 340 words`."""
    time = f" for {format_duration(block.seconds)}" if block.seconds >= 1 else ""
    return f"thought{time}, {plural(block.words, 'word')}"


def _render_call(call: ToolCallBlock, room: int, palette: Palette, is_expanded: bool) -> list[Text]:
    sign, style = _STATE_SIGNS[call.state]
    rows = _render_call_line(call, room, palette, is_expanded)
    rows += (_render_expanded if is_expanded else _render_folded)(call, room, palette)
    return _add_gutter(rows, sign, palette.get_style(style))


def _render_call_line(
    block: ToolCallBlock, room: int, palette: Palette, is_expanded: bool
) -> list[Text]:
    """Name, subject and outcome in one line; the subject is truncated first. Why a folded call
    failed is below it if that is longer."""
    name, _, subject = format_call_title(block).partition(": ")
    outcome = _render_outcome(block, palette)
    left = styled_prefix(name, palette.bold)
    if subject:
        left.append(f" {subject}")
    rest = room - left.cell_len - 2
    is_reason = block.state in ("failed", "denied") and not is_expanded
    if is_reason and outcome.cell_len > max(rest, room // 2):
        left.truncate(room, overflow="ellipsis")
        reason = markdown.wrap_text(outcome, room)
        if len(reason) > MAX_REASON_LINES:
            last = reason[MAX_REASON_LINES - 1] + Text(" …", palette.faint)
            last.truncate(room, overflow="ellipsis")
            reason = [*reason[: MAX_REASON_LINES - 1], last]
        return [left, *reason]
    outcome.truncate(max(room // 2, rest, 4), overflow="ellipsis")
    space = room - outcome.cell_len - 2 if outcome else room
    left.truncate(max(space, 4), overflow="ellipsis")
    return [left + ("  " if outcome else "") + outcome]


def _render_outcome(block: ToolCallBlock, palette: Palette) -> Text:
    match block.state:
        case "writing":
            size = plural(block.argument_chars, "character")
            return Text(size if block.argument_chars > 200 else "", palette.faint)
        case "waiting":
            return Text("has not begun", palette.faint)
        case "asking":
            return Text("needs your approval", palette.warning)
        case "running":
            return Text(_format_child(block) or "", palette.faint)
        case "background":
            return Text(f"task {block.task_id}", palette.accent)
        case "denied":
            return Text(_first_line(block.reason) or "denied", palette.warning)
        case "stopped" | "interrupted":
            of_task = "stopped" if block.state == "stopped" else "lost"
            return Text(of_task if block.task_id else "interrupted", palette.warning)
        case "failed":
            return Text(_first_line(block.result), palette.error)
    if is_diff(block.display):
        added, removed = count_changes(block.display)
        text = styled_prefix(f"+{added}", palette.good)
        return text.append(" ").append(f"-{removed}", palette.error)
    lines = block.result.count("\n") + bool(block.result.strip())
    if lines > 1:
        return Text(f"{lines:,} lines", palette.faint)
    return Text(_first_line(block.result), palette.faint)


def _render_folded(block: ToolCallBlock, room: int, palette: Palette) -> list[Text]:
    """What a folded call shows below its line: its diff, or the last lines of its output."""
    if block.state == "done" and is_diff(block.display):
        return diffs.render_diff(block.display, room, palette, MAX_DIFF_LINES)
    if block.state in ("running", "background", "stopped"):
        return _render_last_lines(block.progress, room, palette)
    has_ended = block.state in ("done", "failed") and "\n" in block.result.strip()
    if has_ended and get_tool_kind(block.name) == "execute":
        return _render_last_lines(block.result, room, palette)
    return []


def _render_last_lines(text: str, room: int, palette: Palette) -> list[Text]:
    """The preview of an output. Looks at the end only: the text may be long."""
    rows = text[-MAX_PREVIEW_CHARS:].rstrip().split("\n")[-MAX_PROGRESS_LINES:]
    # After a carriage return a line is written again, as progress bars do.
    shown = [strip_escapes(row.rstrip("\r").rsplit("\r", 1)[-1]) for row in rows]
    return [_truncate_line(row, room, palette.faint) for row in shown if row.strip()]


def _render_expanded(block: ToolCallBlock, room: int, palette: Palette) -> list[Text]:
    lines = _render_arguments(block, room, palette)
    if block.child is not None:
        lines += [_truncate_line(row, room, palette.faint) for row in block.child.recent_calls]
    if is_diff(block.display):
        return lines + diffs.render_diff(block.display, room, palette, wraps=True)
    text = block.result if block.is_finished else block.progress
    if block.state == "stopped":
        text = "\n".join(filter(None, (block.progress.rstrip(), block.result)))
    style = palette.error if block.state == "failed" else palette.faint
    if text.strip():
        for row in text[:MAX_EXPANDED_CHARS].rstrip("\n").split("\n"):
            lines += markdown.wrap_text(Text(row.expandtabs(4), style), room)
    if block.full_output:
        lines.append(Text(f"full output: {block.full_output}", palette.accent))
    return lines


def _render_arguments(block: ToolCallBlock, room: int, palette: Palette) -> list[Text]:
    """The arguments that do not fit into the call's line."""
    arguments = parse_arguments(block.raw) if block.raw else {}
    if isinstance(arguments, str):
        return markdown.wrap_text(Text(block.raw, palette.code), room)
    lines: list[Text] = []
    for name, value in arguments.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(arguments) > 1 or "\n" in text or len(text) > room // 2:
            line = styled_prefix(f"{name} ", palette.faint)
            line += Text(text.rstrip()[:MAX_EXPANDED_CHARS], palette.code)
            lines += markdown.wrap_text(line, room)
    return lines


def _render_shell(block: ShellBlock, room: int, palette: Palette, is_expanded: bool) -> list[Text]:
    sign = styled_prefix("$ ", palette.accent)
    head = sign + _truncate_line(block.command, room, palette.user_message)
    rows = block.output.rstrip("\n").split("\n") if block.output.strip() else []
    visible = rows if is_expanded else rows[-MAX_FOLDED_LINES:]
    below = [_truncate_line(row, room, palette.plain) for row in visible]
    if len(visible) < len(rows):
        hidden = plural(len(rows) - len(visible), "line")
        below.insert(0, Text(f"… {hidden} above", palette.faint))
    if block.is_finished and block.exit_code:
        below.append(Text(f"exit code {block.exit_code}", palette.error))
    return [head, *(Text("  ") + row for row in below)]


# ------------------------------------------------------------------ helpers


def _wrap_table_row(row: str, room: int, style: Style) -> list[Text]:
    """A table row in lines; the second column wraps below itself."""
    row = row.expandtabs(4)
    column = _FIRST_COLUMN.match(row)
    width = column.end() if column and column.end() <= room // 2 else 0
    lines = markdown.wrap_text(Text(row[width:], style), room - width)
    first = Text(row[:width], style)
    return [(Text(" " * width) if at else first) + line for at, line in enumerate(lines)]


def _add_gutter(lines: list[Text], sign: str = "  ", style: Style | None = None) -> list[Text]:
    rest = Text("  ")
    return [(styled_prefix(sign, style) if not n else rest) + line for n, line in enumerate(lines)]


def _truncate_line(text: str, room: int, style: Style) -> Text:
    line = Text(text.expandtabs(4), style)
    line.truncate(room, overflow="ellipsis")
    return line


def _format_child(block: ToolCallBlock) -> str:
    child = block.child
    if child is None:
        return ""
    parts = [plural(child.calls, "call")]
    if child.tokens:
        parts.append(f"{format_count(child.tokens)} tokens")
    if child.activity.kind == "running":
        parts.append(child.activity.subject)
    elif child.activity.kind != "idle":
        parts.append(format_activity(child.activity))
    return " · ".join(parts)


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0].expandtabs(4)


_LABEL_WIDTH = 9


def render_first_screen(
    screen: FirstScreen, session: HostedSession, size: tuple[int, int], palette: Palette
) -> list[Text]:
    """The lines, at most as many and as wide as the size says."""
    width, rows = size
    facts = [
        styled_prefix(f"{fact.label:{_LABEL_WIDTH}}", palette.faint).append(
            fact.text, palette.warning if fact.is_warning else palette.plain
        )
        for fact in list_facts(screen, session)
    ]
    ideas = [styled_prefix("  › ", palette.accent).append(idea) for idea in screen.ideas]
    groups = [facts, _render_sessions(screen, palette), [Text("try", palette.faint), *ideas]]
    # A group is shown whole or not at all; the facts as far as they fit.
    while len(groups) > 1 and sum(len(one) + 1 for one in groups if one) - 1 > rows:
        groups.pop()
    lines: list[Text] = []
    for group in groups:
        lines += [Text(), *group] if lines and group else group
    for line in lines:
        line.truncate(max(width, 1), overflow="ellipsis")
    return [*lines[:rows], Text()] if rows > 0 else []


def _render_sessions(screen: FirstScreen, palette: Palette) -> list[Text]:
    if not screen.sessions:
        return []
    lines = [Text("continue (alt+1, or 1 and enter)", palette.faint)]
    for number, one in enumerate(screen.sessions, 1):
        line = styled_prefix(f"  {number} ", palette.accent)
        title, details = describe_session(one)
        lines.append(line.append(title).append(f"  {details}", palette.faint))
    return lines
