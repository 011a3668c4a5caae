"""Splits a stream of Markdown into blocks while it arrives.

A block ends at a blank line, so only the last one, which is short, is processed when more text
comes. A long paragraph or fenced block is split into continuation blocks. Pure; render/markdown.py
renders the blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from treadle.apps.conversation.state.blocks import CodeBlock, MarkdownBlock

MAX_CHARS = 4_000  # of code and of thinking
MAX_PARAGRAPH_CHARS = 16_000  # where it is cut, its line ends: longer than people write
MAX_LINES = 64

_FENCE = re.compile(r"^([ ]{0,12})(`{3,}|~{3,})[ ]*([^`\n]*)$")

ReplyBlock = MarkdownBlock | CodeBlock


def start_block() -> MarkdownBlock:
    """The first block of a reply."""
    return MarkdownBlock("")


def append_text(block: ReplyBlock, delta: str) -> tuple[ReplyBlock, ...]:
    """The block with more text; the blocks it becomes, all closed except the last."""
    text = block.text + delta
    limit = MAX_CHARS if isinstance(block, CodeBlock) else MAX_PARAGRAPH_CHARS
    if "\n" not in delta and len(text) <= limit:
        return (msgspec.structs.replace(block, text=text),)
    if isinstance(block, CodeBlock):
        return tuple(_split_code(block, text))
    return tuple(_split_blocks(text, block.is_continuation))


def split_markdown(text: str) -> tuple[ReplyBlock, ...]:
    """The blocks of a complete text."""
    pieces = append_text(start_block(), text.rstrip() + "\n")
    return tuple(piece for piece in pieces if not is_empty(piece))


def is_empty(block: ReplyBlock) -> bool:
    return isinstance(block, MarkdownBlock) and not block.text.strip()


def _split_blocks(text: str, is_continuation: bool) -> Iterator[ReplyBlock]:
    """Split Markdown that starts at the beginning of a block."""
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
                yield from _split_paragraph(before, is_continuation)
            indent, mark, info = fence.groups()
            language = info.split()[0] if info.strip() else ""
            yield from _split_code(CodeBlock(language, "", mark, len(indent)), text[end + 1 :])
            return
        if not line.strip() and text[start:position].strip():
            yield from _split_paragraph(text[start:position], is_continuation)
            start, is_continuation = end + 1, False
        elif end - start > MAX_PARAGRAPH_CHARS:
            yield from _split_paragraph(text[start : end + 1], is_continuation)
            start, is_continuation = end + 1, True
        position = end + 1
    yield from _split_paragraph(text[start:], is_continuation)


def _split_paragraph(text: str, is_continuation: bool) -> Iterator[MarkdownBlock]:
    """A paragraph, in several blocks if it is very long."""
    start = 0
    while len(text) - start > MAX_PARAGRAPH_CHARS:
        end = start + MAX_PARAGRAPH_CHARS
        cut = text.rfind(" ", start, end) + 1 or end
        yield MarkdownBlock(text[start:cut], is_continuation)
        start, is_continuation = cut, True
    yield MarkdownBlock(text[start:], is_continuation)


def _split_code(block: CodeBlock, text: str) -> Iterator[ReplyBlock]:
    """The inside of a fenced block, and the blocks after it if it ends here."""
    start = position = lines = 0
    closing = re.compile(rf"^[ ]{{0,12}}{re.escape(block.fence[0])}{{{len(block.fence)},}}[ ]*$")
    while True:
        end = text.find("\n", position)
        if end < 0:
            break
        if closing.match(text[position:end]):
            yield msgspec.structs.replace(block, text=text[start:position])
            yield from _split_blocks(text[end + 1 :], is_continuation=False)
            return
        position, lines = end + 1, lines + 1
        if lines == MAX_LINES or position - start > MAX_CHARS:
            yield msgspec.structs.replace(block, text=text[start:position])
            block = msgspec.structs.replace(block, is_continuation=True)
            start, lines = position, 0
    while len(text) - start > MAX_CHARS:
        yield msgspec.structs.replace(block, text=text[start : start + MAX_CHARS])
        block = msgspec.structs.replace(block, is_continuation=True)
        start += MAX_CHARS
    yield msgspec.structs.replace(block, text=text[start:])
