from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import until
from tests.tools.mcp.helpers import Log, call, context, raw, served, workspace
from tests.workspace.helpers import alive, gone, marker, seen
from treadle import Agent
from treadle.apps.pages.elements import render_icon
from treadle.apps.web.render.settings_panes import render_servers
from treadle.core.contracts.tool import ToolSpec
from treadle.core.errors import ConfigError, ToolError, ToolsUnavailable
from treadle.core.transcript import ToolResultItem
from treadle.core.transcript.content import Document, Image, Text
from treadle.models import Say, Scripted
from treadle.testing.conformance.source import check_tool_source
from treadle.tools.mcp import McpServer
from treadle.tools.mcp.tool import check_arguments, make_tool_names, sanitize_server_name

SDK = str(Path(__file__).with_name("sdk_server.py"))


async def test_a_server_keeps_the_promises_of_a_source(own_place: Path):
    async with workspace(own_place) as place:
        await check_tool_source(lambda: McpServer("raw", raw(), start=place.spawn))

        async def make_ready() -> McpServer:
            server = McpServer("raw", raw(), start=place.spawn)
            await server.open()
            await server.wait_ready()
            return server

        await check_tool_source(make_ready)


async def test_a_server_offers_its_tools_under_names_of_their_own(own_place: Path):
    async with served(own_place) as server:
        assert server.tools() == ()
        assert await server.wait_ready()
        echo = next(tool for tool in server.tools() if tool.spec.name == "mcp__raw__echo")
        assert echo.spec.schema["required"] == ["text"]
        assert (echo.spec.effect, echo.spec.concurrent) == ("pure", True)
        assert (
            next(t for t in server.tools() if "crash" in t.spec.name).spec.effect == "irreversible"
        )
        assert server.instructions().endswith("Handle with care.")
        assert (await call(server, "echo", text="ho ", times=2)).content == "ho ho "
        assert server.status.summary == f"raw: up, {len(server.tools())} tools"


async def test_an_agent_calls_a_tool_of_a_server(own_place: Path):
    async with workspace(own_place) as place:
        server = McpServer("raw", raw(), start=place.spawn)
        model = Scripted([Say(calls=[("mcp__raw__echo", {"text": "hi"})]), "done"])
        agent = Agent(model, [server])
        result = await agent.run("x")
        await agent.aclose()
    assert [i.text for i in result.transcript if isinstance(i, ToolResultItem)] == ["hi"]


async def test_a_protocol_version_that_is_not_known_is_named(own_place: Path):
    log = Log()
    async with served(own_place, "future", on_change=log):
        assert "2031-01-01" in (await log.until("failed")).problem


async def test_results_of_every_kind_are_converted(own_place: Path):
    async with served(own_place) as server:
        await server.wait_ready()
        mixed = (await call(server, "mixed")).content
        assert isinstance(mixed, tuple)
        assert mixed[0] == Image("image/png", b"\x89PNG")
        assert mixed[1] == Text("[audio: 3 bytes of audio/wav, not shown]")
        assert mixed[2] == Text("[resource log: file:///log]")
        assert mixed[3] == Text("[resource memo://1]\nremember")
        assert mixed[4] == Document("application/pdf", b"%PDF", title="memo://2")
        assert (await call(server, "structured")).content == '{"sum":3}'
        failing = await call(server, "failing")
        assert (failing.content, failing.is_error) == ("no such table", True)
        with pytest.raises(ToolError, match="failed at refuse: not on Sundays"):
            await call(server, "refuse")
        assert server.status.state == "up"


async def test_text_and_structured_content_that_say_the_same_reach_the_model_once(own_place: Path):
    said = "a line\n" * 5_000
    async with served(own_place) as server:
        await server.wait_ready()
        assert (await call(server, "doubled", text=said)).content == said
        assert (await call(server, "doubled", text=said, wrapped=True)).content == said


async def test_what_cannot_be_read_of_a_result_is_named_and_the_rest_is_read(own_place: Path):
    async with served(own_place) as server:
        await server.wait_ready()
        assert (await call(server, "half_emoji")).content == "a \ufffd b"
        assert (await call(server, "odd_block")).content == (
            "seen\n[content of the unknown type 'video', not shown: "
            '{"type":"video","data":"AAAA"}]'
        )
        assert server.status.state == "up"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
async def test_a_result_that_is_nested_too_deep_fails_its_call_at_once(
    own_place: Path, opening: str, closing: str
):
    async with served(own_place) as server:
        await server.wait_ready()
        nested: dict[str, Any] = {"opening": opening, "closing": closing}
        assert (await call(server, "deep", levels=100, **nested)).content.count("1") == 1
        for levels in (400, 900, 5_000, 100_000):
            with pytest.raises(ToolError, match="not a valid message"):
                await call(server, "deep", levels=levels, **nested)
        assert (await call(server, "echo", text="hi")).content == "hi"


async def test_one_bad_tool_does_not_hide_the_others(own_place: Path):
    async with served(own_place, "one_odd") as server:
        await server.wait_ready()
        names = {tool.spec.name for tool in server.tools()}
        assert "mcp__raw__odd" not in names
        assert len(names) > 20
        assert (await call(server, "echo", text="hi")).content == "hi"
        notes = [message.text for message in server.logs]
        assert any("the tool odd is left out: inputSchema" in note for note in notes)
        assert any("the tool echo is read without some of its fields" in note for note in notes)


async def test_one_bad_prompt_or_resource_does_not_hide_the_others(own_place: Path):
    async with served(own_place, "one_odd") as server:
        await server.wait_ready()
        catalog = server.catalog
        assert [(one.name, one.arguments[0].name) for one in catalog.prompts] == [("poem", "topic")]
        assert [one.uri for one in catalog.resources] == ["memo://1", "memo://{n}"]
        notes = " ".join(message.text for message in server.logs)
        assert "the prompt odd is left out: arguments" in notes
        assert "the prompt poem is read without some of its fields: title" in notes
        assert "the resource odd is left out: uri" in notes
        assert "the resource template ? is left out" in notes


async def test_a_server_that_does_not_answer_is_slow_until_it_does(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("treadle.tools.mcp.connection.PING_PAUSE", 0.01)
    monkeypatch.setattr("treadle.tools.mcp.change_watcher.REQUEST_TIMEOUT", 0.01)
    log, flag = Log(), own_place / "go"
    async with served(own_place, on_change=log) as server:
        await server.wait_ready()
        waiting = asyncio.create_task(call(server, "busy", until=str(flag)))
        status = await log.until("slow")
        assert status.summary == (
            f"raw: slow, {len(server.tools())} tools: it does not answer at the moment, and calls "
            "wait"
        )
        assert f"{render_icon('wait', style='warn')} slow" in render_servers([server], {})
        seen = len(log.seen)
        flag.touch()
        assert (await waiting).content == "free again"
        assert (await log.until("up", after=seen)).problem == ""
        assert f"{render_icon('done', style='ok')} up" in render_servers([server], {})


async def test_a_server_stays_slow_after_a_call_that_was_cancelled(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("treadle.tools.mcp.connection.PING_PAUSE", 0.01)
    log, flag = Log(), own_place / "go"
    async with served(own_place, on_change=log) as server:
        await server.wait_ready()
        monkeypatch.setattr("treadle.tools.mcp.change_watcher.REQUEST_TIMEOUT", 0.01)
        waiting = asyncio.create_task(call(server, "busy", until=str(flag)))
        await log.until("slow")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert server.status.state == "slow"
        monkeypatch.setattr("treadle.tools.mcp.change_watcher.REQUEST_TIMEOUT", 60)
        seen = len(log.seen)
        flag.touch()
        await log.until("up", after=seen)


async def test_a_long_call_does_not_make_a_server_slow_that_answers(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("treadle.tools.mcp.connection.PING_PAUSE", 0.01)
    monkeypatch.setattr("treadle.tools.mcp.change_watcher.REQUEST_TIMEOUT", 60)
    log = Log()
    async with served(own_place, on_change=log) as server:
        await server.wait_ready()
        waiting = asyncio.create_task(call(server, "never"))
        while (await call(server, "pings")).content == "0":
            pass
        assert server.status.state == "up"
        assert "slow" not in [status.state for status in log.seen]
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_of_a_flood_of_log_lines_only_a_part_is_read(own_place: Path):
    async with served(own_place) as server:
        await server.wait_ready()
        assert (await call(server, "flood")).content == "after the flood"
        assert (await call(server, "echo", text="hi")).content == "hi"
        assert len(server.logs) <= 500


async def test_progress_is_reported(own_place: Path):
    reports: list[str] = []
    async with served(own_place) as server:
        await server.wait_ready()
        assert (await call(server, "progress", reports.append)).content == "baked"
    assert reports == ["baking (1/2)", "baking (2/2)"]


async def test_a_server_gets_its_own_environment_and_none_of_our_keys(
    own_place: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-ours")
    monkeypatch.setenv("DB_TOKEN", "theirs")
    config = raw(env={"DB_TOKEN": "${DB_TOKEN}", "LEVEL": "${LEVEL:-3}"})
    async with served(own_place, config=config) as server:
        await server.wait_ready()
        env = json.loads(str((await call(server, "env")).content))
    assert (env["DB_TOKEN"], env["LEVEL"], env["cwd"]) == ("theirs", "3", str(own_place))
    assert "OPENAI_API_KEY" not in env


async def test_a_slow_server_delays_nothing(own_place: Path):
    flag = own_place / "now"
    async with served(own_place, "slow", str(flag)) as server:
        assert server.tools() == ()
        result = await Agent(Scripted(["hello"]), [server]).run("x")
        assert (result.text, server.status.state) == ("hello", "starting")
        flag.touch()
        assert await server.wait_ready()
        assert server.tools()


async def test_a_server_that_dies_of_the_newer_hello_gets_the_older_one(own_place: Path):
    log = Log()
    async with served(own_place, "old", on_change=log) as server:
        assert await server.wait_ready()
        assert [status.state for status in log.seen] == ["starting", "up"]
        assert (await call(server, "echo", text="hm")).content == "hm"


async def test_closing_ends_the_whole_tree_even_what_left_its_group(own_place: Path):
    mark = marker()
    async with served(own_place) as server:
        await server.wait_ready()
        await call(server, "child", mark=mark)
        await seen(mark)
    await gone(mark)


async def test_nothing_of_a_server_outlives_an_agent_that_was_killed(own_place: Path):
    mark = marker()
    program = f"""
import asyncio, sys
from pathlib import Path
from tests.tools.mcp.helpers import served, call
async def main():
    async with served(Path({str(own_place)!r})) as server:
        await server.wait_ready()
        await call(server, "child", mark={mark!r})
        print("ready", flush=True)
        await asyncio.sleep(1000)
asyncio.run(main())
"""
    repository = Path(__file__).parents[3]
    agent = subprocess.Popen(  # noqa: ASYNC220 - it has to be killed, not awaited
        [sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=repository
    )
    try:
        assert agent.stdout is not None
        assert await asyncio.to_thread(agent.stdout.readline) == b"ready\n"
        assert alive(mark)
    finally:
        agent.kill()
        agent.wait()
        agent.stdout.close()  # type: ignore[union-attr]
    await gone(mark)


async def test_a_server_of_the_official_sdk_speaks_the_newer_protocol(own_place: Path):
    config = {"command": sys.executable, "args": [SDK, "stdio"]}
    log = Log()
    async with served(own_place, name="sdk", config=config, on_change=log) as server:
        assert await server.wait_ready()
        assert (await call(server, "add", a=2, b=3)).content == "5"
        assert "Add before you multiply." in server.instructions()
        before = server.tools()
        seen_before = len(log.seen)
        await call(server, "grow")
        await log.until("up", after=seen_before)
        assert server.tools() is not before
        assert (await call(server, "grown")).content == "new"


def test_names_are_taken_by_every_provider_and_by_rules():
    assert sanitize_server_name("my server (beta)!") == "my_server_beta"
    assert sanitize_server_name("a__b") == "a_b"
    assert make_tool_names("db", ["query.run"]) == {"query.run": "mcp__db__query_run"}
    assert [len(name) for name in make_tool_names("db", ["x" * 200]).values()] == [64]
    assert make_tool_names("", [""]) == {"": "mcp__server__tool"}


def test_a_name_means_the_same_tool_in_whatever_order_a_server_lists_them():
    listed = ["query.run", "query/run", "query_run", "x" * 80 + "1", "x" * 80 + "2"]
    names = make_tool_names("db", listed)
    assert names == make_tool_names("db", listed[::-1])
    assert len(set(names.values())) == len(listed)
    assert names["query_run"] == "mcp__db__query_run"


def test_arguments_are_checked_before_a_server_sees_them():
    form = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": ["string"]}},
            "required": ["n"], "additionalProperties": False}  # fmt: skip
    spec = ToolSpec("t", "", form)
    assert "n: missing, expected an integer" in (check_arguments({}, spec) or "")
    assert 'n: expected an integer, got "1"' in (check_arguments({"n": "1"}, spec) or "")
    assert "n: expected an integer, got true" in (check_arguments({"n": True}, spec) or "")
    assert "x: not known, expected only n, s" in (check_arguments({"n": 1, "x": 2}, spec) or "")
    assert check_arguments({"n": 1, "s": 3}, spec) is None


async def test_a_server_is_asked_about_before_every_start(own_place: Path):
    """Also the one that a call wants; and what had no objection before may have one now."""
    log, asked = Log(), list[bool]()
    words = iter(["", "it was rewritten", "it still is", ""])

    def objection(again: bool) -> str:
        asked.append(again)
        return next(words)

    async with served(own_place, on_change=log, start_objection=objection) as server:
        await server.wait_ready()
        with pytest.raises(ToolError, match="went away"):
            await call(server, "crash")
        assert (await log.until("failed")).problem == "it was rewritten"
        with pytest.raises(ToolError, match=r"is not running \(it still is\); echo was not called"):
            await call(server, "echo", text="x")
        assert (await call(server, "echo", text="mended")).content == "mended"
    assert asked == [False, True, True, True]


async def test_both_hellos_of_a_server_are_one_start(own_place: Path):
    asked: list[bool] = []

    def objection(again: bool) -> str:
        asked.append(again)
        return ""

    async with served(own_place, "old", start_objection=objection) as server:
        assert await server.wait_ready()
    assert asked == [False, False]


async def test_a_program_needs_a_start_function_or_an_agent():
    with pytest.raises(ConfigError, match=r"give it to an Agent, or pass start=workspace\.spawn"):
        await McpServer("raw", raw()).open()


async def test_an_agent_starts_a_program_in_a_workspace_that_ends_with_it(no_leaks: object):
    server = McpServer("raw", raw())
    model = Scripted([Say(calls=[("mcp__raw__echo", {"text": "hi"})]), "Done."] * 2)
    for _ in range(2):  # it can be opened again
        async with Agent(model, [server]) as agent:
            result = await agent.run("go")
        [answer] = [item for item in result.transcript if isinstance(item, ToolResultItem)]
        assert (answer.is_error, server.status.state) == (False, "closed")


async def test_a_call_of_a_server_that_was_closed_is_an_error(own_place: Path):
    async with served(own_place) as server:
        await server.wait_ready()
        tool = server.tools()[0]
    with pytest.raises(ToolError, match="is not running"):
        await tool.call({}, context())


def test_the_sdk_is_not_imported_before_a_server_starts():
    check = (
        "import sys, treadle.tools.mcp; sys.exit('mcp' in sys.modules or 'anyio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


async def test_an_agent_does_not_run_without_a_server_that_it_needs(tmp_path: Path):
    model = Scripted(["I have no tools.", "I have no tools."])
    async with workspace(tmp_path) as place:
        definition = {"command": "sh", "args": ["-c", "echo 'no database at db:5432' >&2; exit 3"]}
        needed = McpServer("db", definition, start=place.spawn)
        async with Agent(model, [needed]) as agent:
            for _ in range(2):  # each run tries again
                with pytest.raises(ToolsUnavailable, match=r"'db' .* exit code 3: no database at"):
                    await agent.run("Book the flight")
        assert needed.status.state == "closed"
        assert model.requests == []
        optional = McpServer("db", definition, start=place.spawn, required=False)
        async with Agent(model, [optional]) as agent:
            assert (await agent.run("Book the flight")).output == "I have no tools."


async def test_a_run_that_is_cancelled_while_a_server_starts_leaves_no_process(tmp_path: Path):
    async with workspace(tmp_path) as place:
        server = McpServer("slow", {"command": "sleep", "args": ["1000"]}, start=place.spawn)
        async with Agent(Scripted(["x"]), [server]) as agent:
            running = asyncio.create_task(agent.run("x"))
            await until(lambda: server.status.state == "starting")
            running.cancel()
            await asyncio.wait([running])
            assert running.cancelled()
            assert server.status.state == "closed"
