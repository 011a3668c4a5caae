"""`task_output`: what a background task printed so far, or the list of tasks.

Tasks belong to the loop; the output of a background command comes from the workspace.
"""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from treadle.core.contracts.task_manager import TaskInfo
from treadle.core.contracts.tool import ToolOutput
from treadle.core.errors import ToolError
from treadle.lib.text.text import plural
from treadle.tools.builtin.base import BuiltinTool, describe
from treadle.tools.builtin.session_memory import CallSite

MAX_CHARS = 20_000
TASK_ID_ALIASES: Mapping[str, str] = dict.fromkeys(("id", "bash_id", "shell_id"), "task_id")


class TaskOutputArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task_id: Annotated[str, describe("Without it all are listed")] = ""


class TaskOutputTool(BuiltinTool[TaskOutputArguments]):
    name = "task_output"
    kind = "execute"
    arguments_type = TaskOutputArguments
    aliases = ("bash_output", "get_task_output", "read_background_output")
    argument_aliases = TASK_ID_ALIASES

    async def run(self, args: TaskOutputArguments, site: CallSite) -> ToolOutput:
        if not args.task_id:
            return _list_tasks(site)
        task = find_task(site, args.task_id)
        running = site.session.running_commands.get(task.call_id)
        text = running.output() if running is not None else task.output
        if len(text) > MAX_CHARS:
            text = f"... [{len(text) - MAX_CHARS} characters left out]\n{text[-MAX_CHARS:]}"
        body = text.rstrip("\n") or "(no output yet)"
        status = f"Task {task.id} {task.summary} is {task.state}."
        return ToolOutput(f"{status}\n{body}", display=status)


def find_task(site: CallSite, task_id: str) -> TaskInfo:
    tasks = site.context.tasks
    task = tasks.read(task_id) if tasks is not None else None
    if task is None:
        known = ", ".join(known.id for known in tasks.list()) if tasks is not None else ""
        raise ToolError(f"there is no task {task_id!r}; known tasks: {known or 'none'}")
    return task


def _list_tasks(site: CallSite) -> ToolOutput:
    tasks = site.context.tasks
    lines = [f"{task.id} {task.state} {task.summary}" for task in (tasks.list() if tasks else ())]
    display = plural(len(lines), "task")
    return ToolOutput("\n".join(lines) or "There are no tasks.", display=display)
