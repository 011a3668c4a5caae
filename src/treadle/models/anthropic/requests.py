"""What stands before the messages of an Anthropic request: model, system, tools, options.

It is encoded again only when one of its sources changed. Which options a model takes is read
off its card; what it cannot do is left out rather than refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.core.contracts.model import CacheRequest, ModelCard, ModelOptions, ModelRequest
from treadle.core.contracts.tool import ToolSpec
from treadle.core.transcript.content import RedactedThinking, Thinking
from treadle.core.transcript.items import AssistantItem, ToolResultItem
from treadle.core.transcript.transcript import Transcript
from treadle.models.anthropic.blocks import ORIGIN
from treadle.models.encoding import json_text

INTERLEAVED = "interleaved-thinking-2025-05-14"
MIN_BUDGET = 1024
DEFAULT_OUTPUT = 32_000
# The newer version refuses every temperature; the older one is asked for when one is wanted.
API_VERSION = "2026-10-21"
SAMPLING_VERSION = "2023-06-01"
NO_TOOL = {
    "name": "none",
    "description": "No tool can be used now.",
    "input_schema": {"type": "object"},
}
_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 12_000, "high": 24_000}
_EFFORTS = ("low", "medium", "high", "xhigh", "max")


class Head(msgspec.Struct, frozen=True):
    """The bytes up to `"messages":[`, the mark for cached blocks, and the headers it needs."""

    system: str
    tools: tuple[ToolSpec, ...]
    options: ModelOptions
    cache: CacheRequest
    thinks: bool
    has_calls: bool
    data: bytes
    mark: bytes
    betas: tuple[str, ...]
    version: str

    def still_holds(self, request: ModelRequest, thinks: bool, has_calls: bool) -> bool:
        return (
            self.thinks is thinks
            and (self.has_calls is has_calls or bool(request.tools))
            and self.system == request.system
            and self.tools == request.tools
            and self.options == request.options
            and self.cache == request.cache
        )


def head_for(
    model: str, card: ModelCard, request: ModelRequest, thinks: bool, has_calls: bool
) -> Head:
    options = request.options
    mark = cache_mark(request.cache)
    fields: dict[str, Any] = {"model": model, "stream": True}
    fields |= (
        thinking_fields(options, card) if thinks else {"max_tokens": max_tokens(options, card)}
    )
    is_thinking = fields.get("thinking", {}).get("type") in ("enabled", "adaptive")
    if request.tools:
        fields["tools"] = msgspec.Raw(tool_list(request.tools, mark))
        choice = tool_choice(options.tool_choice, is_thinking)
        if choice is not None:
            fields["tool_choice"] = choice
    elif has_calls:
        # A history with calls is refused without any tool.
        fields["tools"] = [NO_TOOL]
        fields["tool_choice"] = {"type": "none"}
    if request.system.strip():
        text = json_text(request.system)
        fields["system"] = msgspec.Raw(b'[{"type":"text","text":%b%b}]' % (text, mark))
    version = API_VERSION
    if options.temperature is not None and not is_thinking and "sampling" in card.abilities:
        fields["temperature"] = min(1.0, max(0.0, options.temperature))
        version = SAMPLING_VERSION
    if options.stop:
        fields["stop_sequences"] = [stop for stop in options.stop if stop.strip()]
    if options.output_schema is not None:
        form = {"type": "json_schema", "schema": options.output_schema}
        fields["output_config"] = {**fields.get("output_config", {}), "format": form}
    fields |= options.extra
    betas = (
        (INTERLEAVED,)
        if request.tools and fields.get("thinking", {}).get("type") == "enabled"
        else ()
    )
    data = msgspec.json.encode(fields)[:-1] + b',"messages":['
    return Head(
        request.system,
        request.tools,
        options,
        request.cache,
        thinks,
        has_calls,
        data,
        mark,
        betas,
        version,
    )


def cache_mark(cache: CacheRequest) -> bytes:
    """What is put before the closing brace of a block where a cached stretch ends."""
    if not cache.enabled:
        return b""
    if cache.ttl == "1h":
        return b',"cache_control":{"type":"ephemeral","ttl":"1h"}'
    return b',"cache_control":{"type":"ephemeral"}'


def tool_list(tools: Sequence[ToolSpec], mark: bytes) -> bytes:
    listed = [
        b'{"name":%b,"description":%b,"input_schema":%b%b}'
        % (
            json_text(tool.name),
            json_text(tool.description),
            msgspec.json.encode(tool.schema),
            b',"strict":true' if tool.strict else b"",
        )
        for tool in tools
    ]
    listed[-1] = listed[-1][:-1] + mark + b"}"
    return b"[%b]" % b",".join(listed)


def tool_choice(wish: str, is_thinking: bool) -> dict[str, str] | None:
    if wish == "none":
        return {"type": "none"}
    if wish == "auto" or is_thinking:  # a thinking model cannot be forced to call
        return None
    return {"type": "any"} if wish == "any" else {"type": "tool", "name": wish}


def max_tokens(options: ModelOptions, card: ModelCard) -> int:
    if options.max_tokens is not None:
        return options.max_tokens
    return min(card.max_output, DEFAULT_OUTPUT)


def thinking_fields(options: ModelOptions, card: ModelCard) -> dict[str, Any]:
    """Thinking by budget or by effort, whichever the model knows, and room for it."""
    limit, wish = max_tokens(options, card), options.thinking
    if wish is None:
        return {"max_tokens": limit}
    if wish in (0, "none", "off", "disabled"):
        # Newer models always think and refuse to be told otherwise: the least is what helps.
        is_always = "effort" in card.abilities and "budget" not in card.abilities
        least = {"output_config": {"effort": "low"}} if is_always else {}
        return {"max_tokens": limit, **least}
    if "effort" in card.abilities and ("budget" not in card.abilities or isinstance(wish, str)):
        return {
            "max_tokens": limit,
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": _effort(wish)},
        }
    budget = max(MIN_BUDGET, wish if isinstance(wish, int) else _BUDGETS.get(wish, 24_000))
    if options.max_tokens is None or limit <= budget:
        # The budget counts towards the limit; the answer needs room of its own.
        limit = max(limit, min(card.max_output, budget + limit), MIN_BUDGET + 1)
    budget = max(MIN_BUDGET, min(budget, limit - 1))
    return {"max_tokens": limit, "thinking": {"type": "enabled", "budget_tokens": budget}}


def _effort(wish: int | str) -> str:
    if isinstance(wish, int):
        return "low" if wish < 8_000 else "medium" if wish < 20_000 else "high"
    return wish if wish in _EFFORTS else "low" if wish == "minimal" else "high"


def can_think(transcript: Transcript) -> bool:
    """Whether thinking may be on: a round of calls must go on as it began.

    After a change of model in the middle of a round, its reply has no thinking of this
    provider's, and a request that asks for thinking would be refused.
    """
    if not transcript or not isinstance(transcript[-1], ToolResultItem):
        return True
    for position in range(len(transcript) - 1, -1, -1):
        item = transcript[position]
        if isinstance(item, AssistantItem):
            return any(
                isinstance(part, (Thinking, RedactedThinking)) and part.origin == ORIGIN
                for part in item.content
            )
    return True
