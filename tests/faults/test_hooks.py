"""Fault 75: a hook command that fails in every way it can. The call is denied, or somebody told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.workspace.helpers import gone, marker, opened
from treadle import Agent
from treadle.core.events import WarningRaised
from treadle.core.transcript import ToolResultItem
from treadle.hooks.command_hook import CommandHookContext, make_command_hooks
from treadle.hooks.hook_config import HookConfig
from treadle.models import Say, Scripted
from treadle.testing.observers import RecordingObserver
from treadle.testing.tools import RecordingTool

FAILURES = {
    "exits 1": ("echo oops >&2; exit 1", "exited with 1: oops"),
    "is killed": ("kill -SEGV $$", "was killed by SIGSEGV"),
    "hangs": ("sleep {mark}", "did not finish within 0.3 s"),
    "hangs and ignores TERM": ("trap '' TERM; sleep {mark} & wait; wait", "did not finish within"),
    "prints half of its JSON": ('printf \'{{"decision": "app\'', "not valid hook JSON"),
    "prints another JSON": ("echo '{{\"decision\": 7}}'", "not valid hook JSON"),
    "prints binary": ("head -c 5000 /dev/urandom | tr -d '{{'; exit 3", "exited with 3"),
    "writes 100 MB": ("head -c 100000000 /dev/zero", "wrote more than 1 MiB"),
    "is not there": ("/nowhere/at/all", "exited with 127"),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse"])
async def test_fault_75_a_failing_hook_denies_before_and_warns_after(
    failure: str, event: str, own_place: Path, no_leaks: object
):
    command, words = FAILURES[failure]
    mark = marker()
    record, witness = RecordingTool(answer="fine"), RecordingObserver()
    hook = HookConfig(
        event, command.format(mark=mark), timeout=0.3 if "hangs" in failure else PATIENCE
    )
    async with opened(own_place, grace=0.1) as workspace:
        hooks = make_command_hooks([hook], CommandHookContext(workspace.execute, own_place))
        model = Scripted([Say(calls=[("record", {})]), "done"])
        result = await Agent(model, [record], hooks=hooks, observers=[witness]).run("x")
        await gone(mark)
    answer = next(item for item in result.transcript if isinstance(item, ToolResultItem))
    if event == "PreToolUse":
        assert not record.calls
        assert words in answer.text
        assert answer.text.startswith("denied: ")
    else:
        assert answer.text == "fine"
    warned = [event.text for event in witness.events if isinstance(event, WarningRaised)]
    assert any(words in text for text in warned)
    assert result.text == "done"


async def test_fault_75_other_hooks_are_still_asked(own_place: Path):
    async with opened(own_place) as workspace:
        commands = [
            HookConfig("UserPromptSubmit", "exit 1"),
            HookConfig("UserPromptSubmit", "echo still here"),
        ]
        hooks = make_command_hooks(commands, CommandHookContext(workspace.execute, own_place))
        result = await Agent(Scripted(["ok"]), hooks=hooks).run("x")
    assert "still here" in [getattr(item, "text", "") for item in result.transcript]
