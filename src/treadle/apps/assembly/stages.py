"""The stages in which the coding agent is assembled: `STAGES` is their order.

Each stage takes the parts that are made so far (parts.py) and adds its own; what can be wrong in
the settings fails in the first ones. A part is loaded only if it is configured. Used by
coding_agent.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from treadle.apps.assembly.children.setup import add_children
from treadle.apps.assembly.hooks import add_hooks, add_judge, add_observers, add_session_hooks
from treadle.apps.assembly.lazy import Containers, LazyPolicy, LazyWorkspace, PolicyOptions
from treadle.apps.assembly.model_choice import (
    choose_model_now,
    create_small_model,
    is_small_model,
    wrap_model,
)
from treadle.apps.assembly.parts import AgentParts, CodingAgent
from treadle.apps.assembly.redaction import redact, redact_hooks
from treadle.apps.assembly.sessions import load_earlier_usage, make_head_log, make_output_saver
from treadle.apps.assembly.system_prompt import add_reminders, write_prompt
from treadle.apps.assembly.toolset import (
    add_builtin_tools,
    add_compaction,
    add_skills,
    make_workspace_options,
    may_provider_search,
)
from treadle.apps.settings.extensions import (
    add_project_settings,
    discover_extensions,
    list_user_skill_folders,
)
from treadle.apps.settings.folder_rules import make_rule_saver
from treadle.apps.settings.plugins import get_plugins_folder
from treadle.apps.settings.settings import find_missing_folders
from treadle.budgets import CostBudget, RepetitionGuard, TimeLimit, TokenBudget
from treadle.core.contracts.gate import Gate
from treadle.core.contracts.model import Model, ModelOptions
from treadle.core.contracts.policy import Policy
from treadle.core.errors import ConfigError
from treadle.core.extras import describe_missing, is_installed
from treadle.core.loop.driver import Driver
from treadle.core.transcript.pending import last_reply
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
            parts.outputs_dir,
            parts.secrets,
        )
        parts.tool_workspace = parts.containers.make_workspace(parts.tool_workspace, parts.rules)


def make_policy(parts: AgentParts) -> None:
    parts.policy_options = PolicyOptions(
        interactive=parts.given.approve is not None,
        added_folders=tuple(map(str, parts.list_added_folders())),
        # The results of earlier calls, the user's own skills and plugins name files in these.
        readable=(
            str(parts.outputs_dir),
            *map(str, (*list_user_skill_folders(), get_plugins_folder())),
        ),
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


def add_limits(parts: AgentParts) -> None:
    settings, model, limits = parts.settings, parts.model, list[Gate]()
    session_id = parts.store.session_id if parts.store is not None else ""
    earlier = load_earlier_usage(parts.store, parts.state)
    reply = last_reply(parts.state.transcript) if parts.state is not None else None
    if settings.max_tokens is not None:
        tokens = TokenBudget(settings.max_tokens)
        tokens.add_earlier(earlier)
        if reply is not None:
            tokens.expect_closing(session_id, reply.usage.total_input)
        limits.append(tokens)
    if settings.max_time is not None:
        limits.append(TimeLimit(settings.max_time))
    cost = _make_cost_budget(parts)
    if cost is not None:
        cost.add_earlier(earlier, model.card)
        if reply is not None:
            cost.expect_closing(session_id, reply.usage.total_input, model.card)
        limits.append(cost)
    if parts.suspend:
        from treadle.apps.assembly.suspend import SuspendOnBudget

        limits = [SuspendOnBudget(limit, session_id) for limit in limits]
    parts.gates += [RepetitionGuard(), *limits]


def _make_cost_budget(parts: AgentParts) -> CostBudget | None:
    """The default limit is for one run of `treadle -p`, with a model that has a price."""
    settings, model = parts.settings, parts.model
    is_default = settings.origin("max_cost") == "default"
    is_one_run = parts.host is not None and not parts.is_interactive
    max_cost = settings.max_cost
    if is_default and not is_one_run:
        limit = parts.managed_policy.limits.get("max_cost")
        max_cost, is_default = (limit.value, False) if limit is not None else (None, True)
    if max_cost is None:
        return None
    assumed_price = None
    if model.card.input_price is None or model.card.output_price is None:
        assumed_price = _find_list_price(model.name)
        if assumed_price is None and is_default:
            unknown = f"no cost limit: the price of {model.name} is unknown"
            parts.warnings.append(f"{unknown}; use --max-tokens to limit the session")
            return None
    return CostBudget(max_cost, assumed_price)


def _find_list_price(name: str) -> tuple[float, float] | None:
    """The maker's price of a model that is used through an address without a price."""
    from treadle.models.catalog import card_for

    card = card_for(name)
    if card.input_price is None or card.output_price is None:
        return None
    return max(card.input_price, card.cache_write_price or 0.0), card.output_price


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
        if parts.dry_run is not None:
            driver.watch(parts.dry_run)
        parts.builtin.begin_session(driver.session_id, driver.transcript)

    effort = settings.thinking
    model, tools, policy = _wrap_main_model(parts), parts.tools, _wrap_policy(parts)
    if parts.options is not None and parts.options.dry_run:
        from treadle.apps.assembly.dry_run.dry_run import DryRun, DryRunModel, DryRunPolicy

        parts.dry_run = dry_run = DryRun()
        model = DryRunModel(model, dry_run)
        tools, policy = dry_run.wrap(tools), DryRunPolicy(parts.policy, dry_run)
    return CodingAgent(
        model,
        tools,
        name=given.name,
        instructions=parts.prompt.text,
        max_turns=settings.max_turns,
        policy=policy,
        approve=given.approve,
        hooks=redact_hooks(parts.hooks, parts.secrets),
        mutators=parts.mutators,
        gates=parts.gates,
        observers=parts.observers,
        workspace=parts.tool_workspace,
        options=ModelOptions(
            thinking=int(effort) if effort.isdecimal() else effort,
            web_search=may_provider_search(parts),
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
