"""A second client: the official TypeScript SDK, on Node.js, with its own checks of each message."""

# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from pathlib import Path

from tests.apps.acp.editor import call
from tests.apps.program import PROGRAM, environment
from tests.node_programs import find_program
from treadle.testing.provider import FakeReply, ProviderServer

SDK = "@agentclientprotocol/sdk/dist/v1/unstable/acp.js"
CLIENT = Path(__file__).with_name("typescript_client.mjs")


async def test_the_typescript_sdk_drives_a_task_a_reload_a_plan_and_the_end_of_a_session():
    node, sdk = find_program(SDK)
    file = Path("a.txt").resolve()
    file.write_text("one\n")
    replies = [
        call("read", file_path="a.txt"),
        call("edit", file_path="a.txt", old_string="one", new_string="two"),
        FakeReply("It is two now."),
        call("bash", command="sleep 100"),
        FakeReply("It is done."),
        call("present_plan", plan="1. Do it"),
        FakeReply("It will be done."),
    ]
    async with ProviderServer(replies) as server:
        arguments = [str(CLIENT), sdk, str(Path.cwd()), *PROGRAM, "acp"]
        process = await asyncio.create_subprocess_exec(
            node, *arguments, stdout=PIPE, stderr=PIPE, env=environment(server)
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
    seen = json.loads(out)
    first, second = seen["first"], seen["second"]
    assert first["stopReasons"] == ["end_turn", "cancelled"]
    assert first["written"] == [str(file)]
    assert file.read_text() == "two\n"
    assert first["diff"]["newText"] == "two\n"
    assert first["permission"]["toolCall"]["kind"] == "edit"
    assert first["text"].startswith("It is two now.")
    assert first["options"] == ["mode", "model", "thought_level"]
    assert {"tool_call", "tool_call_update", "usage_update"} <= {*first["kinds"]}
    assert second["history"].startswith("It is two now.")
    assert second["isFork"]
    assert first["sessionId"] in second["listed"]
    assert second["stopReason"] == "end_turn"
    third = seen["third"]
    assert third["mode"] == third["modeOption"] == "accept-edits"
    assert third["undo"][0] == "end_turn"
    assert "nothing to undo" in third["undo"][1]
    assert third["sessionId"] not in third["listed"]
    assert first["sessionId"] in third["listed"]
    assert first["exitCode"] == second["exitCode"] == third["exitCode"] == 0
