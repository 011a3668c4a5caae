"""The promises of a task manager (core/contracts/task_manager.py), as a check."""

from __future__ import annotations

import asyncio

from treadle.core.contracts.task_manager import MakeTaskManager, TaskInfo, TaskManager
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.items import ToolResultItem


class _Work:
    """A call that runs until it is told how to end."""

    def __init__(self, call_id: str) -> None:
        self.call = ToolCall(call_id, "work", "{}")
        self._end: asyncio.Future[ToolResultItem] = asyncio.get_running_loop().create_future()
        self.task = asyncio.ensure_future(self._run())

    async def _run(self) -> ToolResultItem:
        return await self._end

    def finish(self, text: str, *, is_error: bool = False) -> None:
        result = ToolResultItem(self.call.id, "work", (Text(text),), is_error=is_error)
        self._end.set_result(result)

    def fail(self) -> None:
        self._end.set_exception(RuntimeError("broken"))


class _Reports:
    """The ends that a manager reports."""

    def __init__(self) -> None:
        self.ended: list[tuple[TaskInfo, str]] = []

    def __call__(self, task: TaskInfo, text: str) -> None:
        self.ended.append((task, text))


async def check_task_manager(make: MakeTaskManager) -> None:
    """Raise AssertionError at the first broken promise."""
    reports = _Reports()
    tasks = make(reports)
    await _check_results(tasks, reports)
    await _check_cancellation(tasks, reports)
    await tasks.aclose()
    await tasks.aclose()  # closing twice is allowed
    await _check_restore(make)


async def _check_results(tasks: TaskManager, reports: _Reports) -> None:
    seconds = tasks.foreground_seconds(ToolCall("c0", "work", "{}"), 2.0)
    assert seconds is None or seconds >= 0, "the time in the foreground is not negative"
    foreground = ToolCall("c0", "work", "{}")
    tasks.start_capture(foreground)
    tasks.append_output("c0", "text")
    tasks.stop_capture(foreground)
    assert tasks.list() == (), "a call that ended in the foreground is no task"
    tasks.append_output("unknown", "text")  # ignored

    works = [_Work("c1"), _Work("c2"), _Work("c3")]
    for work in works:
        tasks.start_capture(work.call)
    tasks.append_output("c1", "begun ")
    ids = [tasks.add(work.call, f"[{work.call.id}]", work.task) for work in works]
    tasks.append_output("c1", "and going")
    assert len(set(ids)) == 3, f"each task has an id of its own: {ids}"
    assert all(ids), "an id is not empty"
    first = tasks.read(ids[0])
    assert first is not None, "a task can be read"
    assert first.state == "running", "a task that was added is running"
    assert (first.call_id, first.name, first.summary) == ("c1", "work", "[c1]")
    assert first.output.endswith("and going"), "what a call reports is the output of its task"
    assert tasks.read("no such task") is None, "an unknown id is no task"
    assert [task.id for task in tasks.list()] == ids, "tasks are listed in their order"

    works[0].finish("fine")
    works[1].finish("not fine", is_error=True)
    works[2].fail()
    await tasks.wait()
    await asyncio.sleep(0)  # callbacks of the tasks
    ends = {task.id: (task.state, text) for task, text in reports.ended}
    assert len(reports.ended) == 3, "each end is reported once"
    assert ends[ids[0]] == ("done", "fine")
    assert ends[ids[1]] == ("failed", "not fine")
    assert ends[ids[2]][0] == "failed", "a task that raises has failed"
    assert "broken" in ends[ids[2]][1], "the report of a task that raises says why"
    read = tasks.read(ids[0])
    assert read is not None, "a task can be read after its end"
    assert read.state == "done", "a task that ended is not running"
    assert not await tasks.cancel(ids[0]), "a task that ended cannot be cancelled"


async def _check_cancellation(tasks: TaskManager, reports: _Reports) -> None:
    reports.ended.clear()
    works = [_Work("c4"), _Work("c5")]
    ids = [tasks.add(work.call, "", work.task) for work in works]
    assert await tasks.cancel(ids[0]), "a running task can be cancelled"
    assert works[0].task.done(), "cancel() returns when the work has ended"
    assert not await tasks.cancel("no such task"), "an unknown id cannot be cancelled"
    await tasks.aclose()
    assert works[1].task.done(), "aclose() leaves nothing running"
    await asyncio.sleep(0)
    states = [task.state for task, _ in reports.ended]
    assert states == ["cancelled", "cancelled"], "the end of a cancelled task is reported, once"


async def _check_restore(make: MakeTaskManager) -> None:
    """`make` is called as in a new process: with the ids that another manager gave."""
    earlier = make(_Reports())
    works = [_Work("c6"), _Work("c7")]
    known = [earlier.add(work.call, "", work.task) for work in works]
    await earlier.aclose()
    tasks = make(_Reports())
    lost = tasks.restore(known, known[1:])
    assert set(lost) <= set(known[1:]), "only tasks that had not ended can be lost"
    work = _Work("c8")
    new = tasks.add(work.call, "", work.task)
    assert new not in known, f"the id {new} was given in an earlier process"
    await tasks.aclose()
