"""Encodes an Anthropic Messages request: the head (model, system, tools, options) and the blocks.

The head is encoded again only when one of its sources changes. The model's card says which
options it accepts; the others are left out. `AnthropicEncoder` encodes the items of a transcript,
each once (provider_base/encoding.py).
"""

from __future__ import annotations

import base64
from collections.abc import Hashable, Sequence
from typing import Any

import msgspec

from treadle.core.contracts.model import CacheRequest, ModelCard, ModelOptions, ModelRequest
from treadle.core.contracts.tool import ToolSpec
from treadle.core.transcript.content import (
    AssistantContent,
    Document,
    Image,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    UserContent,
)
from treadle.core.transcript.items import AssistantItem, ToolResultItem
from treadle.core.transcript.transcript import Transcript
from treadle.models.profiles import DISABLED, resolve_sampling, resolve_thinking, to_effort
from treadle.models.provider_base.encoding import (
    REFUSED_REASON,
    EncodedBlock,
    InputParts,
    MessageEncoder,
    MessageRole,
    ReplyParts,
    ResultParts,
    encode_call_arguments,
    encode_json,
    encode_json_string,
)
from treadle.models.provider_base.request_limits import (
    MIB,
    TEXT_TYPES,
    RequestLimits,
    has_thinking,
    list_sent_tools,
    make_provider_tool_name,
)
from treadle.models.provider_base.tool_schema import adapt_tool_schema

ORIGIN = "anthropic"
ATTACHED_LABEL = "attached"  # of an Opaque whose fields belong to the block before it
INTERLEAVED_THINKING_BETA = "interleaved-thinking-2025-05-14"
TOOL_SEARCH_BETA = "advanced-tool-use-2025-11-20"
TOOL_SEARCH = b'{"type":"tool_search_tool_bm25_20251119","name":"tool_search_tool_bm25"}'
TASK_BUDGET_BETA = "task-budgets-2026-03-13"
CONTEXT_BETA = "context-management-2025-06-27"
KEPT_THINKING = {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}
MAX_USER_ID_CHARS = 256
MIN_THINKING_BUDGET = 1024
DEFAULT_MAX_TOKENS = 32_000
LONG_MAX_TOKENS = 64_000  # with an effort of LONG_EFFORTS
LONG_EFFORTS = ("xhigh", "max")
# The newer version refuses a temperature; the older one is used if the caller sets one.
API_VERSION = "2026-10-21"
SAMPLING_VERSION = "2023-06-01"
SEARCH_TOOL = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
PLACEHOLDER_TOOL = {
    "name": "none",
    "description": "No tool can be used now.",
    "input_schema": {"type": "object"},
}
_THINKING_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 12_000, "high": 24_000}
_EFFORTS = ("low", "medium", "high", "xhigh", "max")

LIMITS = RequestLimits(
    origin=ORIGIN,
    max_images=100,
    max_image_bytes=5 * MIB,
    max_image_side=8000,
    many_images_count=20,
    many_images_side=2000,
    max_document_bytes=32 * MIB,
    max_body_bytes=31 * MIB,  # the limit is 32 MB with the system prompt and the tools
    max_id_length=64,
)


class RequestHead(msgspec.Struct, frozen=True):
    """The bytes up to `"messages":[`, the mark of cached blocks, and the values of headers."""

    source: tuple[object, ...]  # see `list_head_sources`
    data: bytes
    cache_mark: bytes
    betas: tuple[str, ...]
    version: str


def list_head_sources(
    card: ModelCard, request: ModelRequest, with_thinking: bool, has_calls: bool
) -> tuple[object, ...]:
    """Everything that a head depends on; only without tools does it matter if there are calls."""
    needs_placeholder = has_calls and not request.tools
    changing = (card, with_thinking, needs_placeholder, request.system, _find_user_id(request))
    return (*changing, _is_cached_summary(request), request.tools, request.options, request.cache)


def encode_head(
    model: str, card: ModelCard, request: ModelRequest, with_thinking: bool, has_calls: bool
) -> RequestHead:
    options = request.options
    mark = encode_cache_mark(request.cache)
    fields: dict[str, Any] = {"model": model, "stream": True}
    if with_thinking:
        fields |= build_thinking_fields(options, card)
    else:
        fields["max_tokens"] = resolve_max_tokens(options, card)
    # Newer models think without being asked.
    kind = fields.get("thinking", {}).get("type", "adaptive" if card.thinking_off else DISABLED)
    is_thinking = kind != DISABLED
    searches = options.web_search and "search" in card.abilities
    tools = list_sent_tools(request.tools, card)
    if tools:
        # Before the others, so that the mark of the cache stays on the last one.
        own = b"[%b," % msgspec.json.encode(SEARCH_TOOL) if searches else b"["
        fields["tools"] = msgspec.Raw(own + encode_tools(tools, mark)[1:])
        choice = encode_tool_choice(options, is_thinking)
        # Another choice than in the turn would make the cache of the messages useless. A summary
        # does without it: its text says that no tool is called, and calls in it are not run.
        if choice is not None and not _is_cached_summary(request):
            fields["tool_choice"] = choice
    elif searches:
        fields["tools"] = [SEARCH_TOOL]
    elif has_calls:
        # The provider refuses a history with calls but without tools.
        fields["tools"] = [PLACEHOLDER_TOOL]
        fields["tool_choice"] = {"type": "none"}
    if request.system.strip():
        text = encode_json_string(request.system)
        fields["system"] = msgspec.Raw(b'[{"type":"text","text":%b%b}]' % (text, mark))
    version = API_VERSION
    if not is_thinking:
        sampling = _build_sampling(options, card)
        fields |= sampling
        version = SAMPLING_VERSION if sampling else API_VERSION
    if options.service_tier:
        fields["service_tier"] = options.service_tier
    if options.stop:
        fields["stop_sequences"] = [stop for stop in options.stop if stop.strip()]
    if options.output_schema is not None:
        form = {"type": "json_schema", "schema": options.output_schema}
        fields["output_config"] = {**fields.get("output_config", {}), "format": form}
    betas: list[str] = []
    if options.task_budget is not None and "task_budget" in card.abilities:
        budget = {"type": "tokens", "total": options.task_budget}
        fields["output_config"] = {**fields.get("output_config", {}), "task_budget": budget}
        betas.append(TASK_BUDGET_BETA)
    # Else some models see only the thinking of the last turn; refused in a request without any.
    if "context_edits" in card.abilities and is_thinking and "thinking" in fields:
        fields["context_management"] = KEPT_THINKING
        betas.append(CONTEXT_BETA)
    if user_id := _find_user_id(request):
        fields["metadata"] = {"user_id": user_id}
    fields |= options.extra
    if any(tool.deferred for tool in tools):
        betas.append(TOOL_SEARCH_BETA)
    interleaves = tools and fields.get("thinking", {}).get("type") == "enabled"
    if interleaves:
        betas.append(INTERLEAVED_THINKING_BETA)
    data = encode_json(fields)[:-1] + b',"messages":['
    source = list_head_sources(card, request, with_thinking, has_calls)
    return RequestHead(source, data, mark, tuple(betas), version)


def _is_cached_summary(request: ModelRequest) -> bool:
    return request.purpose == "summary" and request.cache.enabled


def _find_user_id(request: ModelRequest) -> str:
    """The only metadata that this provider has a field for."""
    return str(request.metadata.get("user_id", ""))[:MAX_USER_ID_CHARS]


def encode_cache_mark(cache: CacheRequest) -> bytes:
    """The bytes before the closing brace of the last cached block."""
    if not cache.enabled:
        return b""
    if cache.ttl == "1h":
        return b',"cache_control":{"type":"ephemeral","ttl":"1h"}'
    return b',"cache_control":{"type":"ephemeral"}'


def _is_closed(schema: object) -> bool:
    from treadle.models.output_schema import is_closed_schema  # few tools are strict

    return is_closed_schema(schema)


def encode_tools(tools: Sequence[ToolSpec], cache_mark: bytes) -> bytes:
    """The declarations. A deferred one cannot have the mark of the cache, so these come last."""
    encoded: list[bytes] = []
    deferred: list[bytes] = []
    for tool in tools:
        name = make_provider_tool_name(tool.name)
        names = (encode_json_string(name), encode_json_string(tool.description))
        schema = adapt_tool_schema(tool.schema)
        strict = b',"strict":true' if tool.strict and _is_closed(schema) else b""
        values = (*names, encode_json(schema), strict)
        fields = b'{"name":%b,"description":%b,"input_schema":%b%b' % values
        if tool.deferred:
            deferred.append(fields + b',"defer_loading":true}')
        else:
            encoded.append(fields + b"}")
    if deferred:
        encoded.append(TOOL_SEARCH)
    encoded[-1] = encoded[-1][:-1] + cache_mark + b"}"
    return b"[%b]" % b",".join([*encoded, *deferred])


def _build_sampling(options: ModelOptions, card: ModelCard) -> dict[str, float]:
    """The provider refuses a temperature above 1."""
    heat, top_p = resolve_sampling(options, card)
    given = {"temperature": None if heat is None else min(1.0, heat), "top_p": top_p}
    return {name: value for name, value in given.items() if value is not None}


def encode_tool_choice(options: ModelOptions, is_thinking: bool) -> dict[str, Any] | None:
    choice = options.tool_choice
    if choice == "none":
        return {"type": "none"}
    only_one = (
        {}
        if options.parallel_calls is None
        else {"disable_parallel_tool_use": not options.parallel_calls}
    )
    if choice == "auto" or is_thinking:  # a thinking model cannot be forced to call
        return {"type": "auto", **only_one} if only_one else None
    named = {"type": "tool", "name": make_provider_tool_name(choice)}
    return {**({"type": "any"} if choice == "any" else named), **only_one}


def resolve_max_tokens(options: ModelOptions, card: ModelCard) -> int:
    if options.max_tokens is not None:
        return options.max_tokens
    thinks_long = resolve_thinking(options, card) in LONG_EFFORTS
    needed = LONG_MAX_TOKENS if thinks_long else DEFAULT_MAX_TOKENS
    return min(card.max_output, max(card.default_output or 0, needed))


def build_thinking_fields(options: ModelOptions, card: ModelCard) -> dict[str, Any]:
    """Thinking by budget or by effort, whichever the model supports, and room for it."""
    limit, thinking = resolve_max_tokens(options, card), resolve_thinking(options, card)
    if thinking is None or "thinking" not in card.abilities:
        return {"max_tokens": limit}
    if thinking == DISABLED:
        return {"max_tokens": limit, "thinking": {"type": "disabled"}}
    if thinks_by_effort(options, card):
        return {
            "max_tokens": limit,
            "thinking": _build_adaptive_thinking(card),
            "output_config": {"effort": _choose_effort(thinking)},
        }
    budget = thinking if isinstance(thinking, int) else _THINKING_BUDGETS.get(thinking, 24_000)
    budget = max(MIN_THINKING_BUDGET, budget)
    # The budget counts towards the limit; the answer needs its own room.
    if options.max_tokens is None:
        if budget > limit // 2:
            limit = max(limit, min(card.max_output, budget + limit), MIN_THINKING_BUDGET + 1)
    elif limit <= MIN_THINKING_BUDGET:
        return {"max_tokens": limit}  # a limit that was set is kept
    elif limit <= budget:
        budget = limit // 2
    budget = max(MIN_THINKING_BUDGET, min(budget, limit - 1))
    return {"max_tokens": limit, "thinking": {"type": "enabled", "budget_tokens": budget}}


def thinks_by_effort(options: ModelOptions, card: ModelCard) -> bool:
    """Then the model decides at each reply whether it thinks."""
    if "effort" not in card.abilities:
        return False
    return "budget" not in card.abilities or isinstance(resolve_thinking(options, card), str)


def _build_adaptive_thinking(card: ModelCard) -> dict[str, Any]:
    # Newer models do not show their thinking unless they are asked to.
    thinking: dict[str, Any] = {"type": "adaptive", "display": "summarized"}
    if "bound_thinking" in card.abilities:
        # After a compaction or a rewind, earlier thinking is ignored instead of refused.
        thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    return thinking


def _choose_effort(thinking: int | str) -> str:
    if isinstance(thinking, int):
        return to_effort(thinking)
    return thinking if thinking in _EFFORTS else "low" if thinking == "minimal" else "high"


def can_think(
    transcript: Transcript, quarantine: frozenset[tuple[int, int]], limits: RequestLimits
) -> bool:
    """Whether thinking with a budget may be on: it must not change within a round of calls.

    After a change of model in the middle of a round, or if its thinking was refused, the reply is
    sent without thinking, and the provider refuses a request with thinking.
    """
    omissions = dict.fromkeys(quarantine, REFUSED_REASON)
    is_round = False
    for position in range(len(transcript) - 1, -1, -1):
        item = transcript[position]
        if isinstance(item, AssistantItem):
            return not is_round or has_thinking(item, position, limits, omissions)
        # A notice or a message after the results is part of the same message as they are.
        is_round = is_round or isinstance(item, ToolResultItem)
    return True


class AnthropicEncoder(MessageEncoder):
    """Encodes items as blocks; consecutive blocks of one role are one message."""

    merges_roles = True

    def __init__(
        self, limits: RequestLimits = LIMITS, model: str = "", has_system_notices: bool = False
    ) -> None:
        self.limits = msgspec.structs.replace(limits, model=model)
        self.has_system_notices = has_system_notices
        self.cache_key: Hashable = ("anthropic", "messages", model, has_system_notices)
        if limits is not LIMITS:
            self.cache_key = ("anthropic", "messages", self.limits, has_system_notices)

    def open_message(self, role: MessageRole) -> bytes:
        return b'{"role":"%b","content":[' % role.encode()

    def close_message(self) -> bytes:
        return b"]}"

    def encode_input(self, parts: InputParts, by_engine: bool = False) -> list[EncodedBlock]:
        return [(number, _encode_input_block(part)) for number, part in parts]

    def encode_result(
        self, call: ToolCall, parts: ResultParts, is_error: bool
    ) -> list[EncodedBlock]:
        first = parts[0][1]
        if len(parts) == 1 and isinstance(first, Text):
            content = encode_json_string(first.text)
        else:
            content = b"[%b]" % b",".join([_encode_input_block(part) for _, part in parts])
        mark = b',"is_error":true' if is_error else b""
        values = (encode_json_string(call.id), content, mark)
        block = b'{"type":"tool_result","tool_use_id":%b,"content":%b%b}' % values
        return [(parts[0][0], block)]

    def encode_reply(self, parts: ReplyParts) -> list[EncodedBlock]:
        blocks: list[EncodedBlock] = []
        parts = list(parts)
        while parts and isinstance(parts[-1][1], Thinking | RedactedThinking):
            parts.pop()  # refused as the end of a message
        for number, part in parts:
            if isinstance(part, Opaque) and part.label == ATTACHED_LABEL:
                if blocks and blocks[-1][0] == number - 1:
                    owner, block = blocks[-1]
                    blocks[-1] = (owner, block[:-1] + b"," + part.json.encode()[1:])
                continue
            blocks.append((number, _encode_reply_block(part)))
        return blocks


def _encode_reply_block(part: AssistantContent) -> bytes:
    match part:
        case Text(text=text):
            return b'{"type":"text","text":%b}' % encode_json_string(text)
        case Thinking(text=text, signature=signature):
            values = (encode_json_string(text), encode_json_string(signature))
            return b'{"type":"thinking","thinking":%b,"signature":%b}' % values
        case RedactedThinking(data=data):
            return b'{"type":"redacted_thinking","data":%b}' % encode_json_string(data)
        case Opaque(json=json):
            return json.encode("utf-8", "replace")
        case call:
            names = (encode_json_string(call.id), encode_json_string(call.name))
            arguments = encode_call_arguments(call)
            return b'{"type":"tool_use","id":%b,"name":%b,"input":%b}' % (*names, arguments)


def _encode_input_block(part: UserContent) -> bytes:
    if isinstance(part, Text):
        return b'{"type":"text","text":%b}' % encode_json_string(part.text)
    if isinstance(part, Image):
        return b'{"type":"image","source":%b}' % _encode_source(part)
    title = b',"title":%b' % encode_json_string(part.title) if part.title else b""
    return b'{"type":"document","source":%b%b}' % (_encode_source(part), title)


def _encode_source(part: Image | Document) -> bytes:
    if not part.data:
        return b'{"type":"url","url":%b}' % encode_json_string(part.url)
    if part.media_type in TEXT_TYPES:
        text = part.data.decode("utf-8", "replace")
        return b'{"type":"text","media_type":"text/plain","data":%b}' % encode_json_string(text)
    values = (encode_json_string(part.media_type), base64.b64encode(part.data))
    return b'{"type":"base64","media_type":%b,"data":"%b"}' % values
