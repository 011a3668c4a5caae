"""With many MCP tools a request stays small, and the model finds the tool that it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

import treadle
from tests.tools.mcp.helpers import raw
from treadle.core.contracts.model import ModelCard, ModelRequest
from treadle.core.transcript import NoticeItem, ToolResultItem, UserItem
from treadle.models import Say, Scripted
from treadle.models.scripted import ScriptElement


async def run(
    folder: Path,
    servers: int,
    *script: ScriptElement,
    abilities: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    definitions = {f"tracker{number}": raw("many") for number in range(servers)}
    card = ModelCard("scripted", abilities=frozenset(abilities))
    model = Scripted([*script, "done"], card=card)
    settings = {"server_wait": 30}
    agent = treadle.coding_agent(folder, model=model, mcp=definitions, settings=settings, **options)
    async with agent:
        result = await agent.run("close the issue")
    return model.requests, result


def count_chars(request: ModelRequest) -> int:
    """The size of a request as text: about four characters are a token."""
    listed = [spec for spec in request.tools if not spec.deferred]
    tools = [(spec.name, spec.description, spec.schema) for spec in listed]
    texts = sum(len(getattr(item, "text", "")) for item in request.transcript)
    return len(msgspec.json.encode(tools)) + len(request.system) + texts


async def test_the_first_request_with_200_tools_is_as_small_as_without(own_place: Path):
    plain, _ = await run(own_place, 0)
    many, _ = await run(own_place, 10)
    ratio = count_chars(many[0]) / count_chars(plain[0])
    print(f"first request: {count_chars(plain[0]) // 4} tokens without, "
          f"{count_chars(many[0]) // 4} with 200 tools")  # fmt: skip
    assert ratio < 1.2
    notices = [item for item in many[0].transcript if isinstance(item, NoticeItem)]
    assert any("tracker7" in notice.text for notice in notices)


async def test_a_deferred_tool_is_found_and_called_in_two_rounds_under_its_own_name(
    own_place: Path,
):
    name = "mcp__tracker7__update_issue"
    search = Say(calls=[("tool_search", {"query": "tracker7 update issue"})])
    use = Say(calls=[("use_tool", {"name": name, "arguments": {"owner": "ada"}})])
    wrong = Say(calls=[("use_tool", {"name": name, "arguments": {}})])
    denied = Say(calls=[("use_tool", {"name": "mcp__tracker7__delete_issue",
                                      "arguments": {"owner": "ada"}})])  # fmt: skip
    _, result = await run(own_place, 10, search, use, wrong, denied, allow=[name])
    texts = [item.text for item in result.transcript if isinstance(item, ToolResultItem)]
    found = texts[0].splitlines()[1]
    assert found.startswith(f"- {name}: Update a issue of the tracker.")
    assert '"required":["owner"]' in found
    assert texts[1] == "update_issue of ada"
    assert "owner: missing, expected text" in texts[2]
    assert texts[3].startswith("denied: ")


async def test_where_the_provider_finds_tools_they_are_in_the_request_and_marked_as_deferred(
    own_place: Path,
):
    name = "mcp__tracker7__update_issue"
    by_name = Say(calls=[(name, {"owner": "ada"})])
    used = ("tool_search",)
    requests, result = await run(own_place, 10, by_name, abilities=used, allow=[name])
    plain, _ = await run(own_place, 0)
    deferred = [spec.name for spec in requests[0].tools if spec.deferred]
    assert len(deferred) == 10 * (20 + 1)  # and read_resource of each server
    assert count_chars(requests[0]) / count_chars(plain[0]) < 1.2
    assert "More tools; search for them" in list_notices(requests[0])[0]
    [text] = [item.text for item in result.transcript if isinstance(item, ToolResultItem)]
    assert text == "update_issue of ada"


async def test_a_few_tools_are_listed_as_they_are(own_place: Path):
    requests, _ = await run(own_place, 1)
    assert "mcp__tracker0__update_issue" in [spec.name for spec in requests[0].tools]


async def test_an_agent_with_few_tools_hears_only_of_those_that_it_has(own_place: Path):
    agents = own_place / ".treadle" / "agents"
    agents.mkdir(parents=True)
    (agents / "reader.md").write_text("---\ndescription: d\ntools: Read, Task\n---\nRead.\n")
    only = "mcp__tracker7"
    (agents / "tracker.md").write_text(f"---\ndescription: d\ntools: {only}\n---\nTrack.\n")
    excluded = "---\ndescription: d\nexcluded_tools: mcp__tracker7__update_issue\n---\nWork.\n"
    (agents / "rest.md").write_text(excluded)
    name = f"{only}__update_issue"
    use = Say(calls=[("use_tool", {"name": name, "arguments": {"owner": "ada"}})])
    replies: dict[str, list[Any]] = {
        "close": [Say(calls=[task(kind) for kind in ("reader", "tracker", "rest")]), "done"],
        "reader": [Say(calls=[("task", {"description": "d", "prompt": "grandchild"})]), "done"],
        "grandchild": ["done"],
        "tracker": [Say(calls=[("mcp__tracker7__update_issue", {"owner": "ada"})]), "done"],
        "rest": [use, "done"],
    }

    def answer(request: ModelRequest) -> Any:
        return replies[first_message(request).split()[0]].pop(0)

    definitions = {f"tracker{number}": raw("many") for number in range(10)}
    model = Scripted(answer)
    options: dict[str, Any] = {"settings": {"server_wait": 30}, "trust": True, "allow": [name]}
    async with treadle.coding_agent(own_place, model=model, mcp=definitions, **options) as agent:
        await agent.run("close the issue")
    by_agent = {first_message(one).split()[0]: one for one in model.requests}
    assert not list_notices(by_agent["reader"])
    assert not list_notices(by_agent["grandchild"])
    [notice] = list_notices(by_agent["rest"])
    assert "tracker7" in notice
    tools = [spec.name for spec in by_agent["tracker"].tools]
    assert name in tools  # few enough to be listed
    assert all(tool.startswith(only) or tool in ("use_tool", "tool_search") for tool in tools)
    assert list_results(by_agent["tracker"]) == ["update_issue of ada"]
    [result] = list_results(by_agent["rest"])
    assert result.startswith(f"error: there is no tool '{name}'")


async def test_a_deferred_tool_can_be_called_by_its_own_name(own_place: Path):
    name = "mcp__tracker7__update_issue"
    by_name = Say(calls=[(name, {"owner": "ada"})])
    denied = Say(calls=[("mcp__tracker7__delete_issue", {"owner": "ada"})])
    _, result = await run(own_place, 10, by_name, denied, allow=[name])
    texts = [item.text for item in result.transcript if isinstance(item, ToolResultItem)]
    assert texts[0] == "update_issue of ada"
    assert texts[1].startswith("denied: ")


def task(kind: str) -> tuple[str, dict[str, object]]:
    return "task", {"description": "d", "prompt": kind, "subagent_type": kind}


def first_message(request: ModelRequest) -> str:
    return next(item.text for item in request.transcript if isinstance(item, UserItem))


def list_notices(request: ModelRequest) -> list[str]:
    items = request.transcript
    return [one.text for one in items if isinstance(one, NoticeItem) and one.kind == "tools"]


def list_results(request: ModelRequest) -> list[str]:
    return [item.text for item in request.transcript if isinstance(item, ToolResultItem)]
