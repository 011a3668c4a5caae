"""A picture of what fills the model's window, in plain text."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from treadle.apps.tui.render.status_area import format_count
from treadle.core.transcript.content import Text, Thinking, ToolCall
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem, ToolResultItem, UserItem

BAR_WIDTH = 40
CHARS_PER_TOKEN = 4
ATTACHMENT_TOKENS = 1_500  # tokens that a picture or a page usually takes


def format_context_usage(items: Iterable[Item], used: int, window: int) -> str:
    """Shares are estimated from characters and scaled to what the provider counted."""
    parts = _estimate_parts(items)
    counted = sum(parts.values())
    if used > counted:
        parts = {"system and tools": used - counted, **parts}
    elif counted and used:
        parts = {name: size * used // counted for name, size in parts.items()}
    total = used or counted
    lines = [
        f"{_format_bar(total, window)} {format_count(total)} of {format_count(window)} tokens ({total / window:.0%})"
    ]
    for name, size in sorted(parts.items(), key=lambda part: -part[1]):
        if size:
            lines.append(f"  {_format_bar(size, total, 20)} {format_count(size):>6}  {name}")
    lines.append(f"  {_format_bar(0, 1, 20)} {format_count(max(window - total, 0)):>6}  free")
    return "\n".join(lines)


def _estimate_parts(items: Iterable[Item]) -> dict[str, int]:
    parts = dict.fromkeys(("you", "replies", "thinking", "calls", "results", "summaries"), 0)
    for item in items:
        match item:
            case UserItem(content=content):
                for part in content:
                    parts["you"] += (
                        _estimate_tokens(part.text) if isinstance(part, Text) else ATTACHMENT_TOKENS
                    )
            case AssistantItem(content=content):
                for said in content:
                    match said:
                        case Text(text=text):
                            parts["replies"] += _estimate_tokens(text)
                        case Thinking(text=text):
                            parts["thinking"] += _estimate_tokens(text)
                        case ToolCall(raw=raw):
                            parts["calls"] += _estimate_tokens(raw) + 20
                        case _:
                            parts["replies"] += _estimate_tokens(str(msgspec.to_builtins(said)))
            case ToolResultItem(content=content):
                for part in content:
                    size = (
                        _estimate_tokens(part.text) if isinstance(part, Text) else ATTACHMENT_TOKENS
                    )
                    parts["results"] += size
            case NoticeItem(text=text):
                parts["summaries"] += _estimate_tokens(text)
            case _:
                parts["summaries"] += _estimate_tokens(item.text)
    return parts


def _estimate_tokens(text: str) -> int:
    return -(-len(text) // CHARS_PER_TOKEN)


def _format_bar(size: int, total: int, width: int = BAR_WIDTH) -> str:
    filled = min(width, round(width * size / total)) if total else 0
    return "█" * filled + "░" * (width - filled)
