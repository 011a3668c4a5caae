"""The blocks of a reply as Markdown again, for output that only grows.

Used by plain.py. A line that may still become a fence is not printed before it is complete: the
stream of blocks (state/markdown_stream.py) removes fences from the text.
"""

from __future__ import annotations

import re

from treadle.apps.conversation.state.blocks import CodeBlock, MarkdownBlock, ViewBlock

# The beginning of a line that may become a fence.
_MAYBE_FENCE = re.compile(r"[ ]{0,12}(`{0,2}|~{0,2}|(`{3,}|~{3,}).*)\Z")


def format_start(block: MarkdownBlock | CodeBlock, previous: ViewBlock | None) -> str:
    """What comes before the text of a block: a blank line after another block, a fence."""
    if block.is_continuation:
        return ""
    is_first = not isinstance(previous, MarkdownBlock | CodeBlock)
    if isinstance(block, CodeBlock):
        fence = f"{block.fence}{block.language}\n"
        return fence if is_first else f"\n{fence}"
    return "" if is_first or block.text.startswith("\n") else "\n"


def format_end(block: MarkdownBlock | CodeBlock, following: ViewBlock | None) -> str:
    """What comes after the text of a complete block: the end of the line, the closing fence."""
    has_more = isinstance(following, MarkdownBlock | CodeBlock) and following.is_continuation
    if has_more:
        return ""
    end = "" if block.text.endswith("\n") or not block.text else "\n"
    return f"{end}{block.fence}\n" if isinstance(block, CodeBlock) else end


def safe_length(block: MarkdownBlock | CodeBlock) -> int:
    """The length of the text of a growing block that stays as it is."""
    start = block.text.rfind("\n") + 1
    return start if _MAYBE_FENCE.match(block.text, start) else len(block.text)
