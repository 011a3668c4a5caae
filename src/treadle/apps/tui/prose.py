"""Cuts a stream of Markdown into blocks while it arrives.

A block is closed at the blank line that ends it, so that only the last one, which is never long,
has to be looked at when more text comes. A paragraph or a fenced block that is too long for that
is cut into tight pieces. Pure; painting the pieces is markdown.py's business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from treadle.apps.tui.blocks import Code, Words

MOST_CHARS = 4_000
MOST_LINES = 64

_FENCE = re.compile(r"^([ ]{0,12})(`{3,}|~{3,})[ ]*([^`\n]*)$")

Piece = Words | Code


def begun() -> Words:
    """What a reply begins with."""
    return Words("")


def grown(last: Piece, more: str) -> tuple[Piece, ...]:
    """The last block with more text: itself, longer, or closed and followed by others."""
    text = last.text + more
    if "\n" not in more and len(text) <= MOST_CHARS:
        return (msgspec.structs.replace(last, text=text),)
    if isinstance(last, Code):
        return tuple(_code(last, text))
    return tuple(_words(text, last.tight))


def whole(text: str) -> tuple[Piece, ...]:
    """A text that is complete, as blocks."""
    return tuple(piece for piece in grown(begun(), text.rstrip() + "\n") if not is_empty(piece))


def is_empty(piece: Piece) -> bool:
    return isinstance(piece, Words) and not piece.text.strip()


def _words(text: str, tight: bool) -> Iterator[Piece]:
    """Markdown from the beginning of a block on."""
    start = position = 0
    while True:
        end = text.find("\n", position)
        if end < 0:
            break
        line = text[position:end]
        fence = _FENCE.match(line)
        if fence is not None:
            before = text[start:position]
            if before.strip():
                yield from _cut(before, tight)
            indent, mark, info = fence.groups()
            language = info.split()[0] if info.strip() else ""
            yield from _code(Code(language, "", mark, len(indent)), text[end + 1 :])
            return
        if not line.strip() and text[start:position].strip():
            yield from _cut(text[start:position], tight)
            start, tight = end + 1, False
        elif end - start > MOST_CHARS:
            yield from _cut(text[start : end + 1], tight)
            start, tight = end + 1, True
        position = end + 1
    yield from _cut(text[start:], tight)


def _cut(text: str, tight: bool) -> Iterator[Words]:
    """A paragraph, in pieces if it is very long."""
    start = 0
    while len(text) - start > MOST_CHARS:
        cut = text.rfind(" ", start, start + MOST_CHARS) + 1 or start + MOST_CHARS
        yield Words(text[start:cut], tight)
        start, tight = cut, True
    yield Words(text[start:], tight)


def _code(block: Code, text: str) -> Iterator[Piece]:
    """The inside of a fenced block, and what follows it if it ends here."""
    start = position = lines = 0
    closing = re.compile(rf"^[ ]{{0,12}}{re.escape(block.fence[0])}{{{len(block.fence)},}}[ ]*$")
    while True:
        end = text.find("\n", position)
        if end < 0:
            break
        if closing.match(text[position:end]):
            yield msgspec.structs.replace(block, text=text[start:position])
            yield from _words(text[end + 1 :], tight=False)
            return
        position, lines = end + 1, lines + 1
        if lines == MOST_LINES or position - start > MOST_CHARS:
            yield msgspec.structs.replace(block, text=text[start:position])
            block = msgspec.structs.replace(block, tight=True)
            start, lines = position, 0
    while len(text) - start > MOST_CHARS:
        yield msgspec.structs.replace(block, text=text[start : start + MOST_CHARS])
        block = msgspec.structs.replace(block, tight=True)
        start += MOST_CHARS
    yield msgspec.structs.replace(block, text=text[start:])
