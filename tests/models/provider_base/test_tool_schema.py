from __future__ import annotations

import json

import pytest

from tests.models.wires import WIRES, connect
from treadle.core.contracts.model import ModelRequest, Reply
from treadle.core.contracts.tool import ToolSpec
from treadle.core.transcript import Transcript, to_user_item
from treadle.models.provider_base.tool_schema import adapt_tool_schema
from treadle.testing.provider import FakeReply, ProviderServer

BY_ID = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
BY_NAME = {"properties": {"name": {"type": "string"}, "id": {"type": "string"}}}
REFUSED = {"anyOf", "oneOf", "allOf", "not", "enum", "const", "$ref"}


def test_a_plain_object_stays_as_it_is():
    assert adapt_tool_schema(BY_ID) is BY_ID


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_alternatives_become_one_object_that_allows_each(keyword: str):
    common = {"properties": {"limit": {"type": "integer"}}, "required": ["limit"]}
    adapted = adapt_tool_schema({"type": "object", **common, keyword: [BY_ID, BY_NAME]})
    assert not REFUSED & adapted.keys()
    assert adapted["required"] == ["limit"]
    assert set(adapted["properties"]) == {"limit", "id", "name"}
    assert adapted["properties"]["id"] == {"anyOf": [{"type": "integer"}, {"type": "string"}]}


def test_what_every_alternative_requires_stays_required():
    other = {"properties": {"id": {"type": "integer"}}, "required": ["id", "more"]}
    assert adapt_tool_schema({"anyOf": [BY_ID, other]})["required"] == ["id"]


def test_all_of_and_local_references_are_merged():
    schema = {
        "$defs": {"ById": BY_ID},
        "allOf": [{"$ref": "#/$defs/ById"}, {"properties": {"x": {}}, "required": ["x"]}],
    }
    adapted = adapt_tool_schema(schema)
    assert (adapted["type"], adapted["required"]) == ("object", ["id", "x"])
    assert adapt_tool_schema({"$ref": "#/$defs/A", "$defs": {"A": BY_ID}})["required"] == ["id"]


@pytest.mark.parametrize(
    "schema", [{}, {"anyOf": True}, {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}]
)
def test_a_strange_schema_becomes_an_object_schema(schema: dict[str, object]):
    assert adapt_tool_schema(schema)["type"] == "object"


@pytest.mark.parametrize("wire", WIRES)
async def test_a_tool_with_alternatives_at_the_top_is_offered_on_every_wire(wire: str):
    tool = ToolSpec("find", "Finds it.", {"anyOf": [BY_ID, BY_NAME]})
    async with ProviderServer([FakeReply("fine")]) as server:
        request = ModelRequest(Transcript([to_user_item("go")]), tools=(tool,))
        events = [event async for event in connect(wire, server.url).stream(request)]
    assert isinstance(events[-1], Reply)
    body = json.loads(server.requests[0].body)
    (sent,) = body.get("tools") or body["toolConfig"]["tools"]
    (body,) = sent.get("functionDeclarations", [sent.get("toolSpec", sent.get("function", sent))])
    names = ("parameters", "input_schema", "parametersJsonSchema", "inputSchema")
    (schema,) = [body[name] for name in names if name in body]
    assert not REFUSED & schema.get("json", schema).keys()
