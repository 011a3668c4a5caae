"""Hooks with `"async": true`: they run beside the agent, answer nothing, and report later."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.patience import until
from tests.workspace.helpers import alive, marker
from treadle import Agent
from treadle.core.contracts.hook import AddContext, Hook, HookInput, HookPoint
from treadle.core.transcript import NoticeItem, ToolResultItem
from treadle.hooks import background_hooks
from treadle.hooks.background_hooks import BackgroundHooks
from treadle.hooks.command_hook import CommandHookContext, make_command_hooks
from treadle.hooks.hook_config import HookConfig, parse_hooks
from treadle.models import Say, Scripted
from treadle.testing.tools import RecordingTool
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions

REPORT = {"systemMessage": "tests ran", "additionalContext": "2 tests fail", "decision": "block"}


def at(point: HookPoint, session_id: str = "s1", **data: Any) -> HookInput:
    return HookInput(point, session_id, "t1", data)


def after_edit(session_id: str = "s1") -> HookInput:
    return at("post_tool_use", session_id, tool_name="edit", tool_input={}, tool_response="ok")


@asynccontextmanager
async def hooked(folder: Path, told: list[str], *lines: str) -> AsyncIterator[list[Hook]]:
    commands = [HookConfig("PostToolUse", line, is_background=True) for line in lines]
    workspace = await LocalWorkspace.open(folder, WorkspaceOptions(sandbox="off"))
    try:
        context = CommandHookContext(workspace.execute, folder, notify=told.append)
        yield make_command_hooks(commands, context)
    finally:
        await workspace.aclose()


def test_async_is_read_for_commands_and_part_of_what_is_approved() -> None:
    def parse(**entry: object) -> HookConfig:
        [command] = parse_hooks({"hooks": {"Stop": [{"hooks": [entry]}]}}, "settings.json")
        return command

    plain, slow = parse(command="x"), parse(command="x", **{"async": True})
    assert (plain.is_background, slow.is_background) == (False, True)
    assert parse(command="x", asyncRewake=True).is_background
    assert not parse(type="prompt", prompt="x", **{"async": True}).is_background
    assert plain.definition != slow.definition


async def test_nobody_waits_and_the_next_message_brings_what_it_said(
    tmp_path: Path, no_leaks: object
) -> None:
    told: list[str] = []
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with hooked(tmp_path, told, f"read x <{gate}; echo '{json.dumps(REPORT)}'") as hooks:
        command, background = hooks
        assert await command.run(after_edit()) is None
        assert await background.run(after_edit()) is None
        await asyncio.to_thread(gate.write_text, "go\n")  # it waits for the reader
        await until(lambda: told == ["tests ran"])
        answer = await background.run(at("user_prompt_submit", prompt="next"))
        assert isinstance(answer, AddContext)
        assert answer.text.endswith("reports:\n2 tests fail")
        assert await background.run(at("user_prompt_submit", prompt="again")) is None


async def test_exit_two_is_context_and_another_failure_is_told_to_the_user(
    tmp_path: Path, no_leaks: object
) -> None:
    told: list[str] = []
    async with hooked(tmp_path, told, "echo no >&2; exit 2", "echo bad >&2; exit 3") as hooks:
        *commands, background = hooks
        for command in commands:
            assert await command.run(after_edit("child")) is None
        assert isinstance(background, BackgroundHooks)
        await until(lambda: told and not background._running)
        assert told == ["a background hook failed: `echo bad >&2; exit 3` exited with 3: bad"]
        assert await background.run(after_edit()) is None  # it was a hook of the child
        answer = await background.run(after_edit("child"))
        assert isinstance(answer, AddContext)
        assert answer.text.endswith("reports:\nno")


async def test_the_end_of_the_session_stops_what_still_runs(
    tmp_path: Path, no_leaks: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, told = marker(), list[str]()
    monkeypatch.setattr(background_hooks, "END_SECONDS", 0.01)
    async with hooked(tmp_path, told, f"sleep {mark}") as hooks:
        command, background = hooks
        assert await command.run(after_edit()) is None
        await until(lambda: alive(mark))
        await background.run(at("session_end"))
        await until(lambda: not alive(mark))


async def test_an_agent_gets_the_report_with_the_next_message(
    tmp_path: Path, no_leaks: object
) -> None:
    told: list[str] = []
    script = Scripted([Say(calls=[("record", {})]), "done", "fixed"])
    async with hooked(tmp_path, told, f"echo '{json.dumps(REPORT)}'") as hooks:
        async with Agent(script, [RecordingTool()], hooks=hooks).session() as session:
            first = await session.run("edit")
            assert not [
                one for one in first.transcript if isinstance(one, ToolResultItem) and one.is_error
            ]
            await until(lambda: told == ["tests ran"])
            result = await session.run("and now?")
    notices = [item.text for item in result.transcript if isinstance(item, NoticeItem)]
    assert sum("2 tests fail" in text for text in notices) == 1
