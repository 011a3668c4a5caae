"""The built-in tools of the coding agent, their workspace, and its MCP servers.

Used by coding_agent.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.assembly.coding_agent_arguments import McpDefinitions
from treadle.apps.assembly.extensions import Extensions, start_objections
from treadle.apps.assembly.lazy import LazyPolicy, LazyWorkspace
from treadle.apps.assembly.model_choice import is_small_model
from treadle.apps.assembly.rules import FolderTrust, make_file_denials
from treadle.apps.settings.settings import Settings, treadle_home
from treadle.core.contracts.model import Model
from treadle.core.contracts.observer import BaseObserver
from treadle.core.contracts.workspace import Workspace
from treadle.core.events import Event, ToolCallBegan

if TYPE_CHECKING:
    from treadle.apps.assembly.servers import McpServers
    from treadle.policy.ruleset.rules import RuleSet
    from treadle.tools.builtin import BuiltinSource
    from treadle.tools.mcp.client_options import McpClientOptions
    from treadle.workspace.local import WorkspaceOptions


PROVIDER_SEARCH = "provider"  # the value of the setting web_search for the provider's own


def describe_search_problem(model: Model, web_search: str) -> str:
    """Why the setting web_search has no effect, for the user; "" if it has."""
    if web_search != PROVIDER_SEARCH or "search" in model.card.abilities:
        return ""
    return (
        f"web_search has no effect: {model.name} has no search of its own; "
        "set the address of a SearXNG server"
    )


def make_workspace_options(
    settings: Settings, folder: Path, outputs_dir: Path, secrets: tuple[str, ...], rules: RuleSet
) -> WorkspaceOptions:
    from treadle.workspace.local import WorkspaceOptions

    claude = Path.home() / ".claude"
    own = treadle_home()
    user_folders = (own / "skills", own / "hooks", claude / "skills", claude / "hooks")
    return WorkspaceOptions(
        extra_roots=tuple(Path(folder, added).expanduser() for added in settings.add_dir),
        readable=tuple(path for path in user_folders if path.is_dir()),
        sandbox=settings.sandbox,
        network=settings.network,
        denials=make_file_denials(rules),
        max_memory=settings.command_memory << 20 if settings.command_memory else None,
        outputs_dir=outputs_dir,
        secrets=secrets,
        env=settings.env,
    )


class WorkspacePreloader(BaseObserver):
    """Opens the workspace while the model still writes its first call."""

    def __init__(self, workspace: LazyWorkspace) -> None:
        self._workspace = workspace

    def on_event(self, event: Event) -> None:
        if type(event) is ToolCallBegan:
            self._workspace.preload()


def make_builtin_tools(
    model: Model, workspace: Workspace, policy: LazyPolicy, *, web_search: str = ""
) -> BuiltinSource:
    """The built-in tools that this model can use, the same in every host: `ask` is among them also
    if no user can answer, and says so."""
    from treadle.tools.builtin import SMALL_TOOLS, STANDARD_TOOLS, builtin_tools

    is_small = is_small_model(model)
    names = list(SMALL_TOOLS if is_small else STANDARD_TOOLS)
    if "patch" in model.card.abilities:
        names[names.index("edit")] = "apply_patch"
    search_address = "" if web_search == PROVIDER_SEARCH else web_search
    if search_address:
        names.append("web_search")
    return builtin_tools(
        workspace,
        names,
        search_address=search_address,
        native_pdf="documents" in model.card.abilities,
        read_outside=True,
        get_find_denied=policy.get_find_denied,
        unlisted=() if is_small else ("edit", "apply_patch"),  # the one that it has not
    )


def make_mcp_servers(
    extensions: Extensions,
    given: McpDefinitions,
    workspace: LazyWorkspace,
    trust: FolderTrust,
    wait: float,
    notes: list[str],
    warn: Callable[[str], None] | None,
    options: McpClientOptions,
    on_wait: Callable[[str], None] | None,
) -> McpServers:
    from treadle.apps.assembly.servers import make_servers

    notes += [
        f"there are two MCP servers with the name {name}: the one that this session was given is "
        "started, not the one of your settings; rename one of them"
        for name in given
        if name in extensions.servers and extensions.servers[name] != given[name]
    ]
    return make_servers(
        {**extensions.servers, **given},
        workspace,
        user_servers={*extensions.user_servers, *given},
        trusted=trust.is_trusted,
        startup_wait=wait,
        notes=notes,
        notify=warn,
        options=options,
        objection=start_objections(workspace.root, trust.open_store, given),
        required=given,
        on_wait=on_wait,
    )
