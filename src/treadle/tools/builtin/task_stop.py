"""`task_stop`: end a background task, with every process of it."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import msgspec

from treadle.core.contracts.tool import Probe, ToolContext, ToolOutput
from treadle.core.transcript.content import Arguments
from treadle.tools.builtin.desk import Seat
from treadle.tools.builtin.form import BuiltinTool
from treadle.tools.builtin.task_output import find_task


class TaskStopArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task_id: Annotated[str, msgspec.Meta(description="Such as t1")]


class TaskStopTool(BuiltinTool[TaskStopArguments]):
    name = "task_stop"
    form = TaskStopArguments
    effect = "verifiable"
    concurrent = False
    synonyms: ClassVar[Mapping[str, str]] = {
        "id": "task_id",
        "bash_id": "task_id",
        "shell_id": "task_id",
    }

    async def run(self, given: TaskStopArguments, seat: Seat) -> ToolOutput:
        task = find_task(seat, given.task_id)
        if not await seat.context.tasks.cancel(task.id):
            return ToolOutput(f"Task {task.id} had ended already: it is {task.state}.")
        return ToolOutput(f"Task {task.id} was ended.", display=f"Ended {task.summary}")

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> Probe:
        return Probe("done", "no task outlives the process that it ran in")
