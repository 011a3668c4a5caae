"""Calls that go on in the background.

A call may be detached at once or after a while. It is answered "running as task t1"; when it
ends, a notice with its result enters the inbox, and from there the transcript. Tools reach
the list through their context: see, read, cancel.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from treadle.core.events import TaskFinished, preview
from treadle.core.loop.emitter import Emitter
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import Item, NoticeItem, ToolResultItem

RUNNING_TEXT = "Running as task {id}. Its result will be told when it ends."
LOST_NOTICE = "Background task {id} is lost: the process that ran it ended. Its outcome is unknown."

TaskState = Literal["running", "done", "failed", "cancelled"]
MAX_OUTPUT_CHARS = 20_000


class TaskInfo(msgspec.Struct, frozen=True):
    """What anybody may see of a task."""

    id: str
    call_id: str
    name: str
    summary: str
    state: TaskState
    output: str


class _BackgroundTask:
    def __init__(self, number: int, call: ToolCall, summary: str) -> None:
        self.id = f"t{number}"
        self.call = call
        self.summary = summary
        self.state: TaskState = "running"
        self.output = ""
        self.work: asyncio.Task[ToolResultItem] | None = None


class BackgroundTasks:
    """The detached calls of one driver."""

    def __init__(self, emitter: Emitter, on_notice: Callable[[NoticeItem], None]) -> None:
        self._emitter = emitter
        self._on_notice = on_notice
        self._tasks: dict[str, _BackgroundTask] = {}
        self._earlier_tasks = 0  # tasks of earlier processes
        self._output_tails: dict[str, str] = {}  # by call id, of calls that may become tasks

    def report_lost(self, items: Iterable[Item]) -> None:
        """What earlier processes started: whatever did not end there was lost with them."""
        left: dict[str, None] = {}
        for item in items:
            if isinstance(item, ToolResultItem) and (found := _RUNNING_PATTERN.match(item.display)):
                left[found[1]] = None
                self._earlier_tasks = max(self._earlier_tasks, int(found[1][1:]))
            elif isinstance(item, NoticeItem) and (found := _ENDED_PATTERN.match(item.text)):
                left.pop(found[1], None)
        for task_id in left:
            self._on_notice(NoticeItem(LOST_NOTICE.format(id=task_id), kind="task"))

    def start_capture(self, call: ToolCall) -> None:
        """The call may become a task: keep what it reports from the beginning."""
        self._output_tails[call.id] = ""

    def stop_capture(self, call: ToolCall) -> None:
        """It ended in the foreground."""
        self._output_tails.pop(call.id, None)

    def add(self, call: ToolCall, summary: str, work: asyncio.Task[ToolResultItem]) -> str:
        """Take over a call that is already running; its end will be told by a notice."""
        task = _BackgroundTask(self._earlier_tasks + len(self._tasks) + 1, call, summary)
        task.work = work
        self._tasks[task.id] = task
        work.add_done_callback(lambda done: self._on_done(task, done))
        return task.id

    def append_output(self, call_id: str, text: str) -> None:
        """Keep the end of what a call reported that is, or may become, a task."""
        heard = self._output_tails.get(call_id)
        if heard is not None:
            self._output_tails[call_id] = (heard + text)[-MAX_OUTPUT_CHARS:]

    def list(self) -> tuple[TaskInfo, ...]:
        return tuple(self._info(task) for task in self._tasks.values())

    def read(self, task_id: str) -> TaskInfo | None:
        task = self._tasks.get(task_id)
        return self._info(task) if task is not None else None

    async def cancel(self, task_id: str) -> bool:
        """End one task and wait until it is gone; False if it was not running."""
        task = self._tasks.get(task_id)
        if task is None or task.work is None or task.work.done():
            return False
        await cancel_all([task.work])
        return True

    async def wait(self) -> None:
        """Until every running task has ended."""
        running = [task.work for task in self._tasks.values() if task.work is not None]
        if running:
            await asyncio.wait(running)

    async def aclose(self) -> None:
        await cancel_all([task.work for task in self._tasks.values() if task.work is not None])

    def _info(self, task: _BackgroundTask) -> TaskInfo:
        output = self._output_tails.get(task.call.id, task.output)
        return TaskInfo(task.id, task.call.id, task.call.name, task.summary, task.state, output)

    def _on_done(self, task: _BackgroundTask, work: asyncio.Task[ToolResultItem]) -> None:
        heard = self._output_tails.pop(task.call.id, "")
        if work.cancelled():
            task.state, text, task.output = "cancelled", "It was cancelled.", heard
        elif (problem := work.exception()) is not None:
            task.state, text = "failed", f"{type(problem).__name__}: {problem}"
            task.output = heard or text
        else:
            result = work.result()
            task.state = "failed" if result.is_error else "done"
            text = result.text
            task.output = text[-MAX_OUTPUT_CHARS:]
        task.work = None
        failed = task.state != "done"
        self._emitter.emit(TaskFinished, task.id, task.call.name, preview(text), failed)
        head = f"Background task {task.id} {task.summary} is {task.state}."
        self._on_notice(NoticeItem(f"{head}\n{text}", kind="task"))


_RUNNING_PATTERN = re.compile(r"Running as task (t\d+)\.")
_ENDED_PATTERN = re.compile(r"Background task (t\d+) ")


async def cancel_all(tasks: list[asyncio.Task[Any]], grace: float = 5.0) -> None:
    """Cancel tasks and wait until they are gone, even if we are cancelled meanwhile."""
    running = [task for task in tasks if not task.done()]
    cancelled = False
    while running:
        for task in running:
            task.cancel()
        try:
            _, left = await asyncio.wait(running, timeout=grace)
        except asyncio.CancelledError:
            cancelled = True
            continue
        if len(left) == len(running):
            break  # they swallow cancellation: waiting longer would hang the person
        running = list(left)
    if cancelled:
        raise asyncio.CancelledError
