"""What fills the context window: the messages by their kind, memory files, skills, our tools
and those of each MCP server; also as a bar chart in plain text. Used by `/context`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from treadle.context.prompt import PromptSection
from treadle.core.contracts.tool import Tool
from treadle.core.transcript.content import Thinking, ToolCall
from treadle.core.transcript.items import (
    AssistantItem,
    Item,
    SummaryItem,
    ToolResultItem,
    UserItem,
)
from treadle.core.transcript.size_estimate import CHARS_PER_MEDIA_TOKEN, estimate_item_chars
from treadle.lib.text.text import format_count
from treadle.tools.tool_directory import estimate_tokens

BAR_WIDTH = 40
PART_BAR_WIDTH = 20
_ITEM_GROUPS: dict[type, str] = {
    UserItem: "your messages",
    ToolResultItem: "tool results",
    SummaryItem: "summary of earlier messages",
}
_SECTION_GROUPS = {"memory": "memory files", "skills": "skills"}
_PART_GROUPS: dict[type, str] = {Thinking: "thinking", ToolCall: "tool calls"}
_REPLIES, _NOTICES = "replies", "notices to the model"


def estimate_head(sections: Iterable[PromptSection], tools: Iterable[Tool]) -> dict[str, int]:
    """The tokens of what stands before the messages, by what the user can change about it."""
    tokens: dict[str, int] = {}

    def add(group: str, size: int) -> None:
        tokens[group] = tokens.get(group, 0) + size

    for section in sections:
        group = _SECTION_GROUPS.get(section.name, "system prompt")
        add(group, len(section.text) // CHARS_PER_MEDIA_TOKEN)
    for tool in tools:
        if not tool.spec.unlisted:
            prefix, _, rest = tool.spec.name.partition("__")
            server = rest.partition("__")[0] if prefix == "mcp" else ""
            add(f"MCP server {server}" if server else "tools", estimate_tokens([tool]))
    return tokens


class ContextUsage(msgspec.Struct, frozen=True):
    """`parts` are the largest first; their names are for the user."""

    total: int
    window: int
    parts: tuple[tuple[str, int], ...]

    @property
    def summary(self) -> str:
        total, window = format_count(self.total), format_count(self.window)
        return f"{total} of {window} tokens ({self.total / self.window:.0%})"

    @property
    def free(self) -> int:
        return max(self.window - self.total, 0)


def measure_context(
    items: Iterable[Item], used: int, window: int, head: Mapping[str, int] | None = None
) -> ContextUsage:
    """`used` is the provider's count; the shares are estimated and scaled to it."""
    tokens = {**_estimate_tokens(items), **(head or {})}
    estimated = sum(tokens.values())
    if used > estimated:
        rest = "system prompt" if head else "system prompt and tools"
        tokens[rest] = tokens.get(rest, 0) + used - estimated
    elif estimated and used:
        tokens = {group: size * used // estimated for group, size in tokens.items()}
    parts = sorted((one for one in tokens.items() if one[1]), key=lambda part: -part[1])
    return ContextUsage(used or estimated, window, tuple(parts))


def format_context_usage(usage: ContextUsage) -> str:
    lines = [f"{_format_bar(usage.total, usage.window)} {usage.summary}"]
    for group, size in usage.parts:
        bar = _format_bar(size, usage.total, PART_BAR_WIDTH)
        lines.append(f"  {bar} {format_count(size):>6}  {group}")
    free = format_count(usage.free)
    lines.append(f"  {_format_bar(0, 1, PART_BAR_WIDTH)} {free:>6}  free")
    return "\n".join(lines)


def estimate_change(used: int, before: Iterable[Item], after: Iterable[Item]) -> int:
    """`used` tokens after the view changed from `before` to `after`; 0 if `used` is unknown."""
    change = sum(_estimate_tokens(after).values()) - sum(_estimate_tokens(before).values())
    return max(used + change, 1) if used else 0


def _estimate_tokens(items: Iterable[Item]) -> dict[str, int]:
    groups = (*_ITEM_GROUPS.values(), *_PART_GROUPS.values(), _REPLIES, _NOTICES)
    chars = dict.fromkeys(groups, 0)
    for item in items:
        if isinstance(item, AssistantItem):
            for part in item.content:
                group = _PART_GROUPS.get(type(part), _REPLIES)
                chars[group] += estimate_item_chars(AssistantItem((part,)))
        else:
            chars[_ITEM_GROUPS.get(type(item), _NOTICES)] += estimate_item_chars(item)
    return {group: -(-count // CHARS_PER_MEDIA_TOKEN) for group, count in chars.items()}


def _format_bar(size: int, total: int, width: int = BAR_WIDTH) -> str:
    filled = min(width, round(width * size / total)) if total else 0
    return "█" * filled + "░" * (width - filled)
