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

from treadle.apps.tui import diffs, markdown
from treadle.apps.tui.blocks import Block, Call, Code, Note, Said, Shell, Thought, Words
from treadle.apps.tui.markdown import lead
from treadle.apps.tui.palette import Palette
from treadle.core.transcript.content import parse_arguments

GUTTER = 2
DIFF_LINES = 24
PROGRESS_LINES = 3
OPENED_CHARS = 200_000
SAID_LINES = 12

_SIGNS = {
    "writing": "○",
    "asking": "?",
    "running": "◐",
    "background": "◌",
    "done": "●",
    "failed": "✗",
    "denied": "⊘",
    "stopped": "◦",
}

_COLUMN = re.compile(r"\s*\S.*?\s{2,}(?=\S)")  # the first column of a row, if there is a second
_TONES = {"warning": "! ", "error": "✗ ", "good": "✓ "}


def is_foldable(block: Block) -> bool:
    """Whether there is more to see than what is shown folded."""
    match block:
        case Call():
            return True
        case Thought():
            return True
        case Shell():
            return True
        case Said(text=text):
            return text.count("\n") >= SAID_LINES or len(text) > 2_000
    return False


def is_tight(block: Block, before: Block | None) -> bool:
    """Whether the block stands directly under the one before, without an empty line."""
    match block:
        case Words(tight=tight) | Code(tight=tight) | Thought(tight=tight):
            return tight
        case Call() | Thought():
            return isinstance(before, Call | Thought)
        case Note():
            return isinstance(before, Note)
    return False


def paint(block: Block, width: int, palette: Palette, *, is_open: bool = False) -> list[Text]:
    """The lines of a block, each no wider than `width`."""
    room = max(width - GUTTER, 4)
    match block:
        case Said():
            return _gutter(_said(block, room, palette, is_open), "› ", palette.accent)
        case Words(text=text):
            return _gutter(markdown.lines(text, room, palette))
        case Code():
            return _gutter(_code(block, room, palette))
        case Thought():
            return _thought(block, room, palette, is_open)
        case Call():
            return _call(block, room, palette, is_open)
        case Shell():
            return _shell(block, room, palette, is_open)
        case Note(text=text, tone=tone):
            style, sign = palette.tone(tone), _TONES.get(tone, "· ")
            rows = [line for row in text.split("\n") for line in _hanging(row, room, style)]
            return _gutter(rows, sign, style)


def plain_text(block: Block) -> str:
    """What copying a block gives."""
    match block:
        case Call():
            body = block.display if diffs.is_diff(block.display) else block.result
            return f"{title(block)}\n{body}".rstrip()
        case Shell():
            return f"$ {block.command}\n{block.output}".rstrip()
        case Code():
            return block.text.rstrip("\n")
    return block.text.strip("\n")


def title(call: Call) -> str:
    """A call in a line: what it does, in the words of the tool."""
    summary = call.summary.strip()
    if summary.startswith("[") and summary.endswith("]"):
        summary = summary[1:-1]
    if not summary:
        summary = f"{call.name}: {_arguments(call.raw)}" if call.raw else call.name
    return " ".join(summary.split()).removesuffix(":")


def _arguments(raw: str) -> str:
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


def _said(block: Said, room: int, palette: Palette, is_open: bool) -> list[Text]:
    shown = markdown.wrapped(Text(block.text[:OPENED_CHARS], palette.said), room)
    if not is_open and len(shown) > SAID_LINES:
        more = max(len(shown), block.text.count("\n") + 1) - SAID_LINES
        shown = [*shown[:SAID_LINES], Text(f"… {more} more lines", palette.faint)]
    for name in block.attached:
        shown.append(Text(f"[{name}]", palette.faint))
    return shown


def _code(block: Code, room: int, palette: Palette) -> list[Text]:
    shown: list[Text] = []
    room = max(room - block.indent - 2, 4)
    for line in markdown.coloured(block.text.rstrip("\n"), block.language, palette):
        shown += markdown.wrapped(line, room)
    bar = lead(" " * block.indent + "▏ ", palette.faint)
    return [bar + line for line in shown]


def _thought(block: Thought, room: int, palette: Palette, is_open: bool) -> list[Text]:
    if is_open:
        text = Text(block.text.strip(), palette.faint + Style(italic=True))
        sign = "  " if block.tight else "✻ "
        return _gutter(markdown.wrapped(text, room), sign, palette.faint)
    if block.tight:
        return []
    gist = " ".join(block.text.split())[: room * 2] or "thinking"
    line = Text(gist, palette.faint + Style(italic=True))
    line.truncate(room, overflow="ellipsis")
    return _gutter([line], "✻ ", palette.faint)


def _call(block: Call, room: int, palette: Palette, is_open: bool) -> list[Text]:
    line = _call_line(block, room, palette)
    sign = lead(_SIGNS[block.state] + " ", _sign_style(block, palette))
    below = _opened(block, room, palette) if is_open else _glimpse(block, room, palette)
    return [sign + line, *(Text("  ") + row for row in below)]


def _call_line(block: Call, room: int, palette: Palette) -> Text:
    """Name, subject, and how it went, in one line; how it went is never cut off first."""
    name, _, subject = title(block).partition(": ")
    outcome = _outcome(block, palette)
    outcome.truncate(max(room // 2, 4), overflow="ellipsis")
    left = lead(name, palette.bold)
    if subject:
        left.append(f" {subject}")
    space = room - outcome.cell_len - 2 if outcome else room
    left.truncate(max(space, 4), overflow="ellipsis")
    return left + ("  " if outcome else "") + outcome


def _outcome(block: Call, palette: Palette) -> Text:
    match block.state:
        case "writing":
            return Text(f"{block.size:,} chars" if block.size > 200 else "", palette.faint)
        case "asking":
            return Text("waits for you", palette.warning)
        case "running":
            return Text(_child_line(block) or "", palette.faint)
        case "background":
            return Text(f"task {block.task_id}", palette.accent)
        case "denied":
            return Text(_first_line(block.reason) or "denied", palette.warning)
        case "stopped":
            return Text("interrupted", palette.warning)
        case "failed":
            return Text(_first_line(block.result), palette.error)
    if diffs.is_diff(block.display):
        came, went = diffs.counted(block.display)
        text = lead(f"+{came}", palette.good)
        return text.append(" ").append(f"-{went}", palette.error)
    lines = block.result.count("\n") + bool(block.result.strip())
    if lines > 1:
        return Text(f"{lines:,} lines", palette.faint)
    return Text(_first_line(block.result), palette.faint)


def _glimpse(block: Call, room: int, palette: Palette) -> list[Text]:
    """What a folded call shows below its line: a diff, or the end of what it prints now."""
    if block.state == "done" and diffs.is_diff(block.display):
        return diffs.lines(block.display, room, palette, DIFF_LINES)
    if block.state in ("running", "background") and block.progress.strip():
        rows = block.progress.rstrip().split("\n")[-PROGRESS_LINES:]
        return [_one_line(row, room, palette.faint) for row in rows]
    return []


def _opened(block: Call, room: int, palette: Palette) -> list[Text]:
    shown: list[Text] = []
    shown += _given(block, room, palette)
    if block.child is not None:
        shown += [_one_line(row, room, palette.faint) for row in block.child.recent]
    if diffs.is_diff(block.display):
        return shown + diffs.lines(block.display, room, palette)
    text = block.result if block.is_over else block.progress
    style = palette.error if block.state == "failed" else palette.faint
    if text.strip():
        for row in text[:OPENED_CHARS].rstrip("\n").split("\n"):
            shown += markdown.wrapped(Text(row.expandtabs(4), style), room)
    if block.full_output:
        shown.append(Text(f"all of it: {block.full_output}", palette.accent))
    return shown


def _given(block: Call, room: int, palette: Palette) -> list[Text]:
    """The arguments that did not fit into the call's line."""
    given = parse_arguments(block.raw) if block.raw else {}
    if isinstance(given, str):
        return markdown.wrapped(Text(block.raw, palette.code), room)
    shown: list[Text] = []
    for name, value in given.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(given) > 1 or "\n" in text or len(text) > room // 2:
            label = lead(f"{name} ", palette.faint)
            shown += markdown.wrapped(
                label + Text(text.rstrip()[:OPENED_CHARS], palette.code), room
            )
    return shown


def _shell(block: Shell, room: int, palette: Palette, is_open: bool) -> list[Text]:
    sign = lead("$ ", palette.accent)
    head = sign + _one_line(block.command, room, palette.said)
    rows = block.output.rstrip("\n").split("\n") if block.output.strip() else []
    shown = rows if is_open else rows[-SAID_LINES:]
    below = [_one_line(row, room, palette.plain) for row in shown]
    if len(shown) < len(rows):
        below.insert(0, Text(f"… {len(rows) - len(shown)} lines above", palette.faint))
    if block.is_over and block.exit_code != 0:
        below.append(Text(f"exit code {block.exit_code}", palette.error))
    return [head, *(Text("  ") + row for row in below)]


# ------------------------------------------------------------------ small things


def _hanging(row: str, room: int, style: Style) -> list[Text]:
    """A row of a table in lines: what does not fit goes on under its column."""
    row = row.expandtabs(4)
    column = _COLUMN.match(row)
    width = column.end() if column and column.end() <= room // 2 else 0
    lines = markdown.wrapped(Text(row[width:], style), room - width)
    first = Text(row[:width], style)
    return [(Text(" " * width) if at else first) + line for at, line in enumerate(lines)]


def _gutter(lines: list[Text], sign: str = "  ", style: Style | None = None) -> list[Text]:
    rest = Text("  ")
    return [(lead(sign, style) if not n else rest) + line for n, line in enumerate(lines)]


def _one_line(text: str, room: int, style: Style) -> Text:
    line = Text(text.expandtabs(4), style)
    line.truncate(room, overflow="ellipsis")
    return line


def _sign_style(block: Call, palette: Palette) -> Style:
    match block.state:
        case "done":
            return palette.good
        case "failed":
            return palette.error
        case "asking" | "denied" | "stopped":
            return palette.warning
    return palette.accent


def _child_line(block: Call) -> str:
    child = block.child
    if child is None:
        return ""
    parts = [f"{child.calls} calls" if child.calls != 1 else "1 call"]
    if child.tokens:
        parts.append(f"{child.tokens / 1000:.1f}k tokens")
    if child.now:
        parts.append(child.now.strip("[]"))
    return " · ".join(parts)


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0]
