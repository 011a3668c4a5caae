"""`build_agent`: from settings and a folder to an agent that can work there.

`build_agent` reads top-down: check the settings, open the session, then collect tools, hooks,
mutators and gates, then make the Agent. Each part is loaded only if it is configured. Used by
every host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
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
from treadle.apps.assembly.limits import make_gates
from treadle.apps.assembly.prompt import build_system_prompt
from treadle.apps.assembly.redaction import (
    RedactingModel,
    find_environment_secrets,
    redact,
    redact_hooks,
    redact_source,
)
from treadle.apps.assembly.rules import is_trusted, load_rules, make_file_denials, make_rule_saver
from treadle.apps.assembly.sessions import (
    create_child_store,
    get_outputs_dir,
    get_session_dir,
    make_head_log,
    make_output_saver,
    open_session,
)
from treadle.apps.settings import Settings, find_missing_folders, treadle_home
from treadle.context.cache_monitor import CacheMonitor, HeadLog
from treadle.context.compaction import Compactor
from treadle.context.prompt import SystemPrompt
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import Model, ModelOptions
from treadle.core.contracts.mutator import Mutator
from treadle.core.contracts.observer import BaseObserver, Observer
from treadle.core.contracts.policy import Policy
from treadle.core.contracts.store import Store
from treadle.core.errors import ConfigError
from treadle.core.events import Event, ToolCallBegan
from treadle.core.extras import describe_missing, is_installed
from treadle.core.loop.driver import Driver
from treadle.core.steps import UserInput
from treadle.core.transcript.entries import View
from treadle.policy.budgets import SharedBudget

if TYPE_CHECKING:
    from treadle.agents.structured_output import StructuredOutput
    from treadle.policy.ruleset.rules import RuleSet
    from treadle.tools.builtin import BuiltinSource
    from treadle.tools.mcp.server import McpServer
    from treadle.workspace.local import WorkspaceOptions

MAX_CHARS_PER_TOKEN = 5  # in ordinary text


class SessionOptions(msgspec.Struct, frozen=True):
    """What a host wants of a session, in addition to the settings.

    `resume` is a session id, "" for the last session of the folder, None for a new one. `until`
    is a command that has to succeed before a turn may end. The final answer has to match
    `output_schema`. `prompt_chars` is the length of the prompt; one too long for the model raises.
    With `suspend`, a wait that is too long raises TurnSuspended (suspend.py). `checkpoints` records
    the files before and after turns; None means only for a host that is not interactive.
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


class InterruptHandle:
    """Interrupts the driver of a session, for hooks that are made before the driver."""

    def __init__(self) -> None:
        self.driver: Driver | None = None

    def interrupt(self, reason: str) -> None:
        if self.driver is not None:
            self.driver.interrupt(reason)


class AgentSession(msgspec.Struct, frozen=True):
    """An agent, its session, and the parts that a host needs.

    `notes` are lines for the user: the model, what waits for approval, what a resumed session
    lost. `session_warnings` are those that every host shows: about the session's log, and about
    servers that need a missing extra. The state of `servers` changes while they start and stop.
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
    session_warnings: tuple[str, ...] = ()

    @property
    def model(self) -> Model:
        return self.agent.config.model

    def start(self, input: UserInput | None = None) -> Driver:
        """The driver of the session. Close it before this object."""
        driver = self.agent.start(input=input, view=self.view, store=self.store)
        self.interrupt_handle.driver = driver
        return driver

    async def aclose(self) -> None:
        """Close the model, the MCP servers and the workspace. The driver closes the store."""
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
    warn: Callable[[str], None] | None = None,
) -> AgentSession:
    """Build an agent and open its session. Invalid settings, rules and names raise here.

    Without `approve`, a call that needs approval is denied with a reason that the model reads.
    `notify` receives lines for the user that are known only later; `warn`, by default the same,
    those that the user has to see in any case, such as a missing sandbox.
    """
    options = options or SessionOptions()
    folder = folder.resolve()  # noqa: ASYNC240 - nothing else runs yet that it could block
    trusted = is_trusted(folder)
    secrets = find_environment_secrets()
    can_ask = options.interactive or options.suspend  # the user answers now, or when resuming

    # Rules, model, session: what can be invalid fails here.
    folder_notes = _check_added_folders(settings, folder)
    rules, rule_notes = load_rules(folder, options.allow, options.deny)
    model, model_summary = await choose_model(settings)
    is_small = _is_small(model)
    small_model = _create_small_model(settings)
    _check_prompt_length(options.prompt_chars, model)
    store, view, session_notes = open_session(options.resume, folder, secrets)
    # A resumed session keeps the tools and instructions that it began with: other ones would break
    # the provider's cache. A notice tells the model that the user can answer now, or cannot.
    head = view.request_head if view is not None else None
    began_attended = can_ask if head is None or is_small else not head.is_unattended
    notes = [model_summary, *settings.notes, *folder_notes, *rule_notes, *session_notes]

    async with AsyncExitStack() as on_error:
        on_error.push_async_callback(store.aclose)
        outputs_dir = get_outputs_dir(store)
        workspace = LazyWorkspace(
            folder,
            lambda: _make_workspace_options(settings, folder, outputs_dir, secrets, rules()),
            warn or notify,
        )
        on_error.push_async_callback(workspace.aclose)
        if settings.sandbox == "required":
            await workspace.open()  # fail now, not at the first command
        policy = LazyPolicy(
            workspace,
            rules,
            mode=settings.permission_mode,
            interactive=approve is not None,
            added_folders=settings.add_dir,
            # The results of earlier calls and the user's own skills name files in these folders.
            readable=(str(outputs_dir), str(treadle_home() / "skills")),
            save_rules=make_rule_saver(folder),
        )

        # Limits
        gates, shared_budget = make_gates(
            settings, model, store, view, notes,
            interactive=options.interactive, suspend=options.suspend,
        )  # fmt: skip
        effort = settings.thinking
        model_options = ModelOptions(thinking=int(effort) if effort.isdigit() else effort or None)

        # Tools: built-in, then MCP servers and skills
        builtin = _make_builtin_tools(model, workspace, policy, can_ask=began_attended)
        if view is not None:
            builtin.restore_cwd(store.session_id, view.transcript)
        tools: list[ToolLike] = [redact_source(builtin, secrets)]
        mutators: list[Mutator] = [Compactor(small_model or model)]
        if settings.tool_summaries and small_model is None:
            notes.append(
                "tool_summaries has no effect: set small_model, the model that writes them"
            )
        elif settings.tool_summaries and small_model is not None:
            from treadle.context.tool_summaries import ToolSummaries

            mutators.append(ToolSummaries(small_model))
        extensions = discover_extensions(folder)
        notes += [*extensions.notes, *(program.summary for program in extensions.unapproved)]
        servers: tuple[McpServer, ...] = ()
        if extensions.servers and is_small:
            notes.append(f"MCP servers are off: {model.name} can use only a few tools")
        elif extensions.servers and not is_installed("mcp"):
            names = ", ".join(sorted(extensions.servers))
            missing = describe_missing("mcp", f"not started: {names}")
            notes.append(missing)
            session_notes = (*session_notes, missing)
        elif extensions.servers:
            from treadle.apps.assembly.servers import make_servers
            from treadle.tools.late_tools import StableToolList

            mcp = make_servers(
                extensions.servers,
                workspace,
                user_servers=extensions.user_servers,
                trusted=trusted,
                startup_wait=0.0 if options.interactive else settings.server_wait,
                notes=notes,
                notify=notify,
            )
            servers = mcp.servers
            # Outermost, so that the loop sees which tool a forwarded call runs.
            stable_tools = StableToolList(redact_source(mcp, secrets))
            tools.append(stable_tools)
            mutators.append(stable_tools)
        skills_section = ""
        if not is_small:
            skills, skill_notes = load_skills(folder, trusted=trusted)
            notes += skill_notes
            if skills:
                from treadle.tools.skills import Skills, format_skills_section

                tools.append(redact_source(Skills(skills), secrets))
                skills_section = format_skills_section(skills)

        # System prompt
        prompt, memory = build_system_prompt(
            folder,
            notes=notes,
            trusted=trusted,
            attended=began_attended,
            mode=settings.permission_mode,
            added_folders=[Path(added) for added in settings.add_dir],
            tools=builtin.instructions(),
            skills=skills_section,
            appended=settings.append_system_prompt,
            is_small=is_small,
            secrets=secrets,
        )

        # Hooks, and what changes the transcript between model calls
        interrupt_handle = InterruptHandle()
        all_hooks = [*hooks]
        all_observers: list[Observer] = [_WorkspacePreloader(workspace), *observers]
        if extensions.hooks and not trusted and settings.sandbox != "off":
            notes.append(HOOKS_SANDBOXED)
        all_hooks += make_hooks(
            extensions.hooks,
            workspace,
            folder,
            transcript_path=get_session_dir(store) / "journal.jsonl",
            mode=lambda: policy.mode,
            notify=notify,
            end_turn=lambda reason: interrupt_handle.interrupt(redact(secrets, reason)),
            # In an untrusted folder the user's hooks may load files of that folder.
            sandboxed=False if trusted and settings.sandbox != "required" else None,
        )
        if not is_small:
            reminders = LazyReminders(
                builtin,
                folder,
                memory,
                lambda: policy.mode,
                trusted=trusted,
                secrets=secrets,
                is_attended=can_ask,
                began_attended=began_attended,
            )
            mutators.append(reminders)
            if not options.interactive:  # at a terminal the user sees the open todos, and decides
                all_hooks.append(reminders.stop_hook)

        # What the options of this session add
        if options.until:
            from treadle.policy.goal import Goal

            goal = Goal(options.until, workspace, max_attempts=settings.goal_attempts)
            gates.append(goal)
            all_hooks.append(goal)
        if options.checkpoints or (options.checkpoints is None and not options.interactive):
            checkpoints = TurnCheckpoints(folder, store, notify)
            all_hooks.append(checkpoints.hook)
            mutators.append(checkpoints)
            all_observers.append(checkpoints)
        structured_output: StructuredOutput | None = None
        if options.output_schema is not None:
            from treadle.agents.structured_output import StructuredOutput

            structured_output = StructuredOutput(options.output_schema, model)

        agent = Agent(
            _wrap_model(
                model,
                secrets,
                make_head_log(store, view, is_unattended=not began_attended),
                suspend=options.suspend,
            ),
            tools,
            instructions=prompt.text,
            max_turns=settings.max_turns,
            policy=_wrap_policy(policy, store, suspend=options.suspend),
            approve=approve,
            hooks=redact_hooks(all_hooks, secrets),
            mutators=mutators,
            gates=gates,
            observers=all_observers,
            workspace=workspace,
            options=model_options,
            keep_output=make_output_saver(outputs_dir),
            structured_output=structured_output,
            caller="terminal" if options.interactive else "headless",
            **({} if is_small else _make_subagent_options(folder, trusted, store, notes)),
        )
        session = AgentSession(
            agent=agent,
            workspace=workspace,
            policy=policy,
            store=store,
            view=view,
            prompt=prompt,
            notes=tuple(notes),
            shared_budget=shared_budget,
            structured_output=structured_output,
            servers=servers,
            interrupt_handle=interrupt_handle,
            small_model=small_model,
            session_warnings=session_notes,
        )
        on_error.pop_all()
        return session


# ------------------------------------------------------------------ model


async def choose_model(settings: Settings) -> tuple[Model, str]:
    """The model of the settings, or the default model of this machine; and a line about it."""
    from treadle.models import registry
    from treadle.models.registry.default_model import describe_card, find_default_model

    if settings.model:
        model = registry.model(settings.model, aliases=settings.aliases)
        return model, f"{model.name} ({settings.origin('model')}): {describe_card(model.card)}"
    default = await find_default_model()
    if not default.is_available:
        raise ConfigError(default.summary)
    return registry.model(default.model, aliases=settings.aliases), default.summary


def _create_small_model(settings: Settings) -> Model | None:
    from treadle.models import registry

    name = settings.small_model
    return registry.model(name, aliases=settings.aliases) if name else None


def _is_small(model: Model) -> bool:
    """Whether the model can handle only a short prompt and a few tools."""
    return model.name.startswith("embedded")


def _check_prompt_length(chars: int, model: Model) -> None:
    if chars > model.card.window * MAX_CHARS_PER_TOKEN:
        raise ConfigError(
            f"the prompt is too long: {chars:,} characters, but {model.name} takes about "
            f"{model.card.window:,} tokens. Put the text into a file and name it in the prompt"
        )


def _wrap_model(
    model: Model, secrets: tuple[str, ...], head_log: HeadLog, *, suspend: bool
) -> Model:
    is_small = _is_small(model)
    if secrets:
        model = RedactingModel(model, secrets)
    if not is_small:
        model = CacheMonitor(model, head_log)
    if suspend:
        from treadle.apps.assembly.suspend import SuspendOnRateLimit

        model = SuspendOnRateLimit(model, head_log.session_id)
    return model


def _wrap_policy(policy: LazyPolicy, store: Store, *, suspend: bool) -> Policy:
    if suspend:
        from treadle.apps.assembly.suspend import SuspendOnQuestion

        return SuspendOnQuestion(policy, store.session_id)
    return policy


# ------------------------------------------------------------------ workspace, tools, subagents


def _check_added_folders(settings: Settings, folder: Path) -> list[str]:
    """Notes on folders that do not exist; one that the command line names is an error."""
    origin = settings.origin("add_dir")
    missing = find_missing_folders(settings, folder)
    if missing and origin.startswith("--"):
        raise ConfigError(f"{origin}: there is no folder {missing[0]}")
    return [f"{origin}: there is no folder {one}" for one in missing]


def _make_workspace_options(
    settings: Settings, folder: Path, outputs_dir: Path, secrets: tuple[str, ...], rules: RuleSet
) -> WorkspaceOptions:
    from treadle.workspace.local import WorkspaceOptions

    user_folders = (treadle_home() / "skills", treadle_home() / "hooks")
    return WorkspaceOptions(
        extra_roots=tuple(Path(folder, added).expanduser() for added in settings.add_dir),
        readable=tuple(path for path in user_folders if path.is_dir()),
        sandbox=settings.sandbox,
        network=settings.network,
        denials=make_file_denials(rules),
        max_memory=settings.command_memory << 20 if settings.command_memory else None,
        outputs_dir=outputs_dir,
        secrets=secrets,
    )


class _WorkspacePreloader(BaseObserver):
    """Opens the workspace while the model still writes its first call."""

    def __init__(self, workspace: LazyWorkspace) -> None:
        self._workspace = workspace

    def on_event(self, event: Event) -> None:
        if type(event) is ToolCallBegan:
            self._workspace.preload()


def _make_builtin_tools(
    model: Model, workspace: LazyWorkspace, policy: LazyPolicy, *, can_ask: bool
) -> BuiltinSource:
    """The built-in tools that this model can use; `ask` only if the user can answer."""
    from treadle.tools.builtin import SMALL_TOOLS, STANDARD_TOOLS, builtin_tools

    names = list(SMALL_TOOLS if _is_small(model) else STANDARD_TOOLS)
    if not can_ask and "ask" in names:
        names.remove("ask")
    if "patch" in model.card.abilities:
        names.insert(names.index("edit"), "apply_patch")
    return builtin_tools(
        workspace,
        names,
        native_pdf="documents" in model.card.abilities,
        get_find_denied=policy.get_find_denied,
    )


def _make_subagent_options(
    folder: Path, trusted: bool, store: Store, notes: list[str]
) -> dict[str, Any]:
    """Options of the Agent: the agent definitions of the user and of a trusted folder."""
    from treadle.agents.agent_files import read_agent_files

    async def open_store(parent_id: str, call_id: str) -> Store:
        return create_child_store(folder, store, parent_id, call_id)

    folders = [folder, Path.home()] if trusted else [Path.home()]
    definitions, problems = read_agent_files(folders, home=Path.home())
    notes.extend(problems)
    return {"subagents": definitions, "open_store": open_store}
