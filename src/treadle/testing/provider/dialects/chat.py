"""OpenAI chat completions, as the loopback provider speaks and judges it.

Judged by the strictest of the compatible servers: arguments that are not JSON are refused here,
as several of them do, although the original lets them pass.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from treadle.testing.provider.script import Call, Reply, Stop, Text, Thinking

from . import Event
from .judging import (
    NAME,
    Problem,
    Rules,
    as_dict,
    as_list,
    data_url_problems,
    is_json,
    repeated,
    schema_problems,
    too_many_images,
    unknown_keys,
    words,
)

_TOP: Final = words(
    "model messages stream stream_options tools tool_choice parallel_tool_calls temperature top_p "
    "max_tokens max_completion_tokens n stop seed user response_format logprobs top_logprobs "
    "logit_bias presence_penalty frequency_penalty reasoning_effort verbosity store metadata "
    "service_tier prompt_cache_key safety_identifier modalities prediction "
    "prompt_cache_retention"
)
_MESSAGE: Final = words(
    "role content name tool_calls tool_call_id refusal audio reasoning_content reasoning "
    "reasoning_details function_call"
)
_STOPS: Final[dict[Stop, str]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "context_window": "length",
    "refusal": "content_filter",
}


def openai_error(kind: str, message: str) -> dict[str, object]:
    """An error as both OpenAI formats lay it out."""
    code = "context_length_exceeded" if kind == "context_length_exceeded" else None
    name = "invalid_request_error" if code else kind
    return {"error": {"message": message, "type": name, "param": None, "code": code}}


class Chat:
    """A Dialect."""

    def turn(self, request: Mapping[str, object]) -> int:
        messages = as_list(request.get("messages"))
        return sum(as_dict(message).get("role") == "assistant" for message in messages)

    def judge(self, request: Mapping[str, object], rules: Rules) -> list[Problem]:
        return list(_problems(request, rules))

    def stream(self, reply: Reply, model: str, serial: int) -> list[Event]:
        head = {
            "id": f"chatcmpl-{serial:04}",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000,
            "model": model,
        }

        def chunk(kind: str, delta: dict[str, object], finish: str | None = None) -> Event:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return Event("", msgspec.json.encode({**head, "choices": [choice]}), kind)

        events = [chunk("start", {"role": "assistant", "content": ""})]
        calls = 0
        for index, part in enumerate(reply.all_parts()):
            if isinstance(part, Text):
                events += [chunk("text", {"content": text}) for text in part.deltas]
            elif isinstance(part, Thinking):
                events += [chunk("thinking", {"reasoning_content": t}) for t in part.deltas]
            elif isinstance(part, Call):
                started = _call(part, serial, index)
                started["index"] = calls
                started["function"] = {"name": part.name, "arguments": ""}
                events.append(chunk("start", {"tool_calls": [started]}))
                half = (len(part.raw) + 1) // 2
                for text in (part.raw[:half], part.raw[half:]):
                    more = {"index": calls, "function": {"arguments": text}}
                    events.append(chunk("arguments", {"tool_calls": [more]}))
                calls += 1
        events.append(chunk("end", {}, _STOPS[reply.natural_stop()]))
        if reply.usage is not None:
            usage = {**head, "choices": [], "usage": _usage(reply)}
            events.append(Event("", msgspec.json.encode(usage), "end"))
        events.append(Event("", b"[DONE]", "end"))
        return events

    def whole(self, reply: Reply, model: str, serial: int) -> dict[str, object]:
        parts = reply.all_parts()
        text = "".join("".join(part.deltas) for part in parts if isinstance(part, Text))
        message: dict[str, object] = {"role": "assistant", "content": text or None}
        thoughts = "".join("".join(p.deltas) for p in parts if isinstance(p, Thinking))
        if thoughts:
            message["reasoning_content"] = thoughts
        calls = [_call(p, serial, i) for i, p in enumerate(parts) if isinstance(p, Call)]
        if calls:
            message["tool_calls"] = calls
        finish = _STOPS[reply.natural_stop()]
        whole: dict[str, object] = {
            "id": f"chatcmpl-{serial:04}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        }
        if reply.usage is not None:
            whole["usage"] = _usage(reply)
        return whole

    def error(self, status: int, kind: str, message: str) -> dict[str, object]:
        return openai_error(kind, message)

    def error_event(self, kind: str, message: str) -> Event:
        return Event("", msgspec.json.encode(self.error(500, kind, message)), "end")

    def ping(self) -> None:
        return None


def _call(part: Call, serial: int, index: int) -> dict[str, object]:
    made = f"call_{serial:04}_{index}" if part.id is None else part.id
    function = {"name": part.name, "arguments": part.raw}
    return {"id": made, "type": "function", "function": function}


def _usage(reply: Reply) -> dict[str, object]:
    assert reply.usage is not None
    prompt = reply.usage.input + reply.usage.cache_read
    output = reply.output_tokens()
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {"cached_tokens": reply.usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": reply.usage.reasoning},
    }


# -- judging


def _problems(request: Mapping[str, object], rules: Rules) -> Iterator[Problem]:
    yield from unknown_keys("", request, _TOP, rules.more_keys)
    if not isinstance(request.get("model"), str) or not request["model"]:
        yield Problem("model", "you must provide a model parameter")
    messages = [as_dict(message) for message in as_list(request.get("messages"))]
    if not messages:
        yield Problem("messages", "[] is too short")
        return
    tools = [as_dict(tool) for tool in as_list(request.get("tools"))]
    if "tools" in request and not tools:
        yield Problem("tools", "[] is too short")
    if len(tools) > rules.max_tools:
        yield Problem("tools", f"array too long: {len(tools)} > {rules.max_tools}")
    functions = [as_dict(tool.get("function")) for tool in tools]
    for number, function in enumerate(functions):
        path = f"tools.{number}.function"
        yield from schema_problems(path, function.get("name"), function.get("parameters"), 64)
    yield from repeated("tools", [function.get("name") for function in functions], "Tool names")
    for number, message in enumerate(messages):
        yield from _message(f"messages.{number}", message, rules)
    yield from _pairs(messages)
    parts = [p for m in messages for p in map(as_dict, as_list(m.get("content")))]
    yield from too_many_images(sum(p.get("type") == "image_url" for p in parts), rules)


def _message(path: str, message: Mapping[str, object], rules: Rules) -> Iterator[Problem]:
    yield from unknown_keys(path, message, _MESSAGE, rules.more_keys)
    role, content = message.get("role"), message.get("content")
    if role not in ("system", "developer", "user", "assistant", "tool"):
        yield Problem(f"{path}.role", f"Invalid value: {role!r}")
    calls = [as_dict(call) for call in as_list(message.get("tool_calls"))]
    if "tool_calls" in message and not calls:
        yield Problem(f"{path}.tool_calls", "[] is too short")
    if content is None and not (role == "assistant" and calls):
        yield Problem(f"{path}.content", "expected a string, got null")
    elif isinstance(content, list) and not content:
        yield Problem(f"{path}.content", "[] is too short")
    elif content == "" and role in ("user", "assistant") and not calls:
        yield Problem(f"{path}.content", "message content must not be empty")
    for index, part in enumerate(map(as_dict, as_list(content))):
        if part.get("type") == "image_url":
            url = as_dict(part.get("image_url")).get("url")
            yield from data_url_problems(f"{path}.content.{index}", url, rules)
        elif part.get("type") == "text" and not part.get("text"):
            yield Problem(f"{path}.content.{index}", "text must not be empty")
        elif part.get("type") not in ("text", "refusal", "file", "input_audio"):
            yield Problem(f"{path}.content.{index}.type", f"Invalid value: {part.get('type')!r}")
    for index, call in enumerate(calls):
        function = as_dict(call.get("function"))
        if not call.get("id") or not isinstance(call.get("id"), str):
            yield Problem(f"{path}.tool_calls.{index}.id", "must be a non-empty string")
        if not NAME.fullmatch(str(function.get("name") or "")):
            yield Problem(f"{path}.tool_calls.{index}.function.name", "does not match the pattern")
        if not is_json(function.get("arguments")):
            yield Problem(f"{path}.tool_calls.{index}.function.arguments", "is not valid JSON")


def _pairs(messages: list[Mapping[str, object]]) -> Iterator[Problem]:
    seen = [as_dict(call).get("id") for m in messages for call in as_list(m.get("tool_calls"))]
    yield from repeated("messages", seen, "tool call ids")
    open_ids: list[object] = []
    for number, message in enumerate([*messages, {"role": "end"}]):
        if message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            if call_id in open_ids:
                open_ids.remove(call_id)
            else:
                yield Problem(
                    f"messages.{number}",
                    "messages with role 'tool' must be a response to a preceding message with "
                    f"'tool_calls': {call_id}",
                )
            continue
        if open_ids:
            yield Problem(
                f"messages.{number}",
                "An assistant message with 'tool_calls' must be followed by tool messages "
                "responding to each 'tool_call_id'. Missing: " + ", ".join(map(str, open_ids)),
            )
        open_ids = [as_dict(call).get("id") for call in as_list(message.get("tool_calls"))]
