"""`treadle.coding_agent`: the agent that the command line runs, for a program.

    async with treadle.coding_agent("path/to/folder", permission_mode="auto") as agent:
        result = await agent.run("Why does the test fail?")

`coding_agent` checks its arguments and makes the settings of them (coding_agent_arguments.py);
`_assemble` reads top-down: rules, model (model_choice.py) and limits, then tools (toolset.py),
prompt, hooks and mutators, then the Agent. Each part is loaded only if it is configured. The hosts
use the same function (assemble.py), with a HostSession.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from treadle.agents.agent_settings import Approver, ToolLike
from treadle.apps.assembly.checkpoints import TurnCheckpoints
from treadle.apps.assembly.children import (
    ChildParts,
    ChildPlace,
    make_child_opener,
    make_child_options,
    make_worktrees,
)
from treadle.apps.assembly.coding_agent_arguments import (
    GivenParts,
    McpDefinitions,
    check_added_folders,
    check_folder,
    check_list,
    check_model,
    check_rules,
    check_type,
    format_argument,
    list_own_tools,
    load_given_settings,
    make_container_options,
    make_retry,
    read_given_servers,
    reject_unknown_arguments,
)
from treadle.apps.assembly.environment import EnvironmentNotices
from treadle.apps.assembly.extensions import (
    HOOKS_SANDBOXED,
    add_project_settings,
    approve_extensions,
    discover_extensions,
    list_user_skill_folders,
    load_skills,
    make_hooks,
)
from treadle.apps.assembly.host_session import HostSession
from treadle.apps.assembly.kept_branches import KeptBranches
from treadle.apps.assembly.lazy import LazyPolicy, LazyReminders, LazyWorkspace
from treadle.apps.assembly.limits import make_gates
from treadle.apps.assembly.model_choice import (
    choose_model_now,
    create_model,
    create_small_model,
    has_tool_search,
    is_small_model,
    make_child_model,
    wrap_model,
)
from treadle.apps.assembly.parts import AgentParts, CodingAgent, GrantEnd, RunningDrivers
from treadle.apps.assembly.prompt import build_system_prompt
from treadle.apps.assembly.recent_files import RecentFiles
from treadle.apps.assembly.redaction import (
    find_environment_secrets,
    redact,
    redact_for_display,
    redact_hooks,
    redact_source,
)
from treadle.apps.assembly.rules import (
    FolderTrust,
    LoadedRules,
    choose_trust,
    load_rules,
    make_read_check,
    make_rule_saver,
)
from treadle.apps.assembly.sessions import (
    get_outputs_dir,
    get_session_dir,
    make_head_log,
    make_output_saver,
)
from treadle.apps.assembly.toolset import (
    PROVIDER_SEARCH,
    WorkspacePreloader,
    describe_search_problem,
    make_builtin_tools,
    make_mcp_servers,
    make_workspace_options,
)
from treadle.apps.settings.settings import Settings, parse_size
from treadle.context.compaction import Compactor
from treadle.context.prompt import describe_commands, find_family
from treadle.core.contracts.hook import Hook
from treadle.core.contracts.model import Model, ModelOptions
from treadle.core.contracts.mutator import Mutator
from treadle.core.contracts.observer import Observer
from treadle.core.contracts.policy import Policy
from treadle.core.contracts.store import Store
from treadle.core.contracts.workspace import Workspace
from treadle.core.errors import ConfigError
from treadle.core.extras import describe_missing, is_installed
from treadle.core.loop.driver import Driver
from treadle.core.loop.retry import Retry
from treadle.core.transcript.pending import RunTools, pending
from treadle.lib.logger import logger

if TYPE_CHECKING:
    from typing import Never

    from treadle.agents.structured_output import StructuredOutput
    from treadle.policy.hooks import RunHook
    from treadle.policy.modes import PermissionMode
    from treadle.sessions.open_store import StoreLocation
    from treadle.workspace.container import ContainerOptions


def coding_agent(
    folder: str | os.PathLike[str] = ".",
    *,
    model: str | Model | None = None,
    permission_mode: PermissionMode | None = None,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    ask: Sequence[str] = (),
    approve: Approver | None = None,
    tools: Sequence[ToolLike] = (),
    mcp: McpDefinitions | str | os.PathLike[str] | None = None,
    instructions: str = "",
    sandbox: Literal["required", "auto", "off"] | None = None,
    container: str | ContainerOptions | None = None,
    network: bool | None = None,
    add_dir: Sequence[str | os.PathLike[str]] = (),
    max_turns: int | None = None,
    max_cost: float | None = None,
    max_tokens: int | None = None,
    max_time: float | None = None,
    thinking: str | int | None = None,
    small_model: str | None = None,
    retry: Retry | None = None,
    hooks: Sequence[Hook] = (),
    observers: Sequence[Observer] = (),
    trust: bool | None = None,
    settings: Mapping[str, object] | Settings | None = None,
    store: StoreLocation | None = None,
    name: str = "",
    host: HostSession | None = None,
    **unknown: Never,
) -> CodingAgent:
    """The agent of a folder, as the command line `treadle` runs it.

    model            a name, or a model; by default that of the settings, or of this machine
    permission_mode  plan, ask (the default), accept-edits, auto or bypass: which calls run without
                     approval
    allow, deny, ask rules, such as `Bash(npm test)`; deny wins over ask, ask over allow
    approve          decides on calls that need approval; without it they are denied, and the model
                     reads why
    tools            own tools, besides the built-in ones; they need no approval
    mcp              MCP servers by name, as under "mcpServers" in .mcp.json, or such a file
    instructions     text added to the system prompt
    sandbox, network, add_dir, max_turns, thinking, small_model
                     as the settings of the same names; None: as the user's settings say
    container        an image: commands run in containers of podman or docker, where the folder is
                     all that they see of this machine; MCP servers and hooks run here
    max_cost, max_tokens, max_time
                     limits: of all that this agent does, in USD and in tokens; of a turn, in
                     seconds
    trust            True: use the AGENTS.md, rules, hooks, servers, agents and skills of the
                     folder; False: do not; None: as the user decided with `treadle trust`
    settings         more settings by their names, see `treadle config`
    store            where `agent.session` keeps its sessions

    Settings of the user, ~/.treadle/config.toml and TREADLE_*, apply where no argument is given.
    No session, rule or trust is written to the user's home; ~/.local/state/treadle has a record for
    the case of a crash while a command or a write runs. A wrong argument raises ConfigError. Close
    the agent with `async with` or `aclose`. `host` is for the programs of this package.
    """
    reject_unknown_arguments(unknown, coding_agent)
    place = check_folder(folder)
    known_trust = choose_trust(place, check_type("trust", trust, (bool, type(None)), "a bool"))
    if trust:
        with contextlib.suppress(ConfigError):  # a note reports the file that cannot be read
            approve_extensions(place, known_trust.open_store)
    check_model(model)
    for argument, texts in {"allow": allow, "deny": deny, "ask": ask}.items():
        check_rules(argument, texts)
    lists = {"tools": tools, "hooks": hooks, "observers": observers, "add_dir": add_dir}
    for argument, values in lists.items():
        check_list(argument, values)
    if not isinstance(settings, Settings):
        flags: dict[str, object | None] = {
            "model": model if isinstance(model, str) else None,
            "permission_mode": permission_mode,
            "sandbox": sandbox,
            "network": network,
            "add_dir": [os.fspath(path) for path in add_dir] or None,
            "max_turns": max_turns,
            "max_cost": max_cost,
            "max_tokens": max_tokens,
            "max_time": max_time,
            "thinking": thinking,
            "small_model": small_model,
        }
        settings = load_given_settings(place, flags, settings, known_trust)
    given = GivenParts(
        model=None if isinstance(model, str) else model,
        approve=approve,
        tools=tuple(tools),
        servers=read_given_servers(mcp),
        instructions=check_type("instructions", instructions, str, "a text"),
        hooks=tuple(hooks),
        observers=tuple(observers),
        retry=retry or make_retry(settings),
        store=store,
        name=name,
        container=make_container_options(container, settings),
    )
    allow = (*allow, *list_own_tools(given.tools))
    rules = load_rules(
        place,
        allow,
        deny,
        ask,
        format_origin="--{}".format if host is not None else format_argument,
        open_store=known_trust.open_store,
    )
    return _assemble(place, settings, given, rules, known_trust, host)


def _assemble(
    folder: Path,
    settings: Settings,
    given: GivenParts,
    loaded_rules: LoadedRules,
    trust: FolderTrust,
    host: HostSession | None,
) -> CodingAgent:
    options = host.options if host is not None else None
    store, view = (host.store, host.state) if host is not None else (None, None)
    notify = host.notify if host is not None else logger.info
    warn = (host.warn or host.notify) if host is not None else logger.warning
    is_interactive = options is not None and options.interactive
    suspend = options is not None and options.suspend
    can_ask = is_interactive or suspend  # the user answers now, or when resuming
    secrets = find_environment_secrets()
    rules, rule_notes, rule_warnings = loaded_rules

    # What can be invalid fails here.
    folder_notes = check_added_folders(settings, folder)
    extensions = discover_extensions(folder, trust.open_store)
    settings = add_project_settings(settings, extensions, folder, folder_notes)
    model, model_note = (given.model, "") if given.model is not None else choose_model_now(settings)
    is_small = is_small_model(model)
    small_model = create_small_model(settings)
    telemetry = None
    if settings.telemetry:
        from treadle.apps.assembly.telemetry import make_telemetry

        telemetry = make_telemetry()
    first_notes = host.notes if host is not None else (model_note,) if model_note else ()
    notes = [*first_notes[:1], *settings.notes, *folder_notes, *rule_notes, *first_notes[1:]]

    # Workspace and policy
    outputs_dir = get_outputs_dir(store)
    workspace = LazyWorkspace(
        folder,
        lambda: make_workspace_options(settings, folder, outputs_dir, secrets, rules()),
        warn,
    )
    wrap = options.wrap_workspace if options is not None else None
    host_workspace = wrap(workspace) if wrap is not None else None
    containers = None
    if given.container is not None:
        from treadle.apps.assembly.containers import Containers

        containers = Containers(given.container, outputs_dir, secrets, rules)
    tool_workspace: Workspace = host_workspace or workspace
    if containers is not None:
        tool_workspace = containers.make_workspace(tool_workspace)
    readable = (str(outputs_dir), *map(str, list_user_skill_folders()))
    policy = LazyPolicy(
        workspace,
        rules,
        mode=settings.permission_mode,
        interactive=given.approve is not None,
        added_folders=settings.add_dir,
        # The results of earlier calls and the user's own skills name files in these folders.
        readable=readable,
        save_rules=make_rule_saver(folder, trust.open_store),
        is_contained=containers is not None,
        has_network=settings.network,
    )

    # Limits
    limit_warnings: list[str] = []
    gates = make_gates(settings, model, host, limit_warnings)
    effort = settings.thinking
    model_options = ModelOptions(
        thinking=int(effort) if effort.isdecimal() else effort,
        web_search=settings.web_search == PROVIDER_SEARCH,
    )

    # Tools: built-in and given ones, then MCP servers and skills
    builtin = make_builtin_tools(model, tool_workspace, policy, web_search=settings.web_search)
    if problem := describe_search_problem(model, settings.web_search):
        notes.append(problem)
    tools: list[ToolLike] = [redact_source(builtin, secrets), *given.tools]
    mutators: list[Mutator] = [
        Compactor(
            small_model or model,
            compact_at=parse_size(settings.compact_at),
            read_recent_files=RecentFiles(builtin, tool_workspace, secrets),
        )
    ]
    if settings.tool_summaries and small_model is None:
        notes.append("tool_summaries has no effect: set small_model, the model that writes them")
    elif settings.tool_summaries and small_model is not None:
        from treadle.context.tool_summaries import ToolSummaries

        mutators.append(ToolSummaries(small_model))
    changed = [one.summary for one in extensions.unapproved if one.is_changed]
    notes += [one.summary for one in extensions.unapproved if not one.is_changed]
    notes += extensions.unsupported
    skills_section = ""
    if not is_small:
        skills, skill_notes = load_skills(folder, trusted=trust.is_trusted)
        notes += skill_notes
        if skills:
            from treadle.tools.skills import Skills, format_skills_section

            tools.append(redact_source(Skills(skills), secrets))
            skills_section = format_skills_section(skills)
    mcp = None
    warnings: list[str] = [*limit_warnings, *extensions.notes, *changed, *rule_warnings]
    if (extensions.servers or given.servers) and is_small:
        text = f"MCP servers are off: {model.name} can use only a few tools"
        (warnings if given.servers else notes).append(text)
    elif (extensions.servers or given.servers) and not is_installed("mcp"):
        names = ", ".join(sorted({*extensions.servers, *given.servers}))
        warnings.append(describe_missing("mcp", f"not started: {names}"))
    elif extensions.servers or given.servers:
        from treadle.apps.assembly.sampler import PolicySampler
        from treadle.apps.assembly.servers import make_client_options
        from treadle.tools.late_tools import StableToolList
        from treadle.tools.mcp.resource_tool import ResourceUpdates

        # At a terminal a message waits; but calls that were interrupted are answered before it.
        has_calls = view is not None and isinstance(pending(view.transcript), RunTools)
        wait = settings.server_wait if has_calls or not is_interactive else 0.0
        added = [Path(folder, one).expanduser() for one in settings.add_dir]
        sampler = PolicySampler(model, policy, gates, make_child_opener(folder, store))
        client_options = make_client_options(added, outputs_dir, sampler, can_ask=is_interactive)
        mcp = make_mcp_servers(
            *(extensions, given.servers, workspace, trust, wait, warnings),
            *(notify if is_interactive else warn, client_options, notify),
        )
        mutators.append(ResourceUpdates(mcp.servers))
        # Outermost, so that the loop sees which tool a forwarded call runs.
        stable_tools = StableToolList(
            redact_source(mcp, secrets), provider_searches=has_tool_search(model)
        )
        tools.append(stable_tools)
        mutators.append(stable_tools)
    # System prompt
    commands = describe_commands(settings.sandbox, network=settings.network)
    appended = (settings.append_system_prompt, given.instructions)
    check_read = make_read_check(folder, rules)
    prompt, memory = build_system_prompt(
        folder,
        notes=notes,
        trusted=trust.is_trusted,
        mode=settings.permission_mode,
        family=find_family(model.card),
        added_folders=[Path(added) for added in settings.add_dir],
        tools=builtin.instructions(),
        skills=skills_section,
        appended="\n\n".join(text for text in appended if text.strip()),
        is_small=is_small,
        commands=commands,
        secrets=secrets,
        more_memory=settings.cursor_gemini_files,
        check_read=check_read,
    )

    # Hooks, and what changes the transcript between model calls
    drivers = RunningDrivers()
    observers: list[Observer] = [WorkspacePreloader(workspace), GrantEnd(policy)]
    observers += given.observers
    if telemetry is not None:
        observers.append(telemetry.observer)
    hooks = [*given.hooks]
    if mcp is not None:
        from treadle.apps.assembly.resource_mentions import ResourceMentions
        from treadle.apps.assembly.servers import FirstMessageWait

        if is_interactive:
            hooks.insert(0, FirstMessageWait(mcp, settings.server_wait, notify))
        hooks.append(ResourceMentions(mcp.servers, notify if is_interactive else warn))
    if extensions.hooks and not trust.is_trusted and settings.sandbox != "off":
        notes.append(HOOKS_SANDBOXED)

    def make_named_model(name: str) -> Model:
        return wrap_model(create_model(name, settings), secrets, None, suspend=False)

    def make_hook_runners() -> dict[str, RunHook]:
        from treadle.apps.assembly.hook_runners import make_runners

        judge = small_model or model
        wrapped = wrap_model(judge, secrets, None, suspend=False)
        return make_runners(wrapped, make_named_model)

    if extensions.hooks:
        observers.append(drivers)
        journal = get_session_dir(store) / "journal.jsonl" if store is not None else None
        hooks += make_hooks(
            extensions.hooks,
            workspace,
            folder,
            transcript_path=str(journal or ""),
            mode=lambda: policy.mode,
            notify=notify,
            end_turn=lambda session, why: drivers.interrupt(session, redact(secrets, why)),
            # In an untrusted folder the user's hooks may load files of that folder.
            sandboxed=False if trust.is_trusted and settings.sandbox != "required" else None,
            make_runners=make_hook_runners,
            open_store=trust.open_store,
        )
    if settings.checkers:
        from treadle.policy.hooks.checkers import Checkers, read_checkers

        hooks.append(Checkers(workspace, read_checkers(settings.checkers)))
    if not is_small:
        reminders = LazyReminders(
            builtin,
            folder,
            memory,
            lambda: policy.mode,
            trusted=trust.is_trusted,
            secrets=secrets,
            is_attended=can_ask,
            find_seen_digest=host_workspace.find_seen_digest if host_workspace else None,
            more_memory=settings.cursor_gemini_files,
            check_read=check_read,
        )
        mutators.append(reminders)
        mutators.append(EnvironmentNotices(folder, workspace, trusted=trust.is_trusted))
        if not is_interactive:  # at a terminal the user sees the open todos, and decides
            hooks.append(reminders.stop_hook)

    # What the options of this session add
    structured_output: StructuredOutput | None = None
    if options is not None and store is not None:
        if options.until:
            from treadle.policy.goal import Goal

            goal = Goal(
                options.until,
                workspace,
                max_attempts=settings.goal_attempts,
                report=lambda text: notify(redact_for_display(text)) if notify else None,
            )
            gates.append(goal)
            hooks.append(goal)
        if options.checkpoints or (options.checkpoints is None and not is_interactive):
            checkpoints = TurnCheckpoints(folder, store, notify)
            hooks.append(checkpoints.hook)
            mutators.append(checkpoints)
            observers.append(checkpoints)
        if options.output_schema is not None:
            from treadle.agents.structured_output import StructuredOutput

            structured_output = StructuredOutput(options.output_schema, model)

    def on_start(driver: Driver) -> None:
        drivers.add(driver)
        if driver.transcript:
            builtin.restore_cwd(driver.session_id, driver.transcript)

    # Child agents
    worktrees = make_worktrees(folder, trust.is_trusted, warn or logger.warning)
    child_options: dict[str, Any] = {}
    kept_branches = None
    if not is_small:
        if worktrees is not None:
            kept_branches = KeptBranches(worktrees)
            mutators.append(kept_branches)
        parts = ChildParts(
            rules=rules,
            make_workspace_options=lambda moved: make_workspace_options(
                settings, folder, outputs_dir, secrets, moved
            ),
            make_builtin=lambda workspace, policy: make_builtin_tools(
                model,
                containers.make_workspace(workspace) if containers is not None else workspace,
                policy,
                web_search=settings.web_search,
            ),
            make_model=make_named_model,
            small_model=make_child_model(small_model, secrets),
            memory=memory,
            is_trusted=trust.is_trusted,
            interactive=given.approve is not None,
            added_folders=settings.add_dir,
            readable=readable,
            secrets=secrets,
            commands=commands,
            notify=warn or logger.warning,
            is_contained=containers is not None,
        )
        place = ChildPlace(folder, builtin, policy, prompt, worktrees)
        child_options = make_child_options(
            *(parts, place, mutators, store), warnings, kept_branches
        )
    notes += warnings

    head_log = None
    if store is not None:
        in_memory = sum(len(one.text) for one in prompt.sections if one.name == "memory")
        head_log = make_head_log(store, view, memory_chars=in_memory)
    agent = CodingAgent(
        wrap_model(model, secrets, head_log, suspend=suspend),
        tools,
        name=given.name,
        instructions=prompt.text,
        max_turns=settings.max_turns,
        policy=_wrap_policy(policy, store, suspend=suspend),
        approve=given.approve,
        hooks=redact_hooks(hooks, secrets),
        mutators=mutators,
        gates=gates,
        observers=observers,
        workspace=tool_workspace,
        options=model_options,
        retry=given.retry,
        store=given.store,
        keep_output=make_output_saver(outputs_dir),
        structured_output=structured_output,
        collision="first_wins",  # a file of the project must not prevent the start
        caller="library" if options is None else "terminal" if is_interactive else "headless",
        on_start=on_start,
        **child_options,
    )
    agent.parts = AgentParts(
        workspace=workspace,
        policy=policy,
        outputs_dir=outputs_dir,
        prompt=prompt,
        notes=tuple(notes),
        warnings=tuple(warnings),
        needs_sandbox=settings.sandbox == "required",
        is_temporary=store is None,
        structured_output=structured_output,
        servers=mcp.servers if mcp is not None else (),
        small_model=small_model,
        telemetry=telemetry,
        worktrees=worktrees,
        containers=containers,
        kept_branches=kept_branches,
    )
    if host is None:
        for note in notes:
            level = logging.WARNING if note in warnings else logging.INFO
            logger.log(level, "%s", redact(secrets, note))
    return agent


def _wrap_policy(policy: LazyPolicy, store: Store | None, *, suspend: bool) -> Policy:
    if suspend and store is not None:
        from treadle.apps.assembly.suspend import SuspendOnQuestion

        return SuspendOnQuestion(policy, store.session_id)
    return policy
