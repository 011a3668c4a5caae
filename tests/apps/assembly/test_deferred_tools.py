"""With many MCP tools a request stays small, and the model finds the tool that it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

import treadle
from tests.tools.mcp.helpers import raw
from treadle.core.contracts.model import ModelRequest
from treadle.core.transcript import NoticeItem, ToolResultItem
from treadle.models import Say, Scripted
from treadle.models.scripted import ScriptElement


async def run(folder: Path, servers: int, *script: ScriptElement, **options: Any) -> Any:
    definitions = {f"tracker{number}": raw("many") for number in range(servers)}
    model = Scripted([*script, "done"])
    settings = {"server_wait": 30}
    agent = treadle.coding_agent(folder, model=model, mcp=definitions, settings=settings, **options)
    async with agent:
        result = await agent.run("close the issue")
    return model.requests, result


def count_chars(request: ModelRequest) -> int:
    """The size of a request as text: about four characters are a token."""
    tools = [(spec.name, spec.description, spec.schema) for spec in request.tools]
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
    assert "`owner` is missing" in texts[2]
    assert texts[3].startswith("denied: ")


async def test_a_few_tools_are_listed_as_they_are(own_place: Path):
    requests, _ = await run(own_place, 1)
    assert "mcp__tracker0__update_issue" in [spec.name for spec in requests[0].tools]
