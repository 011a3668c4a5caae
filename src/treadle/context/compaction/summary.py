"""A summary of the older part of a conversation.

    summarize_aside   by the model of the session: the wish for it is appended to the conversation,
                      as the last request had it, so that nearly all is read from the cache
    summarize         by another model, in a request of its own, which no cache keeps

Used by compactor.py. Facts that must survive verbatim are pinned by pins.py, so a poor summary
loses convenience, not facts.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.context.compaction.trims import truncate_middle
from treadle.core.contracts.model import (
    CacheRequest,
    CallModel,
    Model,
    ModelCard,
    ModelOptions,
    ModelRequest,
)
from treadle.core.contracts.mutator import AskAside
from treadle.core.contracts.wrapped import call_directly
from treadle.core.transcript import NoticeItem, SummaryItem, ToolResultItem
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.items import Item, UserItem, to_user_item
from treadle.core.transcript.size_estimate import estimate_text_chars
from treadle.core.transcript.transcript import Transcript

CONTENT = """\
what was asked for and why, what was found out (names, paths, commands, numbers, errors, exactly),
what was done and how it was checked, what was tried and failed, what is left to do and in which
order. The user's own messages are kept beside your notes; do not repeat them. Write short plain
sentences under the headings Goal, Known, Done, Failed, Next. Write nothing else."""
INSTRUCTIONS = f"""\
You write notes for a coding agent that has to continue its work after its conversation was cut.
Sum up the conversation below for it: {CONTENT}"""
WISH = f"""\
The conversation is too long and will be cut here. Call no tool now. Write a handoff summary with
which you can continue the work without the conversation: {CONTENT}"""

MIN_SUMMARY_TOKENS, MAX_SUMMARY_TOKENS = 1_000, 16_000
SUMMARY_SHARE = 8  # of the window of the model that writes it
ATTEMPTS = 2  # the second one if the first is empty or only thinking
MIN_SHOWN_CHARS = 1_500  # of an item, however many there are


async def summarize(
    model: Model,
    items: Sequence[Item],
    limit: int,
    *,
    focus: str = "",
    session_id: str = "",
    call_model: CallModel = call_directly,
) -> str:
    """Notes on these items; empty if the model writes none. Raises what `call_model` raises.
    `limit` is the number of characters shown to the model."""
    shown, max_tokens = format_items(items, limit), get_summary_tokens(model.card)
    task = _add_focus(f"<conversation>\n{shown}\n</conversation>", focus)
    thinking = "low" if "thinking" in model.card.abilities else None
    request = ModelRequest(
        Transcript([to_user_item(task)]),
        system=INSTRUCTIONS,
        options=ModelOptions(max_tokens=max_tokens, thinking=thinking),
        cache=CacheRequest(enabled=False),
        session_id=f"{session_id}/summary",
    )
    for _ in range(ATTEMPTS):
        text = (await call_model(request, "summary", model)).text.strip()
        if text:
            return text
    return ""


async def summarize_aside(ask_aside: AskAside, view: Sequence[Item], focus: str = "") -> str:
    """Notes on this view; empty if the model writes none. Raises what `ask_aside` raises."""
    wish = NoticeItem(_add_focus(WISH, focus), "compaction", next_move="ask")
    for attempt in range(ATTEMPTS):
        # Without the cache the provider can be told to allow no call.
        reply = await ask_aside(Transcript([*view, wish]), attempt == 0)
        if text := reply.text.strip():
            return text
    return ""


def _add_focus(task: str, focus: str) -> str:
    return f"{task}\n\nAbove all, keep what concerns this: {focus}" if focus else task


def get_summary_tokens(card: ModelCard) -> int:
    """How long a summary may be: 8,000 to 16,000 tokens, less with a small window."""
    share = min(MAX_SUMMARY_TOKENS, card.window // SUMMARY_SHARE)
    return min(card.max_output, max(MIN_SUMMARY_TOKENS, share))


def format_items(items: Sequence[Item], limit: int) -> str:
    """The items as text, whole if they fit. Otherwise the longest are cut in their middle, each to
    the same share, and if that is not enough the oldest are left out."""
    texts = [_format_item(item) for item in items]
    sizes = [estimate_text_chars(text) + 1 for text in texts]
    if sum(sizes) > limit:
        share = max(MIN_SHOWN_CHARS, _find_share(sizes, limit))
        texts = [_cut_text(text, size, share) for text, size in zip(texts, sizes, strict=True)]
    lines: list[str] = []
    for text in reversed(texts):
        limit -= estimate_text_chars(text) + 1
        if limit < 0:
            lines.append("[earlier items are left out]")
            break
        lines.append(text)
    return "\n".join(reversed(lines))


def _find_share(sizes: Sequence[int], limit: int) -> int:
    """How long each may be so that all fit: short ones leave their rest to the longer ones."""
    ordered, left = sorted(sizes), limit
    for position, size in enumerate(ordered):
        share = left // (len(ordered) - position)
        if size > share:
            return share
        left -= size
    return limit


def _cut_text(text: str, size: int, share: int) -> str:
    # The note about the cut needs room too.
    return text if size <= share else truncate_middle(text, (share - 100) * len(text) // size)


def _format_item(item: Item) -> str:
    if isinstance(item, UserItem):
        return f"USER: {item.text}"
    if isinstance(item, SummaryItem):
        return f"EARLIER NOTES: {item.text}"
    if isinstance(item, NoticeItem):
        return f"NOTICE: {item.text}"
    if isinstance(item, ToolResultItem):
        return f"RESULT of {item.name}: {item.model_text}"
    lines: list[str] = []
    for part in item.content:
        if isinstance(part, ToolCall):
            lines.append(f"CALL {part.name} {part.raw}")
        elif isinstance(part, Text):
            lines.append(f"AGENT: {part.text}")
    return "\n".join(lines)
