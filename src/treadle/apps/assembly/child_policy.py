"""The policies of child agents: the parent's rules, in a mode that may be narrower.

    ChildPolicy      in the folder of the parent
    WorktreePolicy   in a git worktree, where the rules of the folder hold, too

Both follow the parent when the user changes its mode. Used by children.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Union

import msgspec

from treadle.apps.assembly.lazy import LazyPolicy, LazyWorkspace
from treadle.core.contracts.policy import PermissionRequest, Verdict

if TYPE_CHECKING:
    from treadle.permissions.modes import PermissionMode
    from treadle.permissions.policy import RulePolicy
    from treadle.permissions.ruleset.rules import Rule, RuleSet

FolderPolicy = Union[LazyPolicy, "ChildPolicy"]


class ChildPolicy:
    """The policy of the parent, in a mode of the child. The parent may be a child itself."""

    def __init__(self, parent: FolderPolicy, mode: str) -> None:
        self._parent = parent
        self._mode = mode

    @property
    def mode(self) -> PermissionMode:
        return _choose_mode(self._parent, self._mode)

    async def get_policy(self) -> RulePolicy:
        return (await self._parent.get_policy()).narrow(self._mode)

    async def decide(self, request: PermissionRequest) -> Verdict:
        return await (await self.get_policy()).decide(request)

    async def save_rules(self, request: PermissionRequest, rules: tuple[str, ...]) -> None:
        await self._parent.save_rules(request, rules)


class WorktreePolicy(LazyPolicy):
    """The policy of a child in a worktree: the rules of its folder are those of the parent's."""

    def __init__(
        self,
        parent: FolderPolicy,
        workspace: LazyWorkspace,
        rules: RuleSet,
        mode: str,
        *,
        interactive: bool,
        added_folders: tuple[str, ...],
        readable: tuple[str, ...],
        is_contained: bool = False,
    ) -> None:
        self._parent = parent
        self._child_mode = mode
        super().__init__(
            workspace,
            lambda: rules,
            mode=_choose_mode(parent, mode),
            interactive=interactive,
            added_folders=added_folders,
            readable=readable,
            is_contained=is_contained,
        )

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


def move_rules(rules: RuleSet, folder: Path, worktree: Path) -> RuleSet:
    """The rules for a worktree: those about paths in the folder are about the same paths there."""
    from treadle.permissions.ruleset.rules import RuleSet

    def move(rule: Rule) -> Rule:
        return _move_rule(rule, str(folder), str(worktree))

    lists = (rules.allow, rules.ask, rules.deny)
    return RuleSet(*(tuple(map(move, one)) for one in lists))


def _move_rule(rule: Rule, folder: str, worktree: str) -> Rule:
    from treadle.permissions.ruleset.path_patterns import PathPattern

    pattern = rule.pattern
    if not isinstance(pattern, PathPattern):
        return rule

    def add_moved(globs: tuple[str, ...]) -> tuple[str, ...]:
        inside = [glob for glob in globs if glob == folder or glob.startswith(f"{folder}/")]
        return (*globs, *(worktree + glob[len(folder) :] for glob in inside))

    moved = msgspec.structs.replace(
        pattern,
        strict_globs=add_moved(pattern.strict_globs),
        loose_globs=add_moved(pattern.loose_globs),
    )
    return msgspec.structs.replace(rule, pattern=moved)
