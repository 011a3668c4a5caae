"""How a child agent is prepared: its prompt, its model, its tools, and where it works.

When a child in a git worktree ends, its changes are merged into the folder, or kept as a branch. A
stage of stages.py; agents/subagents.py calls `ChildSetup` for each child. Uses the other modules of
this folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.agents.child_settings import (
    TASK_NAMES,
    FilteredSource,
    find_unknown,
    list_tools,
)
from treadle.agents.subagents import ChildStart
from treadle.apps.assembly.children.places import (
    ChildPlace,
    make_read_only_place,
    make_worktree_place,
)
from treadle.apps.assembly.children.policies import ChildPolicy
from treadle.apps.assembly.children.prompt import make_instructions, may_change
from treadle.apps.assembly.kept_branches import KeptBranches
from treadle.apps.assembly.lazy import Lazy, LazyReminders, LazyWorkspace
from treadle.apps.assembly.parts import WORKTREES_DIR, AgentParts
from treadle.apps.assembly.redaction import redact_source
from treadle.apps.assembly.system_prompt import describe_place
from treadle.apps.settings.extensions import load_agents
from treadle.core.contracts.model import Model
from treadle.core.contracts.mutator import Mutator
from treadle.core.contracts.policy import Deny, PermissionRequest
from treadle.core.contracts.source import ToolSource
from treadle.core.contracts.tool import Access, FileAccess, ToolSpec
from treadle.core.errors import ToolError, TreadleError, WorkspaceError
from treadle.core.transcript.usage import Usage
from treadle.lib.files.private_files import find_state_dir
from treadle.tools.federation import Federation

if TYPE_CHECKING:
    from treadle.workspace.worktrees.worktrees import Worktree, Worktrees

# Tools that only some models and hosts have.
_OTHER_NAMES = ("skill", "apply_patch", "notebook_edit", "web_search", "ask")
OTHER_TOOLS = (TASK_NAMES, *(ToolSpec(name, "", {}) for name in _OTHER_NAMES))
WRITE_SPEC = ToolSpec("write", "", {})  # what the policy is asked about
WORKTREE_NOTE = "It worked in a git worktree, because {names} could change files in the folder."
BESIDE_NOTE = (
    "It could change files of the folder beside {names}, without a git worktree ({why}): check "
    "that no change is lost."
)
NO_WORKTREES = "the folder is not trusted, no git repository, or a worktree itself"


class ChildSetup:
    """Prepares the children of one place: the `prepare_child` of an agent."""

    def __init__(
        self,
        parts: AgentParts,
        place: ChildPlace,
        mutators: Sequence[Mutator],
        kept_branches: KeptBranches | None = None,
        ancestors: tuple[str, ...] = (),
    ) -> None:
        """`ancestors`: the ids of the child whose children it prepares, and of its parents."""
        self._ancestors = ancestors
        self._parts = parts
        self._place = place
        self._mutators = mutators
        self._kept_branches = kept_branches

    async def __call__(self, start: ChildStart) -> PreparedCodingChild:
        others = self._list_other_writers(start)
        if may_write := self._may_write(start):
            self._place.writers[start.id] = start.task.name
        try:
            return await self._prepare(start, others if may_write else [])
        except BaseException:
            self.release(start.id)
            raise

    async def _prepare(self, start: ChildStart, others: Sequence[str]) -> PreparedCodingChild:
        worktree, note = await self._open_worktree(start, others)
        if worktree is not None:
            self.release(start.id)
        own_model = self._make_own_model(start)
        definition, workspaces = start.task.definition, list[LazyWorkspace]()
        changes: dict[str, Any] = {}
        source = start.source
        if worktree is not None:
            place, used = make_worktree_place(self._parts, self._place, worktree, definition.mode)
            workspaces.append(used)
            changes["worktrees"] = False  # its own children work in the same worktree
        else:
            policy = ChildPolicy(self._place.policy, definition.mode)
            place = msgspec.structs.replace(self._place, policy=policy)
        if await self._may_only_read(start, place):
            place, used = make_read_only_place(self._parts, place)
            workspaces.append(used)
        if workspaces:
            source = changes["source"] = self._make_source(place, source)
            changes["workspace"] = place.files
        changes["policy"] = place.policy
        ancestors = (*self._ancestors, start.id)
        changes["prepare_child"] = ChildSetup(
            self._parts, place, self._mutators, ancestors=ancestors
        )
        tools = list_tools(definition, source)
        changes["instructions"] = make_instructions(definition, place, tools)
        changes["mutators"] = [*self._mutators, self._make_reminders(place)]
        builtin = place.builtin
        changes["on_start"] = lambda one: builtin.begin_session(one.session_id, one.transcript)
        given = definition.model
        found = own_model or (None if isinstance(given, str) else given)  # an object is not ours
        changes["model"] = found or self._find_small_model(start) or start.model
        return PreparedCodingChild(self, changes, start, worktree, note, workspaces, own_model)

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

    def release(self, child_id: str) -> None:
        """The child changes no more files of this place."""
        self._place.writers.pop(child_id, None)

    def keep(self, worktree: Worktree) -> None:
        """The child was interrupted: its changes become a branch, in the background."""
        if self._place.worktrees is not None:
            self._place.worktrees.get().keep(worktree)
        if self._kept_branches is not None:
            self._kept_branches.check_again()

    # --- one child -----------------------------------------------------------------------

    def _may_write(self, start: ChildStart) -> bool:
        definition = start.task.definition
        is_plan = ChildPolicy(self._place.policy, definition.mode).mode == "plan"
        return not is_plan and may_change(list_tools(definition, start.source))

    def _list_other_writers(self, start: ChildStart) -> list[str]:
        """Its parents are at work, too, and wait for it."""
        own = (*self._ancestors, start.id)
        return [name for one, name in self._place.writers.items() if one not in own]

    async def _open_worktree(
        self, start: ChildStart, others: Sequence[str]
    ) -> tuple[Worktree | None, str]:
        """Its worktree, if it wants one, had one before, or would change files beside others; and
        what to say about that."""
        lazy, names = self._place.worktrees, ", ".join(others)
        wanted = start.task.worktree or ("changes" if others else "")
        began = start.is_done or start.task.is_continued or start.earlier_usage != Usage()
        if lazy is None or not (wanted or began):
            return None, BESIDE_NOTE.format(names=names, why=NO_WORKTREES) if others else ""
        worktrees = lazy.get()
        try:
            has_one = began and await worktrees.has(start.id)
            if not has_one and (start.is_done or not wanted):
                return None, ""  # its changes were taken over before an interruption
            # A child that goes on sees its earlier work, which is in the folder and not committed.
            with_changes = wanted == "changes" or start.task.is_continued
            worktree = await worktrees.open(start.id, with_changes=with_changes)
        except WorkspaceError as error:
            if start.task.worktree:
                raise ToolError(f"the agent has no worktree: {error}") from error
            return None, BESIDE_NOTE.format(names=names, why=error) if others else ""
        is_own = bool(start.task.worktree or has_one)
        return worktree, "" if is_own else WORKTREE_NOTE.format(names=names)

    async def _may_only_read(self, start: ChildStart, place: ChildPlace) -> bool:
        """Whether its commands run in a sandbox in which they can change nothing."""
        parts, definition = self._parts, start.task.definition
        is_wanted = definition.read_only_commands and place.policy.mode == "plan"
        if not is_wanted or parts.containers is not None or parts.dry_run is not None:
            return False
        try:
            return (await parts.workspace.open()).sandboxed
        except WorkspaceError:
            return False  # its calls are denied, and say why

    def _make_source(self, place: ChildPlace, source: ToolSource) -> ToolSource:
        """The tools of the parent, the built-in ones for the files of the worktree."""
        names = [tool.spec.name for tool in source.tools()]
        own = FilteredSource(place.builtin, names)
        builtin = (*place.builtin.tools(), *self._parts.builtin.tools())
        rest = FilteredSource(source, None, [tool.spec.name for tool in builtin])
        return Federation([redact_source(own, self._parts.secrets), rest])

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
    place = ChildPlace(
        folder=parts.folder,
        get_rules=parts.rules,
        files=parts.tool_workspace,
        code_servers=parts.code_servers,
        builtin=parts.builtin,
        policy=parts.policy,
        prompt=parts.prompt,
        commands=parts.commands,
        describe=partial(describe_place, parts, parts.folder),
        worktrees=parts.worktrees,
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
        note: str,
        workspaces: Sequence[LazyWorkspace],
        own_model: Model | None,
    ) -> None:
        self.changes = changes
        self._setup = setup
        self._id, self._name = start.id, start.task.name
        self._worktree = worktree
        self._note = note
        self._workspaces = workspaces
        self._own_model = own_model

    async def finish(self, *, succeeded: bool) -> str:
        await self._release()
        if self._worktree is None:
            return self._note
        text = await self._setup.merge(self._worktree, succeeded=succeeded, name=self._name)
        return f"{self._note} {text}".lstrip()

    async def abandon(self) -> None:
        """Close what the child used. Its changes become a branch, with which it can be
        continued."""
        await self._release()
        if self._worktree is not None:
            self._setup.keep(self._worktree)

    async def _release(self) -> None:
        self._setup.release(self._id)
        for workspace in self._workspaces:
            await workspace.aclose()
        if self._own_model is not None:
            await self._own_model.aclose()
