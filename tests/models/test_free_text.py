"""Tools that are called with free text: `custom_tool_call` of the Responses API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treadle import Agent
from treadle.core.contracts.model import (
    ModelEvent,
    ModelNotified,
    ModelOptions,
    ModelRequest,
    ModelToolCallDelta,
    ModelToolCallRequested,
)
from treadle.core.contracts.tool import ToolSpec
from treadle.core.transcript import (
    AssistantItem,
    Text,
    ToolCall,
    ToolResultItem,
    Transcript,
    to_user_item,
)
from treadle.models import OpenAIResponses, model
from treadle.models.catalog import card_for
from treadle.models.openai_responses.decoding import ITEM_LABEL, ResponsesDecoder
from treadle.models.provider_base.error_map import ProviderInfo
from treadle.permissions import AllowAll
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer
from treadle.testing.provider.dialects.request_checks import RequestViolation
from treadle.tools import builtin_tools
from treadle.workspace import LocalWorkspace

CARD = card_for("openai/gpt-5.5")
SCHEMA = {
    "type": "object",
    "properties": {"patch": {"type": "string"}},
    "required": ["patch"],
    "additionalProperties": False,
}
PATCH = ToolSpec("apply_patch", "Patch.", SCHEMA, text_argument="patch", grammar="start: /x/")
TEXT = '*** Begin Patch\n*** Add File: a.txt\n+"one"\t\\two\n*** End Patch'
RAW = msgspec.json.encode({"patch": TEXT}).decode()


def make_request(*items: Any, **options: Any) -> ModelRequest:
    history = Transcript([to_user_item("go"), *items])
    return ModelRequest(history, tools=(PATCH,), options=ModelOptions(**options))


def encode(request: ModelRequest, name: str = "gpt-5.5", **given: Any) -> dict[str, Any]:
    codec = OpenAIResponses(name, api_key="k", **given).codec
    body: dict[str, Any] = json.loads(b"".join(codec.encode_request(request).body))
    return body


def item_event(kind: str, **item: object) -> tuple[bytes, bytes]:
    name = f"response.output_item.{kind}"
    body = {"type": name, "output_index": 0, "item": {"type": "custom_tool_call", **item}}
    return name.encode(), msgspec.json.encode(body)


def delta_event(text: str) -> tuple[bytes, bytes]:
    name = "response.custom_tool_call_input.delta"
    body = {"type": name, "output_index": 0, "item_id": "ctc_1", "delta": text}
    return name.encode(), msgspec.json.encode(body)


END = b"response.completed", b'{"type":"response.completed","response":{"id":"r"}}'
CALL = {"id": "ctc_1", "call_id": "c", "name": "apply_patch"}


def decode(*events: tuple[bytes, bytes]) -> tuple[list[ModelEvent], AssistantItem]:
    decoder = ResponsesDecoder(make_request(), CARD, ProviderInfo("openai"), "openai")
    return decoder.feed([*events, END]), decoder.finish()


@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_the_pieces_of_the_text_add_up_to_the_arguments(size: int):
    pieces = [TEXT[at : at + size] for at in range(0, len(TEXT), size)] if size else []
    events, reply = decode(
        item_event("added", **CALL, input=""),
        *map(delta_event, pieces),
        item_event("done", **CALL, input=TEXT, status="completed"),
    )
    deltas = [event.text for event in events if isinstance(event, ModelToolCallDelta)]
    assert "".join(deltas) == RAW
    assert [event.call.raw for event in events if isinstance(event, ModelToolCallRequested)] == [
        RAW
    ]
    assert [(call.name, call.arguments) for call in reply.calls] == [
        ("apply_patch", {"patch": TEXT})
    ]


def test_a_text_that_was_cut_is_no_call():
    started = item_event("added", **CALL, input=""), delta_event("*** Begin Patch\n*** Del")
    _, reply = decode(*started, item_event("done", **CALL, input="", status="incomplete"))
    assert reply.calls == ()


def test_the_tool_its_calls_and_their_results_are_sent_as_they_came():
    _, reply = decode(item_event("done", **CALL, input=TEXT, status="completed"))
    result = ToolResultItem(reply.calls[0].id, "apply_patch", (Text("Done."),))
    body = encode(make_request(reply, result, tool_choice="apply_patch"))
    [tool] = body["tools"]
    assert (tool["type"], tool["format"]["syntax"]) == ("custom", "lark")
    assert body["tool_choice"] == {"type": "custom", "name": "apply_patch"}
    call, output = body["input"][1:]
    assert call == {"type": "custom_tool_call", **CALL, "input": TEXT, "status": "completed"}
    assert output == {"type": "custom_tool_call_output", "call_id": "c", "output": "Done."}


@pytest.mark.parametrize(
    "other",
    [{"name": "gpt-5.6"}, {"name": "gpt-4.1"}, {"base_url": "http://127.0.0.1:1/v1"}],
    ids=["newer", "older", "another address"],
)
def test_another_model_or_address_gets_functions_also_for_earlier_calls(other: dict[str, str]):
    _, reply = decode(item_event("done", **CALL, input=TEXT, status="completed"))
    result = ToolResultItem("c", "apply_patch", (Text("Done."),))
    body = encode(make_request(reply, result), **other)
    assert [tool["type"] for tool in body["tools"]] == ["function"]
    call, output = body["input"][1:]
    assert (call["type"], call["arguments"]) == ("function_call", RAW)
    assert "id" not in call, "the id of an item of another type is refused"
    assert output["type"] == "function_call_output"


def test_a_call_with_more_than_its_text_is_sent_as_json():
    odd = AssistantItem((ToolCall("c", "apply_patch", '{"patch":"x","more":1}'),), "tool_use")
    assert ITEM_LABEL not in [getattr(part, "label", "") for part in odd.content]
    result = ToolResultItem("c", "apply_patch", (Text("No."),), is_error=True)
    call, output = encode(make_request(odd, result))["input"][1:]
    assert (call["type"], output["type"]) == ("function_call", "function_call_output")


def test_the_own_server_of_a_user_is_not_asked_for_it():
    own = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}
    assert "free_text" in model("openai/gpt-5.5", environ={"OPENAI_API_KEY": "k"}).card.abilities
    assert "free_text" not in model("openai/gpt-5.5", environ=own).card.abilities


async def test_a_patch_without_json_changes_the_files(tmp_path: Path):
    (tmp_path / "a.py").write_text("x = 1\n")
    patches = [
        "*** Begin Patch\n*** Update File: a.py\n@@\n-x = 1\n+x = 2\n*** End Patch",
        "*** Begin Patch\n*** Update File: a.py\n@@\n-nothing\n+x = 3\n*** End Patch",
    ]
    calls = [
        FakeReply(calls=(FakeCall("apply_patch", text, is_free_text=True),)) for text in patches
    ]
    workspace = await LocalWorkspace.open(tmp_path)
    try:
        async with ProviderServer([*calls, FakeReply("Done.")]) as server:
            gpt = OpenAIResponses("gpt-5.5", api_key="k", base_url=server.url + "/v1", card=CARD)
            tools = builtin_tools(workspace, ["apply_patch"])
            result = await Agent(gpt, [tools], policy=AllowAll()).run("go")
    finally:
        await workspace.aclose()
    assert (tmp_path / "a.py").read_text() == "x = 2\n"
    good, bad = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert (result.text, good.is_error, bad.is_error) == ("Done.", False, True)
    kinds = [item["type"] for item in json.loads(server.requests[-1].body)["input"]]
    assert kinds == ["message", *["custom_tool_call", "custom_tool_call_output"] * 2]


class NoGrammars(ProviderServer):
    """Refuses every tool with a grammar, as a server that cannot compile it."""

    def _check_request(self, request: Any, *others: Any) -> list[RequestViolation]:
        tools = json.loads(request.body).get("tools", [])
        custom = [tool for tool in tools if tool["type"] == "custom"]
        return [RequestViolation("tools.0.format", "Invalid grammar.")] if custom else []


async def test_a_grammar_that_is_refused_is_left_out_and_not_the_tool():
    replies = [FakeReply(calls=(FakeCall("apply_patch", {"patch": "x"}),)), *map(FakeReply, "ab")]
    async with NoGrammars(replies) as server:
        gpt = OpenAIResponses("gpt-5.5", api_key="k", base_url=server.url + "/v1", card=CARD)
        told: list[str] = []
        for _ in range(2):
            async for event in gpt.stream(make_request()):
                told += [event.text] if isinstance(event, ModelNotified) else []
        kinds = [json.loads(one.body).get("tools", [{}])[0]["type"] for one in server.requests]
    assert kinds[-1] == "function", "also the next request is sent like that at once"
    assert kinds.count("function") == 2
    assert ["called with JSON" in text for text in told] == [True]
