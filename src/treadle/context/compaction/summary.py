"""A summary of older items, written by a model of the user's choice.

Used by compactor.py. Facts that must survive verbatim are pinned by pins.py, so a poor summary
loses convenience, not facts.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.core.contracts.model import Model, ModelOptions, ModelRequest, ModelUsageUpdated, Reply
from treadle.core.contracts.mutator import ReserveBudget, no_reservation
from treadle.core.errors import ModelError
from treadle.core.transcript import AssistantItem, NoticeItem, SummaryItem, ToolResultItem, Usage
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.items import Item, UserItem, to_user_item
from treadle.core.transcript.size_estimate import estimate_text_chars
from treadle.core.transcript.transcript import Transcript

INSTRUCTIONS = """\
You write notes for a coding agent that has to continue its work after its conversation was cut.
Sum up the conversation below for it: what was asked for and why, what was found out (names, paths,
commands, numbers, errors, exactly), what was done and how it was checked, what was tried and
failed, what is left to do and in which order. The user's own messages are kept beside your notes;
do not repeat them. Write short plain sentences under the headings Goal, Known, Done, Failed, Next.
Write nothing else."""

MAX_TOKENS = 2_000
RESULT_CHARS = 1_500
ARGUMENT_CHARS = 500


async def summarize(
    model: Model,
    items: Sequence[Item],
    limit: int,
    *,
    focus: str = "",
    session_id: str = "",
    reserve: ReserveBudget = no_reservation,
) -> str:
    """Notes on these items; empty if the model fails or `reserve` finds no budget for the call.
    `limit` is the number of characters shown to the model."""
    shown = format_items(items, limit)
    task = f"<conversation>\n{shown}\n</conversation>"
    if focus:
        task += f"\n\nAbove all, keep what concerns this: {focus}"
    request = ModelRequest(
        Transcript([to_user_item(task)]),
        system=INSTRUCTIONS,
        options=ModelOptions(max_tokens=MAX_TOKENS),
        session_id=f"{session_id}/summary",  # its own cached prefix
    )
    settle = reserve(model.card, estimate_text_chars(task) + len(INSTRUCTIONS), MAX_TOKENS)
    if settle is None:
        return ""
    reply: AssistantItem | None = None
    used = Usage()
    try:
        async for event in model.stream(request):
            if isinstance(event, ModelUsageUpdated):
                used = event.usage
            elif isinstance(event, Reply):
                reply, used = event.item, event.item.usage
    except ModelError:
        return ""
    finally:
        settle(used)
    return reply.text.strip() if reply is not None else ""


def format_items(items: Sequence[Item], limit: int) -> str:
    """The items as text; when it is too long the oldest part is left out."""
    lines: list[str] = []
    left = limit
    for item in reversed(items):
        text = _format_item(item)
        size = estimate_text_chars(text)
        if size > left:
            lines.append("[earlier items are left out]")
            break
        left -= size + 1
        lines.append(text)
    return "\n".join(reversed(lines))


def _format_item(item: Item) -> str:
    if isinstance(item, UserItem):
        return f"USER: {item.text[: RESULT_CHARS * 4]}"
    if isinstance(item, SummaryItem):
        return f"EARLIER NOTES: {item.text}"
    if isinstance(item, NoticeItem):
        return f"NOTICE: {item.text[:RESULT_CHARS]}"
    if isinstance(item, ToolResultItem):
        return f"RESULT of {item.name}: {item.text[:RESULT_CHARS]}"
    lines: list[str] = []
    for part in item.content:
        if isinstance(part, ToolCall):
            lines.append(f"CALL {part.name} {part.raw[:ARGUMENT_CHARS]}")
        elif isinstance(part, Text):
            lines.append(f"AGENT: {part.text}")
    return "\n".join(lines)
