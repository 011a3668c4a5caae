"""The contract of a task manager: what becomes of calls that continue in the background.

A call of a detachable tool runs in the foreground until it ends, asks to be detached, or its time
in the foreground is over. Then the task manager takes it over: the result of the call says
"running as task ID", and the loop tells the model when the task ends. Tools list, read and cancel
tasks through their context. Each driver has one of its own. The default one is
core/loop/calls/background.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from treadle.core.transcript.content import ToolCall
from treadle.core.transcript.items import ToolResultItem

TaskState = Literal["running", "done", "failed", "cancelled"]


class TaskInfo(msgspec.Struct, frozen=True):
    """A background task, as tools and hosts see it."""

    id: str
    call_id: str
    name: str
    summary: str
    state: TaskState
    output: str


class TaskManager(Protocol):
    """Keeps the background tasks of one driver.

    Promises:
    - `add` returns an id that no other task of the session has, also none of `restore`.
    - Each task that was added is reported once, when it has ended, with what it returned:
      `report_end(task, text)`, which is the argument of the factory.
    - `read` and `list` know a task until the driver is closed, also after its end.
    - `cancel` and `aclose` return when the work has ended, or after a few seconds if it does not
      stop.
    A task manager must not block, and must not touch the transcript: the loop tells the model. If
    it fails at a call, the user is warned, and the call ends in the foreground.
    """

    def foreground_seconds(self, call: ToolCall, declared: float | None) -> float | None:
        """How long a detachable call may run in the foreground; None: until it ends or asks.
        `declared` is what its tool says. 0 makes it a task at once."""

    def start_capture(self, call: ToolCall) -> None:
        """Keep what the call reports: it may become a task."""

    def append_output(self, call_id: str, text: str) -> None:
        """The call reports progress. Called for every call, also without `start_capture`."""

    def stop_capture(self, call: ToolCall) -> None:
        """The call ended in the foreground."""

    def add(self, call: ToolCall, summary: str, work: asyncio.Task[ToolResultItem]) -> str:
        """Take over a running call; returns the id of the task."""

    def restore(self, known: Sequence[str], unfinished: Sequence[str]) -> Sequence[str]:
        """Called before the first task of a resumed session, with the tasks of earlier processes
        and those of them that had not ended; returns which are lost. The others are reported when
        they end."""

    def list(self) -> tuple[TaskInfo, ...]: ...

    def read(self, task_id: str) -> TaskInfo | None: ...

    async def cancel(self, task_id: str) -> bool:
        """Cancel one task and wait until it has ended; False if it was not running."""

    async def wait(self) -> None:
        """Until every running task has ended."""

    async def aclose(self) -> None:
        """Cancel what is running."""


ReportTaskEnd = Callable[[TaskInfo, str], None]  # (the task, its result)
MakeTaskManager = Callable[[ReportTaskEnd], TaskManager]
