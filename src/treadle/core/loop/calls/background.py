"""Calls that continue in the background: the default task manager, and the reports to the model.

A call may be detached at once or after a while. Its result says "running as task t1"; when the task
ends, a notice with its output enters the inbox, and from there the transcript. The contract is
contracts/task_manager.py.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Sequence

from treadle.core.contracts.task_manager import ReportTaskEnd, TaskInfo, TaskManager, TaskState
from treadle.core.contracts.tool import STOPPED_KEY
from treadle.core.errors import error_text
from treadle.core.events import TaskFinished, WarningRaised, preview
from treadle.core.loop.emitter import Emitter
from treadle.core.loop.inbox import TASK
from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import Item, NoticeItem, ToolResultItem
from treadle.core.transcript.state import SessionState
from treadle.lib.tasks import cancel_all

RUNNING_TEXT = "Running as task {id}. A notice will give its result when it ends."
CANCELLED_TEXT = "It was cancelled; its effect may be incomplete."
CLOSED_TEXT = "It was stopped because the program ended: its outcome is unknown."
LOST_NOTICE = "Background task {task} is lost: it does not run here. Its outcome is unknown."

MAX_OUTPUT_CHARS = 20_000


class _BackgroundTask:
    def __init__(self, number: int, call: ToolCall, summary: str) -> None:
        self.id = f"t{number}"
        self.call = call
        self.summary = summary
        self.state: TaskState = "running"
        self.output = ""
        self.work: asyncio.Task[ToolResultItem] | None = None


class BackgroundTasks:
    """The default task manager: tasks of this process, with the end of their output."""

    def __init__(self, report_end: ReportTaskEnd) -> None:
        self._report_end = report_end
        self._tasks: dict[str, _BackgroundTask] = {}
        self._earlier_tasks = 0  # tasks of earlier processes
        self._is_closing = False
        self._output_tails: dict[str, str] = {}  # by call id, of calls that may become tasks

    def restore(self, known: Sequence[str], unfinished: Sequence[str]) -> Sequence[str]:
        """All are lost: they ended with their process."""
        numbers = [int(task_id[1:]) for task_id in known if task_id[1:].isdecimal()]
        self._earlier_tasks = max([self._earlier_tasks, *numbers])
        return unfinished

    def foreground_seconds(self, call: ToolCall, declared: float | None) -> float | None:
        return declared

    def start_capture(self, call: ToolCall) -> None:
        """Keep what the call reports: it may become a task."""
        self._output_tails[call.id] = ""

    def stop_capture(self, call: ToolCall) -> None:
        """The call ended in the foreground."""
        self._output_tails.pop(call.id, None)

    def add(self, call: ToolCall, summary: str, work: asyncio.Task[ToolResultItem]) -> str:
        """Take over a running call; a notice will report its end."""
        task = _BackgroundTask(self._earlier_tasks + len(self._tasks) + 1, call, summary)
        task.work = work
        self._tasks[task.id] = task
        work.add_done_callback(lambda done: self._on_done(task, done))
        return task.id

    def append_output(self, call_id: str, text: str) -> None:
        """Keep the last output of a call that is, or may become, a task."""
        tail = self._output_tails.get(call_id)
        if tail is not None:
            self._output_tails[call_id] = (tail + text)[-MAX_OUTPUT_CHARS:]

    def list(self) -> tuple[TaskInfo, ...]:
        return tuple(self._info(task) for task in self._tasks.values())

    def read(self, task_id: str) -> TaskInfo | None:
        task = self._tasks.get(task_id)
        return self._info(task) if task is not None else None

    async def cancel(self, task_id: str) -> bool:
        """Cancel one task and wait until it has ended; False if it was not running."""
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
        self._is_closing = True
        await cancel_all([task.work for task in self._tasks.values() if task.work is not None])
        for task in self._tasks.values():
            if task.work is not None and task.work.done():
                self._on_done(task, task.work)  # the callback would come after the close

    def _info(self, task: _BackgroundTask) -> TaskInfo:
        output = self._output_tails.get(task.call.id, task.output)
        return TaskInfo(task.id, task.call.id, task.call.name, task.summary, task.state, output)

    def _on_done(self, task: _BackgroundTask, work: asyncio.Task[ToolResultItem]) -> None:
        if task.work is None:
            return  # reported already
        tail = self._output_tails.pop(task.call.id, "")
        if work.cancelled():
            task.state, task.output = "cancelled", tail
            text = CLOSED_TEXT if self._is_closing else CANCELLED_TEXT
        elif (problem := work.exception()) is not None:
            task.state, text = "failed", error_text(problem)
            task.output = tail or text
        else:
            result = work.result()
            is_stopped = result.data is not None and bool(result.data.get(STOPPED_KEY))
            task.state = "cancelled" if is_stopped else "failed" if result.is_error else "done"
            text = result.model_text
            task.output = text[-MAX_OUTPUT_CHARS:]
        task.work = None
        self._report_end(self._info(task), text)


class TaskReports:
    """Tells the model and the observers what becomes of background tasks."""

    def __init__(self, emitter: Emitter, on_notice: Callable[[NoticeItem], object]) -> None:
        self._emitter = emitter
        self._on_notice = on_notice

    def report_end(self, task: TaskInfo, text: str) -> None:
        is_error, is_cancelled = task.state != "done", task.state == "cancelled"
        self._emitter.emit(TaskFinished, task.id, task.name, preview(text), is_error, is_cancelled)
        head = f"Background task {task.id} {task.summary} is {task.state}."
        self._notify(task.id, task.state, f"{head}\n{text}")

    def report_lost(self, manager: TaskManager, items: Iterable[Item]) -> None:
        """Tell the model which tasks of earlier processes are lost."""
        ids: dict[str, bool] = {}  # and whether the task has not ended
        summaries: dict[str, str] = {}
        for item in items:
            if task_id := _find_task_id(item):
                ids[task_id] = isinstance(item, ToolResultItem)
                summaries.setdefault(task_id, _find_summary(item))
        if ids:
            unfinished = [task_id for task_id, is_running in ids.items() if is_running]
            try:
                lost = list(manager.restore(list(ids), unfinished))
            except Exception as error:  # noqa: BLE001 - a task manager may raise anything
                self._warn(error)
                lost = unfinished  # nothing is known of them any more
            for task_id in lost:
                task = f"{task_id} {summaries.get(task_id, '')}".strip()
                self._notify(task_id, "lost", LOST_NOTICE.format(task=task))

    async def cancel_since(self, manager: TaskManager, turn_id: str, state: SessionState) -> None:
        """Cancel the tasks that were started in this turn or later."""
        start = next(one for one in state.turn_starts if one.turn_id == turn_id)
        added = state.full_history[len(start.full_history) :]
        late = {item.call_id for item in added if isinstance(item, ToolResultItem)}
        for task in manager.list():
            if task.call_id in late and task.state == "running":
                await manager.cancel(task.id)

    async def close(self, manager: TaskManager) -> None:
        """Close the manager. It may be code of others: if it fails, that is told, and the rest is
        closed."""
        try:
            await manager.aclose()
        except Exception as error:  # noqa: BLE001 - the same
            self._warn(error)

    def _warn(self, error: Exception) -> None:
        self._emitter.emit(WarningRaised, f"the task manager failed: {error_text(error)}")

    def _notify(self, task_id: str, state: str, text: str) -> None:
        data = {"task_id": task_id, "state": state}
        self._on_notice(NoticeItem(text, kind=TASK, data=data))


def _find_task_id(item: Item) -> str:
    """The task that a result started or a notice ended; "" for other items."""
    if not isinstance(item, (ToolResultItem, NoticeItem)):
        return ""
    task_id = item.data.get("task_id") if item.data else None
    return task_id if isinstance(task_id, str) else _find_task_id_of_0_1(item)


def _find_summary(item: Item) -> str:
    """What the task does; "" in logs that do not have it."""
    summary = item.data.get("summary") if isinstance(item, ToolResultItem) and item.data else None
    return summary if isinstance(summary, str) else ""


def _find_task_id_of_0_1(item: ToolResultItem | NoticeItem) -> str:
    """The same for logs of version 0.1, which have it only in the text."""
    if isinstance(item, ToolResultItem):
        text, begins = item.display, "Running as task "
    else:
        text, begins = (item.text, "Background task ") if item.kind == TASK else ("", " ")
    if not text.startswith(begins):  # nearly all results; a session may have 100,000
        return ""
    found = re.match(begins + r"(t\d+)[. ]", text)
    return found[1] if found else ""
