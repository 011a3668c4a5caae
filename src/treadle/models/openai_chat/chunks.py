"""The chunks of a Chat Completions stream as values, with the fields of every known server.

Only what decoding.py reads is here. A field of another type is ignored where the reply does not
depend on it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from treadle.models.provider_base.lenient import decode_leniently
from treadle.models.provider_base.openai_common import (
    InputTokenDetails,
    OpenAIUsage,
    OutputTokenDetails,
)

ABSENT = msgspec.Raw()


class ChatFunction(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class ChatCallDelta(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: ChatFunction | None = None
    extra_content: msgspec.Raw = ABSENT


class ChatPart(msgspec.Struct):
    """Mistral streams a list of parts when it thinks."""

    type: str = ""
    text: str | None = None
    thinking: str | list[ChatPart] | None = None
    signature: str | None = None  # of the thinking


class ChatDelta(msgspec.Struct, gc=False):
    content: str | list[ChatPart] | None = None
    tool_calls: list[ChatCallDelta] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    refusal: str | None = None
    annotations: list[Any] | None = None  # citations, of OpenAI and OpenRouter
    executed_tools: list[Any] | None = None  # by the server, of Groq
    images: list[Any] | None = None  # that the model made, of OpenRouter


class ChatUsage(OpenAIUsage):
    input_tokens: int | None = msgspec.field(default=None, name="prompt_tokens")
    output_tokens: int | None = msgspec.field(default=None, name="completion_tokens")
    input_tokens_details: InputTokenDetails | None = msgspec.field(
        default=None, name="prompt_tokens_details"
    )
    output_tokens_details: OutputTokenDetails | None = msgspec.field(
        default=None, name="completion_tokens_details"
    )
    total_tokens: int | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek's name for it
    cost: float | None = None  # OpenRouter's, in USD


class ChatChoice(msgspec.Struct, gc=False):
    index: int | None = None
    delta: ChatDelta | None = None
    message: ChatDelta | None = None  # instead of the delta, in a reply in one piece
    finish_reason: str | None = None
    usage: ChatUsage | None = None


class _GroqExtension(msgspec.Struct):
    usage: ChatUsage | None = None


class _MiniMaxStatus(msgspec.Struct, gc=False):
    status_code: int | None = None  # 0 if all is well


class ChatChunk(msgspec.Struct, gc=False):
    id: str | None = None
    object: str | None = None
    choices: list[ChatChoice] | None = None
    usage: ChatUsage | None = None
    error: msgspec.Raw = ABSENT
    x_groq: _GroqExtension | None = None
    citations: list[Any] | None = None  # of Perplexity, whole in each chunk
    search_results: list[Any] | None = None
    base_resp: _MiniMaxStatus | None = None


# Not strict: some servers quote their numbers.
decode_chunk = msgspec.json.Decoder(ChatChunk, strict=False).decode
# The reply depends on these fields; any other one is ignored if it does not fit.
_STRICT_FIELDS = frozenset(
    [
        "choices",
        "delta",
        "message",
        "content",
        "text",
        "finish_reason",
        "tool_calls",
        "function",
        "name",
        "arguments",
    ]
)


def pick_choice(chunk: ChatChunk) -> ChatChoice | None:
    """The choice of the reply: the first. The others are other answers to the same request."""
    choices = chunk.choices
    if not choices:
        return None
    first = choices[0]
    return next((one for one in choices if not one.index), None) if first.index else first


def decode_odd_chunk(data: bytes) -> ChatChunk:
    """A chunk whose fields do not all fit. Raises msgspec.DecodeError."""
    return decode_leniently(data, ChatChunk, _STRICT_FIELDS)


def count_hidden_reasoning(usage: ChatUsage) -> ChatUsage:
    """The usage with all output tokens: Gemini and xAI count reasoning only in the total."""
    known = usage.output_tokens
    if known is None or usage.input_tokens is None:
        return usage
    details = usage.output_tokens_details or OutputTokenDetails()
    hidden = (usage.total_tokens or 0) - usage.input_tokens - known
    if hidden <= 0:
        return usage
    reasoning = max(hidden, details.reasoning_tokens or 0)
    details = msgspec.structs.replace(details, reasoning_tokens=reasoning)
    return msgspec.structs.replace(
        usage, output_tokens=known + hidden, output_tokens_details=details
    )
