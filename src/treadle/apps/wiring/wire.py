"""From settings and a folder to an agent that can work there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.agents.agent import Agent, Approver, ToolLike
from treadle.apps.settings import Settings
from treadle.apps.wiring.late import LatePolicy, LateWorkspace
from treadle.apps.wiring.prompt import system_prompt
from treadle.apps.wiring.rules import is_trusted, keep_rules, load_rules
from treadle.apps.wiring.sessions import child_store, keeper_of, open_session, outputs_of
from treadle.context.compaction import Compactor
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import Model, ModelOptions
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.store import Store
from treadle.core.errors import ConfigError
from treadle.core.events import Event, ToolCallBegan
from treadle.core.loop.driver import Driver
from treadle.core.loop.steps import Said
from treadle.core.transcript.entries import View
from treadle.core.transcript.items import Item
from treadle.policy.budgets import Elapsed, Money, Purse, Repetition, Tokens

if TYPE_CHECKING:
    from treadle.agents.structured import FinalAnswer
    from treadle.tools.builtin import Builtin
    from treadle.workspace.local import Options

# The most characters that a token stands for in ordinary text.
CHARS_PER_TOKEN = 5


class Opening(msgspec.Struct, frozen=True):
    """What a host asks for beside the settings.

    `resume` is a session's id, "" for the last one here, or None for a new one. `until` is a
    command that has to succeed before a turn may end, `schema` one that the answer has to fit.
    `chars` are said at once: more than the model can take is refused before anything begins.
    """

    interactive: bool = False
    resume: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    until: str = ""
    schema: dict[str, Any] | None = None
    chars: int = 0


class Wired(msgspec.Struct, frozen=True):
    """An agent that can work, with all that its host needs of the parts.

    `notes` are lines for the person: the model and what to expect, the rules that wait, what a
    resumed session lost.
    """

    agent: Agent
    workspace: LateWorkspace
    policy: LatePolicy
    store: Store
    view: View | None
    notes: tuple[str, ...]
    purse: Purse | None = None
    answer: FinalAnswer | None = None

    @property
    def model(self) -> Model:
        return self.agent.equipment.model

    def start(self, said: Said | None = None) -> Driver:
        """The session's driver; close it before this."""
        return self.agent.start(input=said, view=self.view, store=self.store)

    async def aclose(self) -> None:
        """Close the model, the tools' servers and the workspace; the store is the driver's."""
        try:
            await self.agent.aclose()
        finally:
            await self.workspace.aclose()


async def wire(
    settings: Settings,
    folder: Path,
    opening: Opening | None = None,
    *,
    approve: Approver | None = None,
    hooks: Sequence[Hook] = (),
    observers: Sequence[Observer] = (),
    tell: Callable[[str], None] | None = None,
) -> Wired:
    """Put an agent together. Wrong settings, rules and models are told here, before any work.

    Without `approve`, a call that needs a person is denied in words that the model can read.
    `tell` hears what becomes known only later, a line for the person each.
    """
    opening = opening or Opening()
    folder = folder.resolve()  # noqa: ASYNC240 - before there is anything to block
    notes = list(settings.notes)
    rules, waiting = load_rules(folder, opening.allow, opening.deny)
    notes += waiting
    model, line = await choose_model(settings)
    notes.insert(0, line)
    _check_length(opening.chars, model)
    store, view, told = open_session(opening.resume, folder)
    notes += told
    outputs = outputs_of(store)
    workspace = LateWorkspace(folder, lambda: workspace_options(settings, folder, outputs), tell)
    try:
        if settings.sandbox == "required":
            await workspace.opened()  # refused now, and not half-way through the work
    except BaseException:
        await store.aclose()
        raise
    policy = LatePolicy(
        workspace,
        rules,
        mode=settings.permission_mode,
        interactive=approve is not None,
        added=settings.add_dir,
        keep=keep_rules(folder),
    )
    gates, purse = _budgets(settings, model, notes, interactive=opening.interactive)
    if opening.until:
        from treadle.policy.goals import Goal

        goal = Goal(opening.until, workspace, attempts=settings.goal_attempts)
        gates, hooks = [*gates, goal], [*hooks, goal]
    options = ModelOptions(thinking=_thinking(settings.thinking))
    builtin = _builtin(model, workspace, interactive=opening.interactive)
    policy.stands = builtin.cwd
    tools: list[ToolLike] = [builtin]
    answer = None
    if opening.schema is not None:
        answer, options = _held_to(opening.schema, model, options)
        if answer is not None:
            tools, gates = [*tools, answer], [*gates, answer]
    trusted = is_trusted(folder)
    instructions = system_prompt(
        folder,
        notes=notes,
        trusted=trusted,
        interactive=opening.interactive,
        mode=settings.permission_mode,
        added_folders=[Path(one) for one in settings.add_dir],
        tools=builtin.instructions(),
        added=settings.append_system_prompt,
        is_small=_is_small(model),
    )
    if view is not None:
        builtin.resume(store.session_id, view.transcript)
    agent = Agent(
        model,
        tools,
        instructions=instructions,
        max_turns=settings.max_turns,
        policy=policy,
        approve=approve,
        hooks=hooks,
        mutators=[Compactor(model)],
        gates=gates,
        observers=[_Warming(workspace), *observers],
        workspace=workspace,
        options=options,
        keep_output=keeper_of(outputs),
        **_children(model, folder, store, trusted=trusted),
    )
    return Wired(agent, workspace, policy, store, view, tuple(notes), purse, answer)


async def choose_model(settings: Settings) -> tuple[Model, str]:
    """The model that is named, or else the one that can be used here; and a line about it."""
    from treadle.models import names

    if settings.model:
        from treadle.models.choice import expectation

        model = names.model(settings.model, aliases=settings.aliases)
        return model, f"{model.name} ({settings.origin('model')}): {expectation(model.card)}"
    from treadle.models.choice import choose

    choice = await choose()
    return names.model(choice.model, aliases=settings.aliases), choice.line


def workspace_options(settings: Settings, folder: Path, outputs: Path) -> Options:
    from treadle.workspace.local import Options

    return Options(
        added=tuple(Path(folder, one).expanduser() for one in settings.add_dir),
        sandbox=settings.sandbox,
        network=settings.network,
        outputs=outputs,
    )


def _budgets(
    settings: Settings, model: Model, notes: list[str], *, interactive: bool
) -> tuple[list[Gate], Purse | None]:
    gates: list[Gate] = [Repetition()]
    if settings.max_tokens is not None:
        gates.append(Tokens(settings.max_tokens))
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
    purse = Purse(settings.max_cost)
    return [*gates, Money(purse, assumed)], purse


def _usual_price(name: str) -> tuple[float, float] | None:
    """What the model costs at its maker, where an address of the user's own says nothing."""
    from treadle.models.catalog import card_for

    card = card_for(name)
    if card.input_price is None or card.output_price is None:
        return None
    return max(card.input_price, card.cache_write_price or 0.0), card.output_price


def _check_length(chars: int, model: Model) -> None:
    if chars > model.card.window * CHARS_PER_TOKEN:
        raise ConfigError(
            f"the prompt is too long: {chars:,} characters, and {model.name} takes about "
            f"{model.card.window:,} tokens. Put it into a file and name the file in the prompt"
        )


def _held_to(
    schema: dict[str, Any], model: Model, options: ModelOptions
) -> tuple[FinalAnswer | None, ModelOptions]:
    """By the model's own means, or by a tool whose call is the answer."""
    if "schema" in model.card.abilities:
        from treadle.models.structured import schema_of

        closed = schema_of(schema, strict=True)
        return None, msgspec.structs.replace(options, output_schema=closed)
    from treadle.agents.structured import FinalAnswer

    return FinalAnswer(schema), options


def _thinking(given: str) -> int | str | None:
    return int(given) if given.isdigit() else given or None


def _children(model: Model, folder: Path, store: Store, *, trusted: bool) -> dict[str, Any]:
    """Child agents, with the kinds that a trusted folder and the user define."""
    if _is_small(model):
        return {}
    folders = [folder, Path.home()] if trusted else [Path.home()]

    async def open_store(parent: str, call_id: str) -> Store:
        return child_store(folder, store, call_id)

    return {"subagents": _definitions(folders), "open_store": open_store}


def _definitions(folders: list[Path]) -> Sequence[Any]:
    from treadle.agents.definitions import FOLDERS, read_definitions

    present = [one for one in folders if any((one / place).is_dir() for place in FOLDERS)]
    return read_definitions(present)[0] if present else []


def _builtin(model: Model, workspace: LateWorkspace, *, interactive: bool) -> Builtin:
    """The built-in tools that this model can use here."""
    from treadle.tools.builtin import SMALL, STANDARD, builtin_tools

    names = list(SMALL if _is_small(model) else STANDARD)
    if not interactive and "ask" in names:
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
