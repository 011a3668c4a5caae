"""An editor that sends garbage, cancels twice, asks for what is not there, or disappears."""

# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import json
import signal
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import pytest
from acp import RequestError
from acp.schema import AudioContentBlock, HttpMcpServer, ImageContentBlock

from tests.apps.acp.editor import Editor, call, connect, say
from tests.apps.program import finish, run, start
from treadle.testing.provider import FakeReply, ProviderServer

DONE = FakeReply("It is done.")


PING = b'{"jsonrpc":"2.0","id":"ping","method":"no/such/method"}'


async def read_answer(process: Process) -> Any:
    assert process.stdout is not None
    return json.loads(await process.stdout.readline())


async def ask(process: Process, *lines: bytes) -> Any:
    """Send lines; the first answer."""
    assert process.stdin is not None
    process.stdin.write(b"".join(line + b"\n" for line in lines))
    return await read_answer(process)


def request(method: str, **params: object) -> bytes:
    return json.dumps({"id": 1, "method": method, "params": params}).encode()


GARBAGE = [
    (b"hello", -32700),
    (b"{", -32700),
    (b"\xff\xfe\x00", -32700),
    (b"[" * 100_000, -32700),
    (b"42", -32600),
    (b"null", -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"initialize"}]', -32600),
    (b"{}", -32600),
    (b'{"id":[1],"result":{}}', -32600),
    (b'{"id":1,"method":{}}', -32600),
    (b'{"id":1,"method":"initialize"}', -32602),
    (b'{"id":1,"method":"initialize","params":[]}', -32602),
    (request("session/new", cwd=7), -32602),
    (request("session/new", cwd="relative", mcpServers=[]), -32602),
    (request("session/new", cwd="/no/such", mcpServers=[]), -32602),
    (request("session/load", cwd="/", sessionId="../x", mcpServers=[]), -32002),
    (request("session/load", cwd="/", sessionId="none", mcpServers=[]), -32002),
    (request("session/fork", cwd="/", sessionId="none"), -32002),
    (request("session/prompt", sessionId="x", prompt=[]), -32002),
    (request("session/set_mode", sessionId="x", modeId="y"), -32002),
    (request("session/close", sessionId="x"), -32002),
    (request("session/list", cursor="x"), -32602),
    (request("_editor/own"), -32601),
    (request("authenticate", methodId="x"), -32602),
]


async def test_garbage_is_answered_with_an_error_and_the_connection_continues():
    process = await start(None, "acp", stdin=asyncio.subprocess.PIPE)
    for line, code in GARBAGE:
        answer = await ask(process, line)
        assert answer["error"]["code"] == code, line[:80]
        assert answer["error"]["message"]
    done = await finish(process, b"")
    assert done.code == 0
    assert "Traceback" not in done.err


async def test_answers_to_nothing_and_notifications_of_nothing_are_ignored():
    process = await start(None, "acp", stdin=asyncio.subprocess.PIPE)
    answer = await ask(
        process,
        b"",
        b'{"jsonrpc":"2.0","id":99,"result":{}}',
        b'{"jsonrpc":"2.0","id":99,"error":"text"}',
        b'{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"x"}}',
        b'{"jsonrpc":"2.0","method":"session/cancel"}',
        b'{"jsonrpc":"2.0","method":"_editor/own"}',
        PING,
    )
    assert answer["id"] == "ping"
    assert (await finish(process, b"")).code == 0


async def test_a_line_that_is_too_long_is_refused_and_the_next_one_is_read():
    process = await start(None, "acp", stdin=asyncio.subprocess.PIPE)
    answer = await ask(process, b'{"x":"' + b"y" * (65 << 20) + b'"}', PING)
    assert "longer than" in answer["error"]["message"]
    assert (await read_answer(process))["id"] == "ping"
    await finish(process, b"")


async def test_two_cancels_end_one_turn_and_none_after_it():
    replies = [call("bash", command="sleep 100"), DONE, DONE]
    async with ProviderServer(replies) as server, connect(server) as on:
        session = await on.new()
        await on.agent.cancel(session_id=session)  # nothing runs
        running = asyncio.create_task(on.prompt(session, "Wait"))
        await on.editor.until(lambda: on.editor.find_status("sleep") == "in_progress")
        await on.agent.cancel(session_id=session)
        await on.agent.cancel(session_id=session)
        assert (await running).stop_reason == "cancelled"
        await on.agent.cancel(session_id=session)
        assert (await on.prompt(session, "Go on")).stop_reason == "end_turn"


async def test_a_prompt_during_a_prompt_is_refused_and_changes_nothing():
    editor = Editor()
    editor.hangs = True
    replies = [call("write", file_path="a.txt", content="x"), DONE]
    async with ProviderServer(replies) as server, connect(server, editor=editor) as on:
        session = await on.new()
        running = asyncio.create_task(on.prompt(session, "Write"))
        await editor.until(lambda: editor.permissions)
        with pytest.raises(RequestError, match="runs a prompt") as caught:
            await on.prompt(session, "Another one")
        assert caught.value.code == -32600
        with pytest.raises(RequestError, match="runs a prompt"):
            await on.agent.set_config_option(session_id=session, config_id="model", value="x")
        with pytest.raises(RequestError, match="runs a prompt"):
            await on.agent.load_session(cwd=str(on.folder), session_id=session, mcp_servers=[])
        editor.never.set()
        assert (await running).stop_reason == "end_turn"
        assert Path("a.txt").exists()
        assert "Another one" not in server.requests[-1].body.decode()


async def test_a_cancel_during_a_permission_request_denies_the_call():
    editor = Editor()
    editor.hangs = True
    replies = [call("write", file_path="a.txt", content="x"), DONE]
    async with ProviderServer(replies) as server, connect(server, editor=editor) as on:
        session = await on.new()
        running = asyncio.create_task(on.prompt(session, "Write"))
        await editor.until(lambda: editor.permissions)
        await on.agent.cancel(session_id=session)
        assert (await running).stop_reason == "cancelled"
        editor.never.set()  # the answer comes too late
        assert (await on.prompt(session, "And now?")).stop_reason == "end_turn"
        assert not Path("a.txt").exists()


async def test_an_editor_that_answers_cancelled_stops_the_turn():
    replies = [call("write", file_path="a.txt", content="x"), DONE]
    editor = Editor(lambda question, options: None)
    async with ProviderServer(replies) as server, connect(server, editor=editor) as on:
        assert (await on.prompt(await on.new(), "Write")).stop_reason == "cancelled"
        assert not Path("a.txt").exists()


@pytest.mark.parametrize("answer", ["", "no such option"])
async def test_an_unknown_answer_to_a_permission_request_is_a_no(answer: str):
    replies = [call("write", file_path="a.txt", content="x"), DONE]
    editor = Editor(lambda question, options: answer)
    async with ProviderServer(replies) as server, connect(server, editor=editor) as on:
        assert (await on.prompt(await on.new(), "Write")).stop_reason == "end_turn"
        assert not Path("a.txt").exists()


class Garbler(Editor):
    """Answers permission requests and forms with any JSON."""

    def __init__(self, garbage: Any) -> None:
        super().__init__()
        self.garbage = garbage

    async def request_permission(self, *_: Any, **__: Any) -> Any:
        return self.garbage

    create_elicitation = request_permission


@pytest.mark.parametrize(
    "garbage",
    [
        {},
        None,
        7,
        [],
        {"outcome": None},
        {"outcome": {"outcome": "selected"}},
        {"outcome": {"outcome": "selected", "optionId": ["approve"]}},
        {"outcome": {"outcome": "approve", "optionId": "approve"}},
    ],
)
async def test_a_malformed_answer_is_a_no_and_the_session_continues(garbage: Any):
    question = call("ask", question="Which?", options=[{"label": "a"}, {"label": "b"}])
    replies = [call("write", file_path="a.txt", content="x"), DONE, question, DONE]
    forms: dict[str, Any] = {"elicitation": {"form": {}}}
    async with (
        ProviderServer(replies) as server,
        connect(server, editor=Garbler(garbage), more=forms) as on,
    ):
        session = await on.new()
        assert (await on.prompt(session, "Write")).stop_reason == "end_turn"
        assert not Path("a.txt").exists()
        assert (await on.prompt(session, "And now?")).stop_reason == "end_turn"


@pytest.mark.parametrize("how", ["closes the pipe", "is killed with us"])
async def test_an_editor_that_disappears_in_a_permission_request_leaves_a_session_to_load(how: str):
    editor = Editor()
    editor.hangs = True
    replies = [call("write", file_path="a.txt", content="x"), DONE]
    async with ProviderServer(replies) as server:
        async with connect(server, editor=editor) as on:
            session = await on.new()
            running = asyncio.create_task(on.prompt(session, "Write"))
            await editor.until(lambda: editor.permissions)
            if how == "closes the pipe":
                assert await on.end() == 0
            else:
                on.process.send_signal(signal.SIGTERM)
                assert await on.process.wait() == 143
            with pytest.raises(ConnectionError):
                await running
        assert not Path("a.txt").exists()
        async with connect(server) as on:
            await on.agent.load_session(cwd=str(on.folder), session_id=session, mcp_servers=[])
            assert on.editor.find_status("a.txt") == "failed"
            assert (await on.prompt(session, "And now?")).stop_reason == "end_turn"
            assert on.editor.permissions == []
        assert not Path("a.txt").exists()


async def test_a_killed_agent_asks_again_about_the_call_that_waited():
    editor = Editor()
    editor.hangs = True
    replies = [call("write", file_path="a.txt", content="x"), DONE, DONE]
    async with ProviderServer(replies) as server:
        async with connect(server, editor=editor) as on:
            session = await on.new()
            running = asyncio.create_task(on.prompt(session, "Write"))
            await editor.until(lambda: editor.permissions)
            on.process.kill()
            await on.process.wait()
            with pytest.raises(ConnectionError):
                await running
        async with connect(server) as on:
            await on.agent.load_session(cwd=str(on.folder), session_id=session, mcp_servers=[])
            assert (await on.prompt(session, "Go on")).stop_reason == "end_turn"
            assert "not finished" in on.editor.text
            assert len(on.editor.permissions) == 1
            assert Path("a.txt").read_text() == "x"


async def test_a_session_that_is_open_elsewhere_is_not_loaded():
    async with ProviderServer([DONE]) as server, connect(server) as on, connect(server) as other:
        session = await on.new()
        await on.prompt(session, "Hello")
        with pytest.raises(RequestError, match="is open in pid"):
            await other.agent.load_session(cwd=str(on.folder), session_id=session, mcp_servers=[])


async def test_a_closed_session_takes_no_prompt_and_a_part_of_its_id_is_no_session():
    async with ProviderServer([DONE]) as server, connect(server) as on:
        session = await on.new()
        await on.prompt(session, "Hello")
        with pytest.raises(RequestError, match="whole id"):
            await on.agent.load_session(cwd=str(on.folder), session_id=session[:-2], mcp_servers=[])
        await on.agent.close_session(session_id=session)
        with pytest.raises(RequestError, match="no session"):
            await on.prompt(session, "Hello")


async def test_prompts_that_cannot_be_read_are_refused():
    async with ProviderServer([DONE]) as server, connect(server) as on:
        session = await on.new()
        blocks: list[list[Any]] = [
            [],
            say("  "),
            [ImageContentBlock(type="image", data="%%", mime_type="image/png")],
            [ImageContentBlock(type="image", data="aGVsbG8=", mime_type="image/png")],
            [AudioContentBlock(type="audio", data="aGVsbG8=", mime_type="audio/wav")],
        ]
        for prompt in blocks:
            with pytest.raises(RequestError):
                await on.agent.prompt(session_id=session, prompt=prompt)
        assert server.requests == []
        assert (await on.prompt(session, "Hello")).stop_reason == "end_turn"


async def test_settings_that_do_not_exist_are_refused():
    async with ProviderServer([DONE]) as server, connect(server) as on:
        session = await on.new()
        for option, value in [("x", "y"), ("model", "no-such"), ("mode", "x"), ("thinking", "x")]:
            with pytest.raises(RequestError):
                await on.agent.set_config_option(session_id=session, config_id=option, value=value)
        with pytest.raises(RequestError, match="bypass"):
            await on.agent.set_session_mode(session_id=session, mode_id="bypass")
        assert (await on.prompt(session, "Hello")).stop_reason == "end_turn"


async def test_a_wrong_server_of_the_editor_is_reported_and_the_session_works():
    wrong = HttpMcpServer(type="http", name="far", url="no url", headers=[])
    async with ProviderServer([DONE]) as server, connect(server) as on:
        session = await on.agent.new_session(cwd=str(on.folder), mcp_servers=[wrong])
        assert (await on.prompt(session.session_id, "Hello")).stop_reason == "end_turn"
        assert "far" in on.editor.text


async def test_without_a_key_the_first_prompt_says_what_to_do():
    async with connect(None, "--model", "anthropic/claude-sonnet-4-5") as on:
        session = await on.new()
        with pytest.raises(RequestError, match="ANTHROPIC_API_KEY"):
            await on.prompt(session, "Hello")


async def test_the_command_line_is_checked():
    for arguments, text in [
        (["--file", "x"], "--file"),
        (["hello"], "no prompt"),
        (["--nope"], "--nope"),
    ]:
        done = await run(None, "acp", *arguments)
        assert done.code == 2
        assert text in done.err
    done = await run(None, "acp", "--help")
    assert "docs/editors.md" in done.out
