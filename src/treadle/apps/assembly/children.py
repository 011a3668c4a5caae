"""The child agents of the coding agent: what each is told, which model it uses, where it works.

A child gets the prompt of its parent with its own definition instead of the identity, without what
its tools cannot do. In a git worktree it also gets a workspace, tools and a policy of its own; when
it ends, its changes are merged into the folder, or kept as a branch. Its policy has the rules of
its parent, in a mode that may be narrower. A stage of stages.py; agents/subagents.py calls
`ChildSetup` for each child.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import msgspec

from treadle.agents.agent_definition import CHILD_INSTRUCTIONS
from treadle.agents.child_settings import (
    EVERY_TOOL,
    TASK_NAMES,
    FilteredSource,
    find_unknown,
    list_tool_names,
)
from treadle.agents.subagents import ChildStart
from treadle.apps.assembly.kept_branches import KeptBranches
from treadle.apps.assembly.lazy import Lazy, LazyPolicy, LazyReminders, LazyWorkspace, PolicyOptions
from treadle.apps.assembly.parts import WORKTREES_DIR, AgentParts
from treadle.apps.assembly.redaction import redact_source
from treadle.apps.assembly.system_prompt import describe_place
from treadle.apps.assembly.toolset import (
    make_builtin_tools,
    make_code_servers,
    make_workspace_options,
)
from treadle.apps.settings.extensions import load_agents
from treadle.context.prompt import PromptSection, read_section
from treadle.core.contracts.model import Model
from treadle.core.contracts.mutator import Mutator
from treadle.core.contracts.policy import Deny, PermissionRequest, Verdict
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import Access, FileAccess, ToolSpec
from treadle.core.contracts.workspace import Workspace
from treadle.core.errors import ToolError, TreadleError, WorkspaceError
from treadle.lib.files.private_files import find_state_dir
from treadle.tools.federation import Federation

if TYPE_CHECKING:
    from treadle.context.prompt import SystemPrompt
    from treadle.permissions.modes import PermissionMode
    from treadle.permissions.policy import AskJudge, RulePolicy
    from treadle.permissions.ruleset.rules import RuleSet
    from treadle.tools.builtin import BuiltinSource
    from treadle.workspace.worktrees.worktrees import Worktree, Worktrees

# Tools that only some models and hosts have.
_OTHER_NAMES = ("skill", "apply_patch", "notebook_edit", "web_search", "ask")
OTHER_TOOLS = (TASK_NAMES, *(ToolSpec(name, "", {}) for name in _OTHER_NAMES))
USER_TOOLS = ("ask", "present_plan")  # for who talks with the user
CHANGING_TOOLS = frozenset({"bash", "write", "edit", "apply_patch", "notebook_edit"})
WRITE_SPEC = ToolSpec("write", "", {})  # what the policy is asked about
READ_ONLY_INSTRUCTION = "You may only look: calls that change something are denied."
WORKTREE_INSTRUCTIONS = """You work in a git worktree, a copy of {folder} of your own: use paths \
below your working folder, also where the task names paths below {folder}. Files that git ignores, \
such as installed dependencies, are not in it. Do not commit and do not switch branches: your \
changes are taken over when you end."""


FolderPolicy = Union[LazyPolicy, "ChildPolicy"]


class ChildPlace(msgspec.Struct, frozen=True):
    """Where children work: the folder of the coding agent, or a worktree of it. `describe` makes
    the section about the environment, given what commands can write and reach."""

    folder: Path
    builtin: BuiltinSource
    policy: FolderPolicy
    prompt: SystemPrompt
    describe: Callable[[str], str]
    worktrees: Lazy[Worktrees] | None = None  # None: there can be none


class ChildSetup:
    """Prepares the children of one place: the `prepare_child` of an agent."""

    def __init__(
        self,
        parts: AgentParts,
        place: ChildPlace,
        mutators: Sequence[Mutator],
        kept_branches: KeptBranches | None = None,
    ) -> None:
        self._parts = parts
        self._place = place
        self._mutators = mutators
        self._kept_branches = kept_branches

    async def __call__(self, start: ChildStart) -> PreparedCodingChild:
        worktree = await self._open_worktree(start)
        own_model = self._make_own_model(start)
        changes: dict[str, Any] = {"source": self._leave_out_user_tools(start)}
        if worktree is not None:
            place, workspace = self._make_place(worktree, start)
            changes["source"] = self._make_source(place, changes["source"])
            changes["workspace"] = workspace
            changes["worktrees"] = False  # its own children work in the same worktree
        else:
            policy = ChildPolicy(self._place.policy, start.task.definition.mode)
            place, workspace = msgspec.structs.replace(self._place, policy=policy), None
        changes["policy"] = place.policy
        changes["prepare_child"] = ChildSetup(self._parts, place, self._mutators)
        tools = list_tool_names(start.task.definition, changes["source"])
        changes["instructions"] = self._make_instructions(start, place, tools)
        changes["mutators"] = [*self._mutators, self._make_reminders(place)]
        builtin = place.builtin
        changes["on_start"] = lambda one: builtin.begin_session(one.session_id, one.transcript)
        given = start.task.definition.model
        found = own_model or (None if isinstance(given, str) else given)  # an object is not ours
        changes["model"] = found or self._find_small_model(start) or start.model
        return PreparedCodingChild(self, changes, start, worktree, workspace, own_model)

    async def merge(self, worktree: Worktree, *, succeeded: bool, name: str) -> str:
        """End a worktree, and tell what became of the changes."""
        from treadle.workspace.worktrees.merge import describe_end

        try:
            find = partial(self._find_unwritable, worktree.repository.top)
            async with self._parts.record_merge(str(worktree.root)):
                end = await worktree.finish(merge=succeeded, find_unwritable=find)
        except WorkspaceError as error:
            text = f"its changes could not be merged and stay in {worktree.top}: {error}"
        else:
            text = describe_end(end)
            if end.status in ("unchanged", "merged"):
                return text
        self._parts.warn(f"agent {name}: {text}")
        return text

    def keep(self, worktree: Worktree) -> None:
        """The child was interrupted: its changes become a branch, in the background."""
        if self._place.worktrees is not None:
            self._place.worktrees.get().keep(worktree)
        if self._kept_branches is not None:
            self._kept_branches.check_again()

    # --- one child -----------------------------------------------------------------------

    async def _open_worktree(self, start: ChildStart) -> Worktree | None:
        wanted, lazy = start.task.worktree, self._place.worktrees
        if not wanted or lazy is None:
            return None
        worktrees = lazy.get()
        try:
            if start.is_done and not await worktrees.has(start.id):
                return None  # its changes were taken over before the interruption
            # A child that goes on sees its earlier work, which is in the folder and not committed.
            with_changes = wanted == "changes" or start.task.is_continued
            return await worktrees.open(start.id, with_changes=with_changes)
        except WorkspaceError as error:
            raise ToolError(f"the agent has no worktree: {error}") from error

    def _make_place(
        self, worktree: Worktree, start: ChildStart
    ) -> tuple[ChildPlace, LazyWorkspace]:
        from treadle.permissions.ruleset.path_patterns import FolderCopy

        parts, parent = self._parts, self._place
        rules = parts.rules().add_copy(FolderCopy(str(worktree.top), str(worktree.repository.top)))
        workspace = LazyWorkspace(worktree.root, lambda: make_workspace_options(parts, rules))
        mode = start.task.definition.mode
        policy = WorktreePolicy(parent.policy, workspace, rules, mode, parts.policy_options)
        files: Workspace = workspace
        if parts.containers is not None:
            files = parts.containers.make_workspace(workspace, lambda: rules)

        def describe(commands: str) -> str:
            text = describe_place(parts, worktree.root, commands)
            return f"{text}\n\n{WORKTREE_INSTRUCTIONS.format(folder=parent.folder)}"

        text = describe(parts.commands)
        sections = [
            msgspec.structs.replace(one, text=text) if one.name == "environment" else one
            for one in parent.prompt.sections
        ]
        prompt = msgspec.structs.replace(parent.prompt, sections=tuple(sections))
        builtin = make_builtin_tools(
            parts, files, policy, make_code_servers(parts, files, workspace)
        )
        return ChildPlace(worktree.root, builtin, policy, prompt, describe), workspace

    def _leave_out_user_tools(self, start: ChildStart) -> ToolSource:
        """A child cannot ask the user, unless its definition says so; a copy has all tools."""
        definition = start.task.definition
        is_named = definition.tool_names not in (None, (EVERY_TOOL,))
        return (
            start.source
            if definition.fork or is_named
            else FilteredSource(start.source, None, USER_TOOLS)
        )

    def _make_source(self, place: ChildPlace, source: ToolSource) -> ToolSource:
        """The tools of the parent, the built-in ones for the files of the worktree."""
        names = [tool.spec.name for tool in source.tools()]
        own = FilteredSource(place.builtin, names)
        builtin = (*place.builtin.tools(), *self._parts.builtin.tools())
        rest = FilteredSource(source, None, [tool.spec.name for tool in builtin])
        return Federation([redact_source(own, self._parts.secrets), rest])

    def _make_instructions(
        self, start: ChildStart, place: ChildPlace, tools: frozenset[str]
    ) -> str:
        """Its definition, and what the prompt of its parent says about the tools that it has."""
        definition = start.task.definition
        if definition.fork:
            return place.prompt.text
        own, left_out = [definition.prompt, CHILD_INSTRUCTIONS], {"identity"}
        is_plan = "plan" in (definition.mode, place.policy.mode)
        own += [READ_ONLY_INSTRUCTION] if is_plan else []
        left_out |= {"changes", "family"} if is_plan or not tools & CHANGING_TOOLS else set()
        left_out |= {"skills"} if "skill" not in tools else set()

        def narrow(section: PromptSection) -> str:
            if section.name in ("working", "changes"):
                return read_section(section.name, tools - {"ask"})  # CHILD_INSTRUCTIONS forbid it
            if section.name == "environment":
                return place.describe(self._parts.commands if "bash" in tools else "")
            return section.text

        sections = [narrow(one) for one in place.prompt.sections if one.name not in left_out]
        return "\n\n".join(text.strip() for text in (*own, *sections) if text.strip())

    def _make_reminders(self, place: ChildPlace) -> LazyReminders:
        """About files and memory. A child has no mode and no user of its own to be told about."""
        return LazyReminders(
            place.builtin,
            place.folder,
            self._parts.memory,
            lambda: "ask",
            trusted=self._parts.trust.is_trusted,
            secrets=self._parts.secrets,
            is_attended=False,
            began_attended=False,
        )

    def _make_own_model(self, start: ChildStart) -> Model | None:
        definition = start.task.definition
        if not definition.model or not isinstance(definition.model, str) or start.is_done:
            return None
        try:
            return self._parts.make_model(definition.model)
        except TreadleError as error:
            self._parts.warn(f"agent {definition.name}: the model of its parent is used: {error}")
            return None

    def _find_small_model(self, start: ChildStart) -> Model | None:
        definition = start.task.definition
        is_wanted = definition.use_small_model and not definition.model
        return self._parts.child_model if is_wanted else None

    async def _find_unwritable(self, top: Path, paths: Sequence[str]) -> list[str]:
        """The files that a rule, or plan mode, keeps the agent from writing."""
        policy = await self._place.policy.get_policy()
        denied: list[str] = []
        for path in paths:
            access = Access(files=(FileAccess(str(top / path), "write"),))
            verdict = await policy.decide(PermissionRequest("", "", WRITE_SPEC, {}, "", access))
            if isinstance(verdict, Deny) and verdict.kind == "policy":
                denied.append(path)
        return denied


def add_children(parts: AgentParts) -> None:
    """The agent definitions of the user and of a trusted folder, and how children are prepared:
    options of the Agent."""
    parts.worktrees = make_worktrees(parts)
    if parts.is_small:
        return
    if parts.worktrees is not None:
        parts.kept_branches = KeptBranches(parts.worktrees)
        parts.mutators.append(parts.kept_branches)
    definitions, problems = load_agents(parts.folder, trusted=parts.trust.is_trusted)
    parts.warnings += problems
    known = [*(tool.spec for tool in parts.builtin.tools()), *OTHER_TOOLS]
    for one in definitions:
        if unknown := find_unknown((*(one.tool_names or ()), *one.excluded_tools), known):
            parts.warnings.append(f"{one.origin}: there is no tool {', '.join(unknown)}; ignored")
    describe = partial(describe_place, parts, parts.folder)
    place = ChildPlace(
        parts.folder, parts.builtin, parts.policy, parts.prompt, describe, parts.worktrees
    )
    own = [mutator for mutator in parts.mutators if getattr(mutator, "for_children", True)]
    parts.child_options = {
        "subagents": definitions,
        "prepare_child": ChildSetup(parts, place, own, parts.kept_branches),
        "worktrees": parts.worktrees is not None,
        "code_mode": parts.settings.code_mode,
    }


def make_worktrees(parts: AgentParts) -> Lazy[Worktrees] | None:
    """The worktrees of a trusted folder in a git repository; None for other folders, because git
    runs programs that a repository names."""
    from treadle.lib.git.repository import find_repository

    folder = parts.folder
    if not parts.trust.is_trusted or find_repository(folder) is None:
        return None

    def make() -> Worktrees:
        from treadle.workspace.worktrees.worktrees import Worktrees

        return Worktrees(folder, find_state_dir() / WORKTREES_DIR, parts.warn)

    return Lazy(make)


class PreparedCodingChild:
    """A child of the coding agent while it works."""

    def __init__(
        self,
        setup: ChildSetup,
        changes: Mapping[str, Any],
        start: ChildStart,
        worktree: Worktree | None,
        workspace: LazyWorkspace | None,
        own_model: Model | None,
    ) -> None:
        self.changes = changes
        self._setup = setup
        self._name = start.task.name
        self._worktree = worktree
        self._workspace = workspace
        self._own_model = own_model

    async def finish(self, *, succeeded: bool) -> str:
        await self._release()
        if self._worktree is None:
            return ""
        return await self._setup.merge(self._worktree, succeeded=succeeded, name=self._name)

    async def abandon(self) -> None:
        """Close what the child used. Its changes become a branch, with which it can be
        continued."""
        await self._release()
        if self._worktree is not None:
            self._setup.keep(self._worktree)

    async def _release(self) -> None:
        if self._workspace is not None:
            await self._workspace.aclose()
        if self._own_model is not None:
            await self._own_model.aclose()


# ------------------------------------------------------------------ policies


class ChildPolicy:
    """The policy of the parent, in a mode of the child. The parent may be a child itself, and the
    user may change its mode."""

    def __init__(self, parent: FolderPolicy, mode: str) -> None:
        self._parent = parent
        self._mode = mode

    @property
    def mode(self) -> PermissionMode:
        return _choose_mode(self._parent, self._mode)

    @property
    def judge(self) -> AskJudge | None:
        return self._parent.judge

    async def get_policy(self) -> RulePolicy:
        return (await self._parent.get_policy()).narrow(self._mode)

    async def decide(self, request: PermissionRequest) -> Verdict:
        return await (await self.get_policy()).decide(request)

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        await self._parent.save_rules(request, rules)


class WorktreePolicy(LazyPolicy):
    """The policy of a child in a worktree: its paths are judged as those of the folder, too."""

    def __init__(
        self,
        parent: FolderPolicy,
        workspace: LazyWorkspace,
        rules: RuleSet,
        mode: str,
        options: PolicyOptions,
    ) -> None:
        self._parent = parent
        self._child_mode = mode
        super().__init__(workspace, lambda: rules, _choose_mode(parent, mode), options)
        self.judge = parent.judge

    @property
    def mode(self) -> PermissionMode:
        return _choose_mode(self._parent, self._child_mode)

    async def get_policy(self) -> RulePolicy:
        policy = await super().get_policy()
        if policy.mode != self.mode:
            policy.change_mode(self.mode)
        return policy

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        await super().save_rules(request, rules)
        await self._parent.save_rules(request, rules)


def _choose_mode(parent: FolderPolicy, mode: str) -> PermissionMode:
    from treadle.permissions.modes import choose_narrower

    return choose_narrower(parent.mode, mode)
