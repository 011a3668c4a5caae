"""The promises of a task manager (core/contracts/task_manager.py), as checks.

await check_task_manager(make)       make(report_end) returns a new one, as Agent calls it
"""

from __future__ import annotations

import asyncio

from treadle.core.contracts.task_manager import MakeTaskManager, TaskInfo
from treadle.core.transcript.content import Text, ToolCall
from treadle.core.transcript.items import ToolResultItem
from treadle.testing.conformance.promises import Promise, keep_promises


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
    """Raise an AssertionError that names the first broken promise."""
    await keep_promises("task manager", TASK_MANAGER_PROMISES, make)


async def a_call_that_ends_in_the_foreground_is_no_task(make: MakeTaskManager) -> None:
    tasks = make(_Reports())
    call = ToolCall("c0", "work", "{}")
    seconds = tasks.foreground_seconds(call, 2.0)
    assert seconds is None or seconds >= 0, f"the time in the foreground is {seconds}"
    tasks.start_capture(call)
    tasks.append_output("c0", "text")
    tasks.stop_capture(call)
    tasks.append_output("unknown", "text")  # ignored
    assert tasks.list() == (), f"the tasks are {tasks.list()}"
    await tasks.aclose()


async def a_task_has_an_id_and_can_be_read(make: MakeTaskManager) -> None:
    tasks = make(_Reports())
    works = [_Work("c1"), _Work("c2")]
    for work in works:
        tasks.start_capture(work.call)
    tasks.append_output("c1", "begun ")
    ids = [tasks.add(work.call, f"[{work.call.id}]", work.task) for work in works]
    tasks.append_output("c1", "and going")
    assert len(set(ids)) == 2, f"each task has an id of its own: {ids}"
    assert all(ids), "an id is empty"
    first = tasks.read(ids[0])
    assert first is not None, "a task cannot be read"
    assert first.state == "running", f"a task that was added is {first.state}"
    described = (first.call_id, first.name, first.summary)
    assert described == ("c1", "work", "[c1]"), f"the task is {described}"
    assert first.output.endswith("and going"), "what a call reports is the output of its task"
    assert tasks.read("no such task") is None, "an unknown id is a task"
    assert [task.id for task in tasks.list()] == ids, "tasks are not listed in their order"
    await tasks.aclose()


async def each_end_is_reported_once_with_its_result(make: MakeTaskManager) -> None:
    reports = _Reports()
    tasks = make(reports)
    works = [_Work("c1"), _Work("c2"), _Work("c3")]
    ids = [tasks.add(work.call, "", work.task) for work in works]
    works[0].finish("fine")
    works[1].finish("not fine", is_error=True)
    works[2].fail()
    await tasks.wait()
    await asyncio.sleep(0)  # callbacks of the tasks
    ends = {task.id: (task.state, text) for task, text in reports.ended}
    assert len(reports.ended) == 3, f"3 ends are reported {len(reports.ended)} times"
    assert ends[ids[0]] == ("done", "fine"), f"a result is reported as {ends[ids[0]]}"
    assert ends[ids[1]] == ("failed", "not fine"), f"an error is reported as {ends[ids[1]]}"
    state, text = ends[ids[2]]
    assert state == "failed", f"a task that raises is {state}"
    assert "broken" in text, "the report of a task that raises does not say why"
    await tasks.aclose()


async def a_task_can_be_read_after_its_end(make: MakeTaskManager) -> None:
    tasks = make(_Reports())
    work = _Work("c1")
    task_id = tasks.add(work.call, "", work.task)
    work.finish("fine")
    await tasks.wait()
    await asyncio.sleep(0)
    read = tasks.read(task_id)
    assert read is not None, "it is gone"
    assert read.state == "done", f"it is {read.state}"
    assert not await tasks.cancel(task_id), "a task that ended can be cancelled"
    await tasks.aclose()


async def cancel_returns_when_the_work_has_ended(make: MakeTaskManager) -> None:
    reports = _Reports()
    tasks = make(reports)
    work = _Work("c1")
    task_id = tasks.add(work.call, "", work.task)
    assert await tasks.cancel(task_id), "a running task cannot be cancelled"
    assert work.task.done(), "the work still runs"
    assert not await tasks.cancel("no such task"), "an unknown id can be cancelled"
    await asyncio.sleep(0)
    states = [task.state for task, _ in reports.ended]
    assert states == ["cancelled"], f"the reported ends are {states}"
    await tasks.aclose()


async def close_leaves_nothing_running(make: MakeTaskManager) -> None:
    reports = _Reports()
    tasks = make(reports)
    work = _Work("c1")
    tasks.add(work.call, "", work.task)
    await tasks.aclose()
    is_done = work.task.done()
    work.task.cancel()
    assert is_done, "the work still runs"
    await asyncio.sleep(0)
    states = [task.state for task, _ in reports.ended]
    assert states == ["cancelled"], f"the reported ends are {states}"
    await tasks.aclose()  # closing twice is allowed


async def an_id_of_an_earlier_process_is_not_given_again(make: MakeTaskManager) -> None:
    """`make` is called as in a new process: with the ids that another manager gave."""
    earlier = make(_Reports())
    works = [_Work("c6"), _Work("c7")]
    known = [earlier.add(work.call, "", work.task) for work in works]
    await earlier.aclose()
    tasks = make(_Reports())
    lost = tasks.restore(known, known[1:])
    assert set(lost) <= set(known[1:]), f"lost is {lost}; only {known[1:]} had not ended"
    work = _Work("c8")
    new = tasks.add(work.call, "", work.task)
    await tasks.aclose()
    assert new not in known, f"{new} is given again"


TASK_MANAGER_PROMISES: tuple[Promise, ...] = (
    a_call_that_ends_in_the_foreground_is_no_task,
    a_task_has_an_id_and_can_be_read,
    each_end_is_reported_once_with_its_result,
    a_task_can_be_read_after_its_end,
    cancel_returns_when_the_work_has_ended,
    close_leaves_nothing_running,
    an_id_of_an_earlier_process_is_not_given_again,
)
