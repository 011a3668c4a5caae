"""OpenAI chat completions in the loopback provider: rendering and request checks.

As strict as the strictest compatible server: arguments that are not JSON are refused, as by
several of them, although OpenAI accepts them.
"""

from typing import Final

import msgspec

from treadle.testing.provider.script import FakeCall, FakeReply, FakeStop, FakeText, FakeThinking

from . import SseEvent
from .request_checks import (
    NAME_PATTERN,
    JsonObject,
    RequestViolation,
    ServerLimits,
    Violations,
    as_dict,
    as_list,
    check_data_url,
    check_image_count,
    check_schema,
    check_unique,
    check_unknown_keys,
    count_assistant_messages,
    is_json,
    split_words,
)

_REQUEST_FIELDS: Final = split_words(
    "model messages stream stream_options tools tool_choice parallel_tool_calls temperature top_p "
    "max_tokens max_completion_tokens n stop seed user response_format logprobs top_logprobs "
    "logit_bias presence_penalty frequency_penalty reasoning_effort verbosity store metadata "
    "service_tier prompt_cache_key safety_identifier modalities prediction "
    "prompt_cache_retention prompt_cache_options"
)
_MESSAGE_FIELDS: Final = split_words(
    "role content name tool_calls tool_call_id refusal audio reasoning_content reasoning "
    "reasoning_details function_call"
)
_FINISH_REASONS: Final[dict[FakeStop, str]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "context_window": "length",
    "refusal": "content_filter",
}


def render_openai_error(kind: str, message: str) -> dict[str, object]:
    """An error in the form of both OpenAI formats."""
    code = kind if kind in ("context_length_exceeded", "previous_response_not_found") else None
    name = "invalid_request_error" if code else kind
    return {"error": {"message": message, "type": name, "param": None, "code": code}}


def openai_context_violation(tokens: int, window: int) -> RequestViolation:
    message = (
        f"This model's maximum context length is {window} tokens. However, your messages "
        f"resulted in {tokens} tokens."
    )
    return RequestViolation("", message, kind="context_length_exceeded")


class FakeOpenAIChat:
    """A FakeDialect."""

    def count_assistant_turns(self, request: JsonObject) -> int:
        return count_assistant_messages(request)

    def check_request(self, request: JsonObject, limits: ServerLimits) -> list[RequestViolation]:
        return list(_check_request(request, limits))

    def render_stream(self, reply: FakeReply, model: str, serial: int) -> list[SseEvent]:
        head = {
            "id": f"chatcmpl-{serial:04}",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": model,
        }

        def chunk(kind: str, delta: dict[str, object], finish: str | None = None) -> SseEvent:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return SseEvent("", msgspec.json.encode({**head, "choices": [choice]}), kind)

        events = [chunk("start", {"role": "assistant", "content": ""})]
        calls = 0
        for index, part in enumerate(reply.all_parts()):
            if isinstance(part, FakeText):
                events += [chunk("text", {"content": text}) for text in part.deltas]
            elif isinstance(part, FakeThinking):
                events += [chunk("thinking", {"reasoning_content": t}) for t in part.deltas]
            elif isinstance(part, FakeCall):
                started = _render_call(part, serial, index)
                started["index"] = calls
                started["function"] = {"name": part.name, "arguments": ""}
                events.append(chunk("start", {"tool_calls": [started]}))
                half = (len(part.raw) + 1) // 2
                for text in (part.raw[:half], part.raw[half:]):
                    more = {"index": calls, "function": {"arguments": text}}
                    events.append(chunk("arguments", {"tool_calls": [more]}))
                calls += 1
        events.append(chunk("end", {}, _FINISH_REASONS[reply.stop_reason()]))
        if reply.usage is not None:
            usage = {**head, "choices": [], "usage": _render_usage(reply)}
            events.append(SseEvent("", msgspec.json.encode(usage), "end"))
        events.append(SseEvent("", b"[DONE]", "end"))
        return events

    def render_response(self, reply: FakeReply, model: str, serial: int) -> dict[str, object]:
        parts = reply.all_parts()
        text = "".join("".join(part.deltas) for part in parts if isinstance(part, FakeText))
        message: dict[str, object] = {"role": "assistant", "content": text or None}
        thoughts = "".join("".join(p.deltas) for p in parts if isinstance(p, FakeThinking))
        if thoughts:
            message["reasoning_content"] = thoughts
        calls = [_render_call(p, serial, i) for i, p in enumerate(parts) if isinstance(p, FakeCall)]
        if calls:
            message["tool_calls"] = calls
        finish = _FINISH_REASONS[reply.stop_reason()]
        whole: dict[str, object] = {
            "id": f"chatcmpl-{serial:04}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }
        if reply.usage is not None:
            whole["usage"] = _render_usage(reply)
        return whole

    def render_error(self, status: int, kind: str, message: str) -> dict[str, object]:
        return render_openai_error(kind, message)

    def render_error_event(self, kind: str, message: str) -> SseEvent:
        return SseEvent("", msgspec.json.encode(self.render_error(500, kind, message)), "end")

    def render_ping(self) -> None:
        return None

    def context_violation(self, tokens: int, window: int) -> RequestViolation:
        return openai_context_violation(tokens, window)


def _render_call(part: FakeCall, serial: int, index: int) -> dict[str, object]:
    call_id = f"call_{serial:04}_{index}" if part.id is None else part.id
    function = {"name": part.name, "arguments": part.raw}
    return {"id": call_id, "type": "function", "function": function}


def _render_usage(reply: FakeReply) -> dict[str, object]:
    assert reply.usage is not None
    prompt = reply.usage.input + reply.usage.cache_read
    output = reply.count_output_tokens()
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": reply.usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": reply.usage.reasoning},
    }


# -- request checks


def _check_request(request: JsonObject, limits: ServerLimits) -> Violations:
    yield from check_unknown_keys("", request, _REQUEST_FIELDS, limits.extra_keys)
    if not isinstance(request.get("model"), str) or not request["model"]:
        yield RequestViolation("model", "you must provide a model parameter")
    messages = [as_dict(message) for message in as_list(request.get("messages"))]
    if not messages:
        yield RequestViolation("messages", "[] is too short")
        return
    tools = [as_dict(tool) for tool in as_list(request.get("tools"))]
    if "tools" in request and not tools:
        yield RequestViolation("tools", "[] is too short")
    if len(tools) > limits.max_tools:
        yield RequestViolation("tools", f"array too long: {len(tools)} > {limits.max_tools}")
    functions = [as_dict(tool.get("function")) for tool in tools]
    for number, function in enumerate(functions):
        path = f"tools.{number}.function"
        yield from check_schema(path, function.get("name"), function.get("parameters"), 64)
    yield from check_unique("tools", [function.get("name") for function in functions], "Tool names")
    for number, message in enumerate(messages):
        yield from _check_message(f"messages.{number}", message, limits)
    yield from _check_pairs(messages)
    parts = [p for m in messages for p in map(as_dict, as_list(m.get("content")))]
    yield from check_image_count(sum(p.get("type") == "image_url" for p in parts), limits)


def _check_message(path: str, message: JsonObject, limits: ServerLimits) -> Violations:
    yield from check_unknown_keys(path, message, _MESSAGE_FIELDS, limits.extra_keys)
    role, content = message.get("role"), message.get("content")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        yield RequestViolation(f"{path}.role", f"Invalid value: {role!r}")
    calls = [as_dict(call) for call in as_list(message.get("tool_calls"))]
    if "tool_calls" in message and not calls:
        yield RequestViolation(f"{path}.tool_calls", "[] is too short")
    if content is None and not (role == "assistant" and calls):
        yield RequestViolation(f"{path}.content", "expected a string, got null")
    elif isinstance(content, list) and not content:
        yield RequestViolation(f"{path}.content", "[] is too short")
    elif content == "" and role in ("user", "assistant") and not calls:
        yield RequestViolation(f"{path}.content", "message content must not be empty")
    for index, part in enumerate(map(as_dict, as_list(content))):
        at, kind = f"{path}.content.{index}", part.get("type")
        if kind == "image_url":
            yield from check_data_url(at, as_dict(part.get("image_url")).get("url"), limits)
        elif kind == "text" and not part.get("text"):
            yield RequestViolation(at, "text must not be empty")
        elif kind not in ("text", "refusal", "file", "input_audio"):
            yield RequestViolation(f"{at}.type", f"Invalid value: {kind!r}")
    for index, call in enumerate(calls):
        at, function = f"{path}.tool_calls.{index}", as_dict(call.get("function"))
        if not call.get("id") or not isinstance(call.get("id"), str):
            yield RequestViolation(f"{at}.id", "must be a non-empty string")
        if not NAME_PATTERN.fullmatch(str(function.get("name") or "")):
            yield RequestViolation(f"{at}.function.name", "does not match the pattern")
        if not is_json(function.get("arguments")):
            yield RequestViolation(f"{at}.function.arguments", "is not valid JSON")


def _check_pairs(messages: list[JsonObject]) -> Violations:
    seen = [as_dict(call).get("id") for m in messages for call in as_list(m.get("tool_calls"))]
    yield from check_unique("messages", seen, "tool call ids")
    open_ids: list[object] = []
    for number, message in enumerate([*messages, {"role": "end"}]):
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if call_id in open_ids:
                open_ids.remove(call_id)
            else:
                yield RequestViolation(
                    f"messages.{number}",
                    "messages with role 'tool' must be a response to a preceding message with "
                    f"'tool_calls': {call_id}",
                )
            continue
        if open_ids:
            yield RequestViolation(
                f"messages.{number}",
                "An assistant message with 'tool_calls' must be followed by tool messages "
                "responding to each 'tool_call_id'. Missing: " + ", ".join(map(str, open_ids)),
            )
        open_ids = [as_dict(call).get("id") for call in as_list(message.get("tool_calls"))]
