"""Gemini's own interface: what is sent, and what is sent back."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from tests.models.exchanges import FOLDER, ExchangeReader
from treadle.agents.agent import Agent
from treadle.core.contracts.model import ModelCard, ModelOptions, ModelRequest, Reply
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import AccessDenied, BadRequest, StreamBroken, UnknownModel
from treadle.core.transcript import (
    AssistantItem,
    Document,
    Image,
    Item,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResultItem,
    Transcript,
    UserItem,
    to_user_item,
)
from treadle.models import Gemini
from treadle.models.catalog import card_for
from treadle.models.gemini.encoding import UNSIGNED_CALL, adapt_schema
from treadle.models.gemini.model import GeminiCodec
from treadle.models.provider_base.codec import CALL_EXTRA_LABEL
from treadle.models.provider_base.error_map import map_response_error
from treadle.testing.conformance.model import ConformanceRequests, check_model
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer, ReceivedRequest

NEW, OLD = "gemini-3.8-flash", "gemini-2.5-flash"
ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"const": 1}}})
PNG = b"\x89PNG\r\n\x1a\n"


def body(*items: Item, model: str = NEW, **more: Any) -> dict[str, Any]:
    """The request for these items, as JSON."""
    codec = GeminiCodec(model, card_for(f"gemini/{model}"), "k")
    request = ModelRequest(Transcript(items or [to_user_item("hi")]), **more)
    sent: dict[str, Any] = json.loads(b"".join(codec.encode_request(request).body))
    return sent


def parts(*items: Item, at: int, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = body(*items, **more)["contents"][at]["parts"]
    return found


def answer(request: ReceivedRequest) -> FakeReply:
    """Calls where a tool is asked for, and is cut where the limit is small."""
    asked: Any = request.json
    if asked.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode") == "ANY":
        return FakeReply("Adding.", "Hm.", (FakeCall("add", {"a": 2}), FakeCall("add", {})))
    is_cut = "maxOutputTokens" in asked.get("generationConfig", {})
    return FakeReply("Hello to you.", "A greeting.", stop="max_tokens" if is_cut else None)


async def test_it_keeps_the_promises_of_a_model():
    failing = ModelRequest(
        Transcript([to_user_item("fail")]), options=ModelOptions(extra={"nonsense": 1})
    )
    requests = ConformanceRequests(failing=failing, concurrency=20)
    async with ProviderServer(answer) as server:
        model = Gemini("m", base_url=server.url, api_key="k")
        await check_model(lambda: model, requests)


async def test_a_conversation_with_calls_is_accepted_by_a_strict_server():
    calls = (FakeCall("add", {"a": 1}), FakeCall("add", {"a": 1}), FakeCall("no_such_tool"))
    async with ProviderServer(
        [FakeReply(thinking="hm", calls=calls), FakeReply("Done.")]
    ) as server:
        agent = Agent(
            Gemini(NEW, base_url=server.url, api_key="secret-key"), instructions="Be brief."
        )
        result = await agent.run("go")
    assert result.text == "Done."
    first, second = server.requests
    assert first.headers["x-goog-api-key"] == "secret-key"
    assert first.path == f"/v1beta/models/{NEW}:streamGenerateContent"
    assert first.json["systemInstruction"] == {"parts": [{"text": "Be brief."}]}
    contents: Any = second.json["contents"]
    assert [content["role"] for content in contents] == ["user", "model", "user"]
    assert contents[1]["parts"][0]["thoughtSignature"] == "c2lnbmVk"
    assert [part["functionResponse"]["name"] for part in contents[2]["parts"]] == [
        "add",
        "add",
        "no_such_tool",
    ]


@pytest.mark.parametrize("name", ["tool", "parallel_tools", "signed_text", "thoughts", "search"])
async def test_what_came_with_a_signature_is_sent_back_as_it_came(name: str):
    stream = (FOLDER / "gemini" / f"{name}.sse").read_bytes()
    reader = ExchangeReader("gemini")
    outcome = await reader.read([stream])
    assert outcome.reply is not None
    came = [
        part
        for line in stream.decode().splitlines()
        if line.startswith("data:")
        for part in json.loads(line[5:])["candidates"][0].get("content", {}).get("parts", ())
        if "thoughtSignature" in part
    ]
    results = [ToolResultItem(call.id, call.name, (Text("ok"),)) for call in outcome.reply.calls]
    sent = parts(to_user_item("q"), outcome.reply, *results, to_user_item("more"), at=1)
    signed = [part for part in sent if "thoughtSignature" in part]
    for part in (*signed, *came):
        part.get("functionCall", {}).pop("id", None)
    assert signed == came


def test_a_signature_of_the_compatible_endpoint_is_understood():
    extra = Opaque("gemini", '{"google":{"thought_signature":"abc"}}', CALL_EXTRA_LABEL)
    reply = AssistantItem((extra, ToolCall("c", "add", "{}")), model=f"gemini/{NEW}")
    assert parts(to_user_item("q"), reply, at=1)[0]["thoughtSignature"] == "abc"


def test_a_call_and_the_thinking_of_another_model_are_sent_without_their_signatures():
    extra = Opaque("gemini", '{"google":{"thought_signature":"abc"}}', CALL_EXTRA_LABEL)
    calls = (ToolCall("c", "add", '{"a":1}'), ToolCall("d", "add", "{}"))
    reply = AssistantItem((Thinking("hm", "sig", origin="anthropic"), extra, *calls), model="x/y")
    first, second = parts(to_user_item("q"), reply, at=1)
    assert first == {
        "functionCall": {"id": "c", "name": "add", "args": {"a": 1}},
        "thoughtSignature": UNSIGNED_CALL,
    }
    assert "thoughtSignature" not in second


def test_images_documents_and_errors_of_results_are_sent():
    pdf = Document("application/pdf", b"%PDF", title="a.pdf")
    user = UserItem(
        (Text("look"), Image("image/png", PNG), pdf, Image("", url="https://x.test/a.png"))
    )
    sent = parts(user, at=0)
    assert sent[1] == {
        "inlineData": {"mimeType": "image/png", "data": base64.b64encode(PNG).decode()}
    }
    assert sent[2]["inlineData"]["mimeType"] == "application/pdf"
    assert sent[3] == {"fileData": {"fileUri": "https://x.test/a.png"}}
    call = AssistantItem((ToolCall("c", "add", "{}"),))
    shot = ToolResultItem("c", "add", (Text("no"), Image("image/png", PNG)), is_error=True)
    answered = parts(to_user_item("q"), call, shot, to_user_item("on"), at=2)
    assert answered[0]["functionResponse"]["response"]["error"].startswith("no\n[1 attachment(s)")
    assert [next(iter(part)) for part in answered] == ["functionResponse", "inlineData", "text"]


@pytest.mark.parametrize(
    ("model", "thinking", "config"),
    [
        (NEW, None, None),
        (NEW, "auto", {"includeThoughts": True, "thinkingLevel": "high"}),
        (NEW, "xhigh", {"includeThoughts": True, "thinkingLevel": "high"}),
        (NEW, 3_000, {"includeThoughts": True, "thinkingLevel": "low"}),
        (OLD, "auto", {"includeThoughts": True, "thinkingBudget": 8_192}),
        (OLD, "none", {"includeThoughts": False, "thinkingBudget": 0}),
        (OLD, 3_000, {"includeThoughts": True, "thinkingBudget": 3_000}),
        (OLD, "high", {"includeThoughts": True, "thinkingBudget": 24_576}),
    ],
)
def test_thinking_is_a_level_or_for_older_models_a_budget(model, thinking, config):
    sent = body(model=model, options=ModelOptions(thinking=thinking))
    assert sent.get("generationConfig", {}).get("thinkingConfig") == config


def test_the_options_have_their_fields():
    options = ModelOptions(
        max_tokens=9, temperature=0.5, top_p=0.9, seed=3, stop=("X",), tool_choice="add",
        service_tier="flex", output_schema={"type": "object"}, web_search=True,
        extra={"cachedContent": "cachedContents/1", "generationConfig": {"topK": 4}},
    )  # fmt: skip
    sent = body(tools=(ADD,), options=options)
    del sent["contents"]
    schema = {"type": "object", "properties": {"a": {"enum": [1]}}}
    tool = {"name": "add", "description": "Add.", "parametersJsonSchema": schema}
    mode = {"mode": "ANY", "allowedFunctionNames": ["add"]}
    assert sent == {
        "tools": [{"googleSearch": {}}, {"functionDeclarations": [tool]}],
        "toolConfig": {"functionCallingConfig": mode, "includeServerSideToolInvocations": True},
        "generationConfig": {
            "maxOutputTokens": 9, "temperature": 0.5, "topP": 0.9, "seed": 3, "topK": 4,
            "stopSequences": ["X"], "responseMimeType": "application/json",
            "responseJsonSchema": {"type": "object"},
        },
        "serviceTier": "flex",
        "cachedContent": "cachedContents/1",
    }  # fmt: skip


def test_an_older_model_gets_neither_a_search_nor_a_schema_together_with_tools():
    options = ModelOptions(web_search=True, output_schema={"type": "object"})
    with_tools = body(model=OLD, tools=(ADD,), options=options)
    assert [list(tool) for tool in with_tools["tools"]] == [["functionDeclarations"]]
    assert "generationConfig" not in with_tools
    assert body(model=OLD, options=options)["tools"] == [{"googleSearch": {}}]


def test_keywords_that_gemini_refuses_are_left_out_of_a_schema_but_not_of_its_properties():
    schema = {
        "$schema": "x",
        "properties": {"examples": {"type": "integer", "exclusiveMinimum": 0, "minimum": 1}},
        "anyOf": [{"const": "a", "examples": ["a"]}],
    }
    assert adapt_schema(schema) == {
        "properties": {"examples": {"type": "integer", "minimum": 1}},
        "anyOf": [{"enum": ["a"]}],
    }


def test_an_error_that_names_a_part_is_located():
    codec = GeminiCodec(NEW, card_for(f"gemini/{NEW}"), "k")
    items = (to_user_item("q"), AssistantItem((Text("a"),)), UserItem((Text("b"), Text("c"))))
    error = b'{"error":{"code":400,"message":"* GenerateContentRequest.contents[2].parts[1]: no"}}'
    mapped = map_response_error(codec.provider, 400, {}, error)
    assert isinstance(mapped, BadRequest)
    assert codec.locate_part(ModelRequest(Transcript(items)), mapped) == (2, 1)


def test_without_a_key_the_variables_are_named(monkeypatch):
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(AccessDenied, match="GEMINI_API_KEY or GOOGLE_API_KEY"):
        Gemini(NEW).check_key()
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    Gemini(NEW).check_key()


async def test_a_model_that_is_not_there_is_named():
    async with ProviderServer([FakeReply("x")], faults=["not_found"]) as server:
        request = ModelRequest(Transcript([to_user_item("hi")]))
        with pytest.raises(UnknownModel):
            async for _ in Gemini("gemini-9", base_url=server.url, api_key="k").stream(request):
                pass


async def test_a_call_that_cannot_be_read_is_a_broken_stream_that_is_tried_again():
    reader = ExchangeReader("gemini")
    broken = await reader.read([(FOLDER / "gemini" / "malformed_call.sse").read_bytes()])
    assert isinstance(broken.error, StreamBroken)
    assert "could not use what the model wrote" in str(broken.error)


async def test_thinking_and_cached_tokens_have_their_price():
    card = ModelCard("gemini/x", input_price=1.0, output_price=10.0, cache_read_price=0.1)
    async with ProviderServer([]) as server:
        reader = ExchangeReader("gemini")
        reader.model = Gemini("x", base_url=server.url, api_key="k", card=card)
        reader.model._transport = reader.transport  # type: ignore[assignment] # `get` is never used
        outcome = await reader.read([(FOLDER / "gemini" / "cached.sse").read_bytes()])
    assert outcome.reply is not None
    usage = outcome.reply.usage
    assert (usage.input, usage.cache_read, usage.output, usage.reasoning) == (2_621, 17_379, 32, 30)
    assert usage.cost == pytest.approx((2_621 + 1_737.9 + 320) / 1e6)


async def test_a_blocked_prompt_ends_as_refused():
    script = [FakeReply(stop="refusal")]
    async with ProviderServer(script) as server:
        result = await Agent(Gemini(NEW, base_url=server.url, api_key="k")).run("go")
    assert result.reason == "refused"
    assert "declined to answer" in result.text
    item = result.transcript[-1]
    assert isinstance(item, AssistantItem)
    assert item.refusal_reason == result.detail == "SAFETY"


@pytest.mark.parametrize(
    ("chunk", "reason"),
    [
        ({"candidates": [{"finishReason": "RECITATION"}]}, "RECITATION"),
        ({"promptFeedback": {"blockReason": "BLOCKLIST"}}, "BLOCKLIST"),
        ({"candidates": [{"finishReason": "SAFETY", "safetyRatings": [
            {"category": "HARM_CATEGORY_HARASSMENT", "probability": "LOW"},
            {"category": "HARM_CATEGORY_DANGEROUS_CONTENT", "blocked": True}]}]},
         "HARM_CATEGORY_DANGEROUS_CONTENT"),
        ({"candidates": [{"finishReason": "STOP"}]}, ""),
    ],
)  # fmt: skip
def test_the_reason_of_a_safety_stop_is_a_field(chunk: dict[str, Any], reason: str):
    codec = GeminiCodec(NEW, card_for(f"gemini/{NEW}"), "k")
    decoder = codec.create_decoder(ModelRequest(Transcript([to_user_item("q")])))
    decoder.feed([(b"", json.dumps(chunk).encode())])
    assert decoder.finish().refusal_reason == reason


async def test_the_compatible_endpoint_is_used_for_its_address(monkeypatch):
    from treadle.models import model

    assert type(model("gemini/x")).__name__ == "Gemini"
    monkeypatch.setenv("GEMINI_BASE_URL", "https://proxy.test/v1beta/openai/")
    assert type(model("google/x")).__name__ == "OpenAIChat"


def test_the_reply_is_the_last_event_of_a_whole_array():
    codec = GeminiCodec(NEW, card_for(f"gemini/{NEW}"), "k")
    chunks = codec.split_reply((FOLDER / "gemini" / "whole_array.json").read_bytes())
    decoder = codec.create_decoder(ModelRequest(Transcript([to_user_item("q")])))
    decoder.feed(chunks)
    assert Reply(decoder.finish()).item.text == "The capital is Paris."
