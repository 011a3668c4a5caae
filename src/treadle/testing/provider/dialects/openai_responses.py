"""OpenAI Responses in the loopback provider: rendering and request checks.

Reasoning items carry `encrypted_content` that only this service makes. Responses with `store` on
are kept, so that `previous_response_id` finds the open calls.
"""

import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from treadle.testing.provider.script import FakeCall, FakePart, FakeReply, FakeText, FakeThinking

from . import SseEvent
from .openai_chat import openai_context_violation, render_openai_error
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
    is_json,
    split_words,
)

_REQUEST_FIELDS: Final = split_words(
    "model input instructions stream stream_options tools tool_choice parallel_tool_calls store "
    "include previous_response_id reasoning text max_output_tokens max_tool_calls temperature "
    "top_p top_logprobs truncation metadata user service_tier prompt_cache_key safety_identifier "
    "prompt conversation background prompt_cache_retention prompt_cache_options context_management"
)
_ITEM_FIELDS: Final = {
    "message": frozenset({"type", "role", "content", "id", "status", "phase"}),
    "function_call": split_words("type id call_id name arguments status namespace"),
    "function_call_output": frozenset({"type", "id", "call_id", "output", "status"}),
    "custom_tool_call": split_words("type id call_id name input status namespace"),
    "custom_tool_call_output": frozenset({"type", "id", "call_id", "output", "status"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
}


_EMPTY_FIELDS: Final = {
    "message": "content",
    "function_call": "arguments",
    "custom_tool_call": "input",
    "reasoning": "summary",
}
_CALL_TYPES: Final = ("function_call", "custom_tool_call")


def encrypt_thinking(thinking: str) -> str:
    return "enc-" + hashlib.sha256(thinking.encode("utf-8", "surrogatepass")).hexdigest()[:24]


class FakeOpenAIResponses:
    """A FakeDialect."""

    def __init__(self) -> None:
        self._stored: dict[str, list[JsonObject]] = {}

    def count_assistant_turns(self, request: JsonObject) -> int:
        before = self._history(request)
        turns, inside = 0, False
        for item in [*before, *map(as_dict, as_list(request.get("input")))]:
            is_output = _is_model_output(item)
            turns += is_output and not inside
            inside = is_output
        return turns

    def check_request(self, request: JsonObject, limits: ServerLimits) -> list[RequestViolation]:
        return list(_check_request(request, self._history(request), self._stored, limits))

    def store_response(self, request: JsonObject, reply: FakeReply, serial: int) -> None:
        if request.get("store") is not False:
            content = request.get("input")
            items = [as_dict(i) for i in as_list(content)] or [{"role": "user", "content": content}]
            output = _render_items(reply, serial)
            self._stored[_response_id(serial)] = [*self._history(request), *items, *output]

    def _history(self, request: JsonObject) -> list[JsonObject]:
        return self._stored.get(str(request.get("previous_response_id")), [])

    def render_stream(self, reply: FakeReply, model: str, serial: int) -> list[SseEvent]:
        events: list[SseEvent] = []

        def emit(name: str, kind: str, /, **fields: object) -> None:
            body = {"type": name, "sequence_number": len(events), **fields}
            events.append(SseEvent(name, msgspec.json.encode(body), kind))

        whole = self.render_response(reply, model, serial)
        started = {**whole, "status": "in_progress", "output": [], "usage": None}
        emit("response.created", "start", response=started)
        emit("response.in_progress", "start", response=started)
        parts = reply.all_parts()
        for index, (part, item) in enumerate(zip(parts, _render_items(reply, serial), strict=True)):
            empty = _EMPTY_FIELDS[str(item["type"])]
            bare = {**item, empty: "" if isinstance(part, FakeCall) else []}
            emit("response.output_item.added", "start", output_index=index, item=bare)
            for name, kind, fields in _render_deltas(part, item, index):
                emit(name, kind, **fields)
            emit("response.output_item.done", "start", output_index=index, item=item)
        emit(f"response.{whole['status']}", "end", response=whole)
        return events

    def render_response(self, reply: FakeReply, model: str, serial: int) -> dict[str, object]:
        stop = reply.stop_reason()
        reason = {
            "max_tokens": "max_output_tokens",
            "context_window": "max_output_tokens",
            "refusal": "content_filter",
        }.get(stop)
        whole: dict[str, object] = {
            "id": _response_id(serial),
            "object": "response",
            "created_at": 1_700_000_000,
            "status": "incomplete" if reason else "completed",
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "instructions": None,
            "max_output_tokens": None,
            "model": model,
            "output": _render_items(reply, serial),
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "metadata": {},
        }
        if reply.usage is not None:
            whole["usage"] = _render_usage(reply)
        return whole

    def render_error(self, status: int, kind: str, message: str) -> dict[str, object]:
        return render_openai_error(kind, message)

    def render_error_event(self, kind: str, message: str) -> SseEvent:
        body = {"type": "error", "code": kind, "message": message, "param": None}
        return SseEvent("error", msgspec.json.encode({**body, "sequence_number": 0}), "end")

    def render_ping(self) -> None:
        return None

    def context_violation(self, tokens: int, window: int) -> RequestViolation:
        return openai_context_violation(tokens, window)


def _is_model_output(item: JsonObject) -> bool:
    return item.get("role") == "assistant" or item.get("type") in (*_CALL_TYPES, "reasoning")


def _response_id(serial: int) -> str:
    return f"resp_{serial:04}"


def _render_items(reply: FakeReply, serial: int) -> list[dict[str, object]]:
    return [_render_item(part, serial, index) for index, part in enumerate(reply.all_parts())]


def _render_item(part: FakePart, serial: int, index: int) -> dict[str, object]:
    match part:
        case FakeText():
            content = {"type": "output_text", "text": "".join(part.deltas), "annotations": []}
            return {
                "type": "message",
                "id": f"msg_{serial:04}_{index}",
                "status": "completed",
                "role": "assistant",
                "content": [content],
            }
        case FakeCall():
            kind, field, start = "function_call", "arguments", "fc"
            if part.is_free_text:
                kind, field, start = "custom_tool_call", "input", "ctc"
            return {
                "type": kind,
                "id": f"{start}_{serial:04}_{index}",
                "call_id": f"call_{serial:04}_{index}" if part.id is None else part.id,
                "name": part.name,
                field: part.raw,
                "status": "completed",
            }
        case _:
            text = "".join(part.deltas) if isinstance(part, FakeThinking) else part.data
            return {
                "type": "reasoning",
                "id": f"rs_{serial:04}_{index}",
                "summary": [{"type": "summary_text", "text": text}],
                "encrypted_content": encrypt_thinking(text),
            }


def _render_deltas(
    part: FakePart, item: JsonObject, index: int
) -> Iterator[tuple[str, str, dict[str, object]]]:
    where: dict[str, object] = {"item_id": item["id"], "output_index": index}
    match part:
        case FakeText():
            at = {**where, "content_index": 0}
            text = "".join(part.deltas)
            bare = {"type": "output_text", "text": "", "annotations": []}
            yield "response.content_part.added", "start", {**at, "part": bare}
            for delta in part.deltas:
                yield "response.output_text.delta", "text", {**at, "delta": delta}
            yield "response.output_text.done", "start", {**at, "text": text}
            yield "response.content_part.done", "start", {**at, "part": {**bare, "text": text}}
        case FakeCall():
            half = (len(part.raw) + 1) // 2
            field = "input" if part.is_free_text else "arguments"
            name = "custom_tool_call_input" if part.is_free_text else "function_call_arguments"
            for delta in (part.raw[:half], part.raw[half:]):
                yield f"response.{name}.delta", "arguments", {**where, "delta": delta}
            done = {**where, field: part.raw, "name": part.name}
            yield f"response.{name}.done", "start", done
        case FakeThinking():
            at = {**where, "summary_index": 0}
            for delta in part.deltas:
                yield "response.reasoning_summary_text.delta", "thinking", {**at, "delta": delta}
        case _:
            pass


def _render_usage(reply: FakeReply) -> dict[str, object]:
    assert reply.usage is not None
    prompt, output = reply.usage.input + reply.usage.cache_read, reply.count_output_tokens()
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": reply.usage.cache_read},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reply.usage.reasoning},
        "total_tokens": prompt + output,
    }


# -- request checks


def _check_request(
    request: JsonObject,
    history: list[JsonObject],
    stored: JsonObject,
    limits: ServerLimits,
) -> Violations:
    yield from check_unknown_keys("", request, _REQUEST_FIELDS, limits.extra_keys)
    if not isinstance(request.get("model"), str) or not request["model"]:
        yield RequestViolation("model", "you must provide a model parameter")
    previous = request.get("previous_response_id")
    if previous is not None and previous not in stored:
        message = f"Previous response with id '{previous}' not found."
        yield RequestViolation("", message, kind="previous_response_not_found")
    tools = [as_dict(tool) for tool in as_list(request.get("tools"))]
    for number, tool in enumerate(tools):
        path = f"tools.{number}"
        if tool.get("type") == "function":
            yield from check_schema(path, tool.get("name"), tool.get("parameters"), 64)
        elif tool.get("type") == "custom" and "definition" not in as_dict(tool.get("format")):
            yield RequestViolation(f"{path}.format", "a grammar has a definition")
    names = [tool.get("name") for tool in tools if tool.get("type") in ("function", "custom")]
    yield from check_unique("tools", names, "Tool names")
    content = request.get("input")
    if isinstance(content, str) and content:
        return
    items = [as_dict(item) for item in as_list(content)]
    if not items:
        yield RequestViolation("input", "Missing required parameter: 'input'")
        return
    for number, item in enumerate(items):
        yield from _check_item(f"input.{number}", item, request, limits)
    yield from _check_pairs(items, history)
    ids = [item.get("id") for item in items if item.get("id")]
    yield from check_unique("input", ids, "item ids")
    parts = [p for i in items for p in map(as_dict, as_list(i.get("content")))]
    yield from check_image_count(sum(p.get("type") == "input_image" for p in parts), limits)


def _check_item(
    path: str, item: JsonObject, request: JsonObject, limits: ServerLimits
) -> Violations:
    kind = str(item.get("type", "message"))
    known = _ITEM_FIELDS.get(kind)
    if known is None:
        return  # an item of a built-in tool, passed through
    yield from check_unknown_keys(path, item, known, frozenset())
    if kind == "message":
        yield from _check_message(path, item, limits)
    elif kind in _CALL_TYPES:
        yield from _check_call(path, kind, item)
    elif kind.endswith("_call_output") and not isinstance(item.get("output"), str | list):
        yield RequestViolation(f"{path}.output", "expected a string or an array")
    elif kind == "reasoning":
        sealed = item.get("encrypted_content")
        if sealed is None and request.get("store") is False:
            yield RequestViolation(
                path,
                f"Item with id '{item.get('id')}' not found. Items are not persisted when "
                "`store` is set to false.",
                status=404,
            )
        elif sealed is not None and not str(sealed).startswith("enc-"):
            yield RequestViolation(path, "The encrypted content could not be verified.")


def _check_call(path: str, kind: str, item: JsonObject) -> Violations:
    start = "fc" if kind == "function_call" else "ctc"
    if not str(item.get("id") or start).startswith(start):
        yield RequestViolation(f"{path}.id", f"Expected an ID that begins with '{start}'.")
    if not item.get("call_id"):
        yield RequestViolation(f"{path}.call_id", "must be a non-empty string")
    if not NAME_PATTERN.fullmatch(str(item.get("name") or "")):
        yield RequestViolation(f"{path}.name", "does not match the pattern '^[a-zA-Z0-9_-]+$'")
    if kind == "function_call" and not is_json(item.get("arguments")):
        yield RequestViolation(f"{path}.arguments", "is not valid JSON")
    if kind == "custom_tool_call" and not isinstance(item.get("input"), str):
        yield RequestViolation(f"{path}.input", "expected a string")


def _check_message(path: str, item: JsonObject, limits: ServerLimits) -> Violations:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system", "developer"):
        yield RequestViolation(f"{path}.role", f"Invalid value: {role!r}")
    if not content or not isinstance(content, str | list):
        yield RequestViolation(f"{path}.content", "must not be empty")
    output_types = ("output_text", "refusal")
    allowed = output_types if role == "assistant" else ("input_text", "input_image", "input_file")
    for index, part in enumerate(map(as_dict, as_list(content))):
        kind = part.get("type")
        if kind not in allowed:
            yield RequestViolation(f"{path}.content.{index}.type", f"Invalid value: {kind!r}")
        elif kind == "input_image" and part.get("file_id") is None:
            yield from check_data_url(f"{path}.content.{index}", part.get("image_url"), limits)
        elif kind == "input_text" and not part.get("text"):
            yield RequestViolation(f"{path}.content.{index}", "text must not be empty")


def _check_pairs(items: list[JsonObject], history: list[JsonObject]) -> Violations:
    everything = [*history, *items]
    by_type = {
        kind: [i.get("call_id") for i in everything if i.get("type") == kind]
        for call in _CALL_TYPES
        for kind in (call, f"{call}_output")
    }
    for kind in _CALL_TYPES:
        yield from _check_outputs(by_type[kind], by_type[f"{kind}_output"])
    for number, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        following = items[number + 1] if number + 1 < len(items) else {}
        if not _is_model_output(following):
            yield RequestViolation(
                f"input.{number}",
                f"Item '{item.get('id')}' of type 'reasoning' was provided without its required "
                "following item.",
            )


def _check_outputs(calls: list[object], outputs: list[object]) -> Violations:
    yield from check_unique("input", calls, "call ids")
    yield from check_unique("input", outputs, "outputs of a call")
    for call in calls:
        if call not in outputs:
            yield RequestViolation("input", f"No tool output found for function call {call}.")
    for output in outputs:
        if output not in calls:
            wrong = f"No tool call found for function call output with call_id {output}."
            yield RequestViolation("input", wrong)
