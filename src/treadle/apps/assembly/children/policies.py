"""The policies of child agents: the rules of the parent, in a mode that may be narrower.

Used by setup.py and places.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Union

from treadle.apps.assembly.lazy import LazyPolicy, LazyWorkspace, PolicyOptions
from treadle.core.contracts.policy import PermissionRequest, Verdict

if TYPE_CHECKING:
    from treadle.permissions.modes import PermissionMode
    from treadle.permissions.policy import AskJudge, RulePolicy
    from treadle.permissions.ruleset.rules import RuleSet

FolderPolicy = Union[LazyPolicy, "ChildPolicy"]


class ChildPolicy:
    """The policy of the parent, in a mode of the child. The parent may be a child itself, and the
    user may change its mode."""

    def __init__(self, parent: FolderPolicy, mode: str, *, read_only: bool = False) -> None:
        """`read_only`: the sandbox of its commands is."""
        self._parent = parent
        self._mode = mode
        self._read_only = read_only

    @property
    def mode(self) -> PermissionMode:
        return _choose_mode(self._parent, self._mode)

    @property
    def judge(self) -> AskJudge | None:
        return self._parent.judge

    async def get_policy(self) -> RulePolicy:
        parent = await self._parent.get_policy()
        return parent.narrow(self._mode, read_only=self._read_only)

    async def get_find_denied(self) -> Callable[[Sequence[str]], list[str]]:
        return (await self.get_policy()).find_denied

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
