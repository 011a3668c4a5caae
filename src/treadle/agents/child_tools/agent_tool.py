"""An agent as a tool of another agent: `agent.as_tool("research", "Finds sources.")`.

The child is the given agent with its own tools, model and policy; subagents.py runs it as it runs
the children that `task` starts. Made by agent.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import NoneType
from typing import Any, Protocol

from treadle.agents.agent_definition import AgentDefinition
from treadle.agents.agent_settings import AgentSettings
from treadle.agents.child_agents import ChildAgent, ChildAgents
from treadle.agents.child_settings import join_once, make_child_hooks
from treadle.agents.child_tools.child_tool import CHILD_SECONDS, ChildTool
from treadle.agents.run import merge_options
from treadle.agents.subagents import ChildStart, ChildTask, SubagentRunner
from treadle.core.argument_checks import check, filled_text
from treadle.core.contracts.model import ModelOptions
from treadle.core.contracts.tool import (
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.errors import ConfigError
from treadle.core.loop.config import DriverConfig
from treadle.core.transcript.content import Arguments
from treadle.tools.call_summary import summarize_call
from treadle.tools.tool_options import check_name

MAX_TOOL_DEPTH = 8  # agents in agents: the program put them together


class ToolAgent(Protocol):
    """What is used of the agent, at each call: `override` changes it."""

    config: DriverConfig
    _settings: AgentSettings

    @property
    def replace(self) -> Callable[..., ChildAgent]: ...


class AgentTool(ChildTool):
    """Runs an agent to its end for each call; the answer is the result."""

    takes_over = False  # the other agent answers the user in its place
    prompt_description = "the whole task"

    def __init__(self, name: str, description: str, agent: ToolAgent) -> None:
        name = name or agent.config.name
        if not name:
            raise ConfigError("as_tool: give a name: the agent has none (Agent(name=...))")
        check("description", description, filled_text("what the model may give this agent"))
        check_name(name)
        self._agent = agent
        self._definition = AgentDefinition(name, description, "")
        self._spec = ToolSpec(
            name,
            description,
            {
                "type": "object",
                "properties": {
                    "prompt": {"type": "string", "description": self.prompt_description}
                },
                "required": ["prompt"],
                "additionalProperties": False,
            },
            effect="verifiable",
            concurrent=True,
            timeout=CHILD_SECONDS,
            asks_host=True,
            kind="agent",
        )

    @property
    def deps_type(self) -> Any:
        """What the runs that call it must have as `deps`; None: it needs none."""
        own = self._agent._settings.deps_type
        return None if own is NoneType else own

    def check(self, arguments: Arguments) -> str | None:
        prompt = arguments.get("prompt")
        if set(arguments) == {"prompt"} and isinstance(prompt, str) and prompt.strip():
            return None
        return f"{self._spec.name} takes one argument: prompt, a text with the whole task"

    def summary(self, arguments: Arguments) -> str:
        return summarize_call(self._spec.name, arguments)

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        return await self._get_runner(context)(self._make_task(arguments, context), context)

    def _make_task(self, arguments: Arguments, context: ToolContext) -> ChildTask:
        name = self._spec.name
        return ChildTask(self._definition, name, str(arguments["prompt"]), context.call_id)

    def _get_runner(self, context: ToolContext) -> SubagentRunner:
        return SubagentRunner(
            self._make_start,
            partial(self._make_child, context.children),
            depth=context.children.inherited.depth,
            max_depth=MAX_TOOL_DEPTH,
        )

    def _make_start(
        self, task: ChildTask, child_id: str, depth: int, siblings: ChildAgents
    ) -> ChildStart:
        config = self._agent.config
        return ChildStart(task, child_id, depth, config.model, config.source, config.policy)

    def _make_child(
        self, siblings: ChildAgents, start: ChildStart, changes: Mapping[str, Any]
    ) -> ChildAgent:
        own, inherited = self._agent._settings, siblings.inherited
        changed: dict[str, Any] = {
            "model": siblings.wrap_model(start.model),
            # Without a type of its own it gets whatever the run of the caller has.
            "deps_type": self.deps_type or object,
            "name": own.name or self._spec.name,
            "role": self._spec.name,
            "caller": "child",
            "depth": start.depth,
            "options": merge_options(own.options or ModelOptions(), start.options),
            "gates": join_once(own.gates, start.gates),
            "hooks": join_once(own.hooks, make_child_hooks(inherited.hooks)),
            "parent_ids": (start.parent_id, *inherited.parent_ids),
        }
        child = self._agent.replace(**changed)
        child._is_tool = not self.takes_over
        return child
