"""Where child agents work: the folder of their parent, a git worktree of it, or one of both with
commands that can change nothing.

Used by setup.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.apps.assembly.children.policies import (
    ChildPolicy,
    FolderPolicy,
    WorktreePolicy,
)
from treadle.apps.assembly.lazy import Lazy, LazyWorkspace
from treadle.apps.assembly.parts import AgentParts
from treadle.apps.assembly.system_prompt import describe_place
from treadle.apps.assembly.toolset import (
    make_builtin_tools,
    make_code_servers,
    make_workspace_options,
)
from treadle.context.prompt import describe_commands
from treadle.core.contracts.workspace import (
    CommandResult,
    FileContent,
    OutsideReader,
    ProgramResult,
    RunningCommand,
    Workspace,
)
from treadle.core.contracts.wrapped import WrappedWorkspace

if TYPE_CHECKING:
    from treadle.context.prompt import SystemPrompt
    from treadle.permissions.ruleset.rules import RuleSet
    from treadle.tools.builtin import BuiltinSource
    from treadle.tools.language_servers.code_servers import CodeServers
    from treadle.workspace.options import WorkspaceOptions
    from treadle.workspace.worktrees.worktrees import Worktree, Worktrees

WORKTREE_INSTRUCTIONS = """You work in a git worktree, a copy of {folder} of your own: use paths \
below your working folder, also where the task names paths below {folder}. Files that git ignores, \
such as installed dependencies, are not in it. Do not commit and do not switch branches: your \
changes are taken over when you end."""


class ChildPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place with its tools. `commands` is what commands can write and reach; `describe` makes the
    section about the environment of it. `is_read_only`: they can write nothing. `writers` are the
    names of the children at work that may change files here, by their ids."""

    folder: Path
    get_rules: Callable[[], RuleSet]
    files: Workspace
    code_servers: CodeServers
    builtin: BuiltinSource
    policy: FolderPolicy
    prompt: SystemPrompt
    commands: str
    describe: Callable[[str], str]
    writers: dict[str, str] = {}  # each place has its own
    worktrees: Lazy[Worktrees] | None = None  # None: there can be none
    is_read_only: bool = False


def make_worktree_place(
    parts: AgentParts, parent: ChildPlace, worktree: Worktree, mode: str
) -> tuple[ChildPlace, LazyWorkspace]:
    """A worktree, in a mode of the child; and the workspace to close."""
    from treadle.permissions.ruleset.path_patterns import FolderCopy

    rules = parts.rules().add_copy(FolderCopy(str(worktree.top), str(worktree.repository.top)))
    workspace = LazyWorkspace(worktree.root, lambda: make_workspace_options(parts, rules))
    policy = WorktreePolicy(parent.policy, workspace, rules, mode, parts.policy_options)
    files: Workspace = workspace
    if parts.containers is not None:
        files = parts.containers.make_workspace(workspace, lambda: rules)
    code_servers = make_code_servers(parts, files, workspace)

    def describe(commands: str) -> str:
        text = describe_place(parts, worktree.root, commands)
        return f"{text}\n\n{WORKTREE_INSTRUCTIONS.format(folder=parent.folder)}"

    text = describe(parts.commands)
    sections = [
        msgspec.structs.replace(one, text=text) if one.name == "environment" else one
        for one in parent.prompt.sections
    ]
    place = ChildPlace(
        folder=worktree.root,
        get_rules=lambda: rules,
        files=files,
        code_servers=code_servers,
        builtin=make_builtin_tools(parts, files, policy.get_find_denied, code_servers),
        policy=policy,
        prompt=msgspec.structs.replace(parent.prompt, sections=tuple(sections)),
        commands=parts.commands,
        describe=describe,
    )
    return place, workspace


def make_read_only_place(parts: AgentParts, parent: ChildPlace) -> tuple[ChildPlace, LazyWorkspace]:
    """The same place with a sandbox in which commands can change nothing; and the workspace to
    close."""

    def make_options() -> WorkspaceOptions:
        options = make_workspace_options(parts, parent.get_rules())
        return msgspec.structs.replace(options, sandbox="read-only")

    workspace = LazyWorkspace(parent.folder, make_options)
    files = ReadOnlyCommands(parent.files, workspace)
    policy = ChildPolicy(parent.policy, "plan", read_only=True)
    place = msgspec.structs.replace(
        parent,
        files=files,
        builtin=make_builtin_tools(parts, files, policy.get_find_denied, parent.code_servers),
        policy=policy,
        commands=describe_commands("read-only", network=False),
        is_read_only=True,
    )
    return place, workspace


class ReadOnlyCommands(WrappedWorkspace):
    """The files of a workspace, and commands of another, whose sandbox is read-only. `files` is an
    OutsideReader, too."""

    def __init__(self, files: Any, commands: Workspace) -> None:
        super().__init__(files)
        self._commands = commands
        self._outside: OutsideReader = files

    def resolve_outside(self, path: str) -> Path:
        return self._outside.resolve_outside(path)

    async def read_outside(self, path: str, *, limit: int | None = None) -> FileContent:
        return await self._outside.read_outside(path, limit=limit)

    async def execute_outside(self, argv: Sequence[str], **options: Any) -> ProgramResult:
        return await self._outside.execute_outside(argv, **options)

    async def run(self, command: str, **options: Any) -> CommandResult:
        return await self._commands.run(command, **options)

    async def start(self, command: str, **options: Any) -> RunningCommand:
        return await self._commands.start(command, **options)

    async def execute(self, argv: Sequence[str], **options: Any) -> ProgramResult:
        is_ours = bool(options.get("read_only"))  # such as a search
        return await (self._workspace if is_ours else self._commands).execute(argv, **options)
