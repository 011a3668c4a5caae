from __future__ import annotations

import asyncio
from collections.abc import Sequence

from treadle import Agent
from treadle.core.contracts.task_manager import ReportTaskEnd, TaskInfo
from treadle.core.events import TaskFinished, ToolDetached
from treadle.core.loop.calls.background import BackgroundTasks
from treadle.core.steps import AfterToolResult
from treadle.core.transcript import NoticeItem, ToolCall, ToolResultItem
from treadle.core.transcript.state import SessionState
from treadle.models import Say, Scripted
from treadle.testing import RecordingObserver, RecordingTool, check_task_manager


class JobQueue(BackgroundTasks):
    """A manager of a host: every detachable call is a task at once, and none is ever lost."""

    def foreground_seconds(self, call: ToolCall, declared: float | None) -> float | None:
        return 0.0

    def restore(self, known: Sequence[str], unfinished: Sequence[str]) -> Sequence[str]:
        super().restore(known, unfinished)
        return ()


async def test_the_task_manager_of_the_loop_keeps_the_promises():
    await check_task_manager(BackgroundTasks)


async def test_the_task_manager_of_a_host_keeps_the_promises():
    await check_task_manager(JobQueue)


async def test_a_host_replaces_the_task_manager_and_the_model_is_told_the_same_way():
    made: list[JobQueue] = []

    def make(report_end: ReportTaskEnd) -> JobQueue:
        made.append(JobQueue(report_end))
        return made[-1]

    release, seen = asyncio.Event(), RecordingObserver()
    slow = RecordingTool(release=release, detach_after=600.0)
    model = Scripted([Say(calls=[("record", {})]), "Waiting.", "It is done."])
    driver = Agent(model, [slow], task_manager=make).start(prompt="go")
    driver.watch(seen)
    assert isinstance(await driver.next(), AfterToolResult)
    await driver.next()
    (task,) = driver.tasks.list()
    assert isinstance(task, TaskInfo)
    assert any(isinstance(event, ToolDetached) for event in seen.events)
    release.set()
    await made[0].wait()
    driver.submit("and?")
    await driver.next()
    notices = [item for item in driver.transcript if isinstance(item, NoticeItem)]
    assert [notice.data for notice in notices] == [{"task_id": task.id, "state": "done"}]
    assert any(isinstance(event, TaskFinished) for event in seen.events)
    await driver.aclose()

    started = next(item for item in driver.transcript if isinstance(item, ToolResultItem))
    history = driver.transcript.prefix(len(driver.transcript) - 3)
    assert started in history
    again = Agent(Scripted(["Hm."]), [slow], task_manager=make).start(state=SessionState(history))
    again.submit("go on")
    await again.next()
    assert not any(isinstance(item, NoticeItem) for item in again.transcript)  # none is lost
