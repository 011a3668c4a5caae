"""A block as lines: what each looks like, folded and opened.

    ›  what the person said        ●  a tool call, its state by sign and colour
    ✻  a thought, folded           ·  a note

Pure: a block, a width and a palette give lines. The gutter of two cells is part of them.
"""

from __future__ import annotations

import re

import msgspec
from rich.style import Style
from rich.text import Text

from treadle.apps.tui.render import diffs, markdown
from treadle.apps.tui.render.markdown import styled_prefix
from treadle.apps.tui.render.palette import Palette
from treadle.apps.tui.state.blocks import (
    CodeBlock,
    MarkdownBlock,
    NoteBlock,
    ShellBlock,
    ThinkingBlock,
    ToolCallBlock,
    UserMessageBlock,
    ViewBlock,
)
from treadle.core.transcript.content import parse_arguments

GUTTER_WIDTH = 2
MAX_DIFF_LINES = 24
MAX_PROGRESS_LINES = 3
MAX_EXPANDED_CHARS = 200_000
MAX_FOLDED_LINES = 12

_STATE_SIGNS = {
    "writing": "○",
    "asking": "?",
    "running": "◐",
    "background": "◌",
    "done": "●",
    "failed": "✗",
    "denied": "⊘",
    "stopped": "◦",
}

_FIRST_COLUMN = re.compile(
    r"\s*\S.*?\s{2,}(?=\S)"
)  # the first column of a row, if there is a second
_TONE_SIGNS = {"warning": "! ", "error": "✗ ", "good": "✓ "}


def is_foldable(block: ViewBlock) -> bool:
    """Whether there is more to see than what is shown folded."""
    match block:
        case ToolCallBlock():
            return True
        case ThinkingBlock():
            return True
        case ShellBlock():
            return True
        case UserMessageBlock(text=text):
            return text.count("\n") >= MAX_FOLDED_LINES or len(text) > 2_000
    return False


def is_tight(block: ViewBlock, previous: ViewBlock | None) -> bool:
    """Whether the block stands directly under the one before, without an empty line."""
    match block:
        case (
            MarkdownBlock(is_continuation=tight)
            | CodeBlock(is_continuation=tight)
            | ThinkingBlock(is_continuation=tight)
        ):
            return tight
        case ToolCallBlock() | ThinkingBlock():
            return isinstance(previous, ToolCallBlock | ThinkingBlock)
        case NoteBlock():
            return isinstance(previous, NoteBlock)
    return False


def render_block(
    block: ViewBlock, width: int, palette: Palette, *, is_expanded: bool = False
) -> list[Text]:
    """The lines of a block, each no wider than `width`."""
    room = max(width - GUTTER_WIDTH, 4)
    match block:
        case UserMessageBlock():
            return _add_gutter(
                _render_user_message(block, room, palette, is_expanded), "› ", palette.accent
            )
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
            style, sign = palette.tone_style(tone), _TONE_SIGNS.get(tone, "· ")
            rows = [line for row in text.split("\n") for line in _wrap_table_row(row, room, style)]
            return _add_gutter(rows, sign, style)


def plain_text(block: ViewBlock) -> str:
    """What copying a block gives."""
    match block:
        case ToolCallBlock():
            body = block.display if diffs.is_diff(block.display) else block.result
            return f"{format_call_title(block)}\n{body}".rstrip()
        case ShellBlock():
            return f"$ {block.command}\n{block.output}".rstrip()
        case CodeBlock():
            return block.text.rstrip("\n")
    return block.text.strip("\n")


def format_call_title(call: ToolCallBlock) -> str:
    """A call in a line: what it does, in the words of the tool."""
    summary = call.summary.strip()
    if summary.startswith("[") and summary.endswith("]"):
        summary = summary[1:-1]
    if not summary:
        summary = f"{call.name}: {_main_argument(call.raw)}" if call.raw else call.name
    return " ".join(summary.split()).removesuffix(":")


def _main_argument(raw: str) -> str:
    """The most telling of a call's arguments."""
    given = parse_arguments(raw)
    if isinstance(given, str):
        return raw[:80]
    for name in ("command", "path", "file_path", "pattern", "query", "url", "description"):
        if isinstance(given.get(name), str):
            return str(given[name])
    texts = [str(value) for value in given.values() if isinstance(value, str | int | float)]
    return ", ".join(texts)[:200]


# ------------------------------------------------------------------ each kind


def _render_user_message(
    block: UserMessageBlock, room: int, palette: Palette, is_expanded: bool
) -> list[Text]:
    shown = markdown.wrap_text(Text(block.text[:MAX_EXPANDED_CHARS], palette.user_message), room)
    if not is_expanded and len(shown) > MAX_FOLDED_LINES:
        more = max(len(shown), block.text.count("\n") + 1) - MAX_FOLDED_LINES
        shown = [*shown[:MAX_FOLDED_LINES], Text(f"… {more} more lines", palette.faint)]
    for name in block.attachments:
        shown.append(Text(f"[{name}]", palette.faint))
    return shown


def _render_code(block: CodeBlock, room: int, palette: Palette) -> list[Text]:
    shown: list[Text] = []
    room = max(room - block.indent - 2, 4)
    for line in markdown.highlight_code(block.text.rstrip("\n"), block.language, palette):
        shown += markdown.wrap_text(line, room)
    bar = styled_prefix(" " * block.indent + "▏ ", palette.faint)
    return [bar + line for line in shown]


def _render_thinking(
    block: ThinkingBlock, room: int, palette: Palette, is_expanded: bool
) -> list[Text]:
    if is_expanded:
        text = Text(block.text.strip(), palette.faint + Style(italic=True))
        sign = "  " if block.is_continuation else "✻ "
        return _add_gutter(markdown.wrap_text(text, room), sign, palette.faint)
    if block.is_continuation:
        return []
    gist = " ".join(block.text.split())[: room * 2] or "thinking"
    line = Text(gist, palette.faint + Style(italic=True))
    line.truncate(room, overflow="ellipsis")
    return _add_gutter([line], "✻ ", palette.faint)


def _render_call(
    block: ToolCallBlock, room: int, palette: Palette, is_expanded: bool
) -> list[Text]:
    line = _render_call_line(block, room, palette)
    sign = styled_prefix(_STATE_SIGNS[block.state] + " ", _sign_style(block, palette))
    below = (
        _render_expanded(block, room, palette)
        if is_expanded
        else _render_folded(block, room, palette)
    )
    return [sign + line, *(Text("  ") + row for row in below)]


def _render_call_line(block: ToolCallBlock, room: int, palette: Palette) -> Text:
    """Name, subject, and how it went, in one line; how it went is never cut off first."""
    name, _, subject = format_call_title(block).partition(": ")
    outcome = _render_outcome(block, palette)
    outcome.truncate(max(room // 2, 4), overflow="ellipsis")
    left = styled_prefix(name, palette.bold)
    if subject:
        left.append(f" {subject}")
    space = room - outcome.cell_len - 2 if outcome else room
    left.truncate(max(space, 4), overflow="ellipsis")
    return left + ("  " if outcome else "") + outcome


def _render_outcome(block: ToolCallBlock, palette: Palette) -> Text:
    match block.state:
        case "writing":
            return Text(
                f"{block.argument_chars:,} chars" if block.argument_chars > 200 else "",
                palette.faint,
            )
        case "asking":
            return Text("waits for you", palette.warning)
        case "running":
            return Text(_format_child(block) or "", palette.faint)
        case "background":
            return Text(f"task {block.task_id}", palette.accent)
        case "denied":
            return Text(_first_line(block.reason) or "denied", palette.warning)
        case "stopped":
            return Text("interrupted", palette.warning)
        case "failed":
            return Text(_first_line(block.result), palette.error)
    if diffs.is_diff(block.display):
        came, went = diffs.count_changes(block.display)
        text = styled_prefix(f"+{came}", palette.good)
        return text.append(" ").append(f"-{went}", palette.error)
    lines = block.result.count("\n") + bool(block.result.strip())
    if lines > 1:
        return Text(f"{lines:,} lines", palette.faint)
    return Text(_first_line(block.result), palette.faint)


def _render_folded(block: ToolCallBlock, room: int, palette: Palette) -> list[Text]:
    """What a folded call shows below its line: a diff, or the end of what it prints now."""
    if block.state == "done" and diffs.is_diff(block.display):
        return diffs.render_diff(block.display, room, palette, MAX_DIFF_LINES)
    if block.state in ("running", "background") and block.progress.strip():
        rows = block.progress.rstrip().split("\n")[-MAX_PROGRESS_LINES:]
        return [_truncate_line(row, room, palette.faint) for row in rows]
    return []


def _render_expanded(block: ToolCallBlock, room: int, palette: Palette) -> list[Text]:
    shown: list[Text] = []
    shown += _render_arguments(block, room, palette)
    if block.child is not None:
        shown += [_truncate_line(row, room, palette.faint) for row in block.child.recent_calls]
    if diffs.is_diff(block.display):
        return shown + diffs.render_diff(block.display, room, palette)
    text = block.result if block.is_finished else block.progress
    style = palette.error if block.state == "failed" else palette.faint
    if text.strip():
        for row in text[:MAX_EXPANDED_CHARS].rstrip("\n").split("\n"):
            shown += markdown.wrap_text(Text(row.expandtabs(4), style), room)
    if block.full_output:
        shown.append(Text(f"all of it: {block.full_output}", palette.accent))
    return shown


def _render_arguments(block: ToolCallBlock, room: int, palette: Palette) -> list[Text]:
    """The arguments that did not fit into the call's line."""
    given = parse_arguments(block.raw) if block.raw else {}
    if isinstance(given, str):
        return markdown.wrap_text(Text(block.raw, palette.code), room)
    shown: list[Text] = []
    for name, value in given.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(given) > 1 or "\n" in text or len(text) > room // 2:
            label = styled_prefix(f"{name} ", palette.faint)
            shown += markdown.wrap_text(
                label + Text(text.rstrip()[:MAX_EXPANDED_CHARS], palette.code), room
            )
    return shown


def _render_shell(block: ShellBlock, room: int, palette: Palette, is_expanded: bool) -> list[Text]:
    sign = styled_prefix("$ ", palette.accent)
    head = sign + _truncate_line(block.command, room, palette.user_message)
    rows = block.output.rstrip("\n").split("\n") if block.output.strip() else []
    shown = rows if is_expanded else rows[-MAX_FOLDED_LINES:]
    below = [_truncate_line(row, room, palette.plain) for row in shown]
    if len(shown) < len(rows):
        below.insert(0, Text(f"… {len(rows) - len(shown)} lines above", palette.faint))
    if block.is_finished and block.exit_code != 0:
        below.append(Text(f"exit code {block.exit_code}", palette.error))
    return [head, *(Text("  ") + row for row in below)]


# ------------------------------------------------------------------ small things


def _wrap_table_row(row: str, room: int, style: Style) -> list[Text]:
    """A row of a table in lines: what does not fit goes on under its column."""
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


def _sign_style(block: ToolCallBlock, palette: Palette) -> Style:
    match block.state:
        case "done":
            return palette.good
        case "failed":
            return palette.error
        case "asking" | "denied" | "stopped":
            return palette.warning
    return palette.accent


def _format_child(block: ToolCallBlock) -> str:
    child = block.child
    if child is None:
        return ""
    parts = [f"{child.calls} calls" if child.calls != 1 else "1 call"]
    if child.tokens:
        parts.append(f"{child.tokens / 1000:.1f}k tokens")
    if child.activity:
        parts.append(child.activity.strip("[]"))
    return " · ".join(parts)


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
