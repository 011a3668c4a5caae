"""What a hook gets at each point is what the types say."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from treadle import Agent, AgentDefinition, ToolContext, tool
from treadle.contracts import (
    Ask,
    BasePolicy,
    Block,
    HookInput,
    HookPoint,
    MutationContext,
    MutationPoint,
    PermissionRequest,
    PreToolUseData,
    Transcript,
    Verdict,
)
from treadle.core.contracts.hook_data import HOOK_DATA
from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import UnknownModel
from treadle.core.transcript.content import Text
from treadle.core.transcript.items import NoticeItem
from treadle.hooks import hook
from treadle.models import Say, Scripted

POINTS: tuple[HookPoint, ...] = get_args(HookPoint)


class AskAlways(BasePolicy):
    async def decide(self, request: PermissionRequest) -> Verdict:
        return Ask("it is a test")


class Compacting:
    """A mutator that asks the pre_compact hooks, as a compactor does, and changes the view."""

    name = "compacting"
    points: frozenset[MutationPoint] = frozenset({"before_model"})

    async def mutate(self, context: MutationContext) -> Transcript | None:
        await context.run_pre_compact_hooks()
        await context.run_hooks("file_changed", {"file_path": "/a", "event": "change"})
        loaded = {"file_path": "/b", "memory_type": "User", "load_reason": "include"}
        await context.run_hooks("instructions_loaded", loaded)
        return Transcript([*context.transcript, NoticeItem("compacted", kind="compacted")])


@tool
async def work(text: str, context: ToolContext) -> ToolOutput:
    """Work."""
    return ToolOutput((Text("done: "), Text(text)))


async def collect_inputs() -> dict[HookPoint, HookInput]:
    """The input of every point in a run with a child agent, and in one that is denied and fails."""
    seen: dict[HookPoint, HookInput] = {}

    @hook(*POINTS)
    def record(hook_input: HookInput) -> None:
        seen[hook_input.point] = hook_input

    model = Scripted(
        [
            Say(calls=[("task", {"subagent_type": "helper", "prompt": "x", "description": "x"})]),
            "I helped.",
            Say(calls=[("work", {"text": "x"})]),
            "Done.",
        ]
    )
    agent = Agent(
        model,
        [work],
        hooks=[record],
        policy=AskAlways(),
        approve=lambda approval: True,
        mutators=[Compacting()],
        subagents=[AgentDefinition("helper", "Helps.", "You help.")],
    )
    assert (await agent.run("go")).text == "Done."
    failing = Scripted([Say(calls=[("work", {"text": "x"})]), UnknownModel("no such model")])
    denied = Agent(failing, [work], hooks=[record], policy=AskAlways(), approve=lambda _: False)
    with pytest.raises(UnknownModel):
        await denied.run("go")
    driver = Agent(Scripted([]), hooks=[record]).start()
    await driver.run_hooks("config_change", {"source": "user_settings", "file_path": "/c"})
    await driver.aclose()
    return seen


async def test_the_data_of_every_point_has_the_keys_of_its_type():
    seen = await collect_inputs()
    assert set(seen) == set(POINTS)
    assert {point: set(given.data) for point, given in seen.items()} == {
        point: set(data.__annotations__) for point, data in HOOK_DATA.items()
    }
    assert seen["post_tool_use"].data["tool_response"] == "done: x"


async def test_a_typed_function_is_a_hook():
    @hook("pre_tool_use", matcher="work")
    def refuse(hook_input: HookInput[PreToolUseData]) -> Block | None:
        text: str = hook_input.data["tool_input"]["text"]
        return Block("no") if text == "x" else None

    model = Scripted([Say(calls=[("work", {"text": "x"})]), "Well."])
    result = await Agent(model, [work], hooks=[refuse]).run("go")
    assert "no" in result.transcript[2].text


@pytest.mark.parametrize("point", POINTS)
def test_each_type_is_public(point: HookPoint):
    import treadle.contracts

    data: Any = HOOK_DATA[point]
    assert getattr(treadle.contracts, data.__name__) is data
