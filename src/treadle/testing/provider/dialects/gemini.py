"""Gemini's generateContent in the loopback provider: rendering and request checks."""

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
    check_image,
    check_image_count,
    check_schema,
    check_unique,
    check_unknown_keys,
    split_words,
)

_REQUEST_FIELDS: Final = split_words(
    "contents systemInstruction tools toolConfig generationConfig safetySettings cachedContent "
    "serviceTier labels"
)
_PART_FIELDS: Final = split_words(
    "text thought thoughtSignature functionCall functionResponse inlineData fileData "
    "executableCode codeExecutionResult toolCall toolResponse"
)
_FINISH_REASONS: Final[dict[FakeStop, str]] = {
    "end_turn": "STOP",
    "stop_sequence": "STOP",
    "pause_turn": "STOP",
    "tool_use": "STOP",
    "max_tokens": "MAX_TOKENS",
    "context_window": "MAX_TOKENS",
    "refusal": "SAFETY",
}
_STATUSES: Final = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE",
}  # fmt: skip


class FakeGemini:
    """A FakeDialect."""

    def count_assistant_turns(self, request: JsonObject) -> int:
        contents = map(as_dict, as_list(request.get("contents")))
        return sum(content.get("role") == "model" for content in contents)

    def check_request(self, request: JsonObject, limits: ServerLimits) -> list[RequestViolation]:
        return list(_check_request(request, limits))

    def render_stream(self, reply: FakeReply, model: str, serial: int) -> list[SseEvent]:
        def chunk(kind: str, part: JsonObject | None, finish: str = "") -> SseEvent:
            candidate: dict[str, object] = {"index": 0}
            if part is not None:
                candidate["content"] = {"role": "model", "parts": [part]}
            whole: dict[str, object] = {
                "candidates": [candidate],
                "modelVersion": model,
                "responseId": f"r{serial}",
            }
            if finish:
                candidate["finishReason"] = finish
                if reply.usage is not None:
                    whole["usageMetadata"] = _render_usage(reply)
            return SseEvent("", msgspec.json.encode(whole), kind)

        events = [chunk(kind, part) for kind, part in _render_parts(reply, serial)]
        return [*events, chunk("end", None, _FINISH_REASONS[reply.stop_reason()])]

    def render_response(self, reply: FakeReply, model: str, serial: int) -> dict[str, object]:
        parts = [part for _, part in _render_parts(reply, serial)]
        finish = _FINISH_REASONS[reply.stop_reason()]
        content = {"role": "model", "parts": parts}
        whole: dict[str, object] = {
            "candidates": [{"index": 0, "content": content, "finishReason": finish}],
            "modelVersion": model,
            "responseId": f"r{serial}",
        }
        if reply.usage is not None:
            whole["usageMetadata"] = _render_usage(reply)
        return whole

    def render_error(self, status: int, kind: str, message: str) -> dict[str, object]:
        error: dict[str, object] = {"code": status, "message": message}
        return {"error": {**error, "status": _STATUSES.get(status, "INTERNAL")}}

    def render_error_event(self, kind: str, message: str) -> SseEvent:
        return SseEvent("", msgspec.json.encode(self.render_error(503, kind, message)), "end")

    def render_ping(self) -> None:
        return None

    def context_violation(self, tokens: int, window: int) -> RequestViolation:
        message = (
            f"The input token count ({tokens}) exceeds the maximum number of tokens allowed "
            f"({window})."
        )
        return RequestViolation("", message)


def _render_parts(reply: FakeReply, serial: int) -> list[tuple[str, dict[str, object]]]:
    """The parts of a reply with their kinds; the first call of a reply is signed."""
    rendered: list[tuple[str, dict[str, object]]] = []
    is_signed = False
    for index, part in enumerate(reply.all_parts()):
        if isinstance(part, FakeText):
            rendered += [("text", {"text": text}) for text in part.deltas]
        elif isinstance(part, FakeThinking):
            rendered += [("thinking", {"text": text, "thought": True}) for text in part.deltas]
        elif isinstance(part, FakeCall):
            call_id = f"fc_{serial:04}_{index}" if part.id is None else part.id
            call = {"id": call_id, "name": part.name, "args": _parse_arguments(part)}
            whole: dict[str, object] = {"functionCall": call}
            if not is_signed:
                whole["thoughtSignature"] = "c2lnbmVk"
            is_signed = True
            rendered.append(("arguments", whole))
    return rendered


def _parse_arguments(call: FakeCall) -> object:
    """The service sends only objects: arguments that are no JSON become an empty one."""
    try:
        return msgspec.json.decode(call.raw)
    except msgspec.DecodeError:
        return {}


def _render_usage(reply: FakeReply) -> dict[str, object]:
    assert reply.usage is not None
    prompt = reply.usage.input + reply.usage.cache_read
    output = reply.count_output_tokens()
    return {
        "promptTokenCount": prompt,
        "cachedContentTokenCount": reply.usage.cache_read,
        "candidatesTokenCount": output - reply.usage.reasoning,
        "thoughtsTokenCount": reply.usage.reasoning,
        "totalTokenCount": prompt + output,
    }


# -- request checks


def _check_request(request: JsonObject, limits: ServerLimits) -> Violations:
    yield from check_unknown_keys("", request, _REQUEST_FIELDS, limits.extra_keys)
    contents = [as_dict(content) for content in as_list(request.get("contents"))]
    if not contents:
        yield RequestViolation("contents", "contents is not specified")
        return
    functions = [
        as_dict(function)
        for tool in map(as_dict, as_list(request.get("tools")))
        for function in as_list(tool.get("functionDeclarations"))
    ]
    if len(functions) > limits.max_tools:
        yield RequestViolation("tools", f"at most {limits.max_tools} functions are allowed")
    for number, function in enumerate(functions):
        path = f"tools[0].function_declarations[{number}]"
        yield from check_schema(
            path, function.get("name"), function.get("parametersJsonSchema"), 64
        )
    yield from check_unique("tools", [one.get("name") for one in functions], "Function names")
    images = 0
    for number, content in enumerate(contents):
        path = f"contents[{number}]"
        if content.get("role") not in ("user", "model"):
            yield RequestViolation(path, "Please use a valid role: user, model.")
        parts = [as_dict(part) for part in as_list(content.get("parts"))]
        if not parts:
            yield RequestViolation(f"{path}.parts", "contents.parts must not be empty.")
        for index, part in enumerate(parts):
            yield from _check_part(f"{path}.parts[{index}]", part, limits)
            images += str(as_dict(part.get("inlineData")).get("mimeType")).startswith("image/")
    yield from _check_rounds(contents)
    yield from check_image_count(images, limits)


def _check_part(path: str, part: JsonObject, limits: ServerLimits) -> Violations:
    yield from check_unknown_keys(path, part, _PART_FIELDS, limits.extra_keys)
    data = part.keys() - {"thought", "thoughtSignature"}
    if len(data) != 1:
        yield RequestViolation(path, "required oneof field 'data' must have one initialized field")
    if "inlineData" in part:
        media = as_dict(part["inlineData"])
        if str(media.get("mimeType")).startswith("image/"):
            yield from check_image(path, media.get("mimeType"), media.get("data"), limits)
    for name in ("functionCall", "functionResponse"):
        if name in part and not NAME_PATTERN.fullmatch(str(as_dict(part[name]).get("name") or "")):
            yield RequestViolation(f"{path}.{name}.name", "Name cannot be empty.")


def _check_rounds(contents: list[JsonObject]) -> Violations:
    """Each call is answered in the next content, and the first call of a turn is signed."""
    calls: list[JsonObject] = []
    for number, content in enumerate([*contents, {"role": "end"}]):
        parts = [as_dict(part) for part in as_list(content.get("parts"))]
        answers = [as_dict(p["functionResponse"]) for p in parts if "functionResponse" in p]
        if sorted(str(one.get("id")) for one in calls) != sorted(
            str(one.get("id")) for one in answers
        ):
            wrong = "the number of function response parts is not that of the function call turn"
            yield RequestViolation(f"contents[{number}]", wrong)
        calls = [as_dict(part["functionCall"]) for part in parts if "functionCall" in part]
        signed = [part for part in parts if "functionCall" in part][:1]
        if signed and not signed[0].get("thoughtSignature"):
            wrong = "Function call is missing a thought_signature in functionCall parts."
            yield RequestViolation(f"contents[{number}]", wrong)
