"""Checks the tree against bash: would bash split the line at the same places?

tree-sitter is more lenient than bash: it accepts more characters as blanks, and may put a newline
inside a command. Each such spot becomes a doubt. Here-documents are read a second time on purpose,
to compare the two readings.
"""

import re
from typing import TYPE_CHECKING, NamedTuple

from treadle.lib.shell.syntax.words import decode_source

if TYPE_CHECKING:
    from tree_sitter import Node


_DESCRIPTOR = re.compile(r"[0-9]+|\{\w+\}")


class Token(NamedTuple):
    """A piece of source that the reader understood."""

    start: int
    end: int
    kind: str  # word keyword operator redirect descriptor comment heredoc
    command_index: int  # the command it belongs to


def check_tokens(
    source: str, tokens: list[Token], start: int = 0, end: int | None = None
) -> list[str]:
    """The doubts about a piece of source, given the tokens that should cover it."""
    doubts: list[str] = []
    end = len(source) if end is None else end
    ordered = sorted(tokens)
    at, last = start, None
    for token in ordered:
        gap = source[at : token.start] if token.start >= at else "?"
        if gap.strip(" \t\n"):
            doubts.append("a part of it cannot be read as shell syntax")
        elif last is not None:
            doubt = _check_boundary(source, last, token, gap)
            if doubt:
                doubts.append(doubt)
        at, last = max(at, token.end), token
    if source[at:end].strip(" \t\n"):
        doubts.append("a part of it cannot be read as shell syntax")
    return doubts


def _check_boundary(source: str, a: Token, b: Token, gap: str) -> str:
    if b.kind == "comment" and not gap and a.kind != "operator":
        return "a # inside a word"
    if a.kind == "comment" and "\n" not in gap and source[a.end - 1] != "\n":
        return "text after a comment"
    if a.kind == "descriptor":
        return "" if not gap else "a blank after a descriptor"
    if b.kind == "descriptor" and a.kind in ("word", "keyword") and not gap:
        return "a number joined to a word"
    touching = a.kind == "word" and b.kind == "redirect" and not gap
    if touching and _DESCRIPTOR.fullmatch(source[a.start : a.end]):
        return "a descriptor read as a word"
    wordlike = ("word", "keyword")
    if a.kind in wordlike and b.kind in wordlike:
        if not gap:
            return "two words without a blank"
        if (
            a.command_index != b.command_index
            and "keyword" not in (a.kind, b.kind)
            and "\n" not in gap
        ):
            return "two commands without a separator"
        if a.command_index == b.command_index and "\n" in gap:
            return "a newline inside a command"
    if a.kind == "operator" and source[a.start : a.end] in ("{", "!") and not gap:
        return "a brace or ! joined to a word"
    return ""


def check_heredoc(
    source: str, start: "Node", body: "Node | None", end: "Node", seen_lines: set[int]
) -> str:
    """Why bash would read another here-document than the tree; "" if it reads the same."""
    newline = source.find("\n", start.end_byte)
    if newline < 0:
        return "a here-document without an end"
    if newline in seen_lines:
        return "two here-documents on one line"
    seen_lines.add(newline)
    word = source[start.start_byte : start.end_byte]
    delimiter = _parse_delimiter(word)
    if delimiter is None:
        return "a here-document with an unusual delimiter"
    tabs = source[: start.start_byte].rstrip(" \t").endswith("<<-")
    at = newline + 1
    if body is not None and body.start_byte < at:
        return "a here-document that begins too early"
    while at <= len(source):
        stop = source.find("\n", at)
        stop = len(source) if stop < 0 else stop
        line = source[at:stop]
        if (line.lstrip("\t") if tabs else line) == delimiter:
            return (
                ""
                if at <= end.start_byte < end.end_byte <= stop
                else "an unclear end of here-document"
            )
        at = stop + 1
    return "a here-document without an end"


def get_heredoc_text(source: str, start: "Node", body: "Node | None") -> str | None:
    """The text of a here-document, or None if the shell would expand something in it."""
    if body is None:
        return ""
    text = source[body.start_byte : body.end_byte]
    if not is_heredoc_quoted(source, start) and any(c in "$`\\" for c in text):
        return None
    return decode_source(text)


def is_heredoc_quoted(source: str, start: "Node") -> bool:
    """Whether the delimiter is quoted, so that the body is plain text."""
    return any(c in "'\"\\" for c in source[start.start_byte : start.end_byte])


def _parse_delimiter(word: str) -> str | None:
    plain = word.strip("'\"").replace("\\", "")
    if not plain or not all(c.isalnum() or c in "_-.!+" for c in plain):
        return None
    return plain if word in (plain, f"'{plain}'", f'"{plain}"', "\\" + plain) else None
