"""What an asynchronous command writes: a first line, and JSON that comes too late for an answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from treadle.core.contracts.hook import AddContext, HookInput, HookPoint
from treadle.hooks.command_hook import CommandHookContext, make_command_hooks
from treadle.hooks.hook_config import HookConfig
from treadle.hooks.protocol import parse_output
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions

BEGUN = json.dumps({"async": True, "asyncTimeout": 60_000})
LATE = {"systemMessage": "ready", "additionalContext": "use make", "decision": "block"}


def at(point: HookPoint, **data: Any) -> HookInput:
    return HookInput(point, "s1", "t1", data)


@pytest.mark.parametrize("point", ["session_start", "post_tool_use", "user_prompt_submit"])
def test_only_the_message_and_the_context_of_a_late_output_count(point: HookPoint):
    reply = parse_output(at(point), f"{BEGUN}\nInstalling…\n{json.dumps(LATE)}\n")
    assert reply.answer == AddContext("use make")
    assert (reply.user_message, reply.end_turn_reason) == ("ready", None)


@pytest.mark.parametrize("rest", ["", "\n", "\nadded 12 packages\n"])
def test_an_asynchronous_command_may_write_no_more_json(rest: str):
    reply = parse_output(at("stop"), BEGUN + rest)
    assert (reply.answer, reply.user_message) == (None, "")


def test_a_late_output_that_is_wrong_is_an_error_and_false_is_not_asynchronous():
    with pytest.raises(ValueError, match="not valid hook JSON"):
        parse_output(at("session_start"), f"{BEGUN}\n{{broken")
    with pytest.raises(ValueError, match="not valid hook JSON"):
        parse_output(at("session_start"), '{"async": false}\n{"continue": true}')


async def test_a_command_that_goes_on_in_the_background_is_no_failure(tmp_path: Path):
    told: list[str] = []
    line = f"echo '{BEGUN}'; echo installing; echo '{json.dumps(LATE)}'"
    workspace = await LocalWorkspace.open(tmp_path, WorkspaceOptions(sandbox="off"))
    context = CommandHookContext(workspace.execute, tmp_path, notify=told.append)
    [hook] = make_command_hooks([HookConfig("SessionStart", line)], context)
    try:
        assert await hook.run(at("session_start", source="startup")) == AddContext("use make")
    finally:
        await workspace.aclose()
    assert told == ["ready"]
