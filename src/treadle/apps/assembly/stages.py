"""The stages in which the coding agent is assembled: `STAGES` is their order.

Each stage takes the parts that are made so far (parts.py) and adds its own; what can be wrong in
the settings fails in the first ones. A part is loaded only if it is configured. Used by
coding_agent.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from treadle.apps.assembly.children import add_children
from treadle.apps.assembly.hooks import add_hooks, add_judge, add_observers, add_session_hooks
from treadle.apps.assembly.lazy import Containers, LazyPolicy, LazyWorkspace, PolicyOptions
from treadle.apps.assembly.limit_gates import add_limits
from treadle.apps.assembly.model_choice import (
    choose_model_now,
    create_small_model,
    is_small_model,
    wrap_model,
)
from treadle.apps.assembly.parts import AgentParts, CodingAgent
from treadle.apps.assembly.redaction import redact, redact_hooks
from treadle.apps.assembly.sessions import make_head_log, make_output_saver
from treadle.apps.assembly.system_prompt import add_reminders, write_prompt
from treadle.apps.assembly.toolset import (
    PROVIDER_SEARCH,
    add_builtin_tools,
    add_compaction,
    add_skills,
    make_workspace_options,
)
from treadle.apps.settings.extensions import (
    add_project_settings,
    discover_extensions,
    list_user_skill_folders,
)
from treadle.apps.settings.folder_rules import make_file_denials, make_rule_saver
from treadle.apps.settings.settings import find_missing_folders
from treadle.core.contracts.model import Model, ModelOptions
from treadle.core.contracts.policy import Policy
from treadle.core.errors import ConfigError
from treadle.core.extras import describe_missing, is_installed
from treadle.core.loop.driver import Driver
from treadle.lib.logger import logger
from treadle.lib.text.text import plural
from treadle.tools.federation import Federation
from treadle.tools.late_tools import StableToolList


def read_project(parts: AgentParts) -> None:
    """What the settings of the user and of the project add: hooks, servers, folders, variables."""
    folder, settings = parts.folder, parts.settings
    origin, missing = settings.origin("add_dir"), find_missing_folders(settings, folder)
    notes = [f"{origin}: there is no folder {one}" for one in missing]
    if notes and origin in ("--add-dir", "coding_agent(add_dir=...)"):
        raise ConfigError(notes[0])
    found = discover_extensions(folder, parts.trust.open_store)
    if parts.managed_policy.no_hooks and found.hooks:
        count, origin = plural(len(found.hooks), "hook"), parts.managed_policy.no_hooks[0].origin
        notes.append(f"{count} not used: {origin} forbids hooks")
        found = msgspec.structs.replace(found, hooks=())
    parts.extensions = found
    parts.settings = add_project_settings(settings, found, folder, notes)
    changed = [one.summary for one in found.unapproved if one.is_changed]
    new = [one.summary for one in found.unapproved if not one.is_changed]
    narrowed = parts.settings.narrowed
    known = [note for note in settings.notes if note not in narrowed]
    parts.notes += [*known, *notes, *parts.loaded_rules.notes, *new, *found.unsupported]
    parts.warnings += [*narrowed, *found.notes, *changed, *parts.loaded_rules.warnings]


def choose_models(parts: AgentParts) -> None:
    note = ""
    if parts.given.model is not None:
        parts.model = parts.given.model
        used: Model | None = parts.model
        while used is not None:
            parts.managed_policy.check_model(used.name)
            used = used.fallback
    else:
        parts.model, note = choose_model_now(parts.settings)
    parts.small_model = small = create_small_model(parts.settings)
    if small is not None and not is_small_model(small):
        parts.child_model = parts.wrap_model(small)
    first = parts.host.notes if parts.host is not None else (note,) if note else ()
    parts.notes[:] = [*first[:1], *parts.notes, *first[1:]]


def make_workspace(parts: AgentParts) -> None:
    parts.workspace = workspace = LazyWorkspace(
        parts.folder, lambda: make_workspace_options(parts, parts.rules()), parts.warn
    )
    wrap = parts.options.wrap_workspace if parts.options is not None else None
    parts.host_workspace = wrap(workspace) if wrap is not None else None
    parts.tool_workspace = parts.host_workspace or workspace
    if parts.given.container is not None:
        parts.containers = Containers(
            parts.given.container,
            lambda: make_file_denials(parts.rules()),
            parts.outputs_dir,
            parts.secrets,
        )
        parts.tool_workspace = parts.containers.make_workspace(parts.tool_workspace)


def make_policy(parts: AgentParts) -> None:
    parts.policy_options = PolicyOptions(
        interactive=parts.given.approve is not None,
        added_folders=parts.settings.add_dir,
        # The results of earlier calls and the user's own skills name files in these folders.
        readable=(str(parts.outputs_dir), *map(str, list_user_skill_folders())),
        is_contained=parts.containers is not None,
        network=parts.settings.network,
        policy=parts.managed_policy,
    )
    parts.policy = LazyPolicy(
        parts.workspace,
        parts.rules,
        parts.settings.permission_mode,
        parts.policy_options,
        make_rule_saver(parts.folder, parts.trust.open_store),
    )


def add_servers(parts: AgentParts) -> None:
    """The MCP servers, if the model can use them and they can be started."""
    names = {*parts.extensions.servers, *parts.given.servers}
    if not names and not parts.is_small:
        # A server that is added later is used through these tools, and the tool list stays.
        tools = StableToolList(Federation(()))
        parts.tools.append(tools)
        parts.mutators.append(tools)  # so that a child gets them only with tools behind them
    elif names and parts.is_small:
        text = f"MCP servers are off: {parts.model.name} can use only a few tools"
        (parts.warnings if parts.given.servers else parts.notes).append(text)
    elif names and not is_installed("mcp"):
        parts.warnings.append(describe_missing("mcp", f"not started: {', '.join(sorted(names))}"))
    elif names:
        from treadle.apps.assembly.servers import add_server_tools

        add_server_tools(parts)


STAGES: tuple[Callable[[AgentParts], None], ...] = (
    read_project,
    choose_models,
    make_workspace,
    make_policy,
    add_limits,  # gates: tokens, time, cost
    add_builtin_tools,
    add_compaction,
    add_skills,
    add_observers,
    add_servers,  # with their hooks
    write_prompt,
    add_hooks,
    add_judge,
    add_reminders,
    add_session_hooks,  # what a session of a host adds: goal, checkpoints, output schema
    add_children,
)


def assemble(parts: AgentParts) -> CodingAgent:
    """The agent with these parts, which the stages complete."""
    for stage in STAGES:
        stage(parts)
    parts.notes += parts.warnings
    agent = _make_agent(parts)
    agent.parts = parts
    if parts.host is None:
        for note in parts.notes:
            level = logging.WARNING if note in parts.warnings else logging.INFO
            logger.log(level, "%s", redact(parts.secrets, note))
    return agent


def _make_agent(parts: AgentParts) -> CodingAgent:
    settings, given = parts.settings, parts.given

    def on_start(driver: Driver) -> None:
        parts.drivers.add(driver)
        parts.builtin.begin_session(driver.session_id, driver.transcript)

    effort = settings.thinking
    return CodingAgent(
        _wrap_main_model(parts),
        parts.tools,
        name=given.name,
        instructions=parts.prompt.text,
        max_turns=settings.max_turns,
        policy=_wrap_policy(parts),
        approve=given.approve,
        hooks=redact_hooks(parts.hooks, parts.secrets),
        mutators=parts.mutators,
        gates=parts.gates,
        observers=parts.observers,
        workspace=parts.tool_workspace,
        options=ModelOptions(
            thinking=int(effort) if effort.isdecimal() else effort,
            web_search=settings.web_search == PROVIDER_SEARCH,
        ),
        retry=given.retry,
        store=given.store,
        keep_output=make_output_saver(parts.outputs_dir),
        structured_output=parts.structured_output,
        collision="first_wins",  # a file of the project must not prevent the start
        caller=parts.caller,
        on_start=on_start,
        **parts.child_options,
    )


def _wrap_main_model(parts: AgentParts) -> Model:
    head_log = None
    if parts.store is not None:
        in_memory = sum(len(one.text) for one in parts.prompt.sections if one.name == "memory")
        head_log = make_head_log(parts.store, parts.state, memory_chars=in_memory)
    return wrap_model(parts.model, parts.secrets, head_log, suspend=parts.suspend)


def _wrap_policy(parts: AgentParts) -> Policy:
    if parts.suspend and parts.store is not None:
        from treadle.apps.assembly.suspend import SuspendOnQuestion

        return SuspendOnQuestion(parts.policy, parts.store.session_id)
    return parts.policy
