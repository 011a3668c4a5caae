"""Every message of a session is one of the protocol: the official schema reads it whole."""

# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from acp import schema
from pydantic import BaseModel

from tests.apps.acp.editor import call, connect
from tests.node_programs import ROOT
from treadle.apps.acp.outbox import Outbox
from treadle.apps.acp.prompt_content import read_prompt
from treadle.apps.acp.tool_calls import make_output, make_title, parse_diff
from treadle.apps.acp.transport import LineTransport, PipeWriter
from treadle.apps.acp.updates import SessionUpdates
from treadle.core.transcript import Usage
from treadle.testing.provider import FakeCall, FakeReply, ProviderServer

REQUESTS: dict[str, type[BaseModel]] = {
    "session/update": schema.SessionNotification,
    "session/request_permission": schema.RequestPermissionRequest,
    "fs/read_text_file": schema.ReadTextFileRequest,
    "fs/write_text_file": schema.WriteTextFileRequest,
}
RESPONSES: dict[str, type[BaseModel]] = {
    "initialize": schema.InitializeResponse,
    "session/new": schema.NewSessionResponse,
    "session/load": schema.LoadSessionResponse,
    "session/fork": schema.ForkSessionResponse,
    "session/list": schema.ListSessionsResponse,
    "session/prompt": schema.PromptResponse,
    "session/set_config_option": schema.SetSessionConfigOptionResponse,
}


def dump(model: type[BaseModel], raw: dict[str, Any]) -> dict[str, Any]:
    read = model.model_validate(raw)
    return read.model_dump(mode="json", by_alias=True, exclude_unset=True)


async def test_every_message_is_read_by_the_schema_and_is_the_same_again():
    Path("a.txt").write_text("one\n")
    todos = [{"content": "edit", "status": "pending"}]
    replies = [
        FakeReply("Look.", thinking="Hm.", calls=(FakeCall("read", {"file_path": "a.txt"}),)),
        call("todo", todos=todos),
        call("edit", file_path="a.txt", old_string="one", new_string="two"),
        call("bash", command="echo hello"),
        call("bash", command="exit 1"),
        FakeReply("Done."),
    ]
    async with ProviderServer(replies) as server, connect(server, files=True) as on:
        session = await on.new()
        await on.prompt(session, "Do it")
        await on.agent.set_config_option(session_id=session, config_id="mode", value="plan")
        await on.agent.fork_session(session_id=session, cwd=str(on.folder))
        await on.agent.list_sessions()
        await on.agent.load_session(cwd=str(on.folder), session_id=session, mcp_servers=[])
        messages = list(on.editor.messages)
    asked = {
        one["id"]: one["method"]
        for way, one in messages
        if way == "outgoing" and "id" in one and "method" in one
    }
    seen = set()
    for way, message in messages:
        if way != "incoming":
            continue
        method = message.get("method") or asked[message["id"]]
        model = (REQUESTS if "method" in message else RESPONSES)[method]
        raw = message["params"] if "method" in message else message["result"]
        assert dump(model, raw) == raw
        seen.add(raw["update"]["sessionUpdate"] if method == "session/update" else method)
    assert seen == {
        *REQUESTS,
        *RESPONSES,
        "agent_message_chunk",
        "agent_thought_chunk",
        "available_commands_update",
        "config_option_update",
        "current_mode_update",
        "plan",
        "tool_call",
        "tool_call_update",
        "usage_update",
        "user_message_chunk",
    } - {"session/update"}


GOLDEN = ROOT / ".tools" / "acp"  # scripts/acp-messages copies them
# By the beginning of the name, the longest first.
GOLDEN_MODELS: dict[str, type[BaseModel]] = {
    "cancel_notification": schema.CancelNotification,
    "content_audio": schema.AudioContentBlock,
    "content_image": schema.ImageContentBlock,
    "content_resource_link": schema.ResourceContentBlock,
    "content_resource": schema.EmbeddedResourceContentBlock,
    "content_text": schema.TextContentBlock,
    "fs_read_text_file_request": schema.ReadTextFileRequest,
    "fs_read_text_file_response": schema.ReadTextFileResponse,
    "fs_write_text_file_request": schema.WriteTextFileRequest,
    "initialize_request": schema.InitializeRequest,
    "initialize_response": schema.InitializeResponse,
    "new_session_request": schema.NewSessionRequest,
    "new_session_response": schema.NewSessionResponse,
    "permission_outcome_cancelled": schema.DeniedOutcome,
    "permission_outcome_selected": schema.AllowedOutcome,
    "prompt_request": schema.PromptRequest,
    "request_permission_request": schema.RequestPermissionRequest,
    "request_permission_response": schema.RequestPermissionResponse,
    "session_update_agent_message_chunk": schema.AgentMessageChunk,
    "session_update_agent_thought_chunk": schema.AgentThoughtChunk,
    "session_update_config_option_update": schema.ConfigOptionUpdate,
    "session_update_plan": schema.AgentPlanUpdate,
    "session_update_tool_call_update": schema.ToolCallProgress,
    "session_update_tool_call": schema.ToolCallStart,
    "session_update_user_message_chunk": schema.UserMessageChunk,
    "set_session_config_option_request": schema.SetSessionConfigOptionSelectRequest,
    "set_session_config_option_response": schema.SetSessionConfigOptionResponse,
    "tool_content_content": schema.ContentToolCallContent,
    "tool_content_diff": schema.FileEditToolCallContent,
    "tool_content_terminal": schema.TerminalToolCallContent,
}


def read_golden() -> dict[str, dict[str, Any]]:
    files = sorted(GOLDEN.glob("*.json"))
    if not files:
        pytest.skip("the golden messages of the SDK are missing: scripts/acp-messages gets them")
    return {file.stem: json.loads(file.read_text()) for file in files}


def test_the_golden_messages_of_the_sdk_are_the_same_again():
    for name, raw in read_golden().items():
        model = next(one for key, one in GOLDEN_MODELS.items() if name.startswith(key))
        assert dump(model, raw) == raw, name


def test_the_golden_prompts_of_the_sdk_are_messages_for_the_model(tmp_path: Path):
    golden = read_golden()
    blocks = schema.PromptRequest.model_validate(golden["prompt_request"]).prompt
    assert read_prompt(blocks, tmp_path, ())
    text = schema.EmbeddedResourceContentBlock.model_validate(golden["content_resource_text"])
    link = schema.ResourceContentBlock.model_validate(golden["content_resource_link"])
    sent = "".join(getattr(one, "text", "") for one in read_prompt([text, link], tmp_path, ()))
    assert "def hello():" in sent
    assert "/home/user/document.pdf" in sent


DIFF = """\
--- a/x.txt
+++ b/x.txt
@@ -1,3 +1,3 @@
 one
--- two
+++ 2
 three
@@ -10 +10,2 @@
-ten
+10
+11
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-all
--- /dev/null
+++ b//abs/new.txt
@@ -0,0 +1,3 @@
+a
+b
... 1 more line"""


def test_a_diff_becomes_one_block_for_each_hunk():
    blocks = [one.model_dump(exclude_none=True) for one in parse_diff(DIFF, "/w")]
    assert [(one.get("path"), one.get("old_text"), one.get("new_text")) for one in blocks] == [
        ("/w/x.txt", "one\n-- two\nthree\n", "one\n++ 2\nthree\n"),
        ("/w/x.txt", "ten\n", "10\n11\n"),
        ("/w/gone.txt", "all\n", ""),
        ("/abs/new.txt", None, "a\nb\n"),
        (None, None, None),
    ]
    assert blocks[-1]["content"]["text"] == "... 1 more line"


def test_output_is_shown_as_it_is():
    [block] = make_output("a\n```\nb\n````\n")
    assert block.content.text == "`````\na\n```\nb\n````\n`````"
    assert make_output(" \n") == []
    assert len(make_output("x" * 100_000)[0].content.text) < 21_000


def test_the_title_of_a_call_is_one_line():
    assert make_title("bash", {"command": "a\n  b"}) == "`a b`"
    assert make_title("read", {"file_path": "a.txt"}) == "read: a.txt"
    assert make_title("mcp__x__y", None) == "mcp__x__y"


async def test_updates_for_an_editor_that_does_not_read_are_joined_and_the_last_one_arrives():
    """Two commands print at once: their updates alternate, and each has the output so far."""
    may_send, sent = asyncio.Event(), list[Any]()

    async def send(update: Any) -> None:
        await may_send.wait()
        sent.append(update)

    outbox = Outbox(send)
    updates = SessionUpdates(outbox, "/", lambda: Usage(), lambda: 1)
    for number in range(400):
        updates._add_output(f"call-{number % 2}", f"{number}\n")
        updates._show_usage(Usage(input=number))
    may_send.set()
    await outbox.flush()
    assert len(sent) <= 6
    last = {one.tool_call_id: str(one.content) for one in sent if hasattr(one, "tool_call_id")}
    assert "399" in last["call-1"]
    assert "398" in last["call-0"]


async def test_a_name_that_is_not_utf8_is_json_for_every_parser():
    read_fd, write_fd = os.pipe()
    transport = LineTransport(asyncio.StreamReader(), PipeWriter(write_fd, None))
    await transport.send({"jsonrpc": "2.0", "method": "x", "params": {"name": "bad-\udcff \u00e9"}})
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as pipe:
        assert msgspec.json.decode(pipe.read())["params"]["name"] == "bad-? \u00e9"
