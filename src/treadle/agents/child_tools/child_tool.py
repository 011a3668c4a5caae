"""The base of tools whose call is a child agent: task_tool.py and agent_tool.py.

A call that a crash interrupted takes up the child that it had started, and what that child waits
for can be answered before. Uses subagents.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from treadle.agents.subagents import ChildTask, SubagentRunner
from treadle.core.contracts.tool import Access, BaseTool, ProbeResult, ToolContext
from treadle.core.steps import ApprovalRequest
from treadle.core.transcript.content import Arguments

CHILD_SECONDS = 24 * 3600.0  # the most that a child may take


class ChildTool(BaseTool, ABC):
    """Starts and continues children. Its spec has `effect="verifiable"` and `asks_host`."""

    @abstractmethod
    def _make_task(self, arguments: Arguments, context: ToolContext) -> ChildTask: ...

    @abstractmethod
    def _get_runner(self, context: ToolContext) -> SubagentRunner: ...

    def access(self, arguments: Arguments, session_id: str) -> Access:
        return Access(delegates=True)

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        return {"is_stored": self._get_runner(context).has_place(context)}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        """A child that has a session is continued: the call runs again, and takes it up."""
        runner, task = self._get_runner(context), self._make_task(arguments, context)
        if evidence.get("is_stored") or await runner.is_resumable(task, context):
            return ProbeResult("not_done", f"the agent {task.name} continues where it was")
        return ProbeResult("unknown", "the child agent has no session that could be continued")

    async def restore_approvals(
        self, arguments: Arguments, context: ToolContext
    ) -> list[ApprovalRequest]:
        """What the child of an interrupted call waits for; the host can answer before it
        continues."""
        runner = self._get_runner(context)
        return await runner.restore(self._make_task(arguments, context), context)
