"""Anthropic Messages in the loopback provider: rendering and request checks.

`signature` marks thinking as made by this service: a block that comes back changed, or from another
service, is refused, as by the real one.
"""

import hashlib
import re
from typing import Final

import msgspec

from treadle.testing.provider.script import (
    FakeCall,
    FakePart,
    FakeRedactedThinking,
    FakeReply,
    FakeStop,
    FakeText,
    FakeThinking,
)

from . import SseEvent
from .request_checks import (
    JsonObject,
    RequestViolation,
    ServerLimits,
    Violations,
    as_dict,
    as_list,
    check_image,
    check_image_count,
    check_schema,
    check_unique,
    check_unknown_keys,
    count_assistant_messages,
    split_words,
)

_REQUEST_FIELDS: Final = split_words(
    "model messages max_tokens system tools tool_choice stream temperature top_p top_k thinking "
    "stop_sequences metadata service_tier container context_management mcp_servers betas "
    "output_config output_format cache_control speed inference_geo"
)
_BLOCK_FIELDS: Final = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "image": frozenset({"type", "source", "cache_control"}),
    "document": frozenset({"type", "source", "cache_control", "title", "context", "citations"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control", "caller"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
}
_STOP_REASONS: Final[dict[FakeStop, str]] = {"context_window": "model_context_window_exceeded"}
# The models that take system messages inside a conversation.
_SYSTEM_ROLE_MODELS: Final = re.compile(r"claude-(opus-4-8|(opus|sonnet|fable)-5|haiku-5-5)")
_ID_PATTERN: Final = re.compile(r"[a-zA-Z0-9_-]+")


def sign_thinking(thinking: str) -> str:
    return "sig-" + hashlib.sha256(thinking.encode("utf-8", "surrogatepass")).hexdigest()[:24]


class FakeAnthropic:
    """A FakeDialect."""

    def count_assistant_turns(self, request: JsonObject) -> int:
        return count_assistant_messages(request)

    def check_request(self, request: JsonObject, limits: ServerLimits) -> list[RequestViolation]:
        return list(_check_request(request, limits))

    def render_stream(self, reply: FakeReply, model: str, serial: int) -> list[SseEvent]:
        message = {**self.render_response(reply, model, serial), "content": [], "stop_reason": None}
        if reply.usage is not None:
            message["usage"] = {**_render_usage(reply), "output_tokens": 1}
        events = [_make_event("message_start", "start", message=message)]
        for index, part in enumerate(reply.all_parts()):
            events += _render_part_events(index, part, serial)
        stop: dict[str, object] = {"stop_reason": _render_stop_reason(reply), "stop_sequence": None}
        fields: dict[str, object] = {"delta": stop}
        if reply.usage is not None:
            fields["usage"] = {"output_tokens": reply.count_output_tokens()}
        events.append(_make_event("message_delta", "end", **fields))
        events.append(_make_event("message_stop", "end"))
        return events

    def render_response(self, reply: FakeReply, model: str, serial: int) -> dict[str, object]:
        message: dict[str, object] = {
            "id": f"msg_{serial:04}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [_render_block(i, p, serial) for i, p in enumerate(reply.all_parts())],
            "stop_reason": _render_stop_reason(reply),
            "stop_sequence": None,
        }
        if reply.usage is not None:
            message["usage"] = _render_usage(reply)
        return message

    def render_error(self, status: int, kind: str, message: str) -> dict[str, object]:
        error = {"type": kind, "message": message}
        return {"type": "error", "error": error, "request_id": "req_loopback"}

    def render_error_event(self, kind: str, message: str) -> SseEvent:
        return SseEvent("error", msgspec.json.encode(self.render_error(529, kind, message)), "end")

    def render_ping(self) -> SseEvent:
        return _make_event("ping", "ping")

    def context_violation(self, tokens: int, window: int) -> RequestViolation:
        return RequestViolation("", f"prompt is too long: {tokens} tokens > {window} maximum")


def _make_event(name: str, kind: str, **fields: object) -> SseEvent:
    return SseEvent(name, msgspec.json.encode({"type": name, **fields}), kind)


def _render_part_events(index: int, part: FakePart, serial: int) -> list[SseEvent]:
    block = _render_block(index, part, serial)
    deltas: list[tuple[str, dict[str, object]]] = []
    match part:
        case FakeText():
            block["text"] = ""
            deltas = [("text", {"type": "text_delta", "text": text}) for text in part.deltas]
        case FakeThinking():
            block["thinking"] = block["signature"] = ""
            deltas = [("thinking", {"type": "thinking_delta", "thinking": t}) for t in part.deltas]
            sign = sign_thinking("".join(part.deltas))
            deltas.append(("thinking", {"type": "signature_delta", "signature": sign}))
        case FakeCall():
            block["input"] = {}
            half = (len(part.raw) + 1) // 2
            deltas = [
                ("arguments", {"type": "input_json_delta", "partial_json": text})
                for text in ("", part.raw[:half], part.raw[half:])
            ]
        case FakeRedactedThinking():
            pass
    events = [_make_event("content_block_start", "start", index=index, content_block=block)]
    for kind, delta in deltas:
        events.append(_make_event("content_block_delta", kind, index=index, delta=delta))
    return [*events, _make_event("content_block_stop", "start", index=index)]


def _render_block(index: int, part: FakePart, serial: int) -> dict[str, object]:
    match part:
        case FakeText():
            return {"type": "text", "text": "".join(part.deltas)}
        case FakeThinking():
            text = "".join(part.deltas)
            return {"type": "thinking", "thinking": text, "signature": sign_thinking(text)}
        case FakeRedactedThinking():
            return {"type": "redacted_thinking", "data": part.data}
        case FakeCall():
            call_id = f"toolu_{serial:04}_{index}" if part.id is None else part.id
            return {"type": "tool_use", "id": call_id, "name": part.name, "input": part.arguments}


def _render_stop_reason(reply: FakeReply) -> str:
    stop = reply.stop_reason()
    return _STOP_REASONS.get(stop, stop)


def _render_usage(reply: FakeReply) -> dict[str, object]:
    assert reply.usage is not None
    return {
        "input_tokens": reply.usage.input,
        "output_tokens": reply.count_output_tokens(),
        "cache_creation_input_tokens": reply.usage.cache_write,
        "cache_read_input_tokens": reply.usage.cache_read,
    }


# -- request checks


def _check_request(request: JsonObject, limits: ServerLimits) -> Violations:
    yield from check_unknown_keys("", request, _REQUEST_FIELDS, limits.extra_keys)
    if not isinstance(request.get("model"), str) or not request["model"]:
        yield RequestViolation("model", "Field required")
    limit = request.get("max_tokens")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        yield RequestViolation("max_tokens", "Field required: an integer of at least 1")
    messages = [as_dict(message) for message in as_list(request.get("messages"))]
    if not messages:
        yield RequestViolation("messages", "at least one message is required")
        return
    yield from _check_system(request.get("system"))
    yield from _check_tools(request)
    yield from _check_roles(messages, limits)
    yield from _check_system_messages(request, messages)
    blocks = [_get_blocks(message) for message in messages]
    for number, message in enumerate(messages):
        yield from _check_content(number, message, limits)
    yield from _check_pairs(messages, blocks)
    yield from _check_thinking(request, messages, blocks)
    flat = [block for group in blocks for block in group]
    nested = [inner for b in flat for inner in map(as_dict, as_list(b.get("content")))]
    images = [b for b in flat + nested if b.get("type") == "image"]
    yield from check_image_count(len(images), limits)
    fixed = map(as_dict, [*as_list(request.get("system")), *as_list(request.get("tools"))])
    count = sum("cache_control" in block for block in [*flat, *fixed])
    if count > 4:
        found = f"A maximum of 4 blocks with cache_control may be provided. Found {count}."
        yield RequestViolation("", found)


def _check_system(system: object) -> Violations:
    if isinstance(system, list):
        for number, block in enumerate(map(as_dict, system)):
            if block.get("type") != "text" or not str(block.get("text") or "").strip():
                yield RequestViolation(f"system.{number}", "text content blocks must be non-empty")
    elif system is not None and not isinstance(system, str):
        yield RequestViolation("system", "Input should be a valid string")


def _check_tools(request: JsonObject) -> Violations:
    tools = [as_dict(tool) for tool in as_list(request.get("tools"))]
    for number, tool in enumerate(tools):
        if tool.get("type", "custom") == "custom":
            path = f"tools.{number}"
            yield from check_schema(path, tool.get("name"), tool.get("input_schema"), 128)
    yield from check_unique("tools", [tool.get("name") for tool in tools], "Tool names")


def _check_roles(messages: list[JsonObject], limits: ServerLimits) -> Violations:
    previous = None
    for number, message in enumerate(messages):
        role, path = message.get("role"), f"messages.{number}.role"
        if role not in ("user", "assistant", "system"):
            yield RequestViolation(path, "Input should be 'user' or 'assistant'")
        elif number == 0 and role != "user":
            yield RequestViolation(path, 'first message must use the "user" role')
        elif limits.alternate_roles and role == previous:
            yield RequestViolation(path, 'roles must alternate between "user" and "assistant"')
        previous = role


def _check_system_messages(request: JsonObject, messages: list[JsonObject]) -> Violations:
    """Their places: after the user, and last or before a reply."""
    is_known = _SYSTEM_ROLE_MODELS.search(str(request.get("model"))) is not None
    roles = [message.get("role") for message in messages]
    for number, message in enumerate(messages):
        if roles[number] != "system":
            continue
        path = f"messages.{number}"
        if not is_known:
            yield RequestViolation("", "role 'system' is not supported on this model")
        elif number == 0 or roles[number - 1] != "user":
            yield RequestViolation(path, "role 'system' must follow a user message")
        elif number + 1 < len(roles) and roles[number + 1] != "assistant":
            yield RequestViolation(path, "role 'system' must be last or precede an assistant turn")
        elif any(block.get("type") != "text" for block in _get_blocks(message)):
            yield RequestViolation(path, "role 'system' accepts only text blocks")


def _get_blocks(message: JsonObject) -> list[JsonObject]:
    return [as_dict(block) for block in as_list(message.get("content"))]


def _check_content(number: int, message: JsonObject, limits: ServerLimits) -> Violations:
    path = f"messages.{number}"
    content = message.get("content")
    if isinstance(content, str):
        if not content.strip():
            yield RequestViolation(path, "text content blocks must contain non-whitespace text")
        return
    if not content or not isinstance(content, list):
        yield RequestViolation(path, "all messages must have non-empty content")
        return
    for index, block in enumerate(_get_blocks(message)):
        yield from _check_block(f"{path}.content.{index}", block, message, limits)


def _check_block(
    path: str, block: JsonObject, message: JsonObject, limits: ServerLimits
) -> Violations:
    kind = str(block.get("type"))
    known = _BLOCK_FIELDS.get(kind)
    if known is None:
        is_server_tool = kind.startswith(("server_tool_use", "mcp_tool"))
        if not is_server_tool and not kind.endswith("_tool_result"):
            wrong = f"Input tag '{kind}' found using 'type' does not match any tag"
            yield RequestViolation(path, wrong)
        return
    yield from check_unknown_keys(path, block, known, frozenset())
    if kind == "text" and not str(block.get("text") or "").strip():
        yield RequestViolation(path, "text content blocks must contain non-whitespace text")
    elif kind == "image":
        source = as_dict(block.get("source"))
        if source.get("type") == "base64":
            yield from check_image(path, source.get("media_type"), source.get("data"), limits)
    elif kind == "tool_use":
        if not isinstance(block.get("input"), dict):
            yield RequestViolation(f"{path}.input", "Input should be a valid dictionary")
        if not _ID_PATTERN.fullmatch(str(block.get("id") or "")):
            yield RequestViolation(f"{path}.id", "String should match pattern '^[a-zA-Z0-9_-]+$'")
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,200}", str(block.get("name") or "")):
            wrong = "String should match pattern '^[a-zA-Z0-9_-]{1,200}$'"
            yield RequestViolation(f"{path}.name", wrong)
    elif kind == "tool_result":
        for inner in map(as_dict, as_list(block.get("content"))):
            yield from _check_block(f"{path}.content", inner, message, limits)
    role = {"tool_result": "assistant", "tool_use": "user", "thinking": "user"}.get(kind)
    if message.get("role") == role:
        yield RequestViolation(path, f"`{kind}` blocks are not allowed in `{role}` messages")


def _check_pairs(messages: list[JsonObject], blocks: list[list[JsonObject]]) -> Violations:
    ids = [b.get("id") for group in blocks for b in group if b.get("type") == "tool_use"]
    yield from check_unique("messages", ids, "`tool_use` ids")
    for number in range(len(messages)):
        group = blocks[number]
        calls = [b.get("id") for b in group if b.get("type") == "tool_use"]
        following = blocks[number + 1] if number + 1 < len(blocks) else []
        answered = [b.get("tool_use_id") for b in following if b.get("type") == "tool_result"]
        missing = [call for call in calls if call not in answered]
        if missing:
            yield RequestViolation(
                f"messages.{number}",
                "`tool_use` ids were found without `tool_result` blocks immediately after: "
                + ", ".join(map(str, missing)),
            )
        label = "`tool_result` blocks per `tool_use`"
        yield from check_unique(f"messages.{number + 1}", answered, label)
        before = blocks[number - 1] if number else []
        known = [b.get("id") for b in before if b.get("type") == "tool_use"]
        for index, block in enumerate(group):
            if block.get("type") != "tool_result":
                continue
            path = f"messages.{number}.content.{index}"
            if block.get("tool_use_id") not in known:
                yield RequestViolation(
                    path,
                    f"unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{block.get('tool_use_id')}. Each `tool_result` block must have a "
                    "corresponding `tool_use` block in the previous message.",
                )
            if any(b.get("type") != "tool_result" for b in group[:index]):
                yield RequestViolation(path, "`tool_result` blocks must come first")


def _check_thinking(
    request: JsonObject,
    messages: list[JsonObject],
    blocks: list[list[JsonObject]],
) -> Violations:
    setting = as_dict(request.get("thinking"))
    enabled = setting.get("type") == "enabled"
    budget, limit = setting.get("budget_tokens"), request.get("max_tokens")
    if enabled and (not isinstance(budget, int) or budget < 1024):
        yield RequestViolation("thinking.enabled.budget_tokens", "Input should be at least 1024")
    elif enabled and isinstance(budget, int) and isinstance(limit, int) and budget >= limit:
        wrong = "`max_tokens` must be greater than `thinking.budget_tokens`"
        yield RequestViolation("max_tokens", wrong)
    for number, group in enumerate(blocks):
        for index, block in enumerate(group):
            path = f"messages.{number}.content.{index}"
            if block.get("type") == "thinking":
                if block.get("signature") != sign_thinking(str(block.get("thinking"))):
                    yield RequestViolation(path, "Invalid `signature` in `thinking` block")
            elif block.get("type") == "redacted_thinking" and not block.get("data"):
                yield RequestViolation(path, "Invalid `data` in `redacted_thinking` block")
        kinds = [block.get("type") for block in group]
        if kinds and kinds[-1] in ("thinking", "redacted_thinking"):
            wrong = "The final block in an assistant message cannot be `thinking`."
            yield RequestViolation(f"messages.{number}", wrong)
    if enabled and len(messages) > 1:
        last = max((n for n, m in enumerate(messages) if m.get("role") == "assistant"), default=-1)
        kinds = [block.get("type") for block in blocks[last]] if last >= 0 else []
        if "tool_use" in kinds and kinds[0] not in ("thinking", "redacted_thinking"):
            wrong = f"Expected `thinking` or `redacted_thinking`, but found `{kinds[0]}`"
            yield RequestViolation(f"messages.{last}.content.0.type", wrong)
