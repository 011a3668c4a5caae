"""The bench on which an agent is put together, part by part.

    plug_in     hooks, MCP servers, skills that the user and a trusted folder bring
    instruct    what the model is told first          remind      what it is told later
    aim_at      a goal                                keep_files  checkpoints
    hold_to     a schema for the answer               agent       all of it, ready to work

Each part is loaded when somebody configured or asked for it. Above: wire.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.agents.agent import Agent, Approver, ToolLike
from treadle.apps.settings import Settings
from treadle.apps.wiring.checkpoints import KeptFiles
from treadle.apps.wiring.discretion import (
    Discreet,
    DiscreetHook,
    Reticent,
    own_secrets,
    without,
)
from treadle.apps.wiring.extras import WALLED_IN, brought, hooks_of, skills_of
from treadle.apps.wiring.late import LatePolicy, LateWorkspace
from treadle.apps.wiring.prompt import system_prompt
from treadle.apps.wiring.reminding import LateReminders
from treadle.apps.wiring.sessions import (
    child_store,
    keeper_of,
    outputs_of,
    place_of,
    used_before,
)
from treadle.context.cache import CacheAccountant
from treadle.context.compaction import Compactor
from treadle.context.prompt import Prompt
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
from treadle.policy.budgets import Elapsed, Money, Purse, Repetition, Tokens

if TYPE_CHECKING:
    from treadle.agents.structured import FinalAnswer
    from treadle.context.memory import Memory
    from treadle.tools.builtin import Builtin
    from treadle.tools.mcp.server import McpServer


class Place(msgspec.Struct, frozen=True):
    """Where and for whom an agent is put together; `notes` grow meanwhile."""

    settings: Settings
    folder: Path
    model: Model
    helper: Model | None  # writes summaries
    workspace: LateWorkspace
    policy: LatePolicy
    store: Store
    view: View | None
    notes: list[str]
    tell: Callable[[str], None] | None
    trusted: bool


class Reins:
    """Who is driven: for those that may stop a turn and were made before it began."""

    def __init__(self) -> None:
        self.driver: Driver | None = None

    def halt(self, reason: str) -> None:
        if self.driver is not None:
            self.driver.interrupt(reason)


class Bench:
    """An agent in the making. Call the parts in the order in which they stand here."""

    def __init__(self, place: Place, *, interactive: bool, park: bool) -> None:
        self.place = place
        self._interactive = interactive
        self._park = park
        self._is_small = _is_small(place.model)
        self.reins = Reins()
        self.builtin = _builtin(place.model, place.workspace, asks=interactive or park)
        place.policy.stands = self.builtin.cwd
        if place.view is not None:
            self.builtin.resume(place.store.session_id, place.view.transcript)
        self._secrets = own_secrets()
        self.sources: list[ToolSource] = [self._discreet(self.builtin)]
        self.hooks: list[Hook] = []
        self.mutators: list[Mutator] = []
        self.gates, self.purse = _budgets(place, interactive=interactive, park=park)
        self.observers: list[Observer] = [_Warming(place.workspace)]
        self.options = ModelOptions(thinking=_thinking(place.settings.thinking))
        self.servers: tuple[McpServer, ...] = ()
        self.answer: FinalAnswer | None = None
        self.prompt = Prompt(())
        self._skills = ""
        self._memory: Memory | None = None

    def plug_in(self) -> None:
        """Hooks and servers, as far as they may run; then skills."""
        place = self.place
        plugged = brought(place.folder)
        place.notes.extend([*plugged.notes, *(one.line for one in plugged.waiting)])
        if plugged.hooks and not place.trusted and place.settings.sandbox != "off":
            place.notes.append(WALLED_IN)
        self.hooks += hooks_of(
            plugged.hooks,
            place.workspace,
            place.folder,
            transcript=place_of(place.store) / "journal.jsonl",
            mode=lambda: place.policy.mode,
            tell=place.tell,
            halt=lambda reason: self.reins.halt(without(self._secrets, reason)),
            # What a folder that nobody trusts holds may run by them: tools load what they find.
            confined=False if place.trusted and place.settings.sandbox != "required" else None,
        )
        if self._is_small:
            if plugged.servers:
                place.notes.append(f"{place.model.name} takes only a few tools: no MCP servers")
            return
        if plugged.servers:
            self._call_on(plugged.servers, plugged.own)
        self._learn_skills()

    def _call_on(self, definitions: Mapping[str, Mapping[str, Any]], own: frozenset[str]) -> None:
        """MCP servers: what they offer at the first request is listed, what is late announced."""
        from treadle.apps.wiring.servers import servers_of
        from treadle.tools.steady import Steady

        place = self.place
        servers = servers_of(
            definitions,
            place.workspace,
            own=own,
            trusted=place.trusted,
            # At a terminal nobody waits.
            patience=0.0 if self._interactive else place.settings.server_wait,
            notes=place.notes,
            tell=place.tell,
        )
        # Around the others, so that the loop sees which tool a call through it means.
        steady = Steady(self._discreet(servers))
        self.servers = servers.servers
        self.sources.append(steady)
        self.mutators.append(steady)

    def _learn_skills(self) -> None:
        skills, notes = skills_of(self.place.folder, trusted=self.place.trusted)
        self.place.notes.extend(notes)
        if skills:
            from treadle.tools.skills import Skills, skills_section

            self.sources.append(self._discreet(Skills(skills)))
            self._skills = skills_section(skills)

    def instruct(self) -> None:
        """The system prompt."""
        place, settings = self.place, self.place.settings
        prompt, self._memory = system_prompt(
            place.folder,
            notes=place.notes,
            trusted=place.trusted,
            interactive=self._interactive or self._park,  # somebody answers, if later
            mode=settings.permission_mode,
            added_folders=[Path(one) for one in settings.add_dir],
            tools=self.builtin.instructions(),
            skills=self._skills,
            added=settings.append_system_prompt,
            is_small=self._is_small,
        )
        sections = [
            msgspec.structs.replace(one, text=without(self._secrets, one.text))
            for one in prompt.sections
        ]
        self.prompt = Prompt(tuple(sections))

    def remind(self) -> None:
        place = self.place
        if not self._is_small:
            reminders = LateReminders(
                self.builtin,
                place.folder,
                self._memory,
                lambda: place.policy.mode,
                trusted=place.trusted,
                secrets=self._secrets,
            )
            self.mutators.append(reminders)
            self.hooks.append(reminders.at_stop)

    def aim_at(self, command: str) -> None:
        """No turn ends before this command succeeds."""
        from treadle.policy.goals import Goal

        attempts = self.place.settings.goal_attempts
        goal = Goal(command, self.place.workspace, attempts=attempts)
        self.gates.append(goal)
        self.hooks.append(goal)

    def keep_files(self) -> None:
        """Checkpoints around each turn that changes files."""
        files = KeptFiles(self.place.folder, self.place.store, self.place.tell)
        self.place.policy.before = files.before
        self.mutators.append(files)
        self.observers.append(files)

    def hold_to(self, schema: dict[str, Any]) -> None:
        """By the model's own means, or by a tool whose call is the answer."""
        if "schema" in self.place.model.card.abilities:
            from treadle.models.structured import schema_of

            closed = schema_of(schema, strict=True)
            self.options = msgspec.structs.replace(self.options, output_schema=closed)
            return
        from treadle.agents.structured import FinalAnswer

        self.answer = FinalAnswer(schema)
        self.gates.append(self.answer)

    def agent(self, approve: Approver | None) -> Agent:
        place = self.place
        tools: list[ToolLike] = list(self.sources)
        if self.answer is not None:
            tools.append(self.answer)
        return Agent(
            self._watched(),
            tools,
            instructions=self.prompt.text,
            max_turns=place.settings.max_turns,
            policy=self._policy(),
            approve=approve,
            hooks=self._discreet_hooks(),
            mutators=[Compactor(place.helper or place.model), *self.mutators],
            gates=self.gates,
            observers=self.observers,
            workspace=place.workspace,
            options=self.options,
            keep_output=keeper_of(outputs_of(place.store)),
            **_children(place),
        )

    def _policy(self) -> Policy:
        if not self._park:
            return self.place.policy
        from treadle.apps.wiring.parking import Inquiring

        return Inquiring(self.place.policy, self.place.store.session_id)

    def _discreet(self, source: ToolSource) -> ToolSource:
        return Discreet(source, self._secrets) if self._secrets else source

    def _discreet_hooks(self) -> list[Hook]:
        if not self._secrets:
            return self.hooks
        return [DiscreetHook(hook, self._secrets) for hook in self.hooks]

    def _watched(self) -> Model:
        """The model, with whoever watches over what it is asked and says."""
        model = self.place.model
        if self._secrets:
            model = Reticent(model, self._secrets)
        if not self._is_small:
            model = CacheAccountant(model)
        if self._park:
            from treadle.apps.wiring.parking import Patient

            model = Patient(model, self.place.store.session_id)
        return model


def _budgets(place: Place, *, interactive: bool, park: bool) -> tuple[list[Gate], Purse | None]:
    limits, purse = _limits(place, interactive)
    if park:
        from treadle.apps.wiring.parking import Unhurried

        limits = [Unhurried(limit, place.store.session_id) for limit in limits]
    return [Repetition(), *limits], purse


def _limits(place: Place, interactive: bool) -> tuple[list[Gate], Purse | None]:
    settings, model, notes = place.settings, place.model, place.notes
    gates: list[Gate] = []
    earlier = used_before(place.store, place.view)  # limits in tokens and money are the session's
    if settings.max_tokens is not None:
        tokens = Tokens(settings.max_tokens)
        tokens.count_earlier(earlier)
        gates.append(tokens)
    if settings.max_time is not None:
        gates.append(Elapsed(settings.max_time))
    by_default = settings.origin("max_cost") == "default"
    if settings.max_cost is None or (interactive and by_default):
        return gates, None
    assumed = None
    if model.card.input_price is None or model.card.output_price is None:
        assumed = _usual_price(model.name)
        if assumed is None and by_default:
            notes.append(
                f"the price of {model.name} is not known, so nothing limits what it costs; "
                "--max-tokens does"
            )
            return gates, None
    money = Money(Purse(settings.max_cost), assumed)
    money.count_earlier(earlier, model.card)
    return [*gates, money], money.purse


def _usual_price(name: str) -> tuple[float, float] | None:
    """What the model costs at its maker, where an address of the user's own says nothing."""
    from treadle.models.catalog import card_for

    card = card_for(name)
    if card.input_price is None or card.output_price is None:
        return None
    return max(card.input_price, card.cache_write_price or 0.0), card.output_price


def _thinking(given: str) -> int | str | None:
    return int(given) if given.isdigit() else given or None


def _children(place: Place) -> dict[str, Any]:
    """Child agents, with the kinds that a trusted folder and the user define."""
    if _is_small(place.model):
        return {}
    folders = [place.folder, Path.home()] if place.trusted else [Path.home()]

    async def open_store(parent: str, call_id: str) -> Store:
        return child_store(place.folder, place.store, parent, call_id)

    return {"subagents": _definitions(folders, place.notes), "open_store": open_store}


def _definitions(folders: list[Path], notes: list[str]) -> Sequence[Any]:
    from treadle.agents.definitions import FOLDERS, read_definitions

    present = [one for one in folders if any((one / place).is_dir() for place in FOLDERS)]
    if not present:
        return []
    found, problems = read_definitions(present, home=Path.home())
    notes.extend(problems)
    return found


def _builtin(model: Model, workspace: LateWorkspace, *, asks: bool) -> Builtin:
    """The built-in tools that this model can use here; `asks`: questions find an answer."""
    from treadle.tools.builtin import SMALL, STANDARD, builtin_tools

    names = list(SMALL if _is_small(model) else STANDARD)
    if not asks and "ask" in names:
        names.remove("ask")
    return builtin_tools(workspace, names, documents="documents" in model.card.abilities)


def _is_small(model: Model) -> bool:
    """Whether it can keep only a few sentences and tools in mind."""
    return model.name.startswith("embedded")


class _Warming:
    """Opens the workspace while the model still writes its first call."""

    def __init__(self, workspace: LateWorkspace) -> None:
        self._workspace = workspace

    def on_event(self, event: Event) -> None:
        if type(event) is ToolCallBegan:
            self._workspace.warm()

    def on_item(self, position: int, item: Item) -> None:
        return None
