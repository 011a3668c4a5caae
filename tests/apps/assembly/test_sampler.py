"""An MCP server asks for a reply of the model: the policy, the user and the budget decide."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import treadle
from tests.tools.mcp.helpers import raw
from treadle.core.events import ChildEvent
from treadle.core.steps import Approval, Denial, PendingApproval
from treadle.core.transcript import ToolResultItem, UserItem
from treadle.models import Say, Scripted
from treadle.testing.observers import RecordingObserver

ASK = Say(calls=[("mcp__raw__sample", {"text": "about the sky"})])


async def run(
    folder: Path, model: Scripted, session: str | None = None, **options: Any
) -> dict[str, Any]:
    """What the server got for its request."""
    settings = {"server_wait": 30}
    agent = treadle.coding_agent(
        folder, model=model, mcp={"raw": raw()}, settings=settings, **options
    )
    async with agent:
        result = await agent.run("go", session=session)
    output, *_ = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    answer: dict[str, Any] = json.loads(output.text)
    return answer


async def test_the_user_sees_the_prompt_and_may_edit_it(own_place: Path):
    seen: list[PendingApproval] = []

    async def approve(pending: PendingApproval) -> Approval:
        seen.append(pending)
        if pending.call.name.endswith("sampling"):
            return Approval({**(pending.call.arguments or {}), "content": "about the sea"})
        return Approval()

    model, watcher = Scripted([ASK, "blue waves", "done"]), RecordingObserver()
    answer = await run(own_place, model, approve=approve, observers=[watcher])
    assert answer["content"]["text"] == "blue waves"
    asked = seen[-1]
    assert asked.call.name == "mcp__raw__sampling"
    assert asked.preview is not None
    assert asked.preview.text == "Rhyme.\n\nabout the sky"
    request = model.requests[1]
    assert request.purpose == "sampling"
    assert request.system == "Rhyme."
    assert request.options.max_tokens == 50
    assert [i.text for i in request.transcript if isinstance(i, UserItem)] == ["about the sea"]
    assert any(isinstance(event, ChildEvent) for event in watcher.events)


async def test_a_denial_is_an_error_for_the_server_and_no_model_is_called(own_place: Path):
    async def approve(pending: PendingApproval) -> Approval | Denial:
        return Denial("too private") if "sampling" in pending.call.name else Approval()

    model = Scripted([ASK, "done"])
    answer = await run(own_place, model, approve=approve)
    assert "too private" in answer["message"]
    assert len(model.requests) == 2


async def test_without_a_user_a_rule_decides(own_place: Path):
    model = Scripted([ASK, "done"])
    answer = await run(own_place, model, allow=["mcp__raw__sample"])
    assert "does not allow sampling" in answer["message"]
    model = Scripted([ASK, "a rhyme", "done"])
    answer = await run(own_place, model, allow=["mcp__raw__*"])
    assert answer["content"]["text"] == "a rhyme"


async def test_the_budget_of_the_session_holds(own_place: Path):
    from treadle.core.transcript.usage import Usage

    spent = Usage(input=99_999, requests=1)
    first = Say(calls=ASK.calls, usage=spent)
    model = Scripted([first, "never", "never"])
    answer = await run(own_place, model, allow=["mcp__raw__*"], max_tokens=100_000)
    assert "budget_exceeded" in answer["message"]


async def test_each_reply_for_a_server_is_stored_with_the_session(own_place: Path):
    model, store = Scripted([ASK, "one", ASK, "two", "done"]), own_place / "sessions"
    answer = await run(own_place, model, "s", allow=["mcp__raw__*"], store=store)
    assert answer["content"]["text"] == "one"
    assert len(list(store.glob("s/children/*/journal.jsonl"))) == 2
