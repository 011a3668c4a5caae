"""The branches that hold changes of child agents which were not merged: who is told of them.

A child that was interrupted leaves its changes in a branch, whose name follows from the session and
the call that started the child. So a resumed session finds them again: the user gets a note
(assemble.py), the model a notice, once. Made by children.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from treadle.agents.child_settings import TASK_TOOL
from treadle.agents.subagents import make_child_digest
from treadle.apps.assembly.lazy import Lazy
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.errors import WorkspaceError
from treadle.core.transcript import AssistantItem, NoticeItem, Transcript
from treadle.core.transcript.items import Item
from treadle.core.transcript.pending import RunTools, pending
from treadle.core.transcript.state import SessionState

if TYPE_CHECKING:
    from treadle.workspace.worktrees.worktrees import Worktrees

BRANCHES_KEY = "agent_branches"  # in the data of the notice
NOTICE_HEAD = (
    "Changes of your agents that are not in the folder are in these branches of git; continuing "
    "such an agent begins with its branch:"
)


class KeptBranches:
    """A mutator that tells the model of branches that it does not know yet."""

    name = "kept_branches"
    for_children = False

    def __init__(self, worktrees: Lazy[Worktrees]) -> None:
        self._worktrees = worktrees
        self._checked: set[str] = set()  # sessions, since the last interruption

    @property
    def points(self) -> frozenset[MutationPoint]:
        return frozenset({"before_model"})

    def check_again(self) -> None:
        """An agent was interrupted: there may be a new branch."""
        self._checked.clear()

    async def mutate(self, context: MutationContext) -> Transcript | None:
        if context.session_id in self._checked:
            return None
        self._checked.add(context.session_id)
        digests = _list_digests(context.session_id, context.transcript)
        if not digests:
            return None
        with contextlib.suppress(WorkspaceError):
            # Those of this session that go on have been taken up: their calls come before this.
            await self._worktrees.get().keep_leftovers()
        branches = await self._find(digests)
        known = _list_known(context.transcript)
        new = [branch for branch in branches if branch not in known]
        if not new:
            return None
        text = "\n".join([NOTICE_HEAD, *(f"- {branch}" for branch in new)])
        notice = NoticeItem(text, kind="worktrees", data={BRANCHES_KEY: new})
        return context.transcript.append(notice)

    async def describe(self, session_id: str, view: SessionState) -> dict[str, str]:
        """The branches of a session, with what the user can do with each. Without those of
        children that continue: they take their branches up."""
        move = pending(view.transcript)
        open_calls = move.calls if isinstance(move, RunTools) else ()
        going_on = {make_child_digest(session_id, call.id) for call in open_calls}
        items = view.full_history
        branches = await self._find(_list_digests(session_id, items) - going_on)
        return {branch: await self._worktrees.get().advise_on(branch) for branch in branches}

    async def _find(self, digests: Collection[str]) -> list[str]:
        """The branches of these children."""
        if not digests:
            return []
        worktrees = self._worktrees.get()
        await worktrees.wait_for_ends()
        try:
            branches = await worktrees.list_branches()
        except WorkspaceError:  # not a repository any more, or git is missing
            return []
        return [branch for branch in branches if branch.rpartition("-")[2] in digests]


def _list_digests(session_id: str, items: Iterable[Item]) -> set[str]:
    """Of the children that these items of a session started."""
    calls = (call for item in items if isinstance(item, AssistantItem) for call in item.calls)
    return {make_child_digest(session_id, call.id) for call in calls if call.name == TASK_TOOL}


def _list_known(items: Iterable[Item]) -> set[str]:
    notices = (item for item in items if isinstance(item, NoticeItem) and item.data)
    return {branch for one in notices for branch in (one.data or {}).get(BRANCHES_KEY, ())}
