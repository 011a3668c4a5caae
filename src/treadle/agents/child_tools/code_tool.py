"""The `run_code` tool: a short Python program that calls the other tools as functions.

The program runs in the sandbox, and is decided on as the command line that it is. Each of its calls
is a call of a child agent whose model is the program (program.py): permissions, approvals, hooks,
budgets, the log and events are those of every child (subagents.py). Only what it prints is the
result. After a crash a program cannot continue: the result then lists its calls and their outcome.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import msgspec

from treadle.agents.agent_definition import AgentDefinition
from treadle.agents.child_tools.child_tool import CHILD_SECONDS, ChildTool
from treadle.agents.child_tools.program import ProgramModel
from treadle.agents.subagents import ChildTask, SubagentRunner
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import (
    Access,
    Preview,
    ProbeResult,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.steps import ApprovalRequest
from treadle.core.transcript.content import Arguments
from treadle.core.transcript.items import AssistantItem, ToolResultItem
from treadle.core.transcript.state import SessionState
from treadle.tools.call_summary import summarize_call

CODE_TOOL = "run_code"
MAX_CALLS = 500  # rounds of calls of one program
DEFAULT_SECONDS = 60.0
MAX_SECONDS = 600.0
# What is about the conversation itself, or starts what outlives the program.
EXCLUDED_TOOLS = (
    *(CODE_TOOL, "task", "ask", "present_plan", "todo", "recall", "remember", "skill"),
    *("use_tool", "tool_search", "task_output", "task_input", "task_stop"),
)
DESCRIPTION = """Run a short Python program that calls your other tools as functions, with their \
arguments: `text = read("src/a.py")`, `grep(pattern="x", path="src")`. A call returns the text \
that you would see, or raises ToolError. `call_all([("read", {"file_path": "a"}), ...])` makes \
calls side by side and returns a list. You see only what the program prints: use it for many calls \
of whose results you need a part or a count. It runs in the sandbox, with the standard library."""


class CodeTool(ChildTool):
    """`source` has the tools that a program may call."""

    def __init__(self, make_runner: Callable[[], SubagentRunner], source: ToolSource) -> None:
        self._make_runner, self._source = make_runner, source
        self._spec = ToolSpec(
            CODE_TOOL,
            DESCRIPTION,
            {
                "type": "object",
                "properties": {
                    "code": {"type": "string"},
                    "timeout": {"type": "number", "description": "seconds of its own; 60"},
                },
                "required": ["code"],
            },
            effect="verifiable",
            timeout=CHILD_SECONDS,
            asks_host=True,
            needs_policy=True,
            aliases=("run_code", "code_mode", "execute_code", "python"),
            kind="execute",
            text_argument="code",
        )

    def check(self, arguments: Arguments) -> str | None:
        code, seconds = arguments.get("code"), arguments.get("timeout", DEFAULT_SECONDS)
        if set(arguments) - {"code", "timeout"} or not isinstance(code, str) or not code.strip():
            return (
                "run_code takes `code`, the text of a Python program, and maybe `timeout`, seconds"
            )
        if not isinstance(seconds, (int, float)) or not 0 < seconds <= MAX_SECONDS:
            return f"timeout: seconds, {MAX_SECONDS:.0f} at most"
        try:
            compile(code, "program", "exec")
        except (SyntaxError, ValueError) as error:
            return f"the program is no Python: {error}"
        return None

    def summary(self, arguments: Arguments) -> str:
        lines = str(arguments.get("code", "")).strip().splitlines() or [""]
        more = f" ... ({len(lines)} lines)" if len(lines) > 1 else ""
        return summarize_call(CODE_TOOL, {"command": lines[0] + more})

    def access(self, arguments: Arguments, session_id: str) -> Access:
        """As of the command line that it is: it may do what a command may."""
        return Access(command=f"python3 -I -c {shlex.quote(str(arguments.get('code', '')))}")

    async def preview(self, arguments: Arguments, context: ToolContext) -> Preview | None:
        return Preview("command", str(arguments["code"]))

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        task, program = self._make_program_task(arguments, context)
        try:
            output = await self._make_runner()(task, context)
        finally:
            await program.aclose()
        return msgspec.structs.replace(output, is_error=output.is_error or bool(program.failure))

    async def evidence(self, arguments: Arguments, context: ToolContext) -> dict[str, Any]:
        return {}

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        """A program does not run again: what its calls did is said, as far as it is known."""
        state = await self._make_runner().read_state(self._make_task(arguments, context), context)
        calls = _describe_calls(state) if state is not None else []
        listed = "; ".join(calls) or "none that is logged"
        return ProbeResult("unknown", f"the program was cut off. Its calls: {listed}")

    async def restore_approvals(
        self, arguments: Arguments, context: ToolContext
    ) -> list[ApprovalRequest]:
        return []  # the program that asked is gone

    # --- details -------------------------------------------------------------------------

    def _get_runner(self, context: ToolContext) -> SubagentRunner:
        return self._make_runner()

    def _make_task(self, arguments: Arguments, context: ToolContext) -> ChildTask:
        return self._make_program_task(arguments, context)[0]

    def _make_program_task(
        self, arguments: Arguments, context: ToolContext
    ) -> tuple[ChildTask, ProgramModel]:
        tools = {
            tool.spec.name: list(tool.spec.schema.get("properties", {}))
            for tool in self._source.tools()
            if tool.spec.name.isidentifier() and tool.spec.name not in EXCLUDED_TOOLS
        }
        code, seconds = arguments["code"], float(arguments.get("timeout", DEFAULT_SECONDS))
        program = ProgramModel(context.workspace, code, tools, seconds)
        definition = AgentDefinition(
            "program",
            "A program of the model.",
            "",
            model=program,
            max_turns=MAX_CALLS,
            excluded_tools=EXCLUDED_TOOLS,
        )
        return ChildTask(definition, "program", code, context.call_id), program


def _describe_calls(state: SessionState) -> list[str]:
    """Each call of a program and its outcome, as its log has them."""
    history = state.full_history
    results = {item.call_id: item for item in history if isinstance(item, ToolResultItem)}
    lines = []
    for item in history:
        for call in item.calls if isinstance(item, AssistantItem) else ():
            result, begun = results.get(call.id), call.id in state.intents
            if result is not None:
                outcome = "failed" if result.is_error else "done"
            else:
                outcome = "begun, outcome unknown" if begun else "not begun, or without an effect"
            lines.append(f"{call.name} {call.raw[:200]}: {outcome}")
    return lines
