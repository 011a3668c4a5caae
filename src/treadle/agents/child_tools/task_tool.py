"""The `task` tool: the model starts child agents with it, and continues them by name.

The names of the children are read off the history: the name that a call gave, or its kind and a
number. So they are the same after a restart. Running them is subagents.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeGuard

import msgspec

from treadle.agents.agent_definition import (
    BUILTIN_AGENTS,
    CHILD_INSTRUCTIONS,
    GENERAL_AGENT,
    AgentDefinition,
    find_kind,
)
from treadle.agents.agent_files import MODES
from treadle.agents.child_settings import TASK_NAMES, TASK_TOOL
from treadle.agents.child_tools.child_tool import CHILD_SECONDS, ChildTool
from treadle.agents.subagents import AGENT_KEY, ChildTask, SubagentRunner, WorktreeStart
from treadle.core.arguments.fit_names import NameTable, Report, fit_arguments
from treadle.core.contracts.tool import (
    RepairedArguments,
    ToolContext,
    ToolOutput,
    ToolSpec,
)
from treadle.core.errors import ConfigError, ToolError
from treadle.core.transcript.content import Arguments, ToolCall
from treadle.core.transcript.items import AssistantItem, Item, NoticeItem, ToolResultItem
from treadle.core.transcript.transcript import Transcript
from treadle.lib.json.schema import find_mismatch
from treadle.tools.call_summary import summarize_call

DESCRIPTION = """Give a self-contained piece of work to another agent and get its report.

Use it for work that would fill this conversation with detail, or in parallel: several calls in \
one reply. The agent sees nothing of this conversation: put all it needs into the prompt. With \
run_in_background the report comes later.

{kinds}"""

WORKTREE_DESCRIPTION = (
    "to edit beside others: a git worktree, merged at the end; of the last commit (head) or with "
    "uncommitted changes"
)
CONTINUE_DESCRIPTION = "an earlier agent; without `name`: KIND-1, …"

# Other names that models use for the arguments.
_NAMES = NameTable(
    {
        "agent": "subagent_type", "agent_type": "subagent_type", "agent_name": "subagent_type",
        "type": "subagent_type", "task": "prompt", "message": "prompt", "instructions": "prompt",
        "title": "description", "summary": "description", "background": "run_in_background",
    }
)  # fmt: skip
MAX_DESCRIPTION_WORDS = 8


class _TaskArguments(msgspec.Struct, forbid_unknown_fields=True):
    description: str = ""
    prompt: object = ""
    subagent_type: object = ""
    run_in_background: bool = False
    name: str = ""
    continue_agent: str = ""
    max_cost: Annotated[float, msgspec.Meta(ge=0)] | None = None
    worktree: WorktreeStart = ""


class StartedAgent(msgspec.Struct):
    """A child that a call of the history started. `max_cost` is that of its last call with one."""

    name: str
    call_id: str
    kind: str
    description: str
    worktree: WorktreeStart
    max_cost: float | None


class TaskTool(ChildTool):
    """The tool that starts children. `has_worktrees`: they can have git worktrees."""

    def __init__(
        self,
        runner: SubagentRunner,
        definitions: Sequence[AgentDefinition] = (),
        *,
        has_worktrees: bool = False,
    ) -> None:
        self._runner = runner
        self._definitions: dict[str, AgentDefinition] = {}
        for one in (*definitions, *BUILTIN_AGENTS):
            _check_mode(one)
            self._definitions.setdefault(one.name, one)
        kinds = "\n".join(f"- {one.name}: {one.description}" for one in self._definitions.values())
        properties: dict[str, Any] = {
            "description": {"type": "string", "description": "a few words"},
            "prompt": {"type": "string", "description": "the whole task"},
            "subagent_type": {"type": "string", "enum": list(self._definitions)},
            "run_in_background": {"type": "boolean"},
            "name": {"type": "string", "description": "to continue it by"},
            "continue_agent": {"type": "string", "description": CONTINUE_DESCRIPTION},
            "max_cost": {"type": "number", "description": "USD"},
        }
        if has_worktrees:
            values = ["head", "changes"]
            worktree = {"type": "string", "enum": values, "description": WORKTREE_DESCRIPTION}
            properties["worktree"] = worktree
        self._has_worktrees = has_worktrees
        self._spec = ToolSpec(
            TASK_TOOL,
            DESCRIPTION.format(kinds=kinds),
            {
                "type": "object",
                "properties": properties,
                "required": ["description", "prompt"],
                "additionalProperties": False,
            },
            effect="verifiable",
            concurrent=True,
            timeout=CHILD_SECONDS,
            detachable=True,
            asks_host=True,
            aliases=TASK_NAMES.aliases,
            kind=TASK_NAMES.kind,
        )

    def repair(self, arguments: Arguments) -> RepairedArguments:
        """Under its own names. A call without a description has the first words of its prompt."""
        report = Report()
        meant = fit_arguments(arguments, self._spec.schema, _NAMES, report)
        prompt = meant.get("prompt")
        if "description" not in meant and isinstance(prompt, str) and prompt.strip():
            words = prompt.split()[:MAX_DESCRIPTION_WORDS]
            meant = {"description": " ".join(words), **meant}
            report.guess("`description` is the beginning of the prompt")
        notes = tuple(report.notes)
        return RepairedArguments(meant if notes else arguments, notes, is_guessed=report.is_guessed)

    def check(self, arguments: Arguments) -> str | None:
        try:
            given = msgspec.convert(arguments, _TaskArguments)
        except msgspec.ValidationError as error:
            problem = find_mismatch(arguments, self._spec.schema) or error
            return f"invalid arguments for task: {problem}"
        if not isinstance(given.prompt, str) or not given.prompt.strip():
            return "prompt must be a text that describes the whole task"
        if self._find_kind(arguments) is None:
            kind = arguments.get("subagent_type")
            return f"there is no agent {kind!r}; there are {', '.join(self._definitions)}"
        if given.worktree and not self._has_worktrees:
            return "worktree: agents have no worktrees here; leave it out"
        return None

    def summary(self, arguments: Arguments) -> str:
        names = ("continue_agent", "name", "subagent_type")
        given = next((arguments[one] for one in names if arguments.get(one)), GENERAL_AGENT.name)
        text = f"{given}: {arguments.get('description', '')}"
        return summarize_call(TASK_TOOL, {"command": text})

    async def call(self, arguments: Arguments, context: ToolContext) -> ToolOutput:
        task = self._make_task(arguments, context)
        if arguments.get("run_in_background") or task.definition.background:
            context.detach()
        return await self._runner(task, context)

    # --- details -------------------------------------------------------------------------

    def _get_runner(self, context: ToolContext) -> SubagentRunner:
        return self._runner

    def _find_kind(self, arguments: Arguments) -> AgentDefinition | None:
        kind = arguments.get("subagent_type") or GENERAL_AGENT.name
        return find_kind(kind, self._definitions) if isinstance(kind, str) else None

    def _make_task(self, arguments: Arguments, context: ToolContext) -> ChildTask:
        agents = self._list_agents(context.history())
        wanted, prompt = arguments.get("continue_agent"), arguments["prompt"]
        if wanted:
            found = _find_agent(agents, wanted)
            definition = find_kind(found.kind, self._definitions) or GENERAL_AGENT
            definition = definition.narrow_cost(found.max_cost)
            start = found.worktree or _get_start(definition)
            return ChildTask(definition, found.name, prompt, found.call_id, start, True)
        definition = self._find_kind(arguments) or GENERAL_AGENT
        own = next((one for one in agents if one.call_id == context.call_id), None)
        name = arguments.get("name") or (own.name if own is not None else definition.name)
        if any(one.name == name and one is not own for one in agents):
            raise ToolError(
                f"there is an agent {name!r} already: continue it with continue_agent, or choose "
                "another name"
            )
        start = arguments.get("worktree") or _get_start(definition)
        if start and not self._has_worktrees:
            raise ToolError(
                f"agents of the kind {definition.name} need a git worktree, and there "
                "are none here: the folder has to be a git repository and trusted"
            )
        definition = definition.narrow_cost(arguments.get("max_cost"))
        history = _fork_conversation(context.view()) if definition.fork else None
        return ChildTask(definition, name, prompt, context.call_id, start, history=history)

    def _list_agents(self, history: Iterable[Item]) -> list[StartedAgent]:
        """The children that the calls of the history started, the first one of each name."""
        items = list(history)
        refused = {item.call_id for item in items if _is_refusal(item)}
        agents: dict[str, StartedAgent] = {}
        counts: dict[str, int] = {}
        for item in items:
            for call in item.calls if isinstance(item, AssistantItem) else ():
                given = _read_arguments(call)
                if given is None:
                    continue
                if given.continue_agent:
                    name = given.continue_agent.strip().casefold()
                    for one in agents.values():
                        if one.name.casefold() == name and given.max_cost is not None:
                            one.max_cost = given.max_cost
                    continue
                definition = self._find_kind(call.arguments or {})
                kind = definition.name if definition is not None else str(given.subagent_type)
                counts[kind] = counts.get(kind, 0) + 1
                name = given.name or f"{kind}-{counts[kind]}"
                if call.id not in refused:
                    about = (kind, given.description, given.worktree, given.max_cost)
                    agents.setdefault(name, StartedAgent(name, call.id, *about))
        return list(agents.values())


def _fork_conversation(view: Transcript) -> Transcript:
    """The conversation as the last request had it: without the reply that starts the child."""
    replies = [at for at, item in enumerate(view) if isinstance(item, AssistantItem)]
    told = f"You are a copy of the agent of this conversation. {CHILD_INSTRUCTIONS}"
    return Transcript([*view[: replies[-1] if replies else 0], NoticeItem(told, "fork")])


def _read_arguments(call: ToolCall) -> _TaskArguments | None:
    """The arguments of a call of `task` in the history; None if it is another call, or wrong."""
    if call.name != TASK_TOOL or call.arguments is None:
        return None
    try:
        return msgspec.convert(call.arguments, _TaskArguments)
    except msgspec.ValidationError:
        return None


def _is_refusal(item: Item) -> TypeGuard[ToolResultItem]:
    """Whether it is the result of a call that started no child: denied, or wrong."""
    if not isinstance(item, ToolResultItem) or item.name != TASK_TOOL:
        return False
    is_error = item.is_error and item.outcome == "finished"
    return item.outcome == "denied" or (is_error and AGENT_KEY not in (item.data or {}))


def _check_mode(definition: AgentDefinition) -> None:
    if definition.mode and definition.mode not in MODES.values():
        known = ", ".join(mode for mode in dict.fromkeys(MODES.values()) if mode)
        raise ConfigError(
            f"subagents: the mode of {definition.name!r} is {definition.mode!r}; expected one of "
            f"{known}"
        )


def _get_start(definition: AgentDefinition) -> WorktreeStart:
    return "head" if definition.worktree else ""


def _find_agent(agents: Sequence[StartedAgent], name: str) -> StartedAgent:
    for one in agents:
        if name.strip().casefold() == one.name.casefold():
            return one
    known = "; ".join(f"{one.name} ({one.description})" for one in agents)
    raise ToolError(f"there is no agent {name!r}" + (f"; there are {known}" if known else ""))
