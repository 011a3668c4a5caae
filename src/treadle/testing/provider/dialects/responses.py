"""OpenAI Responses, as the loopback provider speaks and judges it.

Reasoning items carry `encrypted_content` that only this service can have made. Responses with
`store` on are remembered, so that `previous_response_id` finds the calls still open.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from treadle.testing.provider.script import Call, Part, Reply, Text, Thinking

from . import Event
from .chat import openai_error
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
    "model input instructions stream stream_options tools tool_choice parallel_tool_calls store "
    "include previous_response_id reasoning text max_output_tokens max_tool_calls temperature "
    "top_p top_logprobs truncation metadata user service_tier prompt_cache_key safety_identifier "
    "prompt conversation background prompt_cache_retention context_management"
)
_ITEMS: Final = {
    "message": frozenset({"type", "role", "content", "id", "status", "phase"}),
    "function_call": frozenset(
        {"type", "id", "call_id", "name", "arguments", "status", "namespace"}
    ),
    "function_call_output": frozenset({"type", "id", "call_id", "output", "status"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content", "status"}),
}


def encrypted(thinking: str) -> str:
    return "enc-" + hashlib.sha256(thinking.encode("utf-8", "surrogatepass")).hexdigest()[:24]


class Responses:
    """A Dialect."""

    def __init__(self) -> None:
        self._stored: dict[str, list[Mapping[str, object]]] = {}

    def turn(self, request: Mapping[str, object]) -> int:
        before = self._history(request)
        turns, inside = 0, False
        for item in [*before, *map(as_dict, as_list(request.get("input")))]:
            said = item.get("role") == "assistant" or item.get("type") in (
                "function_call",
                "reasoning",
            )
            turns += said and not inside
            inside = said
        return turns

    def judge(self, request: Mapping[str, object], rules: Rules) -> list[Problem]:
        return list(_problems(request, self._history(request), self._stored, rules))

    def remember(self, request: Mapping[str, object], reply: Reply, serial: int) -> None:
        if request.get("store") is not False:
            given = request.get("input")
            items = [as_dict(i) for i in as_list(given)] or [{"role": "user", "content": given}]
            made = _items(reply, serial)
            self._stored[_response_id(serial)] = [*self._history(request), *items, *made]

    def _history(self, request: Mapping[str, object]) -> list[Mapping[str, object]]:
        return self._stored.get(str(request.get("previous_response_id")), [])

    def stream(self, reply: Reply, model: str, serial: int) -> list[Event]:
        events: list[Event] = []

        def emit(name: str, kind: str, /, **fields: object) -> None:
            body = {"type": name, "sequence_number": len(events), **fields}
            events.append(Event(name, msgspec.json.encode(body), kind))

        begun = {**self.whole(reply, model, serial), "status": "in_progress", "output": []}
        begun["usage"] = None
        emit("response.created", "start", response=begun)
        emit("response.in_progress", "start", response=begun)
        parts = reply.all_parts()
        for index, (part, item) in enumerate(zip(parts, _items(reply, serial), strict=True)):
            empty = {"message": "content", "function_call": "arguments", "reasoning": "summary"}
            bare = {**item, empty[str(item["type"])]: "" if isinstance(part, Call) else []}
            emit("response.output_item.added", "start", output_index=index, item=bare)
            for name, kind, fields in _deltas(part, item, index):
                emit(name, kind, **fields)
            emit("response.output_item.done", "start", output_index=index, item=item)
        whole = self.whole(reply, model, serial)
        emit(f"response.{whole['status']}", "end", response=whole)
        return events

    def whole(self, reply: Reply, model: str, serial: int) -> dict[str, object]:
        stop = reply.natural_stop()
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
            "output": _items(reply, serial),
            "parallel_tool_calls": True,
            "previous_response_id": None,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "metadata": {},
        }
        if reply.usage is not None:
            whole["usage"] = _usage(reply)
        return whole

    def error(self, status: int, kind: str, message: str) -> dict[str, object]:
        return openai_error(kind, message)

    def error_event(self, kind: str, message: str) -> Event:
        body = {"type": "error", "code": kind, "message": message, "param": None}
        return Event("error", msgspec.json.encode({**body, "sequence_number": 0}), "end")

    def ping(self) -> None:
        return None


def _response_id(serial: int) -> str:
    return f"resp_{serial:04}"


def _items(reply: Reply, serial: int) -> list[dict[str, object]]:
    return [_item(part, serial, index) for index, part in enumerate(reply.all_parts())]


def _item(part: Part, serial: int, index: int) -> dict[str, object]:
    match part:
        case Text():
            content = {"type": "output_text", "text": "".join(part.deltas), "annotations": []}
            return {
                "type": "message",
                "id": f"msg_{serial:04}_{index}",
                "status": "completed",
                "role": "assistant",
                "content": [content],
            }
        case Call():
            return {
                "type": "function_call",
                "id": f"fc_{serial:04}_{index}",
                "call_id": f"call_{serial:04}_{index}" if part.id is None else part.id,
                "name": part.name,
                "arguments": part.raw,
                "status": "completed",
            }
        case _:
            text = "".join(part.deltas) if isinstance(part, Thinking) else part.data
            return {
                "type": "reasoning",
                "id": f"rs_{serial:04}_{index}",
                "summary": [{"type": "summary_text", "text": text}],
                "encrypted_content": encrypted(text),
            }


def _deltas(
    part: Part, item: Mapping[str, object], index: int
) -> Iterator[tuple[str, str, dict[str, object]]]:
    where: dict[str, object] = {"item_id": item["id"], "output_index": index}
    match part:
        case Text():
            at = {**where, "content_index": 0}
            text = "".join(part.deltas)
            bare = {"type": "output_text", "text": "", "annotations": []}
            yield "response.content_part.added", "start", {**at, "part": bare}
            for delta in part.deltas:
                yield "response.output_text.delta", "text", {**at, "delta": delta}
            yield "response.output_text.done", "start", {**at, "text": text}
            yield "response.content_part.done", "start", {**at, "part": {**bare, "text": text}}
        case Call():
            half = (len(part.raw) + 1) // 2
            for delta in (part.raw[:half], part.raw[half:]):
                name = "response.function_call_arguments.delta"
                yield name, "arguments", {**where, "delta": delta}
            done = {**where, "arguments": part.raw, "name": part.name}
            yield "response.function_call_arguments.done", "start", done
        case Thinking():
            at = {**where, "summary_index": 0}
            for delta in part.deltas:
                yield "response.reasoning_summary_text.delta", "thinking", {**at, "delta": delta}
        case _:
            pass


def _usage(reply: Reply) -> dict[str, object]:
    assert reply.usage is not None
    prompt, output = reply.usage.input + reply.usage.cache_read, reply.output_tokens()
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": reply.usage.cache_read},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reply.usage.reasoning},
        "total_tokens": prompt + output,
    }


# -- judging


def _problems(
    request: Mapping[str, object],
    history: list[Mapping[str, object]],
    stored: Mapping[str, object],
    rules: Rules,
) -> Iterator[Problem]:
    yield from unknown_keys("", request, _TOP, rules.more_keys)
    if not isinstance(request.get("model"), str) or not request["model"]:
        yield Problem("model", "you must provide a model parameter")
    previous = request.get("previous_response_id")
    if previous is not None and previous not in stored:
        yield Problem("previous_response_id", f"Previous response '{previous}' not found.")
    tools = [as_dict(tool) for tool in as_list(request.get("tools"))]
    for number, tool in enumerate(tools):
        if tool.get("type") == "function":
            path = f"tools.{number}"
            yield from schema_problems(path, tool.get("name"), tool.get("parameters"), 64)
    names = [tool.get("name") for tool in tools if tool.get("type") == "function"]
    yield from repeated("tools", names, "Tool names")
    given = request.get("input")
    if isinstance(given, str) and given:
        return
    items = [as_dict(item) for item in as_list(given)]
    if not items:
        yield Problem("input", "Missing required parameter: 'input'")
        return
    for number, item in enumerate(items):
        yield from _item_problems(f"input.{number}", item, request, rules)
    yield from _pairs(items, history)
    ids = [item.get("id") for item in items if item.get("id")]
    yield from repeated("input", ids, "item ids")
    parts = [p for i in items for p in map(as_dict, as_list(i.get("content")))]
    yield from too_many_images(sum(p.get("type") == "input_image" for p in parts), rules)


def _item_problems(
    path: str, item: Mapping[str, object], request: Mapping[str, object], rules: Rules
) -> Iterator[Problem]:
    kind = str(item.get("type", "message"))
    known = _ITEMS.get(kind)
    if known is None:
        return  # an item of a built-in tool, passed through
    yield from unknown_keys(path, item, known, frozenset())
    if kind == "message":
        yield from _message(path, item, rules)
    elif kind == "function_call":
        if not item.get("call_id"):
            yield Problem(f"{path}.call_id", "must be a non-empty string")
        if not NAME.fullmatch(str(item.get("name") or "")):
            yield Problem(f"{path}.name", "does not match the pattern '^[a-zA-Z0-9_-]+$'")
        if not is_json(item.get("arguments")):
            yield Problem(f"{path}.arguments", "is not valid JSON")
    elif kind == "function_call_output" and not isinstance(item.get("output"), str | list):
        yield Problem(f"{path}.output", "expected a string or an array")
    elif kind == "reasoning":
        sealed = item.get("encrypted_content")
        if sealed is None and request.get("store") is False:
            yield Problem(
                path,
                f"Item with id '{item.get('id')}' not found. Items are not persisted when "
                "`store` is set to false.",
                status=404,
            )
        elif sealed is not None and not str(sealed).startswith("enc-"):
            yield Problem(path, "The encrypted content could not be verified.")


def _message(path: str, item: Mapping[str, object], rules: Rules) -> Iterator[Problem]:
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant", "system", "developer"):
        yield Problem(f"{path}.role", f"Invalid value: {role!r}")
    if not content or not isinstance(content, str | list):
        yield Problem(f"{path}.content", "must not be empty")
    said = ("output_text", "refusal")
    allowed = said if role == "assistant" else ("input_text", "input_image", "input_file")
    for index, part in enumerate(map(as_dict, as_list(content))):
        kind = part.get("type")
        if kind not in allowed:
            yield Problem(f"{path}.content.{index}.type", f"Invalid value: {kind!r}")
        elif kind == "input_image" and part.get("file_id") is None:
            yield from data_url_problems(f"{path}.content.{index}", part.get("image_url"), rules)
        elif kind == "input_text" and not part.get("text"):
            yield Problem(f"{path}.content.{index}", "text must not be empty")


def _pairs(
    items: list[Mapping[str, object]], history: list[Mapping[str, object]]
) -> Iterator[Problem]:
    everything = [*history, *items]
    calls = [i.get("call_id") for i in everything if i.get("type") == "function_call"]
    outputs = [i.get("call_id") for i in everything if i.get("type") == "function_call_output"]
    yield from repeated("input", calls, "call ids")
    yield from repeated("input", outputs, "outputs of a call")
    for call in calls:
        if call not in outputs:
            yield Problem("input", f"No tool output found for function call {call}.")
    for output in outputs:
        if output not in calls:
            yield Problem(
                "input", f"No tool call found for function call output with call_id {output}."
            )
    for number, item in enumerate(items):
        if item.get("type") != "reasoning":
            continue
        following = items[number + 1] if number + 1 < len(items) else {}
        said = following.get("role") == "assistant" or following.get("type") in (
            "function_call",
            "reasoning",
        )
        if not said:
            yield Problem(
                f"input.{number}",
                f"Item '{item.get('id')}' of type 'reasoning' was provided without its required "
                "following item.",
            )
