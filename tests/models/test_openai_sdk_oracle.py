"""The same bytes, read by our codecs and by OpenAI's own library, give the same message.

Every shape is read in one piece, byte by byte, and cut in two at every position.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from treadle.core.contracts.model import ModelCard, ModelEvent, ModelRequest, ModelToolCallRequested
from treadle.core.transcript import (
    AssistantItem,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    Transcript,
)
from treadle.lib.http.sse import SSEReader
from treadle.models.openai_chat.decoding import ChatDecoder
from treadle.models.openai_responses.decoding import (
    ITEM_LABEL,
    MESSAGE_EXTRA_LABEL,
    ResponsesDecoder,
)
from treadle.models.openai_responses.model import ResponsesCodec
from treadle.models.provider_base.codec import CITATIONS_LABEL, Decoder
from treadle.models.provider_base.error_map import ProviderInfo
from treadle.models.provider_base.openai_common import OpenAIAccount

pytestmark = pytest.mark.xdist_group("sdks")  # one worker imports them

WHO = ProviderInfo("openai", "m")
CARD = ModelCard("openai/m")
REQUEST = ModelRequest(Transcript())


# ------------------------------------------------------------------ streams as servers write them


def chat_stream(*chunks: dict[str, Any], end: str = "\n\n") -> bytes:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    lines = [json.dumps({**head, **chunk}, ensure_ascii=False) for chunk in chunks]
    return "".join(f"data: {line}{end}" for line in [*lines, "[DONE]"]).encode()


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call_delta(index: int, arguments: str, id: str | None = None, name: str = "") -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": arguments}
    piece: dict[str, Any] = {"index": index, "function": function}
    if id is not None:
        piece |= {"id": id, "type": "function"}
        function["name"] = name
    return piece


USAGE = {
    "choices": [],
    "usage": {
        "prompt_tokens": 20,
        "completion_tokens": 9,
        "total_tokens": 29,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"reasoning_tokens": 4},
    },
}
NULL = {"refusal": None, "tool_calls": None}

CHAT: dict[str, bytes] = {
    "text": chat_stream(
        delta(role="assistant", content=""),
        delta(content="Grüße "),
        delta(content='\u2028 an 🌍 \\" \n'),
        delta("stop"),
        USAGE,
    ),
    "text, with CRLF": chat_stream(
        delta(role="assistant", content="a"), delta(content="b"), delta("stop"), end="\r\n\r\n"
    ),
    "parallel calls": chat_stream(
        delta(role="assistant", content=None),
        delta(tool_calls=[call_delta(0, "", "call_a", "read")]),
        delta(tool_calls=[call_delta(0, '{"path": ')]),
        delta(tool_calls=[call_delta(0, '"ä.py"}')]),
        delta(tool_calls=[call_delta(1, "", "call_b", "list")]),
        delta(tool_calls=[call_delta(1, "{}")]),
        delta("tool_calls"),
        USAGE,
    ),
    "text, then a call": chat_stream(
        delta(role="assistant", content="I look."),
        delta(tool_calls=[call_delta(0, '{"a":1}', "call_a", "add")]),
        delta("tool_calls"),
    ),
    "two whole calls in one delta": chat_stream(
        delta(
            role="assistant",
            tool_calls=[call_delta(0, '{"a":1}', "x", "f"), call_delta(1, '{"b":2}', "y", "g")],
        ),
        delta("stop"),
    ),
    "reasoning_content": chat_stream(
        delta(role="assistant", content=None, reasoning_content=""),
        delta(content=None, reasoning_content="First "),
        delta(content=None, reasoning_content="second."),
        delta(content="Yes", reasoning_content=None),
        delta("stop"),
        USAGE,
    ),
    "refusal": chat_stream(
        delta(role="assistant", content=None, refusal=""),
        delta(refusal="I can't "),
        delta(refusal="do that."),
        delta("stop"),
    ),
    "cut by the limit": chat_stream(
        delta(role="assistant", content="Once upon"), delta("length"), USAGE
    ),
    "filtered": chat_stream(delta(role="assistant", content="Well"), delta("content_filter")),
    "null fields and usage in every chunk": chat_stream(
        {**delta(role="assistant", content="a", **NULL), "usage": None},
        {**delta(content="b", **NULL), "usage": None},
        {**delta("stop", **NULL), "usage": USAGE["usage"]},
    ),
}


class Responses:
    """Writes a Responses stream the way OpenAI does: added, deltas, done for every item."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.output: list[dict[str, Any]] = []
        self._emit("response.created", response=self._response("in_progress", None))

    def _emit(self, name: str, /, **fields: Any) -> None:
        self.events.append({"type": name, "sequence_number": len(self.events), **fields})

    def _response(self, status: str, usage: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
        plain = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m"}
        tools = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
        result = {"status": status, "output": list(self.output), "usage": usage, "error": None}
        return {**plain, **tools, "incomplete_details": None, **result, **more}

    def item(self, whole: dict[str, Any], empty: dict[str, Any], *pieces: tuple[str, Any]) -> None:
        at = {"output_index": len(self.output)}
        self._emit("response.output_item.added", **at, item={**whole, **empty})
        for name, fields in pieces:
            fields = fields if isinstance(fields, dict) else {"delta": fields}
            self._emit(f"response.{name}", **at, item_id=whole["id"], **fields)
        self._emit("response.output_item.done", **at, item=whole)
        self.output.append(whole)

    def message(self, *parts: dict[str, Any], **more: Any) -> "Responses":
        whole = {"type": "message", "id": f"msg_{len(self.output)}", "role": "assistant"}
        pieces: list[tuple[str, Any]] = []
        for index, part in enumerate(parts):
            kind = "output_text" if part["type"] == "output_text" else "refusal"
            text = part["text"] if kind == "output_text" else part["refusal"]
            at = {"content_index": index, "logprobs": []}
            pieces.append(("content_part.added", {"content_index": index, "part": part}))
            cuts = [text[start : start + 5] for start in range(0, len(text), 5)]
            pieces += [(f"{kind}.delta", {**at, "delta": cut}) for cut in cuts]
            pieces.append(("content_part.done", {"content_index": index, "part": part}))
        status = {"status": "completed", "content": list(parts), **more}
        self.item({**whole, **status}, {"content": [], "status": "in_progress"}, *pieces)
        return self

    def call(self, name: str, arguments: str, status: str = "completed") -> "Responses":
        number = len(self.output)
        whole = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
        half = len(arguments) // 2
        self.item(
            {**whole, "name": name, "arguments": arguments, "status": status},
            {"arguments": "", "status": "in_progress"},
            ("function_call_arguments.delta", arguments[:half]),
            ("function_call_arguments.delta", arguments[half:]),
            ("function_call_arguments.done", {"arguments": arguments, "name": name}),
        )
        return self

    def reasoning(self, *summaries: str, sealed: str | None = None) -> "Responses":
        pieces: list[tuple[str, Any]] = []
        for index, text in enumerate(summaries):
            at = {"summary_index": index}
            bare = {"type": "summary_text", "text": ""}
            pieces.append(("reasoning_summary_part.added", {**at, "part": bare}))
            pieces.append(("reasoning_summary_text.delta", {**at, "delta": text[:4]}))
            pieces.append(("reasoning_summary_text.delta", {**at, "delta": text[4:]}))
            pieces.append(("reasoning_summary_text.done", {**at, "text": text}))
        parts = [{"type": "summary_text", "text": text} for text in summaries]
        whole = {"type": "reasoning", "id": f"rs_{len(self.output)}", "summary": parts}
        self.item(
            {**whole, "encrypted_content": sealed},
            {"summary": [], "encrypted_content": "not yet whole"},
            *pieces,
        )
        return self

    def end(self, reason: str | None = None) -> bytes:
        usage = {
            "input_tokens": 50,
            "input_tokens_details": {"cached_tokens": 30, "cache_write_tokens": 5},
            "output_tokens": 12,
            "output_tokens_details": {"reasoning_tokens": 7},
            "total_tokens": 62,
        }
        if reason is None:
            self._emit("response.completed", response=self._response("completed", usage))
        else:
            why = {"incomplete_details": {"reason": reason}}
            self._emit("response.incomplete", response=self._response("incomplete", usage, **why))
        return b"".join(
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            for event in self.events
        )


def output_text(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": [], **more}


CITED = {"type": "url_citation", "url": "http://x", "title": "x", "start_index": 0, "end_index": 2}
SEARCH = {
    "type": "web_search_call",
    "id": "ws_0",
    "status": "completed",
    "action": {"type": "search", "query": "treadle", "queries": ["treadle"]},
}


def searching() -> bytes:
    stream = Responses()
    stream.item(SEARCH, {"status": "in_progress"}, ("web_search_call.searching", {}))
    return stream.message(output_text("So it is.", annotations=[CITED])).end()


RESPONSES: dict[str, bytes] = {
    "text": Responses().message(output_text('Grüße an 🌍 \\" \n')).end(),
    "two parts of text": Responses().message(output_text("one"), output_text("two")).end(),
    "reasoning and text": (
        Responses()
        .reasoning("First this", "then that", sealed="gAAA+/==")
        .message(output_text("ok"))
        .end()
    ),
    "sealed reasoning only": Responses().reasoning(sealed="gAAA").call("list", "{}").end(),
    "parallel calls": Responses().call("read", '{"path":"ä"}').call("list", "{}").end(),
    "reasoning between calls": (
        Responses()
        .reasoning("a", sealed="s1")
        .call("f", "{}")
        .reasoning("b", sealed="s2")
        .call("g", '{"x":[1,{"y":null}]}')
        .end()
    ),
    "refusal": Responses().message({"type": "refusal", "refusal": "I can't do that."}).end(),
    "cut by the limit": Responses()
    .message(output_text("Once upon"), status="incomplete")
    .end("max_output_tokens"),
    "filtered": Responses().message(output_text("Well"), status="incomplete").end("content_filter"),
    "phases": (
        Responses()
        .message(output_text("Looking."), phase="commentary")
        .call("list", "{}")
        .message(output_text("Done."), phase="final_answer")
        .end()
    ),
    "a server's own tool": searching(),
}


# ------------------------------------------------------------------ ours


def ours(make: Callable[[], Decoder], pieces: Iterator[bytes]) -> AssistantItem:
    decoder, reader = make(), SSEReader()
    events: list[ModelEvent] = []
    for piece in pieces:
        events += decoder.feed(reader.feed(piece))
    reply = decoder.finish()
    announced = tuple(event.call for event in events if isinstance(event, ModelToolCallRequested))
    assert announced == reply.calls
    return reply


def every_split(stream: bytes) -> Iterator[Iterator[bytes]]:
    yield iter([stream])
    yield (stream[at : at + 1] for at in range(len(stream)))
    for cut in range(1, len(stream)):
        yield iter((stream[:cut], stream[cut:]))


def chat_decoder() -> Decoder:
    return ChatDecoder(REQUEST, CARD, WHO, "openai")


def responses_decoder() -> Decoder:
    return ResponsesDecoder(REQUEST, CARD, WHO, "openai")


# ------------------------------------------------------------------ theirs


async def theirs(stream: bytes, ask: Callable[[Any], Any]) -> Any:
    """What the SDK makes of this stream, over a real socket."""
    import openai

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(
            int(line.split(b":")[1])
            for line in head.lower().split(b"\r\n")
            if line.startswith(b"content-length:")
        )
        await reader.readexactly(size)
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        )
        writer.write(stream)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1")
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with openai.AsyncOpenAI(
            api_key="k", base_url=f"http://127.0.0.1:{port}/v1", max_retries=0
        ) as client:
            return await ask(client)


async def ask_chat(client: Any) -> Any:
    from openai.lib.streaming.chat import ChatCompletionStreamState

    state: Any = ChatCompletionStreamState()
    async for chunk in await client.chat.completions.create(
        model="m", messages=[{"role": "user", "content": "x"}], stream=True
    ):
        state.handle_chunk(chunk)
    return state.current_completion_snapshot


async def ask_responses(client: Any) -> Any:
    last = None
    async for event in await client.responses.create(model="m", input="x", stream=True):
        last = event
    return last.response  # type: ignore[union-attr]


# ------------------------------------------------------------------ the same?


def seen_in_chat(completion: Any) -> dict[str, Any]:
    choice = completion.choices[0]
    message, usage = choice.message, completion.usage
    calls = message.tool_calls or []
    return {
        "text": (message.content or "") + (message.refusal or ""),
        "thinking": getattr(message, "reasoning_content", None) or "",
        "calls": [(call.id, call.function.name, call.function.arguments) for call in calls],
        "stop": {
            "stop": "tool_use" if calls else "refusal" if message.refusal else "end_turn",
            "tool_calls": "tool_use",
            "length": "max_tokens",
            "content_filter": "refusal",
        }[choice.finish_reason],
        "usage": (usage.prompt_tokens, usage.completion_tokens) if usage else (0, 0),
        "id": completion.id,
    }


def seen_by_us(reply: AssistantItem) -> dict[str, Any]:
    return {
        "text": reply.text,
        "thinking": "".join(part.text for part in reply.content if isinstance(part, Thinking)),
        "calls": [(call.id, call.name, call.raw) for call in reply.calls],
        "stop": reply.stop,
        "usage": (reply.usage.total_input, reply.usage.output),
        "id": reply.response_id,
    }


def content_of(response: Any) -> list[Any]:
    """The SDK's output items, in our words."""
    content: list[Any] = []
    for item in response.output:
        if item.type == "message":
            if item.phase:
                extra = json.dumps({"phase": item.phase}, separators=(",", ":"))
                content.append(Opaque("openai", extra, MESSAGE_EXTRA_LABEL))
            parts = [p.text if p.type == "output_text" else p.refusal for p in item.content]
            content += [Text(text) for text in parts]
        elif item.type == "function_call":
            content.append(ToolCall(item.call_id, item.name, item.arguments))
        elif item.type == "reasoning":
            text = "\n\n".join(part.text for part in item.summary)
            content.append(Thinking(text, item.encrypted_content or "", item.id, "openai"))
        else:
            content.append(json.loads(item.model_dump_json(exclude_unset=True)))
    return content


@pytest.mark.parametrize("shape", CHAT)
async def test_a_chat_stream_is_read_as_the_sdk_reads_it(shape):
    expected = seen_in_chat(await theirs(CHAT[shape], ask_chat))

    for pieces in every_split(CHAT[shape]):
        assert seen_by_us(ours(chat_decoder, pieces)) == expected


@pytest.mark.parametrize("shape", RESPONSES)
async def test_a_responses_stream_is_read_as_the_sdk_reads_it(shape):
    response = await theirs(RESPONSES[shape], ask_responses)
    expected = content_of(response)

    first = ours(responses_decoder, iter([RESPONSES[shape]]))
    assert expected == [
        json.loads(part.json)
        if isinstance(part, Opaque) and part.label != MESSAGE_EXTRA_LABEL
        else part
        for part in first.content
        if not isinstance(part, Opaque) or part.label not in (CITATIONS_LABEL, ITEM_LABEL)
    ]
    used = response.usage
    assert first.usage.total_input == used.input_tokens
    assert first.usage.cache_read == used.input_tokens_details.cached_tokens
    assert first.usage.cache_write == used.input_tokens_details.cache_write_tokens
    assert first.usage.output == used.output_tokens
    assert first.usage.reasoning == used.output_tokens_details.reasoning_tokens
    assert first.response_id == response.id
    reason = response.incomplete_details and response.incomplete_details.reason
    if reason:
        assert (
            first.stop == {"max_output_tokens": "max_tokens", "content_filter": "refusal"}[reason]
        )

    for pieces in every_split(RESPONSES[shape]):
        assert ours(responses_decoder, pieces) == first


def simplified(item: dict[str, Any]) -> dict[str, Any]:
    """An input item with its texts in one: paragraphs of a summary, and a refusal, are text."""
    texts = [part.get("text") or part["refusal"] for part in item.get("content", ())]
    paragraphs = [part["text"] for part in item.get("summary", ())]
    return {**item, "content": "".join(texts), "summary": "\n\n".join(paragraphs)}


@pytest.mark.parametrize("shape", [shape for shape in RESPONSES if shape != "two parts of text"])
async def test_a_reply_is_sent_back_as_a_user_of_the_sdk_sends_it(shape):
    """As by `input += response.output`: items with their ids, status and phase."""
    response = await theirs(RESPONSES[shape], ask_responses)
    expected = [item.model_dump(mode="json", exclude_none=True) for item in response.output]

    reply = ours(responses_decoder, iter([RESPONSES[shape]]))
    codec = ResponsesCodec("m", CARD, OpenAIAccount("openai", None, "k", environ={}))
    request = codec.encode_request(ModelRequest(Transcript([reply])))
    sent = json.loads(b"".join(request.body))["input"]
    sent = [item for item in sent if item["type"] != "function_call_output"]

    assert [simplified(item) for item in sent] == [simplified(item) for item in expected]
