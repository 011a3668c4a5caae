"""The code of replies, put together from its blocks: for copying."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from treadle.apps.conversation.block_text import plain_text
from treadle.apps.conversation.state.blocks import CodeBlock, MarkdownBlock, ViewBlock
from treadle.apps.conversation.state.view_state import ViewState


def find_code(view: ViewState, index: int) -> list[str]:
    """The code of the block at this index, or if it is text of a reply, each code of the reply."""
    blocks = view.blocks
    if not isinstance(blocks[index], CodeBlock | MarkdownBlock):
        return []
    is_code = isinstance(blocks[index], CodeBlock)
    first = last = index
    while first and _belongs_to(blocks[first], blocks[first - 1], is_code):
        first -= 1
    while last + 1 < len(blocks) and _belongs_to(blocks[last + 1], blocks[last], is_code):
        last += 1
    parts = [blocks[one] for one in range(first, last + 1)]
    return [text for block, text in _join_code(parts) if isinstance(block, CodeBlock)]


def _belongs_to(block: ViewBlock, previous: ViewBlock, is_code: bool) -> bool:
    """Whether the block continues the previous one: its code, or the same reply."""
    if is_code:
        return isinstance(block, CodeBlock) and block.is_continuation
    kinds = MarkdownBlock | CodeBlock
    return isinstance(block, kinds) and isinstance(previous, kinds)


def markdown_source(parts: Sequence[ViewBlock]) -> Iterator[str]:
    """The Markdown source of the blocks."""
    for block, text in _join_code(parts):
        if isinstance(block, CodeBlock):
            yield f"{block.fence}{block.language}\n{text}{block.fence}"
        else:
            yield text


def _join_code(parts: Sequence[ViewBlock]) -> Iterator[tuple[ViewBlock, str]]:
    """Each block with its text; a code that is several blocks comes once, whole."""
    for number, block in enumerate(parts):
        if not isinstance(block, CodeBlock):
            yield block, plain_text(block)
        elif not block.is_continuation:
            text = block.text
            for more in parts[number + 1 :]:
                if not isinstance(more, CodeBlock) or not more.is_continuation:
                    break
                text += more.text
            yield block, text
