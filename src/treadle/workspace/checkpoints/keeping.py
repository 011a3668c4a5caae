"""A checkpoint before and after each turn: what makes undo and rewind of files possible.

A hook where a turn takes up its message, a mutator where it ends; it changes neither. A
checkpoint that cannot be taken costs a word to the person, never the turn.
"""

from __future__ import annotations

from collections.abc import Callable

from treadle.core.contracts.hook import Answer, HookPoint, Moment
from treadle.core.contracts.mutator import MutationPoint, Scene
from treadle.core.errors import WorkspaceError
from treadle.core.transcript.entries import Checkpoint, Entry
from treadle.core.transcript.transcript import Transcript
from treadle.workspace.checkpoints.checkpoints import Checkpoints, Snapshot
from treadle.workspace.checkpoints.scanning import Skipped


class Keeping:
    """Give its `hook` and its `mutator` to an agent. `append` is the journal's."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        append: Callable[[Entry], None],
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._checkpoints = checkpoints
        self._append = append
        self._tell = tell
        self._begun = ""
        self._told: set[Skipped] = set()
        self.hook = BeforeTurn(self)
        self.mutator = AfterTurn(self)

    async def begin(self, turn_id: str) -> None:
        if turn_id != self._begun:  # a steered message comes later in the same turn
            self._begun = turn_id
            await self.keep(turn_id)

    async def keep(self, turn_id: str) -> None:
        try:
            snapshot = await self._checkpoints.take()
        except WorkspaceError as error:
            self._tell(f"the files of this turn cannot be brought back: {error}")
            return
        self._append(Checkpoint(turn_id, snapshot.tree))
        self._tell_skipped(snapshot)

    def _tell_skipped(self, snapshot: Snapshot) -> None:
        """A word about each, once."""
        new = [skipped for skipped in snapshot.skipped if skipped not in self._told]
        self._told.update(new)
        if new:
            more = f" and {len(new) - 1} more" if len(new) > 1 else ""
            self._tell(f"checkpoints leave out {new[0].path} ({new[0].reason}){more}")


class BeforeTurn:
    """A Hook."""

    points: frozenset[HookPoint] = frozenset({"user_prompt_submit"})

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping

    async def ask(self, moment: Moment) -> Answer | None:
        await self._keeping.begin(moment.turn_id)
        return None


class AfterTurn:
    """A Mutator."""

    name = "checkpoints"
    points: frozenset[MutationPoint] = frozenset({"after_turn_ended"})

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping

    async def mutate(self, scene: Scene) -> Transcript | None:
        await self._keeping.keep(scene.turn_id)
        return None
