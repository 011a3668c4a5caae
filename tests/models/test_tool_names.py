"""Names of tools that no provider accepts: from the model, and of tools themselves."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.models.wires import WIRES, connect
from treadle import Agent, tool
from treadle.core.contracts.model import ModelOptions, ModelRequest, Reply
from treadle.core.transcript import (
    AssistantItem,
    Item,
    Text,
    ToolCall,
    ToolResultItem,
    Transcript,
    to_user_item,
)
from treadle.models.provider_base.request_limits import make_provider_tool_name
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer, RequestViolation
from treadle.tools.federation import RenamedTool

LEGAL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")


def list_names(value: Any) -> list[str]:
    """Every name of a tool or a call in a request."""
    if isinstance(value, list):
        return [name for part in value for name in list_names(part)]
    if not isinstance(value, dict):
        return []
    own = [value["name"]] if isinstance(value.get("name"), str) else []
    return own + [name for part in value.values() for name in list_names(part)]


class StrictServer(ProviderServer):
    """Refuses names as the real services do."""

    def _check_request(self, request: Any, *others: Any) -> list[RequestViolation]:
        names = list_names(json.loads(request.body))
        wrong = [name for name in names if not LEGAL.fullmatch(name)]
        return [RequestViolation("", f"{wrong[0]!r} is no legal name")] if wrong else []


INVENTED = ["multi_tool_use.parallel", "two words", "x" * 65, "9lives", "naïve", "functions.bash:0"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", INVENTED)
async def test_a_session_goes_on_after_the_model_invented_a_tool_name(wire: str, name: str):
    script = [FakeReply(calls=(FakeCall(name, {}),)), FakeReply("I go on.")]
    async with StrictServer(script) as server:
        result = await Agent(connect(wire, server.url)).run("go")
    assert result.text == "I go on."
    assert len(server.requests) == 2, "no request was refused"
    (call,) = [c for item in result.transcript for c in getattr(item, "calls", ())]
    assert call.name == name, "the log keeps the name as the model wrote it"


@pytest.mark.parametrize("wire", WIRES)
async def test_a_call_without_a_name_does_not_end_the_session(wire: str):
    async with StrictServer([FakeReply("fine")]) as server:
        model = connect(wire, server.url)
        items: list[Item] = [
            to_user_item("go"),
            AssistantItem((ToolCall("c", "", "{}"),)),
            ToolResultItem("c", "", (Text("no such tool"),), is_error=True),
        ]
        events = [event async for event in model.stream(ModelRequest(Transcript(items)))]
    assert isinstance(events[-1], Reply)
    assert len(server.requests) == 1


@pytest.mark.parametrize("wire", WIRES)
async def test_a_tool_with_a_name_that_providers_refuse_is_offered_and_called(wire: str):
    name = "files.read all/v2"

    @tool
    def read_all(path: str) -> str:
        """Read."""
        return f"content of {path}"

    renamed = RenamedTool(read_all, name)  # as a source of tools may name it
    offered = make_provider_tool_name(name)
    script = [FakeReply(calls=(FakeCall(offered, {"path": "a"}),)), FakeReply("done")]
    async with StrictServer(script) as server:
        agent = Agent(connect(wire, server.url), [renamed], options=ModelOptions(tool_choice=name))
        result = await agent.run("go")
    sent = json.loads(server.requests[0].body)
    assert offered in list_names(sent.get("tools") or sent["toolConfig"]["tools"])
    (answer,) = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert (answer.name, answer.is_error) == (name, False)


def test_two_names_that_are_alike_after_cleaning_stay_two_names():
    names = {make_provider_tool_name(name) for name in ("a.b", "a b", "a_b", "a/b", "", " ")}
    assert len(names) == 6
    assert all(LEGAL.fullmatch(name) for name in names)
