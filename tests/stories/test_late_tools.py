"""A tool that came late is called through `use_tool`, and is itself to everybody who has a say.

Rules, modes, the question to the person, the rule that the answer saves, hooks and the back-test of
rules: each sees the tool that is meant, by the one mechanism of the engine (`Forwarding`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from treadle import Agent
from treadle.apps.console.permission_history import backtest_rules
from treadle.core.contracts.hook import Block, Change, HookInput, HookPoint, Permit
from treadle.core.contracts.tool import Access, FileAccess
from treadle.core.steps import AfterToolResult, ApprovalRequest, Finished
from treadle.core.transcript import ToolResultItem
from treadle.models import Say, Scripted
from treadle.policy.hooks import hook
from treadle.policy.modes import PermissionMode
from treadle.policy.policy import RulePolicy, build_policy_context
from treadle.policy.ruleset.rules import RuleSet, parse_rule
from treadle.sessions import Library
from treadle.testing.tools import ChangingSource, RecordingTool
from treadle.tools.late_tools import StableToolList

GIVEN = {"path": "notes"}


def policy(*allow: str, mode: PermissionMode = "ask", **more: Any) -> RulePolicy:
    root = str(Path.cwd())
    rules = RuleSet(allow=tuple(parse_rule(text, root, root) for text in allow))
    return RulePolicy(build_policy_context(root, rules), mode=mode, **more)


def calling(tool: RecordingTool, *given: dict[str, Any], **settings: Any) -> Agent:
    """An agent that calls a tool with these arguments, which was not there at first."""
    source = ChangingSource([RecordingTool("first")])
    steady = StableToolList(source)
    steady.tools()
    source.set_tools([RecordingTool("first"), tool])
    calls = [("use_tool", {"name": tool.spec.name, "arguments": one}) for one in given or (GIVEN,)]
    model = Scripted([*(Say(calls=[call]) for call in calls), "done"])
    return Agent(model, [steady], mutators=[steady], **settings)


async def answers(agent: Agent) -> list[str]:
    result = await agent.run("go")
    return [item.text for item in result.transcript if isinstance(item, ToolResultItem)]


@pytest.mark.parametrize(
    ("name", "arguments", "runs"),
    [
        ("mcp__files__get", {}, True),
        ("mcp__files__put", {}, False),
        ("bash", {"command": "rm -rf /"}, False),
    ],
)
async def test_it_is_judged_by_the_rules_about_itself(name: str, arguments: Any, runs: bool):
    """A rule for the way to it would be a rule for everything that comes late."""
    tool = RecordingTool(name, effect="irreversible")
    rules = policy("mcp__files__get", "use_tool", interactive=False)
    [answer] = await answers(calling(tool, arguments, policy=rules))
    assert (tool.calls == [arguments]) is runs
    assert answer.startswith("denied: ") is not runs


@pytest.mark.parametrize(("name", "runs"), [("read", True), ("write", False)])
async def test_plan_mode_lets_it_look_and_nothing_else(name: str, runs: bool):
    mode: Literal["read", "write"] = "read" if name == "read" else "write"
    touched = Access(files=(FileAccess("notes", mode),))
    tool = RecordingTool(name, access=lambda arguments: touched)
    [answer] = await answers(calling(tool, {"file_path": "notes"}, policy=policy(mode="plan")))
    assert bool(tool.calls) is runs
    assert ("plan mode" in answer) is not runs


async def test_the_person_is_asked_about_it_and_always_means_it():
    kept: list[tuple[str, ...]] = []

    async def keep(rules: tuple[str, ...]) -> None:
        kept.append(rules)

    tool = RecordingTool("mcp__files__put")
    driver = calling(tool, GIVEN, GIVEN, policy=policy(save_rules=keep)).start(prompt="go")
    request = await driver.next()
    assert isinstance(request, ApprovalRequest)
    [approval] = request.pending
    assert (approval.summary, approval.rules) == ("[mcp__files__put]", ("mcp__files__put",))
    request.approve(approval.call.id, always=True)
    assert [type(await driver.next()) for _ in range(3)] == [AfterToolResult] * 2 + [Finished]
    assert tool.calls == [GIVEN, GIVEN]
    assert kept == [("mcp__files__put",)]


def heard(*points: HookPoint, matcher: str, answer: Any = None) -> tuple[Any, list[HookInput]]:
    """A hook, and the moments at which it was asked."""
    moments: list[HookInput] = []

    @hook(*points, matcher=matcher)
    def hears(moment: HookInput) -> Any:
        moments.append(moment)
        return answer

    return hears, moments


async def test_hooks_are_matched_with_it_before_and_after():
    tool = RecordingTool("mcp__files__put")
    ours, moments = heard("pre_tool_use", "post_tool_use", matcher="mcp__files__.*")
    others, never = heard("pre_tool_use", "post_tool_use", matcher="use_tool")
    await answers(calling(tool, hooks=[ours, others]))
    assert [moment.point for moment in moments] == ["pre_tool_use", "post_tool_use"]
    assert {moment.data["tool_name"] for moment in moments} == {"mcp__files__put"}
    assert all(moment.data["tool_input"] == GIVEN for moment in moments)
    assert never == []


async def test_a_hook_may_refuse_it_or_change_what_it_is_given():
    tool = RecordingTool("mcp__files__put")
    refusing, _ = heard("pre_tool_use", matcher="mcp__files__put", answer=Block("not this one"))
    assert await answers(calling(tool, hooks=[refusing])) == ["denied: not this one"]
    changing, _ = heard("pre_tool_use", matcher="mcp__files__put", answer=Change({"path": "b"}))
    await answers(calling(tool, hooks=[changing]))
    assert tool.calls == [{"path": "b"}]


async def test_a_hook_may_permit_it_in_place_of_the_person():
    tool = RecordingTool("mcp__files__put")
    permitting, moments = heard("permission_request", matcher="mcp__files__put", answer=Permit())
    assert await answers(calling(tool, policy=policy(), hooks=[permitting])) == ["ok"]
    assert [moment.data["tool_input"] for moment in moments] == [GIVEN]


async def test_a_rule_is_tested_against_what_was_asked_about_it():
    agent = calling(
        RecordingTool("mcp__files__put"), GIVEN, {}, policy=policy(), approve=lambda _: True
    )
    await agent.run("go", session=Library().create(Path.cwd()))
    for rule, covered in (("mcp__files__put", 2), ("mcp__files__get", 0), ("use_tool", 0)):
        tested = backtest_rules([rule], Path.cwd(), all_folders=False).result
        assert (tested.questions, tested.covered) == (2, covered)
