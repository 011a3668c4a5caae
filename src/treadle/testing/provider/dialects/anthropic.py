"""Anthropic Messages, as the loopback provider speaks and judges it.

`signature` marks thinking as this service's own: a block that comes back changed, or from another
service, is refused, as the real one does.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from treadle.testing.provider.script import Call, Part, Redacted, Reply, Stop, Text, Thinking

from . import Event
from .judging import (
    Problem,
    Rules,
    as_dict,
    as_list,
    image_problems,
    repeated,
    schema_problems,
    too_many_images,
    unknown_keys,
    words,
)

_TOP: Final = words(
    "model messages max_tokens system tools tool_choice stream temperature top_p top_k thinking "
    "stop_sequences metadata service_tier container context_management mcp_servers betas "
    "output_config output_format cache_control speed inference_geo"
)
_BLOCKS: Final = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "image": frozenset({"type", "source", "cache_control"}),
    "document": frozenset({"type", "source", "cache_control", "title", "context", "citations"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control", "caller"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
}
_STOPS: Final[dict[Stop, str]] = {"context_window": "model_context_window_exceeded"}
_ID: Final = re.compile(r"[a-zA-Z0-9_-]+")


def signature(thinking: str) -> str:
    return "sig-" + hashlib.sha256(thinking.encode("utf-8", "surrogatepass")).hexdigest()[:24]


class Anthropic:
    """A Dialect."""

    def turn(self, request: Mapping[str, object]) -> int:
        messages = as_list(request.get("messages"))
        return sum(as_dict(message).get("role") == "assistant" for message in messages)

    def judge(self, request: Mapping[str, object], rules: Rules) -> list[Problem]:
        return list(_problems(request, rules))

    def stream(self, reply: Reply, model: str, serial: int) -> list[Event]:
        message = {**self.whole(reply, model, serial), "content": [], "stop_reason": None}
        if reply.usage is not None:
            message["usage"] = {**_usage(reply), "output_tokens": 1}
        events = [_event("message_start", "start", message=message)]
        for index, part in enumerate(reply.all_parts()):
            events += _part_events(index, part, serial)
        stop: dict[str, object] = {"stop_reason": _stop(reply), "stop_sequence": None}
        fields: dict[str, object] = {"delta": stop}
        if reply.usage is not None:
            fields["usage"] = {"output_tokens": reply.output_tokens()}
        events.append(_event("message_delta", "end", **fields))
        events.append(_event("message_stop", "end"))
        return events

    def whole(self, reply: Reply, model: str, serial: int) -> dict[str, object]:
        message: dict[str, object] = {
            "id": f"msg_{serial:04}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [_block(i, p, serial) for i, p in enumerate(reply.all_parts())],
            "stop_reason": _stop(reply),
            "stop_sequence": None,
        }
        if reply.usage is not None:
            message["usage"] = _usage(reply)
        return message

    def error(self, status: int, kind: str, message: str) -> dict[str, object]:
        error = {"type": kind, "message": message}
        return {"type": "error", "error": error, "request_id": "req_loopback"}

    def error_event(self, kind: str, message: str) -> Event:
        return Event("error", msgspec.json.encode(self.error(529, kind, message)), "end")

    def ping(self) -> Event:
        return _event("ping", "ping")


def _event(name: str, kind: str, **fields: object) -> Event:
    return Event(name, msgspec.json.encode({"type": name, **fields}), kind)


def _part_events(index: int, part: Part, serial: int) -> list[Event]:
    block = _block(index, part, serial)
    deltas: list[tuple[str, dict[str, object]]] = []
    match part:
        case Text():
            block["text"] = ""
            deltas = [("text", {"type": "text_delta", "text": text}) for text in part.deltas]
        case Thinking():
            block["thinking"] = block["signature"] = ""
            deltas = [
                ("thinking", {"type": "thinking_delta", "thinking": text}) for text in part.deltas
            ]
            sign = signature("".join(part.deltas))
            deltas.append(("thinking", {"type": "signature_delta", "signature": sign}))
        case Call():
            block["input"] = {}
            half = (len(part.raw) + 1) // 2
            deltas = [
                ("arguments", {"type": "input_json_delta", "partial_json": text})
                for text in ("", part.raw[:half], part.raw[half:])
            ]
        case Redacted():
            pass
    return [
        _event("content_block_start", "start", index=index, content_block=block),
        *(_event("content_block_delta", kind, index=index, delta=delta) for kind, delta in deltas),
        _event("content_block_stop", "start", index=index),
    ]


def _block(index: int, part: Part, serial: int) -> dict[str, object]:
    match part:
        case Text():
            return {"type": "text", "text": "".join(part.deltas)}
        case Thinking():
            text = "".join(part.deltas)
            return {"type": "thinking", "thinking": text, "signature": signature(text)}
        case Redacted():
            return {"type": "redacted_thinking", "data": part.data}
        case Call():
            made = f"toolu_{serial:04}_{index}" if part.id is None else part.id
            return {"type": "tool_use", "id": made, "name": part.name, "input": part.arguments}


def _stop(reply: Reply) -> str:
    stop = reply.natural_stop()
    return _STOPS.get(stop, stop)


def _usage(reply: Reply) -> dict[str, object]:
    assert reply.usage is not None
    return {
        "input_tokens": reply.usage.input,
        "output_tokens": reply.output_tokens(),
        "cache_creation_input_tokens": reply.usage.cache_write,
        "cache_read_input_tokens": reply.usage.cache_read,
    }


# -- judging


def _problems(request: Mapping[str, object], rules: Rules) -> Iterator[Problem]:
    yield from unknown_keys("", request, _TOP, rules.more_keys)
    if not isinstance(request.get("model"), str) or not request["model"]:
        yield Problem("model", "Field required")
    limit = request.get("max_tokens")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        yield Problem("max_tokens", "Field required: an integer of at least 1")
    messages = [as_dict(message) for message in as_list(request.get("messages"))]
    if not messages:
        yield Problem("messages", "at least one message is required")
        return
    yield from _system(request.get("system"))
    yield from _tools(request)
    yield from _roles(messages, rules)
    blocks = [_blocks(message) for message in messages]
    for number, message in enumerate(messages):
        yield from _content(number, message, rules)
    yield from _pairs(messages, blocks)
    yield from _thinking(request, messages, blocks)
    flat = [block for group in blocks for block in group]
    nested = [inner for b in flat for inner in map(as_dict, as_list(b.get("content")))]
    images = [b for b in flat + nested if b.get("type") == "image"]
    yield from too_many_images(len(images), rules)
    marks = [
        b for b in [*flat, *map(as_dict, as_list(request.get("system")))] if "cache_control" in b
    ]
    marks += [t for t in map(as_dict, as_list(request.get("tools"))) if "cache_control" in t]
    if len(marks) > 4:
        yield Problem(
            "", f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}."
        )


def _system(system: object) -> Iterator[Problem]:
    if isinstance(system, list):
        for number, block in enumerate(map(as_dict, system)):
            if block.get("type") != "text" or not str(block.get("text") or "").strip():
                yield Problem(f"system.{number}", "text content blocks must be non-empty")
    elif system is not None and not isinstance(system, str):
        yield Problem("system", "Input should be a valid string")


def _tools(request: Mapping[str, object]) -> Iterator[Problem]:
    tools = [as_dict(tool) for tool in as_list(request.get("tools"))]
    for number, tool in enumerate(tools):
        if tool.get("type", "custom") == "custom":
            yield from schema_problems(
                f"tools.{number}", tool.get("name"), tool.get("input_schema"), 128
            )
    yield from repeated("tools", [tool.get("name") for tool in tools], "Tool names")


def _roles(messages: list[Mapping[str, object]], rules: Rules) -> Iterator[Problem]:
    previous = None
    for number, message in enumerate(messages):
        role = message.get("role")
        if role not in ("user", "assistant"):
            yield Problem(f"messages.{number}.role", "Input should be 'user' or 'assistant'")
        elif number == 0 and role != "user":
            yield Problem("messages.0.role", 'first message must use the "user" role')
        elif rules.alternate_roles and role == previous:
            yield Problem(
                f"messages.{number}.role", 'roles must alternate between "user" and "assistant"'
            )
        previous = role


def _blocks(message: Mapping[str, object]) -> list[Mapping[str, object]]:
    return [as_dict(block) for block in as_list(message.get("content"))]


def _content(number: int, message: Mapping[str, object], rules: Rules) -> Iterator[Problem]:
    path = f"messages.{number}"
    content = message.get("content")
    if isinstance(content, str):
        if not content.strip():
            yield Problem(path, "text content blocks must contain non-whitespace text")
        return
    if not content or not isinstance(content, list):
        yield Problem(path, "all messages must have non-empty content")
        return
    for index, block in enumerate(_blocks(message)):
        yield from _block_problems(f"{path}.content.{index}", block, message, rules)


def _block_problems(
    path: str, block: Mapping[str, object], message: Mapping[str, object], rules: Rules
) -> Iterator[Problem]:
    kind = str(block.get("type"))
    known = _BLOCKS.get(kind)
    if known is None:
        if not kind.startswith(("server_tool_use", "mcp_tool")) and not kind.endswith(
            "_tool_result"
        ):
            yield Problem(path, f"Input tag '{kind}' found using 'type' does not match any tag")
        return
    yield from unknown_keys(path, block, known, frozenset())
    if kind == "text" and not str(block.get("text") or "").strip():
        yield Problem(path, "text content blocks must contain non-whitespace text")
    elif kind == "image":
        source = as_dict(block.get("source"))
        if source.get("type") == "base64":
            yield from image_problems(path, source.get("media_type"), source.get("data"), rules)
    elif kind == "tool_use":
        if not isinstance(block.get("input"), dict):
            yield Problem(f"{path}.input", "Input should be a valid dictionary")
        if not _ID.fullmatch(str(block.get("id") or "")):
            yield Problem(f"{path}.id", "String should match pattern '^[a-zA-Z0-9_-]+$'")
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,200}", str(block.get("name") or "")):
            yield Problem(f"{path}.name", "String should match pattern '^[a-zA-Z0-9_-]{1,200}$'")
    elif kind == "tool_result":
        for inner in map(as_dict, as_list(block.get("content"))):
            yield from _block_problems(f"{path}.content", inner, message, rules)
    wrong_side = {"tool_result": "assistant", "tool_use": "user", "thinking": "user"}
    if message.get("role") == wrong_side.get(kind):
        yield Problem(path, f"`{kind}` blocks are not allowed in `{message.get('role')}` messages")


def _pairs(
    messages: list[Mapping[str, object]], blocks: list[list[Mapping[str, object]]]
) -> Iterator[Problem]:
    ids = [b.get("id") for group in blocks for b in group if b.get("type") == "tool_use"]
    yield from repeated("messages", ids, "`tool_use` ids")
    for number in range(len(messages)):
        group = blocks[number]
        calls = [b.get("id") for b in group if b.get("type") == "tool_use"]
        following = blocks[number + 1] if number + 1 < len(blocks) else []
        answered = [b.get("tool_use_id") for b in following if b.get("type") == "tool_result"]
        missing = [call for call in calls if call not in answered]
        if missing:
            yield Problem(
                f"messages.{number}",
                "`tool_use` ids were found without `tool_result` blocks immediately after: "
                + ", ".join(map(str, missing)),
            )
        yield from repeated(
            f"messages.{number + 1}", answered, "`tool_result` blocks per `tool_use`"
        )
        before = blocks[number - 1] if number else []
        known = [b.get("id") for b in before if b.get("type") == "tool_use"]
        for index, block in enumerate(group):
            if block.get("type") != "tool_result":
                continue
            if block.get("tool_use_id") not in known:
                yield Problem(
                    f"messages.{number}.content.{index}",
                    f"unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{block.get('tool_use_id')}. Each `tool_result` block must have a "
                    "corresponding `tool_use` block in the previous message.",
                )
            if any(b.get("type") != "tool_result" for b in group[:index]):
                yield Problem(
                    f"messages.{number}.content.{index}", "`tool_result` blocks must come first"
                )


def _thinking(
    request: Mapping[str, object],
    messages: list[Mapping[str, object]],
    blocks: list[list[Mapping[str, object]]],
) -> Iterator[Problem]:
    setting = as_dict(request.get("thinking"))
    enabled = setting.get("type") == "enabled"
    budget, limit = setting.get("budget_tokens"), request.get("max_tokens")
    if enabled and (not isinstance(budget, int) or budget < 1024):
        yield Problem("thinking.enabled.budget_tokens", "Input should be at least 1024")
    elif enabled and isinstance(budget, int) and isinstance(limit, int) and budget >= limit:
        yield Problem("max_tokens", "`max_tokens` must be greater than `thinking.budget_tokens`")
    for number, group in enumerate(blocks):
        for index, block in enumerate(group):
            path = f"messages.{number}.content.{index}"
            if block.get("type") == "thinking":
                if block.get("signature") != signature(str(block.get("thinking"))):
                    yield Problem(path, "Invalid `signature` in `thinking` block")
            elif block.get("type") == "redacted_thinking" and not block.get("data"):
                yield Problem(path, "Invalid `data` in `redacted_thinking` block")
        kinds = [block.get("type") for block in group]
        if kinds and kinds[-1] in ("thinking", "redacted_thinking"):
            yield Problem(
                f"messages.{number}",
                "The final block in an assistant message cannot be `thinking`.",
            )
    if enabled and len(messages) > 1:
        last = max((n for n, m in enumerate(messages) if m.get("role") == "assistant"), default=-1)
        kinds = [block.get("type") for block in blocks[last]] if last >= 0 else []
        if "tool_use" in kinds and kinds[0] not in ("thinking", "redacted_thinking"):
            yield Problem(
                f"messages.{last}.content.0.type",
                f"Expected `thinking` or `redacted_thinking`, but found `{kinds[0]}`",
            )
