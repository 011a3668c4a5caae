"""The settings of a child agent: at most its parent's tools, hooks and permissions.

Used by agent.py for every child; a program changes more with `prepare_child`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from treadle.agents.agent_definition import CHILD_INSTRUCTIONS, AgentDefinition
from treadle.agents.agent_settings import AgentSettings, collect_sources
from treadle.agents.run import merge_options
from treadle.agents.subagents import ChildStart
from treadle.budgets import CostBudget
from treadle.core.arguments.fit_names import fold_name
from treadle.core.contracts.hook import Hook, HookAnswer, HookInput, HookPoint, get_hook_timeout
from treadle.core.contracts.model import ModelOptions
from treadle.core.contracts.mutator import Mutator
from treadle.core.contracts.policy import BasePolicy, Deny, PermissionRequest, Policy, Verdict
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import Tool, ToolSpec
from treadle.core.contracts.wrapped import WrappedSource
from treadle.tools.federation import Federation

_T = TypeVar("_T")

EVERY_TOOL = "*"
# An agent that may edit may do so with any of these tools: a model has the one that it knows.
_EDIT_NAMES = frozenset({"edit", "editfile", "multiedit"})
_EDIT_TOOLS = frozenset({"edit", "apply_patch", "notebook_edit"})
TASK_TOOL = "task"
TASK_NAMES = ToolSpec(
    TASK_TOOL, "", {}, kind="agent", aliases=("agent", "dispatch_agent", "spawn_agent")
)
# These are about the session and the messages of the user; the parent's hooks have run for them.
PARENT_POINTS: frozenset[HookPoint] = frozenset(
    {"session_start", "session_end", "user_prompt_submit"}
)


class FilteredSource(WrappedSource):
    """A source that offers only some tools of another."""

    def __init__(
        self, source: ToolSource, names: Sequence[str] | None, excluded: Sequence[str] = ()
    ) -> None:
        super().__init__(source)
        self._names = names
        self._excluded = excluded
        self._is_parents = True
        self._unfiltered: Sequence[Tool] | None = None
        self._filtered: tuple[Tool, ...] = ()

    def tools(self) -> Sequence[Tool]:
        tools = self._source.tools()
        if tools is not self._unfiltered:
            self._unfiltered = tools
            specs = [tool.spec for tool in tools]
            names = match_tools((EVERY_TOOL,) if self._names is None else self._names, specs)
            names -= match_tools(self._excluded, specs)
            self._filtered = tuple(tool for tool in tools if tool.spec.name in names)
        return self._filtered

    def instructions(self) -> str:
        return super().instructions() if self.tools() else ""

    def bind(self, deps: object) -> ToolSource:
        bound = super().bind(deps)
        if isinstance(bound, FilteredSource):
            bound._is_parents = bound is self
        return bound

    async def aclose(self) -> None:
        if not self._is_parents:  # the parent closes its own
            await super().aclose()


class ReadOnlyPolicy(BasePolicy):
    """The parent's policy, narrowed to pure tools: for a child in plan mode."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    async def decide(self, request: PermissionRequest) -> Verdict:
        if request.tool.effect != "pure":
            return Deny("this agent is in plan mode and may only use read-only tools")
        return await self._policy.decide(request)


class ChildHook:
    """A hook of the parent, at the points that concern a child, too."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook
        self.points = frozenset(hook.points) - PARENT_POINTS
        self.timeout = get_hook_timeout(hook)

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        return await self._hook.run(hook_input)


def make_child_hooks(hooks: Sequence[Hook]) -> list[Hook]:
    """Session hooks do not run again for each child."""
    kept = [hook for hook in hooks if frozenset(hook.points) - PARENT_POINTS]
    return [ChildHook(hook) if hook.points & PARENT_POINTS else hook for hook in kept]


def narrow_policy(policy: Policy, mode: str) -> Policy:
    """The policy in this mode, if it is narrower. A policy that knows modes has a method `narrow`;
    of others a child in plan mode may use pure tools only."""
    if not mode:
        return policy
    narrow = getattr(policy, "narrow", None)
    if narrow is not None:
        narrowed: Policy = narrow(mode)
        return narrowed
    return ReadOnlyPolicy(policy) if mode == "plan" else policy


def make_child_settings(
    settings: AgentSettings, start: ChildStart, changes: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of a child: its own instructions, at most its parent's tools and policy."""
    definition = start.task.definition
    mutators = changes.get("mutators", settings.mutators)
    mutators = [one for one in mutators if getattr(one, "for_children", True)]
    # The parent may have fewer tools than its own parent: its list of tools counts.
    mutators = [one for one in mutators if not _lists_tools(one)]
    mutators += [one for one in settings.mutators if _lists_tools(one)]
    source = changes.get("source", start.source)
    if definition.tool_names not in (None, (EVERY_TOOL,)) or definition.excluded_tools:
        source, mutators = _narrow_tools(source, mutators, definition)
    if definition.own_tools:
        source = Federation([source, *collect_sources(definition.own_tools)])
    gates = join_once(settings.gates, start.gates)
    if definition.max_cost is not None:
        budget = CostBudget(definition.max_cost)
        budget.add_earlier(start.earlier_usage, start.model.card)
        gates.append(budget)
    child = {
        **msgspec.structs.asdict(settings),
        "depth": start.depth,
        "instructions": settings.instructions
        if definition.fork
        else f"{definition.prompt}\n\n{CHILD_INSTRUCTIONS}",
        "max_turns": min(definition.max_turns, settings.max_turns),
        "policy": narrow_policy(start.policy, definition.mode),
        "gates": gates,
        "options": merge_options(settings.options or ModelOptions(), start.options),
        "hooks": make_child_hooks(settings.hooks),
        "observers": (),
        "name": definition.name,
        "role": definition.name,
        "caller": "child",
        "parent_ids": (start.parent_id, *settings.parent_ids),
        "output_type": definition.output_type,
        "structured_output": None,
        "check_output": None,
        "on_start": None,
        "code_mode": False,
        "subagents": settings.subagents if _may_start_children(definition) else None,
        **({"model": definition.model} if definition.model else {}),
    }
    changed = {key: value for key, value in changes.items() if key != "source"}
    return {**child, **changed, "tools": [source], "mutators": mutators}


def join_once(own: Sequence[_T], inherited: Sequence[_T]) -> list[_T]:
    """Each object once."""
    return [*own, *(other for other in inherited if not any(other is one for one in own))]


def _lists_tools(mutator: Mutator) -> bool:
    """Whether it announces tools of its own, which a child may have to some part."""
    return hasattr(mutator, "narrow_tools")


def _narrow_tools(
    source: ToolSource, mutators: Sequence[Mutator], definition: AgentDefinition
) -> tuple[ToolSource, list[Mutator]]:
    """The tools that the definition names, also of those that a mutator announces."""

    def narrow(one: ToolSource) -> ToolSource:
        return FilteredSource(one, definition.tool_names, definition.excluded_tools)

    sources, kept, replaced = [narrow(source)], list[Mutator](), list[str]()
    for mutator in mutators:
        if not _lists_tools(mutator):
            kept.append(mutator)
            continue
        tool_list: Any = mutator
        replaced += [tool.spec.name for tool in tool_list.tools()]
        narrower = tool_list.narrow_tools(narrow)
        if narrower is not None:
            kept.append(narrower)
            sources.append(narrower)
    sources[0] = FilteredSource(sources[0], None, replaced)
    return (Federation(sources) if len(sources) > 1 else sources[0]), kept


def list_tools(definition: AgentDefinition, source: ToolSource) -> list[ToolSpec]:
    """The tools that a child has; of those that come later none."""
    names = FilteredSource(source, definition.tool_names, definition.excluded_tools)
    own = [tool.spec for one in collect_sources(definition.own_tools) for tool in one.tools()]
    specs = [tool.spec for tool in names.tools()] + own
    return specs + ([TASK_NAMES] if _may_start_children(definition) else [])


def _may_start_children(definition: AgentDefinition) -> bool:
    """Only a list of tools gives `task`: no children of children unasked. A fork is its parent."""
    is_listed = definition.fork or match_tools(definition.tool_names or (), (TASK_NAMES,))
    return bool(is_listed) and not match_tools(definition.excluded_tools, (TASK_NAMES,))


# --- names of tools in agent files, whatever their form: `WebFetch`, `web_fetch`, `Bash(git *)` ---
# Files that were written for other programs use the names of those, which a tool has as `aliases`.


def match_tools(wanted: Iterable[str], specs: Collection[ToolSpec]) -> frozenset[str]:
    """The names of those tools that the list means."""
    return frozenset(name for one in wanted for name in _match(one, specs))


def find_unknown(wanted: Iterable[str], specs: Collection[ToolSpec]) -> list[str]:
    """The entries of the list that mean no tool. Tools of MCP servers may come later."""
    return [
        one
        for one in wanted
        if one != EVERY_TOOL and not _strip(one).startswith("mcp__") and not _match(one, specs)
    ]


def _strip(name: str) -> str:
    """A name without arguments in parentheses, in lower case."""
    return name.partition("(")[0].strip().casefold()


def _match(wanted: str, specs: Collection[ToolSpec]) -> list[str]:
    plain = _strip(wanted)
    if plain.startswith("mcp__"):
        patterns = (plain, f"{plain}__*")  # a server's name means all of its tools
        names = [spec.name for spec in specs]
        return [n for n in names if any(fnmatch.fnmatchcase(n.casefold(), p) for p in patterns)]
    return [spec.name for spec in specs if wanted == EVERY_TOOL or _means(fold_name(plain), spec)]


def _means(folded: str, spec: ToolSpec) -> bool:
    if folded in _EDIT_NAMES and spec.name in _EDIT_TOOLS:
        return True
    return folded in map(fold_name, (spec.name, *spec.aliases))
