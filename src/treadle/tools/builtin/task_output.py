"""`task_output`: what a background task printed so far, or which tasks there are.

Tasks are the loop's; of a command in the background the workspace knows more, so it is asked.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Protocol

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import ToolError
from treadle.tools.builtin.desk import Seat
from treadle.tools.builtin.form import BuiltinTool

MOST_CHARS = 20_000


class TaskInfo(Protocol):
    """What the loop tells of a task."""

    @property
    def id(self) -> str: ...
    @property
    def call_id(self) -> str: ...
    @property
    def summary(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def output(self) -> str: ...


class TaskOutputArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task_id: Annotated[str, msgspec.Meta(description="Such as t1; all are listed if left out")] = ""


class TaskOutputTool(BuiltinTool[TaskOutputArguments]):
    name = "task_output"
    form = TaskOutputArguments
    synonyms: ClassVar[Mapping[str, str]] = {
        "id": "task_id",
        "bash_id": "task_id",
        "shell_id": "task_id",
    }

    async def run(self, given: TaskOutputArguments, seat: Seat) -> ToolOutput:
        if not given.task_id:
            return _listed(seat)
        task = find_task(seat, given.task_id)
        running = seat.notes.running.get(task.call_id)
        text = running.output() if running is not None else task.output
        if len(text) > MOST_CHARS:
            text = f"... [{len(text) - MOST_CHARS} characters left out]\n{text[-MOST_CHARS:]}"
        body = text.rstrip("\n") or "(no output yet)"
        said = f"Task {task.id} {task.summary} is {task.state}."
        return ToolOutput(f"{said}\n{body}", display=said)


def find_task(seat: Seat, task_id: str) -> TaskInfo:
    tasks = seat.context.tasks
    task: TaskInfo | None = tasks.read(task_id) if tasks is not None else None
    if task is None:
        known = ", ".join(one.id for one in tasks.list()) if tasks is not None else ""
        raise ToolError(f"there is no task {task_id!r}; there is {known or 'none'}")
    return task


def _listed(seat: Seat) -> ToolOutput:
    tasks = seat.context.tasks
    lines = [f"{one.id} {one.state} {one.summary}" for one in (tasks.list() if tasks else ())]
    return ToolOutput("\n".join(lines) or "There are no tasks.", display=f"{len(lines)} tasks")
