"""A checkpoint before and after each turn, for undo and rewind of files.

A hook at the start of a turn and a mutator at its end; both change nothing. If a checkpoint fails,
the user gets a warning and the turn continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from treadle.core.contracts.hook import HookAnswer, HookInput, HookPoint
from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.errors import WorkspaceError
from treadle.core.transcript.entries import Checkpoint, Entry
from treadle.core.transcript.transcript import Transcript
from treadle.workspace.checkpoints.checkpoints import Checkpoints
from treadle.workspace.checkpoints.object_store import TreeNode
from treadle.workspace.checkpoints.scanner import Period, SkippedPath


class AgentWork(msgspec.Struct, frozen=True):
    """What is known of the changes since the last checkpoint.

    `unchanged_files` are as the file tools left them, `written_files` all that these tools wrote.
    `has_command`: a command ran, which may have changed any file. `versions` are the written files
    as these tools left them.
    """

    unchanged_files: tuple[str, ...] = ()
    written_files: frozenset[str] = frozenset()
    has_command: bool = False
    versions: dict[str, TreeNode] = {}

    def make_checkpoint(self, turn_id: str, tree: str, user_files: Sequence[str]) -> Checkpoint:
        """The end of the work; `user_files` are files that the user changed last."""
        shared = [path for path in user_files if self.has_command or path in self.written_files]
        written = {path for path in shared if path in self.written_files}
        own = (*self.unchanged_files, *sorted(written.difference(self.unchanged_files)))
        return Checkpoint(turn_id, tree, "after", agent_files=own, user_files=tuple(shared))


class CheckpointRecorder:
    """Pass its `hook` and its `mutator` to an agent. `append` is the journal's method."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        append: Callable[[Entry], None],
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._checkpoints = checkpoints
        self._append = append
        self._warn = warn
        self._current_turn = ""
        self._failed_turn = ""
        self._tree_before = ""
        self._reported: set[SkippedPath] = set()
        self.hook = BeforeTurnHook(self)
        self.mutator = AfterTurnMutator(self)

    async def begin_turn(self, turn_id: str) -> None:
        if turn_id != self._current_turn:  # a steered message comes later in the same turn
            self._current_turn = turn_id
            await self.record(turn_id, "before")

    async def record(
        self,
        turn_id: str,
        side: Literal["before", "after"],
        idle_periods: Sequence[Period] = (),
        work: AgentWork = AgentWork(),  # noqa: B008 (frozen)
    ) -> None:
        """Take a checkpoint. What changed in `idle_periods` is not a change of the turn."""
        if side == "after" and turn_id == self._failed_turn:
            return  # there is no state before the turn to go back to
        try:
            if side == "after" and idle_periods:
                snapshot = await self._checkpoints.take_own(
                    self._tree_before, idle_periods, work.versions
                )
            else:
                snapshot = await self._checkpoints.take()
        except WorkspaceError as error:
            self._failed_turn = turn_id
            self._warn(f"the files of this turn cannot be restored: {error}")
            return
        if side == "after":
            self._append(work.make_checkpoint(turn_id, snapshot.tree, snapshot.user_files))
        else:
            self._append(Checkpoint(turn_id, snapshot.tree, side))
            self._tree_before = snapshot.tree
        self._warn_of_skipped(snapshot.skipped)

    async def keep_file(self, path: str) -> TreeNode | None:
        """Store a file that a tool of the agent wrote; None if it cannot be stored."""
        try:
            return await self._checkpoints.keep_file(path)
        except WorkspaceError:  # the checkpoint at the end warns
            return None

    async def record_user_changes(
        self,
        turn_id: str,
        idle_periods: Sequence[Period],
        work: AgentWork = AgentWork(),  # noqa: B008 (frozen)
    ) -> bool:
        """Between two calls of a turn: end the work so far and begin the next one, if the user
        changed files meanwhile. Undo goes back to the user's version of a file that the agent
        changes next, then to the one before it."""
        if turn_id == self._failed_turn:
            return False
        try:
            snapshot = await self._checkpoints.take_own(
                self._tree_before, idle_periods, work.versions
            )
        except WorkspaceError as error:
            self._warn(f"your changes during this turn cannot be restored: {error}")
            return False
        if not snapshot.user_tree:
            return False
        self._append(work.make_checkpoint(turn_id, snapshot.tree, snapshot.user_files))
        self._append(Checkpoint(turn_id, snapshot.user_tree, "before"))
        self._tree_before = snapshot.user_tree
        self._warn_of_skipped(snapshot.skipped)
        return True

    def _warn_of_skipped(self, skipped: Sequence[SkippedPath]) -> None:
        """Warn about each skipped path once."""
        new = [one for one in skipped if one not in self._reported]
        self._reported.update(new)
        if new:
            more = f" and {len(new) - 1} more" if len(new) > 1 else ""
            self._warn(f"checkpoints do not include {new[0].path} ({new[0].reason}){more}")


class BeforeTurnHook:
    """A Hook."""

    points: frozenset[HookPoint] = frozenset({"user_prompt_submit"})
    timeout: float | None = None  # a large folder takes its time

    def __init__(self, recorder: CheckpointRecorder) -> None:
        self._recorder = recorder

    async def run(self, hook_input: HookInput) -> HookAnswer | None:
        await self._recorder.begin_turn(hook_input.turn_id)
        return None


class AfterTurnMutator:
    """A Mutator."""

    name = "checkpoints"
    points: frozenset[MutationPoint] = frozenset({"after_turn_ended"})

    def __init__(self, recorder: CheckpointRecorder) -> None:
        self._recorder = recorder

    async def mutate(self, context: MutationContext) -> Transcript | None:
        await self._recorder.record(context.turn_id, "after")
        return None
