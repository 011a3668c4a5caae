"""Child agents: the `task` tool and the runner that starts the children.

A child has its own history and session, at most its parent's permissions, and shares the parent's
budget. Its last answer, up to a limit, is the result of the call; a child that fails gives an error
result. Its events are relayed to the parent's observers; interrupting the parent stops it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from treadle.agents.agent_files import GENERAL_AGENT, AgentDefinition
from treadle.agents.stream import DecideApprovals
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.policy import BasePolicy, Deny, PermissionRequest, Policy, Verdict
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.store import Store
from treadle.core.contracts.tool import (
    BaseTool,
    ProbeResult,
    Tool,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.contracts.wrapped import WrappedSource
from treadle.core.errors import ToolError, TreadleError
from treadle.core.events import Event, TurnResult
from treadle.core.json_types.schema import find_mismatch
from treadle.core.loop.driver import Driver
from treadle.core.text import plural
from treadle.core.transcript.content import Arguments
from treadle.tools.function import summarize_call

MAX_ANSWER_CHARS = 20_000
MAX_DEPTH = 2
MAX_CHILDREN = 8

DESCRIPTION = """Give a self-contained piece of work to another agent and get its report.

Use it for work that would fill this conversation with detail (searching a large code base, \
reading many files) or that can be done in parallel: several calls in one reply run side by side. \
The agent sees nothing of this conversation, so put all it needs into the prompt. \
With run_in_background the report comes later.

Kinds of agents:
{kinds}"""


class ChildAgent(Protocol):
    """What the runner needs of a child."""

    def start(self, prompt: str, *, deps: object = None, store: Store | None = None) -> Driver: ...

    async def finish_turn(self, driver: Driver, decide: DecideApprovals) -> TurnResult: ...

    async def aclose_owned_model(self) -> None: ...


MakeChild = Callable[[AgentDefinition, int], ChildAgent]
OpenStore = Callable[[str, str], Awaitable[Store | None]]  # (parent session, call id)


class EventRelay(BaseObserver):
    """Passes a child's events to the parent's observers."""

    def __init__(self, relay: Callable[[Event], None]) -> None:
        self._relay = relay

    def on_event(self, event: Event) -> None:
        self._relay(event)


class SubagentRunner:
    """Starts children, up to a nesting depth and a number at once, each with its own store."""

    def __init__(
        self,
        make_child: MakeChild,
        *,
        depth: int = 0,
        max_depth: int = MAX_DEPTH,
        max_children: int = MAX_CHILDREN,
        open_store: OpenStore | None = None,
    ) -> None:
        self._make_child = make_child
        self.depth = depth
        self._max_depth = max_depth
        self._max_children = max_children
        self._open_store = open_store
        self._running_count = 0

    async def __call__(
        self, definition: AgentDefinition, prompt: str, context: ToolContext[Any]
    ) -> str:
        """Run a child to its end and return its last answer."""
        if self.depth >= self._max_depth:
            raise ToolError(
                f"agents may be nested at most {plural(self._max_depth, 'level')} deep; "
                "do this work yourself"
            )
        if self._running_count >= self._max_children:
            raise ToolError(
                f"{plural(self._running_count, 'agent')} already running, the most allowed; "
                "wait for one to end"
            )
        self._running_count += 1
        try:
            child = self._make_child(definition, self.depth + 1)
            try:
                return await self._run(child, prompt, context)
            finally:
                await child.aclose_owned_model()
        finally:
            self._running_count -= 1

    async def _run(self, child: ChildAgent, prompt: str, context: ToolContext[Any]) -> str:
        store = None
        if self._open_store is not None:
            store = await self._open_store(context.session_id, context.call_id)
        driver = child.start(prompt, deps=context.deps, store=store)
        driver.watch(EventRelay(context.relay_event))
        driver.stop_with(context.is_cancelled)
        try:
            turn = await child.finish_turn(driver, context.ask_host)
        except TreadleError as error:
            raise ToolError(f"the agent failed: {error}") from error
        finally:
            await driver.aclose()
        if turn.error is not None:
            raise ToolError(f"the agent failed: {turn.error} (session {driver.session_id})")
        text = turn.text.strip() or "(the agent ended without an answer)"
        if turn.reason != "end_turn":
            text = f"[ended early: {turn.reason} {turn.detail}]\n{text}"
        if len(text) > MAX_ANSWER_CHARS:
            note = f"... [truncated, {len(text)} chars total; session {driver.session_id}]"
            text = text[:MAX_ANSWER_CHARS] + note
        return text


class _TaskArguments(msgspec.Struct, forbid_unknown_fields=True):
    description: str = ""
    prompt: object = ""
    subagent_type: object = ""
    run_in_background: bool = False


class TaskTool(BaseTool):
    """The tool that starts children."""

    def __init__(self, runner: SubagentRunner, definitions: Sequence[AgentDefinition] = ()) -> None:
        self._runner = runner
        self._definitions = {one.name: one for one in definitions}
        self._definitions.setdefault(GENERAL_AGENT.name, GENERAL_AGENT)
        kinds = "\n".join(f"- {one.name}: {one.description}" for one in self._definitions.values())
        self._spec = ToolSpec(
            "task",
            DESCRIPTION.format(kinds=kinds),
            {
                "type": "object",
                "properties": {
                    "description": {"type": "string", "description": "three to five words"},
                    "prompt": {"type": "string", "description": "the whole task"},
                    "subagent_type": {"type": "string", "enum": list(self._definitions)},
                    "run_in_background": {"type": "boolean"},
                },
                "required": ["description", "prompt"],
                "additionalProperties": False,
            },
            effect="irreversible",
            concurrent=True,
            timeout=24 * 3600.0,
            detachable=True,
            asks_host=True,
        )

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def check(self, arguments: Arguments) -> str | None:
        try:
            msgspec.convert(arguments, _TaskArguments)
        except msgspec.ValidationError as error:
            problem = find_mismatch(arguments, self._spec.schema) or error
            return f"invalid arguments for task: {problem}"
        if not isinstance(arguments.get("prompt"), str) or not arguments["prompt"].strip():
            return "prompt must be a text that describes the whole task"
        kind = arguments.get("subagent_type", GENERAL_AGENT.name)
        if kind not in self._definitions:
            return f"there is no agent {kind!r}; there are {', '.join(self._definitions)}"
        return None

    def summary(self, arguments: Arguments) -> str:
        kind = arguments.get("subagent_type", GENERAL_AGENT.name)
        return summarize_call("task", {"command": f"{kind}: {arguments.get('description', '')}"})

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        if arguments.get("run_in_background"):
            context.detach()
        definition = self._definitions[arguments.get("subagent_type", GENERAL_AGENT.name)]
        return ToolOutput(await self._runner(definition, arguments["prompt"], context))

    async def probe(
        self, arguments: Arguments, evidence: dict[str, Any], context: ToolContext
    ) -> ProbeResult:
        return ProbeResult("unknown", "the session of the child agent shows how far it came")


class FilteredSource(WrappedSource):
    """A source that offers only some tools of another."""

    def __init__(self, source: ToolSource, names: Sequence[str]) -> None:
        super().__init__(source)
        self._names = {name.lower() for name in names}
        self._unfiltered: Sequence[Tool] | None = None
        self._filtered: tuple[Tool, ...] = ()

    def tools(self) -> Sequence[Tool]:
        tools = self._source.tools()
        if tools is not self._unfiltered:
            self._unfiltered = tools
            self._filtered = tuple(tool for tool in tools if tool.spec.name.lower() in self._names)
        return self._filtered

    async def aclose(self) -> None:
        return None  # the parent closes it


class ReadOnlyPolicy(BasePolicy):
    """The parent's policy, narrowed to pure tools: for a child in plan mode."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def decide(self, request: PermissionRequest) -> Verdict:
        if request.tool.effect != "pure":
            return Deny("this agent is in plan mode and may only use read-only tools")
        return await self._policy.decide(request)


def make_child_settings(
    settings: dict[str, Any], definition: AgentDefinition, source: ToolSource, policy: Policy
) -> dict[str, Any]:
    """The settings of a child: its own instructions, at most its parent's tools and policy."""
    if definition.tools is not None:
        source = FilteredSource(source, definition.tools)
    return {
        **settings,
        "tools": [source],
        "instructions": definition.prompt,
        "max_turns": min(definition.max_turns, settings["max_turns"]),
        "policy": ReadOnlyPolicy(policy) if definition.mode == "plan" else policy,
        "observers": (),
        "name": definition.name,
        "role": definition.name,
        "caller": "child",
        "output_type": str,  # the child answers its parent in text
        "structured_output": None,
        "on_start": None,
        **({"model": definition.model} if definition.model else {}),
    }
