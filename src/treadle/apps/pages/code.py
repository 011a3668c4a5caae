"""Code and diffs as HTML with classes for their colours.

Pygments is imported at the first use; where it is not installed, code has no colours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import groupby, pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from treadle.apps.conversation.diff_rows import DiffRow, parse_diff
from treadle.apps.pages.elements import escape_html

if TYPE_CHECKING:
    from pygments.lexer import Lexer  # type: ignore[import-untyped]  # it ships no types

MAX_HIGHLIGHTED_CHARS = 20_000
MAX_DIFF_ROWS = 2_000
_HEADINGS = ("hunk", "file", "cut")
_NEW_FILE = re.compile(r"^\+\+\+ (?:b/)?(.+?)(?:\t.*)?$", re.MULTILINE)
_WORD = re.compile(r"\w+|\W")
MAX_CHARS = 10**9
Range = tuple[int, int]
Piece = tuple[str, str]  # a class for its colour, or "", and the text
_TOKEN_CLASSES = (
    ("Token.Comment", "cm"),
    ("Token.Keyword", "k"),
    ("Token.Operator.Word", "k"),
    ("Token.Literal.String", "s"),
    ("Token.Literal.Number", "nb"),
    ("Token.Name.Decorator", "nb"),
    ("Token.Name.Function", "f"),
    ("Token.Name.Class", "f"),
    ("Token.Name.Tag", "f"),
    ("Token.Name.Builtin", "f"),
)


def highlight_code(source: str, language: str) -> str:
    """Code as HTML; without colours if it is long or the language is unknown."""
    lexer = find_lexer(language) if language and len(source) <= MAX_HIGHLIGHTED_CHARS else None
    if lexer is None:
        return escape_html(source)
    parts: list[str] = []
    for kind, value in lexer.get_tokens(source):
        name, text = _find_class(str(kind)), escape_html(value)
        parts.append(f'<span class="{name}">{text}</span>' if name else text)
    return "".join(parts)


def split_tokens(lines: Sequence[str], language: str) -> list[list[Piece]]:
    """Each line of code as its pieces, in order."""
    plain = [[("", line)] for line in lines]
    source = "\n".join(lines)
    lexer = find_lexer(language) if language and len(source) <= MAX_HIGHLIGHTED_CHARS else None
    if lexer is None:
        return plain
    found: list[list[Piece]] = [[]]
    for kind, value in lexer.get_tokens(source):
        name = _find_class(str(kind))
        for number, piece in enumerate(value.split("\n")):
            if number:
                found.append([])
            found[-1].append((name, piece))
    # A lexer takes other characters for the end of a line, too: then there are no colours.
    return found if len(found) == len(lines) else plain


def _render_line(pieces: Sequence[Piece], change: Range, tag: str) -> str:
    """A line as HTML; the part of it that has changed is in an element of its own."""
    parts, at = ["", "", ""], 0
    for name, piece in pieces:
        for part, (start, stop) in enumerate(((0, change[0]), change, (change[1], MAX_CHARS))):
            text = escape_html(piece[max(0, start - at) : max(0, stop - at)])
            parts[part] += f'<span class="{name}">{text}</span>' if name and text else text
        at += len(piece)
    changed = f"<{tag}>{parts[1]}</{tag}>" if parts[1] else ""
    return parts[0] + changed + parts[2]


def render_code(source: str, language: str) -> str:
    """A code block with a button that copies it."""
    head = f'<span class="path">{escape_html(language)}</span>'
    copy = '<span class="end"><button class="btn bare" type="button" data-copy>Copy</button></span>'
    body = highlight_code(source.rstrip("\n"), language)
    return (
        f'<div class="code"><header>{head}{copy}</header>'
        f'<pre tabindex="0"><code>{body}</code></pre></div>'
    )


def render_diff(diff: str, label: str) -> str:
    """A unified diff as a table; the script of the page can show it side by side."""
    rows = [row for row in parse_diff(diff) if row.kind != "hunk" or row.text or row.new > 1]
    left_out = len(rows) - MAX_DIFF_ROWS
    named = _NEW_FILE.search(diff)
    shown = _highlight_rows(rows[:MAX_DIFF_ROWS], named[1] if named else "")
    body = "".join(map(_render_row, rows, shown))
    return _render_diff_table(body, left_out, label)


def render_hunk(rows: Sequence[DiffRow], path: str, label: str) -> str:
    """One hunk of a file as such a table, with a button on each line to comment on it."""
    left_out, rows = len(rows) - MAX_DIFF_ROWS, rows[:MAX_DIFF_ROWS]
    shown = zip(rows, _highlight_rows(rows, path), strict=True)
    body = "".join(_render_row(row, text, has_button=True) for row, text in shown)
    return _render_diff_table(body, left_out, label)


def _render_diff_table(body: str, left_out: int, label: str) -> str:
    if left_out > 0:
        body += f'<tr class="hunk"><td colspan="4">{left_out} more lines</td></tr>'
    caption = f'<caption class="hidden">{escape_html(label)}</caption>'
    return (
        f'<div class="diffbox" tabindex="0" role="region" aria-label="{escape_html(label)}">'
        f'<table class="diff">{caption}<tbody>{body}</tbody></table></div>'
    )


def _highlight_rows(rows: Sequence[DiffRow], path: str) -> list[str]:
    """The text of each row with colours, and with the words that have changed; both sides of a hunk
    are read as code of their own."""
    shown = [escape_html(row.text or ("⋮" if row.kind == "hunk" else "")) for row in rows]
    changes = _find_changes(rows)
    edges = [at for at, row in enumerate(rows) if row.kind in _HEADINGS]
    for start, stop in pairwise([-1, *edges, len(rows)]):
        if start >= 0 and rows[start].kind == "file":
            path = rows[start].text
        language = PurePath(path).suffix.removeprefix(".")
        for side in ("del", "add"):  # the lines that both have are those of the new side
            at = [n for n in range(start + 1, stop) if rows[n].kind in (side, "same")]
            lines = split_tokens([rows[n].text for n in at], language)
            for n, pieces in zip(at, lines, strict=True):
                tag = "ins" if side == "add" else "del"
                shown[n] = _render_line(pieces, changes.get(n, (0, 0)), tag)
    return shown


def _find_changes(rows: Sequence[DiffRow]) -> dict[int, Range]:
    """What has changed in lines that were replaced one by one, by the places of the rows."""
    changes: dict[int, Range] = {}
    runs = [(kind, len([*run])) for kind, run in groupby(row.kind for row in rows)]
    start = 0
    for (kind, count), (following, new_count) in pairwise(runs):
        if kind == "del" and following == "add" and count == new_count:
            for old in range(start, start + count):
                changed = _compare_words(rows[old].text, rows[old + count].text)
                changes |= dict(zip((old, old + count), changed, strict=False))
        start += count
    return changes


def _compare_words(old: str, new: str) -> tuple[Range, ...]:
    """The part that differs, in the old and in the new line; nothing if they have little in
    common."""
    before, after = _WORD.findall(old), _WORD.findall(new)
    same = [one == other for one, other in zip(before, after, strict=False)]
    first = [*same, False].index(False)
    same = [
        one == other for one, other in zip(before[first:][::-1], after[first:][::-1], strict=False)
    ]
    last = [*same, False].index(False)
    start, end = len("".join(before[:first])), len("".join(before[len(before) - last :]))
    if len(f"{old[:start]}{old[len(old) - end :]}".strip()) * 3 < max(len(old), len(new)):
        return ()
    return (start, len(old) - end), (start, len(new) - end)


def _render_row(row: DiffRow, text: str, *, has_button: bool = False) -> str:
    if row.kind in _HEADINGS:
        return f'<tr class="hunk"><td colspan="4">{text}</td></tr>'
    style = f' class="{row.kind}"' if row.kind != "same" else ""
    sign = {"add": "+", "del": "−"}.get(row.kind, " ")
    old, new = str(row.old or ""), str(row.new or "")
    if has_button and row.new:
        new = _render_line_button("new", row.new)
    elif has_button:
        old = _render_line_button("old", row.old)
    numbers = f'<td class="l">{old}</td><td class="l">{new}</td>'
    return f'<tr{style}>{numbers}<td class="sg">{sign}</td><td>{text}</td></tr>'


def _render_line_button(side: str, line: int) -> str:
    name = f"line {line}" if side == "new" else f"removed line {line}"
    return (
        f'<button type="button" class="line" data-line="{side}-{line}" tabindex="-1" '
        f'aria-label="Comment on {name}">{line}</button>'
    )


@cache
def find_lexer(language: str) -> Lexer | None:
    """The lexer of a language by its name or the suffix of its files; None if there is none."""
    try:
        from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
        from pygments.util import ClassNotFound  # type: ignore[import-untyped]
    except ImportError:
        return None
    try:
        return get_lexer_by_name(language.lower(), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@cache
def _find_class(kind: str) -> str:
    for prefix, name in _TOKEN_CLASSES:
        if kind.startswith(prefix):
            return name
    return ""
