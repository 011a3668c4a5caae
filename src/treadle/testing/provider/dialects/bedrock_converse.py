"""Bedrock's Converse in the loopback provider: rendering, frames and request checks."""

import struct
import zlib
from typing import Final

import msgspec

from treadle.testing.provider.script import FakeCall, FakeReply, FakeStop, FakeText, FakeThinking

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

FRAME_TYPE: Final = "application/vnd.amazon.eventstream"
_REQUEST_FIELDS: Final = split_words(
    "messages system inferenceConfig toolConfig guardrailConfig additionalModelRequestFields "
    "outputConfig performanceConfig serviceTier requestMetadata promptVariables"
)
_STOP_REASONS: Final[dict[FakeStop, str]] = {
    "end_turn": "end_turn",
    "stop_sequence": "stop_sequence",
    "pause_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "context_window": "model_context_window_exceeded",
    "refusal": "guardrail_intervened",
}


def encode_frame(event: SseEvent) -> bytes:
    """An event as a frame of AWS: lengths, headers, payload, checksums."""
    is_error = event.name.endswith("Exception")
    kind, name = ("exception", ":exception-type") if is_error else ("event", ":event-type")
    pairs = ((name, event.name), (":content-type", "application/json"), (":message-type", kind))
    headers = b"".join([_encode_header(key, value) for key, value in pairs])
    prelude = struct.pack(">II", len(headers) + len(event.data) + 16, len(headers))
    frame = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + event.data
    return frame + struct.pack(">I", zlib.crc32(frame))


def _encode_header(name: str, value: str) -> bytes:
    data = value.encode()
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(data)) + data


class FakeConverse:
    """A FakeDialect."""

    def count_assistant_turns(self, request: JsonObject) -> int:
        return count_assistant_messages(request)

    def check_request(self, request: JsonObject, limits: ServerLimits) -> list[RequestViolation]:
        return list(_check_request(request, limits))

    def render_stream(self, reply: FakeReply, model: str, serial: int) -> list[SseEvent]:
        def event(kind: str, name: str, **fields: object) -> SseEvent:
            return SseEvent(name, msgspec.json.encode(fields), kind)

        events = [event("start", "messageStart", role="assistant")]
        for index, part in enumerate(reply.all_parts()):
            if isinstance(part, FakeCall):
                started = {
                    "toolUse": {"toolUseId": _call_id(part, serial, index), "name": part.name}
                }
                events.append(
                    event("start", "contentBlockStart", contentBlockIndex=index, start=started)
                )
            for kind, delta in _render_deltas(part):
                events.append(
                    event(kind, "contentBlockDelta", contentBlockIndex=index, delta=delta)
                )
            events.append(event("start", "contentBlockStop", contentBlockIndex=index))
        events.append(event("end", "messageStop", stopReason=_STOP_REASONS[reply.stop_reason()]))
        if reply.usage is not None:
            events.append(event("end", "metadata", usage=_render_usage(reply)))
        return events

    def render_response(self, reply: FakeReply, model: str, serial: int) -> dict[str, object]:
        content: list[dict[str, object]] = []
        for index, part in enumerate(reply.all_parts()):
            if isinstance(part, FakeCall):
                call = {"toolUseId": _call_id(part, serial, index), "name": part.name}
                content.append({"toolUse": {**call, "input": part.arguments}})
            elif isinstance(part, FakeText):
                content.append({"text": "".join(part.deltas)})
            elif isinstance(part, FakeThinking):
                thought = {"text": "".join(part.deltas), "signature": "c2ln"}
                content.append({"reasoningContent": {"reasoningText": thought}})
        whole: dict[str, object] = {
            "output": {"message": {"role": "assistant", "content": content}},
            "stopReason": _STOP_REASONS[reply.stop_reason()],
        }
        if reply.usage is not None:
            whole["usage"] = _render_usage(reply)
        return whole

    def render_error(self, status: int, kind: str, message: str) -> dict[str, object]:
        return {"message": message}

    def render_error_event(self, kind: str, message: str) -> SseEvent:
        data = msgspec.json.encode({"message": message})
        return SseEvent("serviceUnavailableException", data, "end")

    def render_ping(self) -> None:
        return None

    def context_violation(self, tokens: int, window: int) -> RequestViolation:
        return RequestViolation("", "Input is too long for requested model.")


def _call_id(part: FakeCall, serial: int, index: int) -> str:
    return f"tooluse_{serial:04}_{index}" if part.id is None else part.id


def _render_deltas(part: object) -> list[tuple[str, dict[str, object]]]:
    if isinstance(part, FakeText):
        return [("text", {"text": text}) for text in part.deltas]
    if isinstance(part, FakeThinking):
        thoughts = [{"text": text} for text in part.deltas] + [{"signature": "c2ln"}]
        return [("thinking", {"reasoningContent": thought}) for thought in thoughts]
    if isinstance(part, FakeCall):
        half = (len(part.raw) + 1) // 2
        pieces = (part.raw[:half], part.raw[half:])
        return [("arguments", {"toolUse": {"input": piece}}) for piece in pieces]
    return [("thinking", {"reasoningContent": {"redactedContent": "cmVkYWN0ZWQ="}})]


def _render_usage(reply: FakeReply) -> dict[str, object]:
    assert reply.usage is not None
    output = reply.count_output_tokens()
    return {
        "inputTokens": reply.usage.input,
        "outputTokens": output,
        "totalTokens": reply.usage.input + reply.usage.cache_read + output,
        "cacheReadInputTokens": reply.usage.cache_read,
        "cacheWriteInputTokens": reply.usage.cache_write,
    }


# -- request checks


def _check_request(request: JsonObject, limits: ServerLimits) -> Violations:
    yield from check_unknown_keys("", request, _REQUEST_FIELDS, limits.extra_keys)
    messages = [as_dict(message) for message in as_list(request.get("messages"))]
    if not messages:
        yield RequestViolation("messages", "A conversation must start with a user message.")
        return
    config = as_dict(request.get("toolConfig"))
    specs = [as_dict(as_dict(tool).get("toolSpec")) for tool in as_list(config.get("tools"))]
    for number, spec in enumerate(specs):
        schema = as_dict(spec.get("inputSchema")).get("json")
        yield from check_schema(f"tools.{number}.toolSpec", spec.get("name"), schema, 64)
    yield from check_unique("toolConfig", [spec.get("name") for spec in specs], "Tool names")
    images = 0
    open_ids: list[object] = []
    for number, message in enumerate(messages):
        path = f"messages.{number}"
        expected = "user" if number % 2 == 0 else "assistant"
        if message.get("role") != expected:
            yield RequestViolation(path, "roles must alternate between user and assistant")
        blocks = [as_dict(block) for block in as_list(message.get("content"))]
        if not blocks:
            yield RequestViolation(path, "The content field must not be empty.")
        for index, block in enumerate(blocks):
            at = f"{path}.content.{index}"
            if "text" in block and not str(block["text"]).strip():
                yield RequestViolation(at, "The text field is blank.")
            if "image" in block:
                images += 1
                image = as_dict(block["image"])
                data = as_dict(image.get("source")).get("bytes")
                yield from check_image(at, f"image/{image.get('format')}", data, limits)
        results = [as_dict(block["toolResult"]) for block in blocks if "toolResult" in block]
        answered = [result.get("toolUseId") for result in results]
        if sorted(map(str, answered)) != sorted(map(str, open_ids)):
            wrong = "The number of toolResult blocks differs from the toolUse blocks before."
            yield RequestViolation(path, wrong)
        open_ids = [as_dict(b["toolUse"]).get("toolUseId") for b in blocks if "toolUse" in b]
        if (open_ids or answered) and not specs:
            yield RequestViolation(path, "The toolConfig field must be defined when using toolUse.")
    yield from check_image_count(images, limits)
