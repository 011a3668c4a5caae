"""Bedrock's Converse: what is sent, and the promises of a model."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.models.wires import connect
from treadle.core.contracts.model import ModelOptions, ModelRequest
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import AccessDenied, BadRequest
from treadle.core.transcript import (
    AssistantItem,
    Document,
    Image,
    Item,
    Opaque,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResultItem,
    Transcript,
    UserItem,
    to_user_item,
)
from treadle.models.bedrock_converse.model import ConverseCodec
from treadle.models.catalog import card_for
from treadle.models.provider_base.error_map import map_response_error
from treadle.testing.conformance.model import ConformanceRequests, check_model
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer, ReceivedRequest

NAME = "bedrock/amazon.nova-pro-v1:0"
ADD = ToolSpec("add", "Add.", {"type": "object", "properties": {"a": {"type": "integer"}}})
PNG = b"\x89PNG\r\n\x1a\n"


def body(*items: Item, **more: Any) -> dict[str, Any]:
    codec = ConverseCodec("m", card_for(NAME))
    request = ModelRequest(Transcript(items or [to_user_item("hi")]), **more)
    sent: dict[str, Any] = json.loads(b"".join(codec.encode_request(request).body))
    return sent


def answer(request: ReceivedRequest) -> FakeReply:
    """Calls where a tool is asked for, and is cut where the limit is small."""
    asked: Any = request.json
    limit = asked.get("inferenceConfig", {}).get("maxTokens")
    if "any" in asked.get("toolConfig", {}).get("toolChoice", {}):
        if limit:
            cut = (FakeCall("add", {"a": 1}), FakeCall("add", '{"a":'))
            return FakeReply(calls=cut, stop="max_tokens")
        return FakeReply("Adding.", "Hm.", (FakeCall("add", {"a": 2}), FakeCall("add", {})))
    return FakeReply("Hello to you.", "A greeting.", stop="max_tokens" if limit else None)


async def test_it_keeps_the_promises_of_a_model():
    failing = ModelRequest(
        Transcript([to_user_item("fail")]), options=ModelOptions(extra={"nonsense": 1})
    )
    requests = ConformanceRequests(call_token_limit=8, failing=failing, concurrency=20)
    async with ProviderServer(answer) as server:
        model = connect("converse", server.url)
        await check_model(lambda: model, requests)


def test_a_reply_is_sent_back_with_its_signatures_and_the_blocks_of_the_providers_tools():
    server_tool = Opaque("bedrock", '{"toolUse":{"name":"nova_grounding"}}', "server_tool_use")
    thoughts = (Thinking("hm", "sig", origin="bedrock"), RedactedThinking("cmVk", "bedrock"))
    unsigned = Thinking("other", origin="bedrock")
    call = ToolCall("c", "add", '{"a":1}')
    reply = AssistantItem((*thoughts, unsigned, server_tool, Text("I add."), call), model=NAME)
    result = ToolResultItem("c", "add", (Text("no"), Image("image/png", PNG)), is_error=True)
    sent = body(to_user_item("q"), reply, result, to_user_item("on"))
    assert sent["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "sig"}}},
        {"reasoningContent": {"redactedContent": "cmVk"}},
        {"toolUse": {"name": "nova_grounding"}},
        {"text": "I add."},
        {"toolUse": {"toolUseId": "c", "name": "add", "input": {"a": 1}}},
    ]
    first, second = sent["messages"][2]["content"]
    assert first["toolResult"]["status"] == "error"
    assert first["toolResult"]["content"][1]["image"]["format"] == "png"
    assert second == {"text": "on"}
    assert [tool["toolSpec"]["name"] for tool in sent["toolConfig"]["tools"]] == ["none"]


def test_documents_have_a_format_and_a_name_without_a_dot():
    pdf = Document("application/pdf", b"%PDF", title="Q3 report_v2.pdf")
    text = Document("text/plain", b"hi")
    blocks = body(UserItem((Text("read"), pdf, text)))["messages"][0]["content"]
    documents = [block["document"] for block in blocks[1:]]
    assert [(one["format"], one["name"]) for one in documents] == [
        ("pdf", "Q3 report v2 pdf 1"),
        ("txt", "document 2"),
    ]


def test_the_options_have_their_fields():
    options = ModelOptions(
        max_tokens=9, temperature=0.5, top_p=0.9, stop=("X",), tool_choice="add",
        service_tier="flex", output_schema={"type": "object"},
        extra={"additionalModelRequestFields": {"top_k": 4}},
    )  # fmt: skip
    sent = body(tools=(ADD,), options=options, system="Be brief.")
    assert sent["system"] == [{"text": "Be brief."}]
    assert sent["inferenceConfig"] == {
        "maxTokens": 9, "temperature": 0.5, "topP": 0.9, "stopSequences": ["X"],
    }  # fmt: skip
    assert sent["toolConfig"]["toolChoice"] == {"tool": {"name": "add"}}
    structure = sent["outputConfig"]["textFormat"]["structure"]
    assert json.loads(structure["jsonSchema"]["schema"]) == {"type": "object"}
    assert sent["serviceTier"] == {"type": "flex"}
    assert sent["additionalModelRequestFields"] == {"top_k": 4}
    assert "toolConfig" not in body(tools=(ADD,), options=ModelOptions(tool_choice="none"))


def test_an_error_that_names_a_block_is_located():
    codec = ConverseCodec("m", card_for(NAME))
    items = (to_user_item("q"), AssistantItem((Text("a"),)), UserItem((Text("b"), Text("c"))))
    error = b'{"message":"The value at messages.2.content.1.text is no"}'
    mapped = map_response_error(codec.provider, 400, {}, error)
    assert isinstance(mapped, BadRequest)
    assert codec.locate_part(ModelRequest(Transcript(items)), mapped) == (2, 1)


def test_without_a_client_it_says_how_it_is_made():
    with pytest.raises(AccessDenied, match='model\\("bedrock/'):
        ConverseCodec("m", card_for(NAME)).auth_headers()
