"""An agent without a policy: own tools run, built-in ones that change something need a yes."""
# ruff: noqa: ASYNC240 (files are what a test looks at)

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.workspace.helpers import opened
from treadle import Agent, Result, tool
from treadle.core.transcript.items import ToolResultItem
from treadle.models import Say, Scripted
from treadle.permissions import AllowAll
from treadle.tools.builtin import builtin_tools

WRITE = ("write", {"file_path": "made.txt", "content": "x"})
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+x\n*** End Patch"
CHANGES: list[tuple[str, dict[str, Any]]] = [
    WRITE,
    ("edit", {"file_path": "old.txt", "old_string": "old", "new_string": "new"}),
    ("apply_patch", {"patch": PATCH}),
    ("bash", {"command": "touch made.txt"}),
]


async def run(folder: Path, *calls: tuple[str, dict[str, Any]], **agent: Any) -> Result[str]:
    async with opened(folder, sandbox=False) as workspace:
        tools = builtin_tools(workspace, ["read", "write", "edit", "apply_patch", "bash", "ls"])
        model = Scripted([*(Say(calls=[call]) for call in calls), "done"])
        return await Agent(model, [tools, *agent.pop("tools", ())], **agent).run("go")


def last_answer(result: Result[Any]) -> ToolResultItem:
    return [item for item in result.transcript if isinstance(item, ToolResultItem)][-1]


@pytest.mark.parametrize("call", CHANGES, ids=lambda call: call[0])
async def test_without_a_policy_a_built_in_tool_that_changes_something_is_denied(
    call: tuple[str, dict[str, Any]], tmp_path: Path
):
    (tmp_path / "old.txt").write_text("old")
    result = await run(tmp_path, ("read", {"file_path": "old.txt"}), call)
    answer = last_answer(result)
    assert answer.outcome == "denied"
    assert "Agent(policy=...)" in answer.text
    assert "Agent(approve=...)" in answer.text
    assert "treadle.coding_agent(folder, permission_mode=...)" in answer.text
    assert [file.name for file in tmp_path.iterdir()] == ["old.txt"]
    assert (tmp_path / "old.txt").read_text() == "old"


async def test_without_a_policy_reading_is_allowed(tmp_path: Path):
    (tmp_path / "old.txt").write_text("old")
    assert "old.txt" in last_answer(await run(tmp_path, ("ls", {}))).text


async def test_without_a_policy_the_programs_own_tools_run(tmp_path: Path):
    @tool
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    assert last_answer(await run(tmp_path, ("pay", {"amount": 3}), tools=[pay])).text == "paid 3"


async def test_an_approver_decides_without_a_policy(tmp_path: Path):
    asked = []

    def approve(approval: Any) -> bool:
        asked.append(approval.call.name)
        return True

    await run(tmp_path, ("ls", {}), WRITE, approve=approve)
    assert asked == ["write"]
    assert (tmp_path / "made.txt").read_text() == "x"


async def test_a_policy_that_allows_all_lets_built_in_tools_run(tmp_path: Path):
    await run(tmp_path, WRITE, policy=AllowAll())
    assert (tmp_path / "made.txt").read_text() == "x"


async def test_a_child_agent_has_no_more_rights_than_its_parent(tmp_path: Path):
    task = ("task", {"description": "write a file", "prompt": "write it"})
    async with opened(tmp_path, sandbox=False) as workspace:
        tools = builtin_tools(workspace, ["write"])
        model = Scripted([Say(calls=[task]), Say(calls=[WRITE]), "I could not.", "done"])
        await Agent(model, [tools], subagents=[]).run("go")
    assert list(tmp_path.iterdir()) == []
