# ruff: noqa: ASYNC240 (files are how a test and the program meet)
"""`treadle mcp`, as the real program: definitions, tests, logins, and being a server."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from tests.apps.program import PROGRAM, environment, finish, run, start
from tests.patience import PATIENCE
from tests.tools.mcp.helpers import RAW
from tests.tools.mcp.oauth_server import OAuthServer
from treadle.apps.cli.commands import mcp
from treadle.apps.cli.commands.mcp import _parse_definition
from treadle.testing.provider import FakeReply, ProviderServer

SERVER = (sys.executable, "-I", "-S", RAW)


async def test_a_server_is_added_listed_tested_and_removed():
    settings = Path.home() / ".treadle" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"permissions": {"allow": ["Bash(ls)"]}}')
    added = await run(None, "mcp", "add", "raw", "--env", "A=${HOME}", *SERVER)
    assert added.out.startswith("raw is added to ~/.treadle/settings.json")
    again = await run(None, "mcp", "add", "raw", *SERVER)
    assert again.code == 2
    assert "has a server 'raw' already" in again.err
    kept = json.loads(settings.read_text())
    assert kept["permissions"] == {"allow": ["Bash(ls)"]}
    assert kept["mcpServers"]["raw"]["env"] == {"A": "${HOME}"}
    listed = await run(None, "mcp", "list")
    assert "raw  " in listed.out
    assert "(yours)" in listed.out
    tested = await run(None, "mcp", "test", "raw", "--log")
    assert tested.code == 0, tested.err
    assert "raw: up, " in tested.out
    assert "mcp__raw__echo  Says it again." in tested.out
    assert "/raw:poem topic  Writes a poem." in tested.out
    assert "2 resources, as @raw:URI" in tested.out
    removed = await run(None, "mcp", "remove", "raw")
    assert removed.code == 0
    assert json.loads(settings.read_text())["mcpServers"] == {}
    empty = await run(None, "mcp", "list")
    assert empty.out == "no MCP servers; add one with `treadle mcp add NAME COMMAND`\n"


async def test_a_server_that_does_not_start_is_named_with_the_reason():
    await run(None, "mcp", "add", "bad", *SERVER, "crash")
    tested = await run(None, "mcp", "test")
    assert tested.code == 1
    assert "cannot find my config" in tested.out


async def test_the_home_folder_is_no_project():
    os.chdir(Path.home())
    added = await run(None, "mcp", "add", "raw", "--project", *SERVER)
    assert (added.code, Path(".mcp.json").exists()) == (2, False)
    assert "the home folder is no project: leave out --project" in added.err


async def test_a_server_of_the_project_needs_its_approval_here_too(own_place: Path):
    added = await run(None, "mcp", "add", "raw", "--project", *SERVER)
    assert "it starts after your approval" in added.out
    assert json.loads(Path(".mcp.json").read_text())["mcpServers"]["raw"]["command"] == SERVER[0]
    listed = await run(None, "mcp", "list")
    assert "server raw waits until you trust the folder" in listed.out
    tested = await run(None, "mcp", "test", "raw")
    assert tested.code == 2
    assert "needs your approval" in tested.err
    assert (await run(None, "mcp", "remove", "raw")).code == 2
    assert (await run(None, "mcp", "remove", "raw", "--project")).code == 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["add", "x"], "give the command of the server, or its URL"),
        (["add", "--known", "netscape"], "NAME is one of playwright, chrome-devtools, github"),
        (["add", "x", "--env", "A", "cmd"], "--env needs NAME=VALUE"),
        (["add", "x", "--what", "cmd"], "unknown option '--what'"),
        (["add", "x", "http://a/mcp", "b"], "stands after the URL"),
        (["add", "x", "ftp://a/b"], "'ftp://a/b': the URL of a server begins with http:// or http"),
        (["add", "x", "--sse", "cmd"], "type 'sse' needs a url"),
        (["add", "", "cmd"], "'' cannot be the name of a server: use letters, digits"),
        (["add", "my db", "cmd"], "'my db' cannot be the name of a server"),
        (["add"], "give the server a name"),
        (["add", "x", "--header", "A: b", "cmd"], "a program gets --env NAME=VALUE"),
        (["add", "x", "--env", "A=b", "http://a/mcp"], "gets --header 'NAME: VALUE'"),
        (["add", "x", "cmd", "--project"], "--project stands after the command: put it before"),
        (["login", "x"], "there is no server 'x' (there are: none)"),
        (["dance"], "is no command"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
):
    assert mcp.run(words) == 2
    assert problem in capsys.readouterr().err


def test_words_are_a_definition():
    assert _parse_definition(["x", "--header", "X-Key: a:b", "https://a/mcp"]) == (
        "x", {"headers": {"X-Key": "a:b"}, "url": "https://a/mcp"}, False
    )  # fmt: skip
    assert _parse_definition(["--project", "x", "--", "npx", "-y", "--project"]) == (
        "x", {"command": "npx", "args": ["-y", "--project"]}, True
    )  # fmt: skip


async def test_a_person_logs_in_and_out():
    web = OAuthServer()
    async with web.open() as url:
        await run(None, "mcp", "add", "far", url)
        waits = await run(None, "mcp", "test", "far")
        assert "treadle mcp login far" in waits.out
        process = await start(None, "mcp", "login", "far")
        assert process.stderr is not None
        link = ""
        async for line in process.stderr:
            link = line.decode().strip()
            if link.startswith("http"):
                break
        async with httpx2.AsyncClient(follow_redirects=True) as browser:
            assert "You can close this page" in (await browser.get(link)).text
        logged_in = await finish(process)
        assert logged_in.code == 0, logged_in.err
        assert logged_in.out.startswith("logged in to far")
        assert ", logged in)" in (await run(None, "mcp", "list")).out
        assert "far: up, 1 tool" in (await run(None, "mcp", "test", "far")).out
        assert (await run(None, "mcp", "logout", "far")).code == 0
        assert (await run(None, "mcp", "logout", "far")).code == 2


async def test_the_official_client_uses_our_tools_and_gives_us_a_task(own_place: Path):
    Path("note.txt").write_text("threads")
    provider = ProviderServer([FakeReply("the answer")])
    async with provider:
        parameters = StdioServerParameters(
            command=PROGRAM[0],
            args=[*PROGRAM[1:], "mcp", "serve", "--model", "anthropic/claude-sonnet-4-5",
                  "--sandbox", "off"],
            env=environment(provider),
            cwd=str(own_place),
        )  # fmt: skip
        async with Client(parameters) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert {"read", "edit", "bash", "run"} <= tools.keys()
            read = await client.call_tool("read", {"file_path": str(Path("note.txt").resolve())})
            assert "threads" in read.content[0].text  # type: ignore[union-attr]
            denied = await client.call_tool("bash", {"command": "rm note.txt"})
            assert denied.is_error
            assert "approval" in denied.content[0].text  # type: ignore[union-attr]
            wrong = await client.call_tool("read", {"path": 7})
            assert wrong.is_error
            done = await client.call_tool("run", {"prompt": "what is it?"})
            assert done.structured_content is not None, done
            assert done.structured_content["answer"] == "the answer"
    assert Path("note.txt").exists()


async def test_http_wants_the_token(own_place: Path):
    Path("note.txt").write_text("threads")
    token_file = own_place / "token"
    process = await start(
        None, "mcp", "serve", "--http", "0", "--token-file", str(token_file), "--model", "x/y"
    )
    assert process.stderr is not None
    try:
        url = (await process.stderr.readline()).decode().split()[-1]
        assert token_file.stat().st_mode & 0o777 == 0o600
        async with httpx2.AsyncClient() as http:
            assert (await http.post(url, json={})).status_code == 401
        bearer = {"Authorization": f"Bearer {token_file.read_text().strip()}"}
        async with httpx2.AsyncClient(headers=bearer) as http:
            async with Client(streamable_http_client(url, http_client=http)) as client:
                found = await client.call_tool("glob", {"pattern": "*.txt"})
                assert "note.txt" in found.content[0].text  # type: ignore[union-attr]
    finally:
        process.terminate()
        await asyncio.wait_for(process.communicate(), PATIENCE)


async def test_a_port_that_is_in_use_is_named():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        refused = await run(None, "mcp", "serve", "--http", port, "--model", "x/y")
    assert refused.code != 0
    assert refused.err == f"treadle mcp serve: port {port} cannot be used: Address already in use\n"


async def test_a_run_without_servers_loads_nothing_for_them():
    async with ProviderServer([FakeReply("hi")]) as provider:
        process = await asyncio.create_subprocess_exec(
            PROGRAM[0], "-X", "importtime", *PROGRAM[1:], "-p", "hello", "--model",
            "anthropic/claude-sonnet-4-5", stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=environment(provider),
        )  # fmt: skip
        ran = await finish(process)
    assert ran.out == "hi\n"
    loaded = {line.rpartition("|")[2].strip() for line in ran.err.splitlines()}
    assert "treadle.apps.assembly.coding_agent" in loaded
    heavy = "mcp mcp_types keyring starlette uvicorn httpx2 textual opentelemetry treadle.tools.mcp"
    assert not loaded & set(heavy.split())


async def test_a_known_server_is_added_by_its_name_alone():
    added = await run(None, "mcp", "add", "--known", "playwright", "--project")
    assert added.code == 0
    written = json.loads(Path(".mcp.json").read_text())
    assert written["mcpServers"]["playwright"]["args"] == ["-y", "@playwright/mcp@latest"]
