"""What fills the model's context window, as a bar chart in plain text."""

from __future__ import annotations

from collections.abc import Iterable

from treadle.core.text import format_count
from treadle.core.transcript.content import (
    AssistantContent,
    Document,
    Image,
    Opaque,
    ResultContent,
    Text,
    Thinking,
    ToolCall,
    UserContent,
)
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem, SummaryItem, UserItem
from treadle.core.transcript.size_estimate import CHARS_PER_MEDIA_TOKEN, estimate_media_chars

BAR_WIDTH = 40
PART_BAR_WIDTH = 20
CALL_OVERHEAD_CHARS = 80  # the name and the id of a call
_GROUPS: dict[type, str] = {Thinking: "thinking", ToolCall: "calls"}


def format_context_usage(items: Iterable[Item], used: int, window: int) -> str:
    """`used` is the provider's count; the shares are estimated and scaled to it."""
    tokens = _estimate_tokens(items)
    estimated = sum(tokens.values())
    if used > estimated:
        tokens = {"system and tools": used - estimated, **tokens}
    elif estimated and used:
        tokens = {group: size * used // estimated for group, size in tokens.items()}
    total = used or estimated
    usage = f"{format_count(total)} of {format_count(window)} tokens ({total / window:.0%})"
    lines = [f"{_format_bar(total, window)} {usage}"]
    for group, size in sorted(tokens.items(), key=lambda part: -part[1]):
        if size:
            bar = _format_bar(size, total, PART_BAR_WIDTH)
            lines.append(f"  {bar} {format_count(size):>6}  {group}")
    free = format_count(max(window - total, 0))
    lines.append(f"  {_format_bar(0, 1, PART_BAR_WIDTH)} {free:>6}  free")
    return "\n".join(lines)


def _estimate_tokens(items: Iterable[Item]) -> dict[str, int]:
    chars = dict.fromkeys(("you", "replies", "thinking", "calls", "results", "summaries"), 0)
    for item in items:
        if isinstance(item, NoticeItem | SummaryItem):
            chars["summaries"] += len(item.text)
        elif isinstance(item, AssistantItem):
            for part in item.content:
                chars[_GROUPS.get(type(part), "replies")] += _count_chars(part)
        else:
            group = "you" if isinstance(item, UserItem) else "results"
            chars[group] += sum(map(_count_chars, item.content))
    return {group: -(-count // CHARS_PER_MEDIA_TOKEN) for group, count in chars.items()}


def _count_chars(part: UserContent | ResultContent | AssistantContent) -> int:
    match part:
        case Image() | Document():
            return estimate_media_chars(part)
        case ToolCall(raw=raw):
            return len(raw) + CALL_OVERHEAD_CHARS
        case Text(text=text) | Thinking(text=text) | Opaque(json=text):
            return len(text)
    return 0


def _format_bar(size: int, total: int, width: int = BAR_WIDTH) -> str:
    filled = min(width, round(width * size / total)) if total else 0
    return "█" * filled + "░" * (width - filled)
