"""Sweep: a run is cancelled at each of its awaits; nothing leaks and the session goes on.

Fault 79. The run has a retry wait, an eager call, parallel calls, a real process, an approval,
a detached call and steering in it; it is counted once, then cut at every point in turn, by a
cancelled task and by an interruption.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

from treadle import Agent
from treadle.core.contracts.policy import Allow, Ask, PermissionRequest, Verdict
from treadle.core.errors import Overloaded
from treadle.core.loop.driver import Driver
from treadle.core.steps import AfterToolResult, ApprovalRequest, Finished
from treadle.core.transcript import UserItem
from treadle.core.transcript.integrity import find_violations
from treadle.models import Say, Scripted
from treadle.testing.clock import ManualClock
from treadle.testing.stores import MemoryStore
from treadle.tools.function import tool


class Awaits:
    """A task factory that counts the suspensions of every task, and does something at the n-th."""

    def __init__(self, at: int = 0, do: Callable[[], object] = lambda: None) -> None:
        self.at = at
        self.do = do
        self.seen = 0

    def __call__(
        self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any
    ) -> asyncio.Task[Any]:
        return asyncio.Task(Counted(work, self), loop=loop, **options)

    def count(self) -> None:
        self.seen += 1
        if self.seen == self.at:
            self.do()


class Counted(Coroutine[Any, Any, Any]):
    def __init__(self, work: Coroutine[Any, Any, Any], awaits: Awaits) -> None:
        self._work = work
        self._awaits = awaits

    def send(self, value: Any) -> Any:
        waited = self._work.send(value)
        self._awaits.count()
        return waited

    def throw(self, *failure: Any) -> Any:
        waited = self._work.throw(*failure)
        self._awaits.count()
        return waited

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()


class SlowClock(ManualClock):
    """A retry wait that really waits a moment, so that it can be cut."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)
        await super().sleep(seconds)


class Rules:
    async def decide(self, request: PermissionRequest) -> Verdict:
        await asyncio.sleep(0)
        return Ask("it asks") if request.tool.name == "deploy" else Allow()

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        return None


@tool(effect="pure")
async def look(n: int) -> str:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return f"saw {n}"


@tool
async def process() -> str:
    child = await asyncio.create_subprocess_exec("true")
    try:
        return f"exit {await child.wait()}"
    except asyncio.CancelledError:
        if child.returncode is None:
            child.kill()
        await child.wait()
        raise


@tool
async def deploy() -> str:
    return "deployed"


@tool(detach_after=0)
async def build() -> str:
    await asyncio.sleep(0)
    return "built"


async def slowly(request: object) -> list[Any]:
    await asyncio.sleep(0)
    return ["Looking. ", Say(calls=[("look", {"n": 1}), ("look", {"n": 2}), ("process", {})])]


def script() -> list[Any]:
    return [
        Overloaded("busy"),
        slowly,
        Say("Shipping. ", calls=[("deploy", {}), ("build", {})]),
        Say(calls=[("look", {"n": 3})]),
        "All done.",
        "Yes, I am still here.",
        "Yes, I am still here.",
    ]


def make() -> tuple[Agent, MemoryStore]:
    agent = Agent(
        Scripted(script()), [look, process, deploy, build], policy=Rules(), clock=SlowClock()
    )
    return agent, MemoryStore()


async def whole_run(driver: Driver) -> Finished:
    said = False
    while True:
        step = await driver.next()
        if isinstance(step, ApprovalRequest):
            step.approve_all()
        elif isinstance(step, AfterToolResult) and not said:
            said = True
            driver.steer("Be quick.")
        elif isinstance(step, Finished):
            return step


async def count_awaits() -> int:
    agent, store = make()
    driver = agent.start(prompt="go", store=store)
    loop, awaits = asyncio.get_running_loop(), Awaits()
    loop.set_task_factory(awaits)
    step = await loop.create_task(whole_run(driver))
    await driver.aclose()
    assert step.result.reason == "end_turn"
    return awaits.seen


def open_files() -> set[str]:
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the one that lists the folder
            found.add(f"{link.name} {link.readlink()}")
    return found


def children() -> list[str]:
    found: list[str] = []
    for thread in Path(f"/proc/{os.getpid()}/task").iterdir():
        try:
            found += (thread / "children").read_text().split()
        except OSError:  # the thread ended while we looked
            continue
    return found


async def cut_at(point: int, how: str) -> None:
    agent, store = make()
    driver = agent.start(prompt="go", store=store)
    loop, awaits = asyncio.get_running_loop(), Awaits(point)
    loop.set_task_factory(awaits)
    run = loop.create_task(whole_run(driver))
    awaits.do = run.cancel if how == "cancelled" else lambda: loop.call_soon(driver.interrupt)
    try:
        step = await run
        assert step.result.reason in ("aborted", "end_turn")
    except asyncio.CancelledError:
        assert how == "cancelled"
    assert find_violations(driver.transcript) == [], point
    assert driver.snapshot().pending_input == () or driver.approvals == ()

    driver.submit("Are you still there?")
    step = await whole_run(driver)
    assert step.result.reason == "end_turn", point
    assert find_violations(driver.transcript) == []
    said = [item.text for item in driver.transcript if isinstance(item, UserItem)]
    assert said.count("Are you still there?") == 1
    await driver.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}, point


@pytest.mark.parametrize("how", ["cancelled", "interrupted"])
def test_fault_79_a_run_can_be_cut_at_every_await(how: str):
    points = asyncio.run(count_awaits())
    assert points > 25
    files, others = open_files(), children()  # a browser of other tests may run
    for point in range(1, points + 1):
        asyncio.run(cut_at(point, how))
        assert children() == others, point
    assert open_files() <= files  # what other tests left may be gone
