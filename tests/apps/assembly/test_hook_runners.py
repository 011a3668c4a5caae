"""Hooks of the types http and prompt, in the settings of the user and of a project."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import treadle
from treadle.apps.assembly.hook_runners import fill_headers
from treadle.apps.settings.extensions import discover_extensions
from treadle.core.transcript.items import ToolResultItem
from treadle.hooks.hook_config import HookConfig
from treadle.models import Say, Scripted

CALL = Say(calls=[("bash", {"command": "echo hello"})])


class HookServer:
    """A real server that keeps what it gets, and answers with `status` and `body`."""

    status, body = 200, b""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        size = int(head.partition("content-length: ")[2].partition("\r\n")[0])
        self.requests.append((head, json.loads(await reader.readexactly(size))))
        start = f"HTTP/1.1 {self.status} x\r\ncontent-length: {len(self.body)}\r\n\r\n"
        writer.write(start.encode() + self.body)
        await writer.drain()
        writer.close()


@asynccontextmanager
async def serve(status: int = 200, body: str = "") -> AsyncIterator[HookServer]:
    one = HookServer()
    one.status, one.body = status, body.encode()
    async with await asyncio.start_server(one.answer, "127.0.0.1", 0) as listener:
        one.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/check"
        yield one


def write_hooks(folder: Path, name: str = ".treadle", **hook: Any) -> None:
    file = folder / name / "settings.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]}
    file.write_text(json.dumps({"hooks": hooks}))


async def run_calls(*script: Any) -> tuple[list[str], Scripted]:
    """The results of the calls of this script."""
    model = Scripted([*script, "done"])
    options: dict[str, Any] = {"permission_mode": "bypass", "sandbox": "off"}
    async with treadle.coding_agent(".", model=model, trust=True, **options) as agent:
        result = await agent.run("go")
    return [item.text for item in result.transcript if isinstance(item, ToolResultItem)], model


async def test_an_address_gets_the_call_and_can_deny_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TEAM", "blue")
    monkeypatch.setenv("OTHER", "green")
    more: dict[str, Any] = {"headers": {"X-Team": "$TEAM ${OTHER}"}, "allowedEnvVars": ["TEAM"]}
    async with serve(body='{"decision": "block", "reason": "not on a Friday"}') as server:
        write_hooks(Path.home(), type="http", url=server.url, **more)
        results, _ = await run_calls(CALL)
    assert "not on a Friday" in results[0]
    head, sent = server.requests[0]
    assert (sent["tool_name"], sent["tool_input"]["command"]) == ("Bash", "echo hello")
    assert "x-team: blue \r\n" in head


async def test_an_address_that_says_nothing_lets_the_call_run():
    async with serve() as server:
        write_hooks(Path.home(), type="http", url=server.url)
        results, _ = await run_calls(CALL)
    assert results == ["hello"]
    assert len(server.requests) == 1


@pytest.mark.parametrize(("name", "is_denied"), [(".treadle", True), (".claude", False)])
async def test_an_address_that_fails_denies_the_call_unless_written_for_claude_code(
    name: str, is_denied: bool
):
    async with serve(status=500) as server:
        write_hooks(Path.home(), name, type="http", url=server.url)
        results, _ = await run_calls(CALL)
    assert ("status 500" in results[0]) is is_denied
    assert (results[0] == "hello") is not is_denied


async def test_a_hook_of_a_project_waits_for_approval_and_names_where_it_sends():
    write_hooks(Path.cwd(), ".claude", type="http", url="https://hooks.example/x")
    found = discover_extensions(Path.cwd())
    assert found.hooks == ()
    waiting = found.unapproved[0]
    assert waiting.command == "https://hooks.example/x"
    assert "sends what the agent does to this address" in waiting.description


def test_a_project_gets_no_secrets_in_its_headers():
    headers, names = {"Authorization": "Bearer $MY_TOKEN"}, ("MY_TOKEN",)
    hook = HookConfig("Stop", "https://x", kind="http", headers=headers, variables=names)
    assert fill_headers(hook, {"MY_TOKEN": "s3cret"}) == {"authorization": "Bearer s3cret"}
    project = HookConfig(
        "Stop", "https://x", kind="http", headers=headers, variables=names, is_project=True
    )
    assert fill_headers(project, {"MY_TOKEN": "s3cret"}) == {"authorization": "Bearer "}


async def test_a_model_judges_a_prompt_and_its_objection_denies_the_call():
    write_hooks(Path.home(), type="prompt", prompt="Is this harmless? $ARGUMENTS")
    objection = json.dumps({"ok": False, "reason": "it prints too much"})
    results, model = await run_calls(CALL, objection)
    assert "it prints too much" in results[0]
    assert [request.purpose for request in model.requests] == ["turn", "judge", "turn"]
    asked = model.requests[1].transcript[-1].text
    assert asked.startswith('Is this harmless? {"session_id"')
    assert "echo hello" in asked


async def test_a_call_runs_if_the_model_has_no_objection():
    write_hooks(Path.home(), type="prompt", prompt="Is this harmless?")
    results, model = await run_calls(CALL, json.dumps({"ok": True}))
    assert results == ["hello"]
    assert '"hook_event_name": "PreToolUse"' in model.requests[1].transcript[-1].text
