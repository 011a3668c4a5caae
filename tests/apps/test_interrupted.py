"""Interrupted, suspended and asleep: faults 80, 86 and 87 through the real program."""
# ruff: noqa: ASYNC240 (files are how a test and the program meet)
# ruff: noqa: ASYNC110 (what another process does is seen by looking)

from __future__ import annotations

import asyncio
import signal
import time
from asyncio.subprocess import Process
from pathlib import Path

from tests.apps.running import Ran, finish, line_with, run, start
from treadle.apps.cli import exits
from treadle.testing.provider import Call, Fault, ProviderServer, Reply

LAST = Reply("That is all.")
STREAM = ("--output-format", "stream-json")
FREELY = ("--permission-mode", "bypass", "--sandbox", "off")
SOON = 2.0  # seconds; the promise is 0.2, on a machine that does nothing else


def bash(command: str, text: str = "") -> Reply:
    return Reply(text, calls=(Call("bash", {"command": command}),))


async def interrupted(process: Process) -> Ran:
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    ran = await finish(process)
    assert time.monotonic() - began < SOON
    assert ran.code == exits.ABORTED
    assert ran.lines[-1]["reason"] == "aborted"
    assert "Traceback" not in ran.err
    return ran


async def goes_on(server: ProviderServer) -> None:
    """The history is valid: a strict provider takes it."""
    again = await run(server, "-p", "go on", "--continue")
    assert (again.code, again.out) == (0, "That is all.\n")
    assert server.violations == []


async def test_fault_80_sigint_during_a_tool_ends_it_with_all_its_processes():
    command = "sleep 65 & echo $! > pid; echo $$ >> pid; sleep 66"
    async with ProviderServer([bash(command), LAST]) as server:
        process = await start(server, "-p", "go", *STREAM, *FREELY)
        while not Path("pid").exists() or Path("pid").read_text().count("\n") < 2:
            await asyncio.sleep(0.01)
        await interrupted(process)
        assert not [pid for pid in Path("pid").read_text().split() if is_alive(pid)]
        await goes_on(server)


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_fault_80_sigint_during_the_wait_for_another_attempt():
    faults = [Fault("rate_limited", value="50")]
    async with ProviderServer([LAST], faults=faults) as server:
        process = await start(server, "-p", "go", *STREAM)
        await line_with(process, "retry_scheduled")
        await interrupted(process)
        assert len(server.requests) == 1
        await goes_on(server)


async def test_fault_80_sigint_during_a_compaction_leaves_the_view_as_it_was():
    rounds = [bash(f"echo {number}", f"{number} " + "word " * 4_000) for number in range(8)]
    faults = [Fault("context_too_long", at=8), Fault("stall_headers", at=9)]
    async with ProviderServer([*rounds, LAST, LAST], faults=faults) as server:
        process = await start(server, "-p", "go", *STREAM, *FREELY)
        await server.changed(lambda: len(server.requests) == 10)
        assert b"You write notes for a coding agent" in server.requests[-1].body
        await interrupted(process)
        await goes_on(server)
    assert server.requests[-1].body.count(b"word word") > 8  # nothing was taken out


async def test_fault_86_a_run_that_is_suspended_and_continued_loses_nothing():
    reply = Reply(tuple(f"piece {number} " for number in range(40)))
    async with ProviderServer([reply], faults=[Fault("paced", seconds=0.02)]) as server:
        process = await start(server, "-p", "go", *STREAM)
        await line_with(process, "text_delta")
        process.send_signal(signal.SIGTSTP)
        while state_of(process.pid) != "T":
            await asyncio.sleep(0.01)
        process.send_signal(signal.SIGWINCH)
        process.send_signal(signal.SIGCONT)
        ran = await finish(process)
    assert ran.code == 0
    assert ran.lines[-1]["text"].split()[-2:] == ["piece", "39"]
    assert not [line for line in ran.lines if line["type"] == "retry_scheduled"]


async def test_fault_87_a_stream_that_died_while_the_machine_slept_is_asked_for_again():
    faults = [Fault("stall_in_text")]
    async with ProviderServer([Reply("word " * 20)], faults=faults) as server:
        process = await start(server, "-p", "go", *STREAM)
        await line_with(process, "text_delta")
        process.send_signal(signal.SIGSTOP)
        while state_of(process.pid) != "T":
            await asyncio.sleep(0.01)
        for visit in list(server._visits):  # what was connected is gone when it wakes up
            visit.cancel()
        await server.changed(lambda: server.open_connections == 0)
        process.send_signal(signal.SIGCONT)
        ran = await finish(process)
    assert ran.code == 0
    kinds = [line["type"] for line in ran.lines]
    assert kinds.index("reply_discarded") < kinds.index("retry_scheduled") < kinds.index("result")
    said = [line["item"] for line in ran.lines if line["type"] == "item"]
    assert [item["type"] for item in said] == ["assistant"]  # one paid answer, one item
    assert server.violations == []


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
