"""How the official library of each provider reads a recorded reply: for replay_recordings.py."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Iterator
from typing import Any, NamedTuple


class Recorded(NamedTuple):
    """A recorded exchange with status 200."""

    name: str
    url: str
    body: bytes

    @property
    def is_stream(self) -> bool:
        return self.body.lstrip().startswith((b"data:", b"event:", b":"))


class Reading(NamedTuple):
    """What a reader finds in a reply."""

    text: str
    thinking: str
    calls: list[tuple[str, Any]]
    signatures: int
    others: int
    output_tokens: int


# ------------------------------------------------------------------ Gemini


def split_chunks(recorded: Recorded) -> list[bytes]:
    if recorded.body.lstrip().startswith(b"["):  # a stream, as an array
        return [json.dumps(chunk).encode() for chunk in json.loads(recorded.body)]
    if b"data:" not in recorded.body[:20]:
        return [recorded.body]
    return [line[5:].strip() for line in recorded.body.splitlines() if line.startswith(b"data:")]


def read_by_google(chunks: list[bytes]) -> Reading:
    response: Any = importlib.import_module("google.genai.types").GenerateContentResponse
    read = [response._from_response(response=json.loads(chunk), kwargs={}) for chunk in chunks]
    candidates = [one.candidates[0] for one in read if one.candidates]
    parts = [part for one in candidates if one.content for part in one.content.parts or ()]
    usage = [one.usage_metadata for one in read if one.usage_metadata][-1]
    calls = [part.function_call for part in parts if part.function_call]
    others = [part for part in parts if part.text is None and not part.function_call]
    return Reading(
        "".join([part.text for part in parts if part.text and not part.thought]),
        "".join([part.text for part in parts if part.text and part.thought]),
        [(call.name, call.args or {}) for call in calls],
        sum(part.thought_signature is not None for part in parts),
        len(others),
        (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0),
    )


# ------------------------------------------------------------------ Converse


class _Frames:
    """A body as botocore reads one."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        yield self._body


def read_by_aws(recorded: Recorded) -> Reading:
    session: Any = importlib.import_module("botocore.session").get_session()
    parser: Any = importlib.import_module("botocore.parsers").create_parser("rest-json")
    service = session.get_service_model("bedrock-runtime")
    if not recorded.url.endswith("-stream"):
        shape = service.operation_model("Converse").output_shape
        whole = parser.parse({"status_code": 200, "headers": {}, "body": recorded.body}, shape)
        return _read_blocks(whole["output"]["message"]["content"], whole["usage"])
    shape = service.operation_model("ConverseStream").output_shape.members["stream"]
    stream: Any = importlib.import_module("botocore.eventstream").EventStream
    blocks: dict[int, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    for event in stream(
        _Frames(recorded.body), shape, parser._event_stream_parser, "ConverseStream"
    ):
        ((name, value),) = event.items()
        if name == "metadata":
            usage = value["usage"]
        elif name == "contentBlockStart" and "toolUse" in value["start"]:
            blocks[value["contentBlockIndex"]] = {
                "toolUse": {**value["start"]["toolUse"], "input": ""}
            }
        elif name == "contentBlockDelta":
            _add_delta(blocks.setdefault(value["contentBlockIndex"], {}), value["delta"])
    for block in blocks.values():
        if "toolUse" in block:
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"] or "{}")
    return _read_blocks(list(blocks.values()), usage)


def _add_delta(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if "text" in delta:
        block["text"] = block.get("text", "") + delta["text"]
    if "toolUse" in delta:
        block["toolUse"]["input"] += delta["toolUse"]["input"]
    if "reasoningContent" in delta:
        thought = block.setdefault("reasoningContent", {"reasoningText": {"text": ""}})
        given = delta["reasoningContent"]
        thought["reasoningText"]["text"] += given.get("text", "")
        thought["reasoningText"] |= {key: given[key] for key in ("signature",) if key in given}
        thought |= {key: given[key] for key in ("redactedContent",) if key in given}


def _read_blocks(blocks: list[dict[str, Any]], usage: dict[str, Any]) -> Reading:
    thoughts = [block["reasoningContent"] for block in blocks if "reasoningContent" in block]
    plain = [thought.get("reasoningText", {}) for thought in thoughts]
    uses = [block["toolUse"] for block in blocks if "toolUse" in block]
    calls = [use for use in uses if use.get("type") != "server_tool_use"]
    known = ("text", "toolUse", "reasoningContent")
    others = [block for block in blocks if not any(key in block for key in known)]
    return Reading(
        "".join([block["text"] for block in blocks if "text" in block]),
        "".join([thought.get("text", "") for thought in plain]),
        [(use["name"], use["input"]) for use in calls],
        sum("signature" in one for one in plain)
        + sum("redactedContent" in one for one in thoughts),
        len(others) + len(uses) - len(calls),
        usage["outputTokens"],
    )


# ------------------------------------------------------------------ Anthropic and OpenAI


def _make_client(kind: Any, recorded: Recorded) -> Any:
    """A client of the library that gets this reply, whatever it asks."""
    is_new = kind.__module__.startswith("anthropic") and importlib.util.find_spec("httpx2")
    httpx: Any = importlib.import_module("httpx2" if is_new else "httpx")
    media_type = "text/event-stream" if recorded.is_stream else "application/json"
    headers = {"content-type": media_type}

    def answer(request: object) -> Any:
        return httpx.Response(200, headers=headers, content=recorded.body)

    return kind(api_key="k", http_client=httpx.Client(transport=httpx.MockTransport(answer)))


def read_by_anthropic(recorded: Recorded) -> Reading:
    library: Any = importlib.import_module("anthropic")
    messages = _make_client(library.Anthropic, recorded).beta.messages
    request: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": []}
    if recorded.is_stream:
        with messages.stream(**request) as stream:
            reply = stream.get_final_message()
    else:
        reply = messages.create(**request)
    thoughts = [block for block in reply.content if block.type == "thinking"]
    redacted = [block for block in reply.content if block.type == "redacted_thinking"]
    return Reading(
        "".join([block.text for block in reply.content if block.type == "text"]),
        "".join([block.thinking for block in thoughts]),
        [(block.name, block.input) for block in reply.content if block.type == "tool_use"],
        sum(bool(block.signature) for block in thoughts) + len(redacted),
        0,
        reply.usage.output_tokens,
    )


def read_chat_by_openai(recorded: Recorded) -> Reading:
    """Its chunks or its reply; the library has no names for thinking."""
    library: Any = importlib.import_module("openai")
    completions = _make_client(library.OpenAI, recorded).chat.completions
    replies = completions.create(model="m", messages=[], stream=recorded.is_stream)
    replies = list(replies) if recorded.is_stream else [replies]
    texts: list[str] = []
    thoughts: list[str] = []
    calls: dict[int, list[str]] = {}
    tokens = 0
    for reply in replies:
        usage = reply.usage
        tokens = max(tokens, usage.completion_tokens or 0, _count_rest(usage)) if usage else tokens
        for choice in [one for one in reply.choices or () if one.index == 0]:
            part = choice.delta if recorded.is_stream else choice.message
            if part is None:  # of Azure, with the results of its filters
                continue
            extra = part.model_extra or {}
            texts += _list_texts(part.content, "text")
            thoughts += _list_texts(part.content, "thinking")
            thoughts.append(extra.get("reasoning_content") or extra.get("reasoning") or "")
            texts.append(part.refusal or "")
            for position, call in enumerate(part.tool_calls or ()):
                index = call.index if recorded.is_stream else position
                said = calls.setdefault(index, ["", ""])
                said[0] = said[0] or call.function.name or ""
                said[1] += call.function.arguments or ""
    parsed = [(name, json.loads(arguments or "{}")) for name, arguments in calls.values()]
    return Reading("".join(texts), "".join(thoughts), parsed, 0, 0, tokens)


def _count_rest(usage: Any) -> int:
    """Some count reasoning only in the total."""
    return int((usage.total_tokens or 0) - (usage.prompt_tokens or 0))


def _list_texts(content: Any, kind: str) -> list[str]:
    if not isinstance(content, list):
        return [content] if content and kind == "text" else []
    found = [part.get(kind) for part in content if part.get(kind)]
    return [
        text
        for part in found
        for text in ([part] if isinstance(part, str) else _list_texts(part, "text"))
    ]


def read_responses_by_openai(recorded: Recorded) -> Reading:
    library: Any = importlib.import_module("openai")
    responses = _make_client(library.OpenAI, recorded).responses
    reply = responses.create(model="m", input="hi", stream=recorded.is_stream)
    if recorded.is_stream:
        last = ("response.completed", "response.incomplete", "response.failed")
        reply = [event.response for event in reply if event.type in last][-1]
    thoughts = [item for item in reply.output if item.type == "reasoning"]
    parts = [part for item in reply.output if item.type == "message" for part in item.content]
    calls = [item for item in reply.output if item.type == "function_call"]
    return Reading(
        "".join([part.text if part.type == "output_text" else part.refusal for part in parts]),
        "".join([part.text for item in thoughts for part in item.summary or item.content or ()]),
        [(call.name, json.loads(call.arguments or "{}")) for call in calls],
        0,
        0,
        reply.usage.output_tokens if reply.usage else 0,
    )
