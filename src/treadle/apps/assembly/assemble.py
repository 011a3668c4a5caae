"""From settings and a folder to an agent that can work there: the door for the hosts.

What the agent consists of is put together on the bench (agent_builder.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.agents.agent import Agent, Approver
from treadle.apps.assembly.agent_builder import AgentBuilder, BuildContext, InterruptHandle
from treadle.apps.assembly.lazy import LazyPolicy, LazyWorkspace
from treadle.apps.assembly.redaction import find_environment_secrets
from treadle.apps.assembly.rules import is_trusted, load_rules, make_rule_saver
from treadle.apps.assembly.sessions import get_outputs_dir, open_session
from treadle.apps.settings import Settings, treadle_home
from treadle.context.prompt import SystemPrompt
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import Model
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.store import Store
from treadle.core.errors import ConfigError
from treadle.core.loop.driver import Driver
from treadle.core.steps import UserInput
from treadle.core.transcript.entries import View
from treadle.policy.budgets import SharedBudget

if TYPE_CHECKING:
    from treadle.agents.structured_output import StructuredOutput
    from treadle.tools.mcp.server import McpServer
    from treadle.workspace.local import WorkspaceOptions

# The most characters that a token stands for in ordinary text.
CHARS_PER_TOKEN = 5


class SessionOptions(msgspec.Struct, frozen=True):
    """What a host asks for beside the settings.

    `resume` is a session's id, "" for the last one here, or None for a new one. `until` is a
    command that has to succeed before a turn may end, `schema` one that the answer has to fit.
    `chars` are said at once: more than the model can take is refused before anything begins.
    With `park`, what would take too long or cost too much raises Postponed (suspend.py) instead.
    `keep_files` takes checkpoints around turns; left open, an interactive host does so itself.
    """

    interactive: bool = False
    resume: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    until: str = ""
    output_schema: dict[str, Any] | None = None
    prompt_chars: int = 0
    suspend: bool = False
    checkpoints: bool | None = None


class AgentSession(msgspec.Struct, frozen=True):
    """An agent that can work, with all that its host needs of the parts.

    `prompt` is what the model is told first. `notes` are lines for the person: the model and what
    to expect, what waits for an approval, what a resumed session lost. `servers` say by themselves
    how they are.
    """

    agent: Agent
    workspace: LazyWorkspace
    policy: LazyPolicy
    store: Store
    view: View | None
    prompt: SystemPrompt
    notes: tuple[str, ...]
    shared_budget: SharedBudget | None = None
    structured_output: StructuredOutput | None = None
    servers: tuple[McpServer, ...] = ()
    interrupt_handle: InterruptHandle = msgspec.field(default_factory=InterruptHandle)
    small_model: Model | None = None

    @property
    def model(self) -> Model:
        return self.agent.config.model

    def start(self, input: UserInput | None = None) -> Driver:
        """The session's driver; close it before this."""
        driver = self.agent.start(input=input, view=self.view, store=self.store)
        self.interrupt_handle.driver = driver
        return driver

    async def aclose(self) -> None:
        """Close the model, the tools' servers and the workspace; the store is the driver's."""
        try:
            await self.agent.aclose()
        finally:
            if self.small_model is not None:
                await self.small_model.aclose()
            await self.workspace.aclose()


async def build_agent(
    settings: Settings,
    folder: Path,
    options: SessionOptions | None = None,
    *,
    approve: Approver | None = None,
    hooks: Sequence[Hook] = (),
    observers: Sequence[Observer] = (),
    notify: Callable[[str], None] | None = None,
) -> AgentSession:
    """Put an agent together. Wrong settings, rules and models are told here, before any work.

    Without `approve`, a call that needs a person is denied in words that the model can read.
    `tell` hears what becomes known only later, a line for the person each.
    """
    options = options or SessionOptions()
    folder = folder.resolve()  # noqa: ASYNC240 - before there is anything to block
    notes = list(settings.notes)
    rules, waiting = load_rules(folder, options.allow, options.deny)
    notes += waiting
    model, line = await choose_model(settings)
    notes.insert(0, line)
    helper = _make_small_model(settings)
    _check_prompt_length(options.prompt_chars, model)
    store, view, told = open_session(options.resume, folder)
    notes += told
    outputs = get_outputs_dir(store)
    workspace = LazyWorkspace(
        folder, lambda: _make_workspace_options(settings, folder, outputs), notify
    )
    try:
        if settings.sandbox == "required":
            await workspace.open()  # refused now, and not half-way through the work
        policy = LazyPolicy(
            workspace,
            rules,
            mode=settings.permission_mode,
            interactive=approve is not None,
            added_folders=settings.add_dir,
            save_rules=make_rule_saver(folder),
        )
        place = BuildContext(
            settings=settings,
            folder=folder,
            model=model,
            small_model=helper,
            workspace=workspace,
            policy=policy,
            store=store,
            view=view,
            notes=notes,
            notify=notify,
            trusted=is_trusted(folder),
        )
        return _build_session(place, options, approve, hooks, observers)
    except BaseException:
        await workspace.aclose()
        await store.aclose()
        raise


def _build_session(
    context: BuildContext,
    options: SessionOptions,
    approve: Approver | None,
    hooks: Sequence[Hook],
    observers: Sequence[Observer],
) -> AgentSession:
    bench = AgentBuilder(context, interactive=options.interactive, suspend=options.suspend)
    bench.hooks += hooks
    bench.observers += observers
    bench.add_extensions()
    bench.add_prompt()
    bench.add_reminders()
    if options.until:
        bench.add_goal(options.until)
    keeps_files = not options.interactive if options.checkpoints is None else options.checkpoints
    if keeps_files:
        bench.add_checkpoints()
    if options.output_schema is not None:
        bench.add_output_schema(options.output_schema)
    return AgentSession(
        agent=bench.build(approve),
        workspace=context.workspace,
        policy=context.policy,
        store=context.store,
        view=context.view,
        prompt=bench.prompt,
        notes=tuple(context.notes),
        shared_budget=bench.shared_budget,
        structured_output=bench.structured_output,
        servers=bench.servers,
        interrupt_handle=bench.interrupt_handle,
        small_model=context.small_model,
    )


async def choose_model(settings: Settings) -> tuple[Model, str]:
    """The model that is named, or else the one that can be used here; and a line about it."""
    from treadle.models import registry

    if settings.model:
        from treadle.models.registry.default_model import describe_card

        model = registry.model(settings.model, aliases=settings.aliases)
        return model, f"{model.name} ({settings.origin('model')}): {describe_card(model.card)}"
    from treadle.models.registry.default_model import find_default_model

    choice = await find_default_model()
    return registry.model(choice.model, aliases=settings.aliases), choice.summary


def _make_small_model(settings: Settings) -> Model | None:
    if not settings.small_model:
        return None
    from treadle.models import registry

    return registry.model(settings.small_model, aliases=settings.aliases)


def _make_workspace_options(settings: Settings, folder: Path, outputs: Path) -> WorkspaceOptions:
    from treadle.workspace.local import WorkspaceOptions

    own = (treadle_home() / "skills", treadle_home() / "hooks")
    return WorkspaceOptions(
        extra_roots=tuple(Path(folder, one).expanduser() for one in settings.add_dir),
        readable=tuple(place for place in own if place.is_dir()),
        sandbox=settings.sandbox,
        network=settings.network,
        outputs_dir=outputs,
        secrets=find_environment_secrets(),
    )


def _check_prompt_length(chars: int, model: Model) -> None:
    if chars > model.card.window * CHARS_PER_TOKEN:
        raise ConfigError(
            f"the prompt is too long: {chars:,} characters, and {model.name} takes about "
            f"{model.card.window:,} tokens. Put it into a file and name the file in the prompt"
        )
