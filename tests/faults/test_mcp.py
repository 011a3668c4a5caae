"""Fault 76: MCP servers that misbehave: a call fails in time, the server returns, others go on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.patience import pass_time
from tests.tools.mcp.helpers import Log, call, context, raw, sdk, served, workspace
from treadle.core.errors import ToolError
from treadle.tools.mcp import McpServer

__all__ = ["sdk"]
pytestmark = pytest.mark.usefixtures("sdk", "no_leaks")


async def test_fault_76_crashes_at_start_and_is_tried_again_until_it_is_left_alone(own_place: Path):
    log = Log()
    async with served(own_place, "crash", on_change=log) as server:
        status = await log.until("failed")
        assert "cannot find my config" in status.problem
        assert [s.state for s in log.seen].count("down") == 3
        assert server.tools() == ()
        with pytest.raises(ToolError, match=r"is not running \(.*cannot find my config"):
            await server.call("echo", {}, context())  # which is another try


async def test_fault_76_a_program_that_is_not_there(own_place: Path):
    log = Log()
    async with served(own_place, config={"command": "/no/such/server"}, on_change=log):
        assert "No such file" in (await log.until("down")).problem


async def test_fault_76_crashes_during_a_call_and_is_started_again(own_place: Path):
    log = Log()
    async with served(own_place, on_change=log) as server:
        await server.wait_ready()
        tools = server.tools()
        with pytest.raises(
            ToolError, match=r"went away during crash \(it ended with exit code 3: out of cheese\)"
        ):
            await call(server, "crash")
        assert (await call(server, "echo", text="again")).content == "again"
        assert server.tools() is tools
        assert [status.state for status in log.seen] == ["starting", "up", "down", "starting", "up"]


async def test_fault_76_backs_off_between_crashes(own_place: Path):
    log = Log()
    async with served(own_place, on_change=log, delays=(0.0, 1000.0), call_wait=0.05) as server:
        for crashes in range(2):
            await log.until("up", after=3 * crashes)
            with pytest.raises(ToolError, match="went away"):
                await call(server, "crash")
        await log.until("down", after=4)
        with pytest.raises(ToolError, match=r"not running .*; echo was not called"):
            await call(server, "echo", text="too soon")


@pytest.mark.parametrize("tool", ["broken", "nonsense"])
async def test_fault_76_malformed_answers_fail_their_call_at_once(own_place: Path, tool: str):
    async with served(own_place) as server:
        await server.wait_ready()
        with pytest.raises(ToolError, match="not a valid message"):
            await call(server, tool)
        assert (await call(server, "echo", text="still here")).content == "still here"


@pytest.mark.parametrize("tool", ["wrong_id", "never"])
async def test_fault_76_an_answer_that_never_comes_is_not_waited_for(own_place: Path, tool: str):
    async with served(own_place, config=raw(timeout=1_000_000)) as server:
        await server.wait_ready()
        unanswered = asyncio.create_task(call(server, tool))
        await asyncio.sleep(0)
        assert (await call(server, "echo", text="it has the call")).content == "it has the call"
        pass_time(1_000)
        with pytest.raises(ToolError, match=f"did not answer {tool} within"):
            await unanswered
        assert (await call(server, "echo", text="ok")).content == "ok"


async def test_fault_76_the_result_of_a_cancelled_call_is_dropped(own_place: Path):
    async with served(own_place) as server:
        await server.wait_ready()
        late = asyncio.create_task(call(server, "late"))
        # The server reads in order: once it answers this, it has the call before it.
        await asyncio.sleep(0)
        assert (await call(server, "echo", text="one")).content == "one"
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        # The server gets the cancellation and answers anyway, before it answers this.
        assert (await call(server, "echo", text="two")).content == "two"


@pytest.mark.parametrize("tool", ["big", "big_nameless"])
async def test_fault_76_a_message_of_50_mb_is_not_kept(own_place: Path, tool: str):
    async with served(own_place) as server:
        await server.wait_ready()
        with pytest.raises(ToolError, match="more than 16 MiB"):
            await call(server, tool)
        assert (await call(server, "echo", text="ok")).content == "ok"


async def test_fault_76_logs_and_bytes_on_stdout_are_passed_over(own_place: Path):
    async with served(own_place, "noisy") as server:
        assert await server.wait_ready()
        assert (await call(server, "binary")).content == "answered"


@pytest.mark.parametrize(
    ("script", "limit", "words"),
    [
        ("yes", 30_000, "it prints too many lines that are not messages: y / y / y"),
        ("yes >&2", 300, "it did not answer in time: y / y / y"),
        (
            "printf 'no config here' >&2; exit 1",
            30_000,
            "it ended with exit code 1: no config here",
        ),
    ],
)
async def test_fault_76_prints_without_end_or_dies_with_half_a_line(
    own_place: Path, script: str, limit: int, words: str
):
    problem = ""
    for longer in (1, 10, 100):  # if the limit came before the program had printed anything
        log = Log()
        config = {"command": "sh", "args": ["-c", script], "startupTimeout": limit * longer}
        async with served(own_place, config=config, on_change=log):
            problem = (await log.until("down")).problem
        if problem == words:
            break
    assert problem == words


async def test_fault_76_offers_a_tool_that_is_none(own_place: Path):
    async with served(own_place, "odd") as server:
        await server.wait_ready()
        assert [tool.spec.name for tool in server.tools()] == ["mcp__raw__read_resource"]
        [note] = [message.text for message in server.logs]
    assert note.startswith("the tool odd is left out: inputSchema ")
    assert "http" not in note


async def test_fault_76_never_answers_the_handshake(own_place: Path):
    log = Log()
    config = raw("silent", startupTimeout=200)
    async with served(own_place, config=config, on_change=log):
        assert "did not answer in time" in (await log.until("down")).problem


async def test_fault_76_changes_its_tools_while_it_is_used(own_place: Path):
    log = Log()
    async with served(own_place, on_change=log) as server:
        await server.wait_ready()
        before = server.tools()
        await call(server, "change")
        await log.until("up", after=2)
        names = {tool.spec.name for tool in server.tools()}
        assert names - {tool.spec.name for tool in before} == {"mcp__raw__fresh"}
        assert "mcp__raw__mixed" not in names
        after = server.tools()
        assert (await call(server, "storm")).content == "calm"
        assert (await call(server, "fresh")).content
        assert server.tools() is after


async def test_fault_76_stops_reading_and_is_closed_all_the_same(own_place: Path):
    async with served(own_place, config=raw(timeout=1_000_000)) as server:
        await server.wait_ready()
        await call(server, "deaf")
        unanswered = asyncio.create_task(call(server, "echo", text="x" * 1_000_000))
        for _ in range(20):  # it is on its way
            await asyncio.sleep(0)
        pass_time(1_000)
        with pytest.raises(ToolError, match="did not answer echo"):
            await unanswered


async def test_fault_76_arguments_that_no_line_can_hold(own_place: Path):
    async with served(own_place) as server:
        await server.wait_ready()
        with pytest.raises(ToolError, match=r"cannot be sent|surrogate"):
            await call(server, "echo", text="half \ud800")
        assert (await call(server, "echo", text="whole")).content == "whole"


async def test_fault_76_other_servers_do_not_notice(own_place: Path):
    async with workspace(own_place) as place:
        bad = [
            McpServer("one", raw("crash"), start=place.spawn, required=False, delays=(0.0,) * 5),
            McpServer("two", raw("silent"), start=place.spawn, required=False),
            McpServer(
                "three", raw(timeout=100), start=place.spawn, required=False, delays=(0.0,) * 5
            ),
        ]
        good = McpServer("good", raw(), start=place.spawn)
        servers = [*bad, good]
        await asyncio.gather(*(server.open() for server in servers))
        await asyncio.gather(good.wait_ready(), bad[2].wait_ready())
        faults = [call(bad[2], tool) for tool in ("never", "broken", "big", "crash")]
        calls = [call(good, "echo", text=str(n)) for n in range(50)]
        failing = asyncio.gather(*faults, return_exceptions=True)
        answers = await asyncio.gather(*calls)
        assert all(isinstance(failure, ToolError) for failure in await failing)
        assert [answer.content for answer in answers] == [str(n) for n in range(50)]
        assert good.status.state == "up"
        await asyncio.gather(*(server.aclose() for server in servers))
