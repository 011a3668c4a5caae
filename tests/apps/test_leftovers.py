"""What a run leaves behind: no process, the work of its child agents, rules that count later."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)

from __future__ import annotations

import asyncio
import json
import signal
import sys
from pathlib import Path

from tests.apps.program import finish, run, start
from tests.patience import until
from tests.workspace.helpers import alive, gone, marker
from treadle.apps.console import exit_codes
from treadle.core.transcript.entries import Suspended, WakeCondition
from treadle.sessions import Library
from treadle.sessions.detached.suspend import suspend_turn
from treadle.testing.provider import FakeCall, FakeReply, ProviderFault, ProviderServer

LAST = FakeReply("That is all.")
FREELY = ("--permission-mode", "bypass", "--sandbox", "off")
TASK = FakeReply(calls=(FakeCall("task", {"description": "dig", "prompt": "Dig deep."}),))


def bash(command: str) -> FakeReply:
    return FakeReply("I look.", calls=(FakeCall("bash", {"command": command}),))


async def killed(process: asyncio.subprocess.Process) -> None:
    process.kill()
    await process.wait()
    process._transport.close()  # type: ignore[attr-defined]


async def test_a_killed_run_leaves_no_server_no_command_and_no_daemon():
    mark = marker()
    server = [str(Path(__file__).parent / "mcp_server.py"), "", mark]
    settings = Path.home() / ".treadle/settings.json"
    settings.parent.mkdir()
    settings.write_text(
        json.dumps({"mcpServers": {"tiny": {"command": sys.executable, "args": server}}})
    )
    command = f"setsid sleep {mark} & sleep {mark}"
    async with ProviderServer([bash(command)]) as provider:
        process = await start(provider, "-p", "go", *FREELY)
        await until(lambda: len(alive(mark)) >= 3)
        await killed(process)
    await gone(mark)


async def test_fault_77_a_child_agent_that_was_killed_continues_where_it_was():
    mark = marker()
    replies = [TASK, bash(f"echo x >> effects; sleep {mark}"), FakeReply("Dug as deep."), LAST]
    async with ProviderServer(replies) as server:
        process = await start(server, "-p", "go", *FREELY)
        await until(lambda: alive(mark))
        await killed(process)
        await gone(mark)
        listed = (await run(None, "sessions", "list", "--all", "--json")).lines
        ran = await run(server, "-p", "--continue", *FREELY)
    assert [row["state"] for row in listed] == ["interrupted", "interrupted"]  # none "runs"
    assert (ran.code, ran.out) == (0, "That is all.\n")
    assert "This call of task was running when the program stopped: " in ran.err
    assert "The agent continued where it was." in ran.err
    child, parent = (json.loads(request.body)["messages"] for request in server.requests[-2:])
    assert child[0]["content"] == "Dig deep." or "Dig deep." in json.dumps(child[0])
    assert "outcome unknown" in json.dumps(child[-1])  # of its command, which is not run again
    assert "Dug as deep." in json.dumps(parent[-1])
    assert Path("effects").read_text() == "x\n"
    assert server.violations == []
    everything = (await run(None, "sessions", "list", "--all", "--json")).lines
    assert [row["id"] for row in everything] == [row["id"] for row in listed]  # no second child
    assert [row["state"] for row in everything] == ["done", "done"]


async def test_fault_80_sigint_stops_a_child_agent_with_its_processes():
    mark = marker()
    async with ProviderServer([TASK, bash(f"setsid sleep {mark} & sleep {mark}"), LAST]) as server:
        process = await start(server, "-p", "go", "--output-format", "json", *FREELY)
        await until(lambda: len(alive(mark)) >= 2)
        process.send_signal(signal.SIGINT)
        ran = await finish(process)
        assert alive(mark) == []
        listed = (await run(None, "sessions", "list", "--all", "--json")).lines
        again = await run(server, "-p", "go on", "--continue", *FREELY)
    assert (ran.code, ran.lines[0]["reason"]) == (exit_codes.ABORTED, "aborted")
    assert len(listed) == 2
    assert (again.code, again.out, server.violations) == (0, "That is all.\n", [])


async def test_a_child_agents_session_holds_its_own_work_and_nothing_of_its_parents():
    Path("long.txt").write_text("a long line of text\n" * 2_000)
    look = FakeReply(calls=(FakeCall("read", {"file_path": "long.txt"}),))
    async with ProviderServer([look, TASK, FakeReply("Deep."), LAST]) as server:
        ran = await run(server, "-p", "go", *FREELY)
    assert (ran.code, server.violations) == (0, [])
    root = Path.home() / ".local/share/treadle/sessions"
    [child] = root.glob("*/*/children/*/journal.jsonl")
    [parent] = root.glob("*/*/journal.jsonl")
    assert parent.stat().st_size > 40_000
    assert child.stat().st_size < 4_000


async def test_a_rate_limit_whose_time_has_come_is_resumed_and_only_then():
    async with ProviderServer(
        [LAST], faults=[ProviderFault("rate_limited", value="3600")]
    ) as server:
        ran = await run(server, "-p", "go", "--suspend", "--output-format", "json")
        session = ran.lines[0]["session_id"]
        early = await run(server, "resume", "--suspended")
        assert (ran.code, early.code, len(server.requests)) == (75, 75, 1)
        journal = Library().resume(session).journal
        await suspend_turn(
            journal, Suspended("turn-1", "rate_limit", WakeCondition("time", at=1.0))
        )  # an hour has passed
        await journal.aclose()
        late = await run(server, "resume", "--suspended")
    assert (late.code, late.out) == (0, "That is all.\n")
    assert [len(json.loads(request.body)["messages"]) for request in server.requests] == [1, 1]
    assert (await run(None, "resume")).out == "no suspended turns\n"


async def test_what_was_always_allowed_is_not_asked_about_in_the_next_process():
    make = FakeReply(calls=(FakeCall("bash", {"command": "touch made.txt"}),))
    async with ProviderServer([make, LAST] * 3) as server:
        before = await run(server, "-p", "go", "--sandbox", "off")
        assert (before.code, Path("made.txt").exists()) == (exit_codes.APPROVAL_NEEDED, False)
        trust_then_always = b"1\nmake it\n3\n1\n"
        await run(server, "--plain", "--sandbox", "off", said=trust_then_always)
        Path("made.txt").unlink()
        after = await run(server, "-p", "go", "--sandbox", "off")
    assert (after.code, Path("made.txt").exists()) == (0, True)
