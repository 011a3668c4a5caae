"""Code mode: a program of the model whose calls are calls like any other, with real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent, Denial, PendingApproval, ToolFinished, tool
from treadle.agents.run import Result
from treadle.budgets import CallLimit
from treadle.core.contracts.tool import ToolContext
from treadle.core.events import ChildEvent, unwrap
from treadle.core.transcript.items import ToolResultItem
from treadle.models import Say, Scripted
from treadle.tools.builtin import builtin_tools
from treadle.workspace.local import LocalWorkspace
from treadle.workspace.options import WorkspaceOptions


@tool(effect="irreversible")
async def pay(euros: int, context: ToolContext[Path]) -> str:
    """Pay an amount."""
    with context.deps.open("a") as bank:
        bank.write(f"{euros}\n")
    if euros == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"paid {euros}"


def approve(approval: PendingApproval) -> bool | Denial:
    return Denial("not this one") if approval.call.name == "bash" else True


@asynccontextmanager
async def make_agent(
    folder: Path, *replies: Say | str, gates: tuple[CallLimit, ...] = ()
) -> AsyncIterator[Agent[Path]]:
    workspace = LocalWorkspace(folder, WorkspaceOptions(sandbox="off"))
    tools: list[Any] = [pay, builtin_tools(workspace)]
    try:
        yield Agent(
            Scripted(replies),
            tools,
            deps_type=Path,
            workspace=workspace,
            approve=approve,
            code_mode=True,
            gates=gates,
            store=folder / "sessions",
        )
    finally:
        await workspace.aclose()


def run_code(code: str, **arguments: float) -> Say:
    return Say(calls=[("run_code", {"code": code, **arguments})])


async def run(folder: Path, code: str, **arguments: float) -> ToolResultItem:
    """The result of one program."""
    async with make_agent(folder, run_code(code, **arguments), "done") as agent:
        result = await agent.run("work", deps=folder / "bank")
    assert result.text == "done"
    return next(item for item in result.transcript if isinstance(item, ToolResultItem))


async def test_only_what_is_printed_comes_back_and_every_call_is_an_event(tmp_path: Path):
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"{name} secret-of-{name}\n" * 50)
    code = """
names = glob("*.txt").split()
texts = call_all([("read", {"file_path": name}) for name in names])
print(len(names), sum(text.count("secret") for text in texts))
write("big.txt", "x" * 50_000)
try:
    read("nothing.txt")
except ToolError as error:
    print("failed:", "does not exist" in str(error))
"""
    finished = []
    async with (
        make_agent(tmp_path, run_code(code), "done") as agent,
        agent.stream("work", deps=tmp_path / "bank") as events,
    ):
        async for event in events:
            inner = unwrap(event)
            if isinstance(event, ChildEvent) and isinstance(inner, ToolFinished):
                finished.append(inner.name)
    assert isinstance(events.result, Result)
    model = agent.config.model
    assert isinstance(model, Scripted)
    (result,) = [i for i in events.result.transcript if isinstance(i, ToolResultItem)]
    assert (result.text, result.is_error) == ("3 150\nfailed: True", False)
    assert finished == ["glob", "read", "read", "read", "write", "read"]
    assert "secret" not in str(model.requests[-1].transcript[-1])
    assert (tmp_path / "big.txt").read_text() == "x" * 50_000


async def test_a_refused_call_raises_in_the_program_and_has_no_effect(tmp_path: Path):
    code = """
print(pay(5))
try:
    bash("touch forbidden")
except ToolError as error:
    print(error)
pay(euros="many")
"""
    result = await run(tmp_path, code)
    assert result.is_error, "the last error is not caught"
    assert result.text.startswith("paid 5\ndenied: not this one\n")
    assert 'line 7, in <module>\n    pay(euros="many")' in result.text
    assert (tmp_path / "bank").read_text() == "5\n"
    assert not (tmp_path / "forbidden").exists()


async def test_a_limit_of_calls_ends_the_program(tmp_path: Path):
    code = "for number in range(100, 200): pay(number)"
    async with make_agent(tmp_path, run_code(code), "done", gates=(CallLimit(4),)) as agent:
        await agent.run("work", deps=tmp_path / "bank")
    paid = (tmp_path / "bank").read_text().split()
    assert 0 < len(paid) <= 4


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("while True: pass", "its time is over"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "it ended by itself: SIGKILL"),
        ("import os; os._exit(3)", "exit code 3"),
        ("while True: print('x' * 100_000)", "its time is over"),
    ],
)
async def test_a_program_that_does_not_end_well_is_ended(tmp_path: Path, code: str, words: str):
    seconds = 1 if "while True" in code else 600  # an endless one never ends before
    result = await run(tmp_path, code, timeout=seconds)
    assert result.is_error
    assert words in result.text


async def test_a_flood_of_output_is_cut(tmp_path: Path):
    code = "import os\nos.write(1, b'y' * 9_000_000)\nfor n in range(9): print('x' * 100_000)"
    result = await run(tmp_path, code, timeout=600)
    assert not result.is_error
    assert len(result.text) < 20_000
    assert "more characters were printed; print less" in result.text
    assert "y" not in result.text


async def test_an_interruption_ends_the_process(tmp_path: Path):
    code = """
import os
with open("draft", "w") as file:
    file.write(str(os.getpid()))
os.rename("draft", "pid")
while True: pass
"""
    async with make_agent(tmp_path, run_code(code, timeout=600)) as agent:
        running = asyncio.create_task(agent.run("work", deps=tmp_path / "bank"))
        while not (tmp_path / "pid").exists():
            await asyncio.wait([running], timeout=0.05)
            assert not running.done()
        running.cancel()
        await asyncio.wait([running])
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def crash(folder: Path) -> None:
    code = "print(glob('*'))\npay(1)\npay(13)\npay(99)"
    async with (
        make_agent(folder, run_code(code)) as agent,
        agent.session("invoice", deps=folder / "bank") as session,
    ):
        await session.run("Pay")


async def test_after_kill_9_nothing_runs_again_and_the_doubt_is_named(tmp_path: Path):
    ended = subprocess.run([sys.executable, __file__, tmp_path], check=False)  # noqa: ASYNC221
    assert ended.returncode == -signal.SIGKILL
    async with (
        make_agent(tmp_path, "I see.") as agent,
        agent.session("invoice", deps=tmp_path / "bank") as session,
    ):
        result = await session.run()
        (cut,) = [item for item in result.transcript if isinstance(item, ToolResultItem)]
    assert result.text == "I see."
    assert cut.outcome == "unknown"
    assert 'pay {"euros":1}: done; pay {"euros":13}: begun, outcome unknown' in cut.text
    assert (tmp_path / "bank").read_text() == "1\n13\n"


if __name__ == "__main__":
    asyncio.run(crash(Path(sys.argv[1])))
