"""`task_stop`: end a background task and all its processes."""

from typing import Annotated, Any

import msgspec

from treadle.core.contracts.tool import ProbeResult, ToolContext, ToolOutput
from treadle.core.transcript.content import Arguments
from treadle.tools.builtin.base import BuiltinTool, describe
from treadle.tools.builtin.session_memory import CallSite
from treadle.tools.builtin.shell.task_output import TASK_ID_ALIASES, find_task


class TaskStopArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task_id: Annotated[str, describe("Such as t1")]


class TaskStopTool(BuiltinTool[TaskStopArguments]):
    name = "task_stop"
    kind = "execute"
    arguments_type = TaskStopArguments
    effect = "verifiable"
    concurrent = False
    aliases = ("kill_bash", "kill_shell", "stop_task", "kill_task")
    argument_aliases = TASK_ID_ALIASES

    async def run(self, args: TaskStopArguments, site: CallSite) -> ToolOutput:
        task = find_task(site, args.task_id)
        tasks = site.context.tasks
        if tasks is None or not await tasks.cancel(task.id):
            return ToolOutput(f"Task {task.id} had ended already: it is {task.state}.")
        return ToolOutput(f"Task {task.id} was ended.", display=f"Ended {task.summary}")

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("done", "no task outlives the process that it ran in")
