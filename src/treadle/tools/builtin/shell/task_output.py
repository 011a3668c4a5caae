"""`task_output`: what a background task printed so far, or which tasks there are.

Tasks are the loop's; of a command in the background the workspace knows more, so it is asked.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Protocol

import msgspec

from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import ToolError
from treadle.tools.builtin.base import BuiltinTool
from treadle.tools.builtin.session import CallSite

MAX_CHARS = 20_000


class BackgroundTaskInfo(Protocol):
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
    arguments_type = TaskOutputArguments
    argument_aliases: ClassVar[Mapping[str, str]] = {
        "id": "task_id",
        "bash_id": "task_id",
        "shell_id": "task_id",
    }

    async def run(self, args: TaskOutputArguments, site: CallSite) -> ToolOutput:
        if not args.task_id:
            return _list_tasks(site)
        task = find_task(site, args.task_id)
        running = site.session.running_commands.get(task.call_id)
        text = running.output() if running is not None else task.output
        if len(text) > MAX_CHARS:
            text = f"... [{len(text) - MAX_CHARS} characters left out]\n{text[-MAX_CHARS:]}"
        body = text.rstrip("\n") or "(no output yet)"
        said = f"Task {task.id} {task.summary} is {task.state}."
        return ToolOutput(f"{said}\n{body}", display=said)


def find_task(site: CallSite, task_id: str) -> BackgroundTaskInfo:
    tasks = site.context.tasks
    task: BackgroundTaskInfo | None = tasks.read(task_id) if tasks is not None else None
    if task is None:
        known = ", ".join(one.id for one in tasks.list()) if tasks is not None else ""
        raise ToolError(f"there is no task {task_id!r}; there is {known or 'none'}")
    return task


def _list_tasks(site: CallSite) -> ToolOutput:
    tasks = site.context.tasks
    lines = [f"{one.id} {one.state} {one.summary}" for one in (tasks.list() if tasks else ())]
    return ToolOutput("\n".join(lines) or "There are no tasks.", display=f"{len(lines)} tasks")
