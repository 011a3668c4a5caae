"""A picture of what fills the model's window, in plain text."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from treadle.apps.tui.tray import count
from treadle.core.transcript.content import Text, Thinking, ToolCall
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem, ToolResultItem, UserItem

BAR = 40
CHARS_A_TOKEN = 4
ATTACHMENT = 1_500  # tokens that a picture or a page usually takes


def picture(items: Iterable[Item], used: int, window: int) -> str:
    """Shares are estimated from characters and scaled to what the provider counted."""
    parts = _parts(items)
    counted = sum(parts.values())
    if used > counted:
        parts = {"system and tools": used - counted, **parts}
    elif counted and used:
        parts = {name: size * used // counted for name, size in parts.items()}
    total = used or counted
    lines = [
        f"{_bar(total, window)} {count(total)} of {count(window)} tokens ({total / window:.0%})"
    ]
    for name, size in sorted(parts.items(), key=lambda part: -part[1]):
        if size:
            lines.append(f"  {_bar(size, total, 20)} {count(size):>6}  {name}")
    lines.append(f"  {_bar(0, 1, 20)} {count(max(window - total, 0)):>6}  free")
    return "\n".join(lines)


def _parts(items: Iterable[Item]) -> dict[str, int]:
    parts = dict.fromkeys(("you", "replies", "thinking", "calls", "results", "summaries"), 0)
    for item in items:
        match item:
            case UserItem(content=content):
                for part in content:
                    parts["you"] += _tokens(part.text) if isinstance(part, Text) else ATTACHMENT
            case AssistantItem(content=content):
                for said in content:
                    match said:
                        case Text(text=text):
                            parts["replies"] += _tokens(text)
                        case Thinking(text=text):
                            parts["thinking"] += _tokens(text)
                        case ToolCall(raw=raw):
                            parts["calls"] += _tokens(raw) + 20
                        case _:
                            parts["replies"] += _tokens(str(msgspec.to_builtins(said)))
            case ToolResultItem(content=content):
                for part in content:
                    size = _tokens(part.text) if isinstance(part, Text) else ATTACHMENT
                    parts["results"] += size
            case NoticeItem(text=text):
                parts["summaries"] += _tokens(text)
            case _:
                parts["summaries"] += _tokens(item.text)
    return parts


def _tokens(text: str) -> int:
    return -(-len(text) // CHARS_A_TOKEN)


def _bar(size: int, of: int, width: int = BAR) -> str:
    filled = min(width, round(width * size / of)) if of else 0
    return "█" * filled + "░" * (width - filled)
