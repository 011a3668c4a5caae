"""The bench on which an agent is put together, part by part.

    plug_in     hooks, MCP servers, skills that the user and a trusted folder bring
    instruct    what the model is told first          remind      what it is told later
    aim_at      a goal                                keep_files  checkpoints
    hold_to     a schema for the answer               agent       all of it, ready to work

Each part is loaded when somebody configured or asked for it. Above: assemble.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.agents.agent import Agent, Approver, ToolLike
from treadle.apps.assembly.checkpoints import TurnCheckpoints
from treadle.apps.assembly.extensions import (
    HOOKS_SANDBOXED,
    discover_extensions,
    load_skills,
    make_hooks,
)
from treadle.apps.assembly.lazy import LazyPolicy, LazyReminders, LazyWorkspace
from treadle.apps.assembly.prompt import build_system_prompt
from treadle.apps.assembly.redaction import (
    RedactingHook,
    RedactingModel,
    RedactingSource,
    find_environment_secrets,
    redact,
)
from treadle.apps.assembly.sessions import (
    create_child_store,
    get_outputs_dir,
    get_session_dir,
    load_earlier_usage,
    make_output_saver,
)
from treadle.apps.settings import Settings
from treadle.context.cache_monitor import CacheMonitor
from treadle.context.compaction import Compactor
from treadle.context.prompt import SystemPrompt
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import Model, ModelOptions
from treadle.core.contracts.mutator import Mutator
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.policy import Policy
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.store import Store
from treadle.core.events import Event, ToolCallBegan
from treadle.core.loop.driver import Driver
from treadle.core.transcript.entries import View
from treadle.core.transcript.items import Item
from treadle.policy.budgets import CostBudget, RepetitionGuard, SharedBudget, TimeLimit, TokenBudget

if TYPE_CHECKING:
    from treadle.agents.structured_output import StructuredOutput
    from treadle.context.memory import Memory
    from treadle.tools.builtin import BuiltinSource
    from treadle.tools.mcp.server import McpServer


class BuildContext(msgspec.Struct, frozen=True):
    """Where and for whom an agent is put together; `notes` grow meanwhile."""

    settings: Settings
    folder: Path
    model: Model
    small_model: Model | None  # writes summaries
    workspace: LazyWorkspace
    policy: LazyPolicy
    store: Store
    view: View | None
    notes: list[str]
    notify: Callable[[str], None] | None
    trusted: bool


class InterruptHandle:
    """Who is driven: for those that may stop a turn and were made before it began."""

    def __init__(self) -> None:
        self.driver: Driver | None = None

    def interrupt(self, reason: str) -> None:
        if self.driver is not None:
            self.driver.interrupt(reason)


class AgentBuilder:
    """An agent in the making. Call the parts in the order in which they stand here."""

    def __init__(self, context: BuildContext, *, interactive: bool, suspend: bool) -> None:
        self.context = context
        self._interactive = interactive
        self._suspend = suspend
        self._is_small = _is_small(context.model)
        self.interrupt_handle = InterruptHandle()
        self.builtin = _make_builtin_tools(
            context.model, context.workspace, can_ask=interactive or suspend
        )
        context.policy.session_cwd = self.builtin.cwd
        if context.view is not None:
            self.builtin.restore_cwd(context.store.session_id, context.view.transcript)
        self._secrets = find_environment_secrets()
        self.sources: list[ToolSource] = [self._redact_source(self.builtin)]
        self.hooks: list[Hook] = []
        self.mutators: list[Mutator] = []
        self.gates, self.shared_budget = _make_gates(
            context, interactive=interactive, suspend=suspend
        )
        self.observers: list[Observer] = [_WorkspacePreloader(context.workspace)]
        self.options = ModelOptions(thinking=_parse_thinking(context.settings.thinking))
        self.servers: tuple[McpServer, ...] = ()
        self.structured_output: StructuredOutput | None = None
        self.prompt = SystemPrompt(())
        self._skills = ""
        self._memory: Memory | None = None

    def add_extensions(self) -> None:
        """Hooks and servers, as far as they may run; then skills."""
        place = self.context
        plugged = discover_extensions(place.folder)
        place.notes.extend([*plugged.notes, *(one.summary for one in plugged.unapproved)])
        if plugged.hooks and not place.trusted and place.settings.sandbox != "off":
            place.notes.append(HOOKS_SANDBOXED)
        self.hooks += make_hooks(
            plugged.hooks,
            place.workspace,
            place.folder,
            transcript_path=get_session_dir(place.store) / "journal.jsonl",
            mode=lambda: place.policy.mode,
            notify=place.notify,
            end_turn=lambda reason: self.interrupt_handle.interrupt(redact(self._secrets, reason)),
            # What a folder that nobody trusts holds may run by them: tools load what they find.
            sandboxed=False if place.trusted and place.settings.sandbox != "required" else None,
        )
        if self._is_small:
            if plugged.servers:
                place.notes.append(f"{place.model.name} takes only a few tools: no MCP servers")
            return
        if plugged.servers:
            self._add_servers(plugged.servers, plugged.user_servers)
        self._add_skills()

    def _add_servers(
        self, definitions: Mapping[str, Mapping[str, Any]], user_servers: frozenset[str]
    ) -> None:
        """MCP servers: what they offer at the first request is listed, what is late announced."""
        from treadle.apps.assembly.servers import make_servers
        from treadle.tools.late_tools import StableToolList

        place = self.context
        servers = make_servers(
            definitions,
            place.workspace,
            user_servers=user_servers,
            trusted=place.trusted,
            # At a terminal nobody waits.
            startup_wait=0.0 if self._interactive else place.settings.server_wait,
            notes=place.notes,
            notify=place.notify,
        )
        # Around the others, so that the loop sees which tool a call through it means.
        steady = StableToolList(self._redact_source(servers))
        self.servers = servers.servers
        self.sources.append(steady)
        self.mutators.append(steady)

    def _add_skills(self) -> None:
        skills, notes = load_skills(self.context.folder, trusted=self.context.trusted)
        self.context.notes.extend(notes)
        if skills:
            from treadle.tools.skills import Skills, format_skills_section

            self.sources.append(self._redact_source(Skills(skills)))
            self._skills = format_skills_section(skills)

    def add_prompt(self) -> None:
        """The system prompt."""
        place, settings = self.context, self.context.settings
        prompt, self._memory = build_system_prompt(
            place.folder,
            notes=place.notes,
            trusted=place.trusted,
            interactive=self._interactive or self._suspend,  # somebody answers, if later
            mode=settings.permission_mode,
            added_folders=[Path(one) for one in settings.add_dir],
            tools=self.builtin.instructions(),
            skills=self._skills,
            appended=settings.append_system_prompt,
            is_small=self._is_small,
        )
        sections = [
            msgspec.structs.replace(one, text=redact(self._secrets, one.text))
            for one in prompt.sections
        ]
        self.prompt = SystemPrompt(tuple(sections))

    def add_reminders(self) -> None:
        place = self.context
        if not self._is_small:
            reminders = LazyReminders(
                self.builtin,
                place.folder,
                self._memory,
                lambda: place.policy.mode,
                trusted=place.trusted,
                secrets=self._secrets,
            )
            self.mutators.append(reminders)
            self.hooks.append(reminders.stop_hook)

    def add_goal(self, command: str) -> None:
        """No turn ends before this command succeeds."""
        from treadle.policy.goal import Goal

        attempts = self.context.settings.goal_attempts
        goal = Goal(command, self.context.workspace, max_attempts=attempts)
        self.gates.append(goal)
        self.hooks.append(goal)

    def add_checkpoints(self) -> None:
        """Checkpoints around each turn that changes files."""
        files = TurnCheckpoints(self.context.folder, self.context.store, self.context.notify)
        self.context.policy.before_call = files.before_call
        self.mutators.append(files)
        self.observers.append(files)

    def add_output_schema(self, schema: dict[str, Any]) -> None:
        """Make the agent answer with JSON that fits this schema."""
        from treadle.agents.structured_output import StructuredOutput

        self.structured_output = output = StructuredOutput(schema, self.context.model)
        self.options = output.add_schema(self.options)
        if output.final_answer is not None:
            self.gates.append(output.final_answer)

    def build(self, approve: Approver | None) -> Agent:
        place = self.context
        tools: list[ToolLike] = list(self.sources)
        if self.structured_output is not None and self.structured_output.final_answer is not None:
            tools.append(self.structured_output.final_answer)
        return Agent(
            self._wrap_model(),
            tools,
            instructions=self.prompt.text,
            max_turns=place.settings.max_turns,
            policy=self._make_policy(),
            approve=approve,
            hooks=self._redact_hooks(),
            mutators=[Compactor(place.small_model or place.model), *self.mutators],
            gates=self.gates,
            observers=self.observers,
            workspace=place.workspace,
            options=self.options,
            keep_output=make_output_saver(get_outputs_dir(place.store)),
            **_make_subagent_options(place),
        )

    def _make_policy(self) -> Policy:
        if not self._suspend:
            return self.context.policy
        from treadle.apps.assembly.suspend import SuspendOnQuestion

        return SuspendOnQuestion(self.context.policy, self.context.store.session_id)

    def _redact_source(self, source: ToolSource) -> ToolSource:
        return RedactingSource(source, self._secrets) if self._secrets else source

    def _redact_hooks(self) -> list[Hook]:
        if not self._secrets:
            return self.hooks
        return [RedactingHook(hook, self._secrets) for hook in self.hooks]

    def _wrap_model(self) -> Model:
        """The model, with whoever watches over what it is asked and says."""
        model = self.context.model
        if self._secrets:
            model = RedactingModel(model, self._secrets)
        if not self._is_small:
            model = CacheMonitor(model)
        if self._suspend:
            from treadle.apps.assembly.suspend import SuspendOnRateLimit

            model = SuspendOnRateLimit(model, self.context.store.session_id)
        return model


def _make_gates(
    context: BuildContext, *, interactive: bool, suspend: bool
) -> tuple[list[Gate], SharedBudget | None]:
    limits, purse = _make_limits(context, interactive)
    if suspend:
        from treadle.apps.assembly.suspend import SuspendOnBudget

        limits = [SuspendOnBudget(limit, context.store.session_id) for limit in limits]
    return [RepetitionGuard(), *limits], purse


def _make_limits(
    context: BuildContext, interactive: bool
) -> tuple[list[Gate], SharedBudget | None]:
    settings, model, notes = context.settings, context.model, context.notes
    gates: list[Gate] = []
    earlier = load_earlier_usage(
        context.store, context.view
    )  # limits in tokens and money are the session's
    if settings.max_tokens is not None:
        tokens = TokenBudget(settings.max_tokens)
        tokens.add_earlier(earlier)
        gates.append(tokens)
    if settings.max_time is not None:
        gates.append(TimeLimit(settings.max_time))
    by_default = settings.origin("max_cost") == "default"
    if settings.max_cost is None or (interactive and by_default):
        return gates, None
    assumed = None
    if model.card.input_price is None or model.card.output_price is None:
        assumed = _find_list_price(model.name)
        if assumed is None and by_default:
            notes.append(
                f"the price of {model.name} is not known, so nothing limits what it costs; "
                "--max-tokens does"
            )
            return gates, None
    money = CostBudget(SharedBudget(settings.max_cost), assumed)
    money.add_earlier(earlier, model.card)
    return [*gates, money], money.budget


def _find_list_price(name: str) -> tuple[float, float] | None:
    """What the model costs at its maker, where an address of the user's own says nothing."""
    from treadle.models.catalog import card_for

    card = card_for(name)
    if card.input_price is None or card.output_price is None:
        return None
    return max(card.input_price, card.cache_write_price or 0.0), card.output_price


def _parse_thinking(given: str) -> int | str | None:
    return int(given) if given.isdigit() else given or None


def _make_subagent_options(context: BuildContext) -> dict[str, Any]:
    """Child agents, with the kinds that a trusted folder and the user define."""
    if _is_small(context.model):
        return {}
    folders = [context.folder, Path.home()] if context.trusted else [Path.home()]

    async def open_store(parent: str, call_id: str) -> Store:
        return create_child_store(context.folder, context.store, parent, call_id)

    return {"subagents": _read_agent_definitions(folders, context.notes), "open_store": open_store}


def _read_agent_definitions(folders: list[Path], notes: list[str]) -> Sequence[Any]:
    from treadle.agents.agent_files import AGENT_FOLDERS, read_agent_files

    present = [one for one in folders if any((one / place).is_dir() for place in AGENT_FOLDERS)]
    if not present:
        return []
    found, problems = read_agent_files(present, home=Path.home())
    notes.extend(problems)
    return found


def _make_builtin_tools(model: Model, workspace: LazyWorkspace, *, can_ask: bool) -> BuiltinSource:
    """The built-in tools that this model can use here; `asks`: questions find an answer."""
    from treadle.tools.builtin import SMALL_TOOLS, STANDARD_TOOLS, builtin_tools

    names = list(SMALL_TOOLS if _is_small(model) else STANDARD_TOOLS)
    if not can_ask and "ask" in names:
        names.remove("ask")
    return builtin_tools(workspace, names, native_pdf="documents" in model.card.abilities)


def _is_small(model: Model) -> bool:
    """Whether it can keep only a few sentences and tools in mind."""
    return model.name.startswith("embedded")


class _WorkspacePreloader:
    """Opens the workspace while the model still writes its first call."""

    def __init__(self, workspace: LazyWorkspace) -> None:
        self._workspace = workspace

    def on_event(self, event: Event) -> None:
        if type(event) is ToolCallBegan:
            self._workspace.preload()

    def on_item(self, position: int, item: Item) -> None:
        return None
