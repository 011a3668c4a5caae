"""The tools of the coding agent, the workspaces that they work in, and compaction.

Stages of stages.py; the child agents (children.py) make theirs in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.apps.assembly.lazy import LazyWorkspace
from treadle.apps.assembly.parts import AgentParts
from treadle.apps.assembly.redaction import redact, redact_for_display, redact_source
from treadle.apps.settings.extensions import load_skills
from treadle.apps.settings.folder_rules import make_file_denials
from treadle.apps.settings.settings import parse_size, treadle_home
from treadle.context.compaction import Compactor
from treadle.context.compaction.recent_files import MAX_FILE_CHARS, MAX_RECENT_FILES
from treadle.core.contracts.workspace import Workspace
from treadle.core.errors import WorkspaceError

if TYPE_CHECKING:
    from treadle.context.memory_lines import MemoryScope
    from treadle.permissions.ruleset.rules import RuleSet
    from treadle.tools.builtin import BuiltinSource
    from treadle.tools.builtin.session_memory import GetFindDenied
    from treadle.tools.language_servers.code_servers import CodeServers
    from treadle.workspace.options import WorkspaceOptions

# Values of the setting web_search: the provider's own, the same where it is known, and none.
PROVIDER_SEARCH, AUTO_SEARCH, NO_SEARCH = "provider", "auto", "off"
_SEARCH_RULE = "websearch"  # as rules name the tool
MAX_BYTES = 4 * MAX_FILE_CHARS  # of a file that is shown again


def make_workspace_options(parts: AgentParts, rules: RuleSet) -> WorkspaceOptions:
    from treadle.workspace.options import WorkspaceOptions

    claude, own, settings = Path.home() / ".claude", treadle_home(), parts.settings
    names = ("skills", "hooks")
    user_folders = (
        *(own / name for name in (*names, "plugins")),
        *(claude / name for name in names),
    )
    return WorkspaceOptions(
        extra_roots=parts.list_added_folders(),
        readable=tuple(path for path in user_folders if path.is_dir()),
        sandbox_readable=tuple(Path(path).expanduser() for path in settings.sandbox_readable),
        sandbox=settings.sandbox,
        network=settings.network,
        denials=make_file_denials(rules),
        max_memory=settings.command_memory << 20 if settings.command_memory else None,
        max_disk=(settings.command_disk or 0) << 20,
        outputs_dir=parts.outputs_dir,
        secrets=parts.secrets,
        env=settings.env,
    )


def make_builtin_tools(
    parts: AgentParts, workspace: Workspace, get_find_denied: GetFindDenied, code: CodeServers
) -> BuiltinSource:
    """The built-in tools that this model can use, the same in every host: `ask` is among them also
    if no user can answer, and says so."""
    from treadle.tools.builtin import SMALL_TOOLS, STANDARD_TOOLS, builtin_tools

    abilities, web_search = parts.model.card.abilities, parts.settings.web_search
    has_address = web_search not in ("", PROVIDER_SEARCH, AUTO_SEARCH, NO_SEARCH)
    names = list(SMALL_TOOLS if parts.is_small else STANDARD_TOOLS)
    if "patch" in abilities:
        names[names.index("edit")] = "apply_patch"
    search_address = web_search if has_address else ""
    if has_address:
        names.append("web_search")
    if parts.settings.memory and not parts.is_small:
        names.append("remember")
    return builtin_tools(
        workspace,
        names,
        more=code.make_tools,
        close=code.aclose,
        search_address=search_address,
        native_pdf="documents" in abilities,
        read_outside=True,
        get_find_denied=get_find_denied,
        propose_memory=partial(_propose_memory, parts.folder),
        unlisted=() if parts.is_small else ("edit", "apply_patch"),  # the one that it has not
    )


def may_provider_search(parts: AgentParts) -> bool:
    """Whether the provider of the model may search the web by itself.

    The user is not asked about a single search, so a deny or ask rule for the tool switches it off.
    `auto` is for the maker's own address: what another server makes of the tool is not known.
    """
    setting, abilities = parts.settings.web_search, parts.model.card.abilities
    is_default = setting == AUTO_SEARCH and "default_search" in abilities
    is_wished = setting == PROVIDER_SEARCH or is_default
    return is_wished and not parts.loaded_rules.forbids(_SEARCH_RULE)


def _propose_memory(folder: Path, text: str, scope: MemoryScope, source: str) -> tuple[int, str]:
    from treadle.apps.settings.kept_memory import open_memory_lines

    line = open_memory_lines(folder).propose(redact_for_display(text), scope, source)
    return line.id, line.text


def add_builtin_tools(parts: AgentParts) -> None:
    """The built-in tools, and those that the program gives."""
    parts.code_servers = make_code_servers(parts, parts.tool_workspace, parts.workspace)
    parts.builtin = make_builtin_tools(
        parts, parts.tool_workspace, parts.policy.get_find_denied, parts.code_servers
    )
    parts.tools += [redact_source(parts.builtin, parts.secrets), *parts.given.tools]
    has_search = "search" in parts.model.card.abilities
    if parts.settings.web_search == PROVIDER_SEARCH and not has_search:
        parts.notes.append(
            f"web_search has no effect: {parts.model.name} has no search of its own; "
            "set the address of a SearXNG server"
        )


def make_code_servers(
    parts: AgentParts, workspace: Workspace, processes: LazyWorkspace
) -> CodeServers:
    """The language servers of a workspace; `processes` starts them. Not used: in containers, for a
    small model, and where their programs may not run (no sandbox, folder not trusted)."""
    from treadle.tools.language_servers.code_servers import CodeServers

    is_trusted, is_left_out = parts.trust.is_trusted, parts.containers is not None or parts.is_small
    may_run = is_trusted or parts.settings.sandbox != "off"
    return CodeServers(
        workspace,
        processes.spawn,
        is_trusted=is_trusted,
        is_used=parts.settings.language_servers and may_run and not is_left_out,
        notify=parts.notify,
    )


def add_skills(parts: AgentParts) -> None:
    if parts.is_small:
        return
    skills, notes = load_skills(parts.folder, trusted=parts.trust.is_trusted)
    parts.notes += notes
    if skills:
        from treadle.tools.skills import Skills, format_skills_section

        parts.tools.append(redact_source(Skills(skills), parts.secrets))
        parts.skills_section = format_skills_section(skills)


# ------------------------------------------------------------------ compaction


def add_compaction(parts: AgentParts) -> None:
    small_model = parts.small_model
    parts.mutators.append(
        Compactor(
            small_model,
            compact_at=parse_size(parts.settings.compact_at),
            read_recent_files=RecentFiles(parts.builtin, parts.tool_workspace, parts.secrets),
        )
    )
    if not parts.settings.tool_summaries:
        return
    if small_model is None:
        problem = "tool_summaries has no effect: set small_model, the model that writes them"
        parts.notes.append(problem)
        return
    from treadle.context.tool_summaries import ToolSummaries

    parts.mutators.append(ToolSummaries(small_model))


class RecentFiles:
    """Reads the files that a session used last, for the time after a compaction
    (context/compaction/recent_files.py). Left out is what is no text or cannot be read, and what a
    rule denies to read: the agent may have written such a file, and the user changed it since."""

    def __init__(
        self, builtin: BuiltinSource, workspace: Workspace, secrets: tuple[str, ...] = ()
    ) -> None:
        self._builtin = builtin
        self._workspace = workspace
        self._secrets = secrets

    async def __call__(self, recent: Sequence[str]) -> list[tuple[str, str]]:
        paths = list(recent[: 2 * MAX_RECENT_FILES])
        denied = await self._find_denied(paths)
        files: list[tuple[str, str]] = []
        for path in paths:
            text = await self._read(path) if path not in denied else None
            if text is not None:
                files.append((path, redact(self._secrets, text)))
        return files

    async def _find_denied(self, paths: list[str]) -> list[str]:
        get_find_denied = self._builtin.sessions.get_find_denied
        find_denied = await get_find_denied() if get_find_denied is not None else None
        return find_denied(paths) if find_denied is not None and paths else []

    async def _read(self, path: str) -> str | None:
        try:
            content = await self._workspace.read(path, limit=MAX_BYTES)
            errors = "ignore" if content.is_truncated else "strict"  # of a cut character
            return None if b"\0" in content.data else content.data.decode(errors=errors)
        except (WorkspaceError, UnicodeDecodeError):
            return None
