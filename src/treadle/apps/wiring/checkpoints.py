"""Checkpoints of the files around each turn that changes some: what undo and rewind go back to.

Taken when the first call that may change something is about to happen, and again when the turn is
over; a turn that only talks or looks costs nothing. A child's calls belong to the turn of the
session that it works for. How checkpoints are kept is workspace/checkpoints' business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.core.contracts.mutator import MutationPoint, Scene
from treadle.core.contracts.policy import Proposal
from treadle.core.contracts.store import Store
from treadle.core.events import Event, TurnStarted
from treadle.core.transcript.items import Item
from treadle.core.transcript.transcript import Transcript

if TYPE_CHECKING:
    from treadle.workspace.checkpoints import Keeping


class KeptFiles:
    """An Observer of where a turn begins, and a Mutator where it ends.

    `before` is for the policy, which sees every call, also those of children.
    """

    name = "checkpoints"
    points: frozenset[MutationPoint] = frozenset({"after_turn_ended"})

    def __init__(self, folder: Path, store: Store, tell: Callable[[str], None] | None) -> None:
        self._folder = folder
        self._store = store
        self._tell = tell or (lambda text: None)
        self._keeping: Keeping | None = None
        self._turn_id = ""
        self._kept = ""  # the turn whose beginning is kept
        self._is_told = False
        self._one_at_a_time = asyncio.Lock()

    async def before(self, proposal: Proposal) -> None:
        """Return when the files are kept as they were before this call."""
        if proposal.tool.effect == "pure" or self._kept == self._turn_id or self._is_too_much():
            return
        async with self._one_at_a_time:
            if self._kept != self._turn_id:
                await self._made().keep(self._turn_id)
                self._kept = self._turn_id

    async def mutate(self, scene: Scene) -> Transcript | None:
        if scene.session_id == self._store.session_id and self._kept == scene.turn_id:
            await self._made().keep(scene.turn_id)
        return None

    def on_event(self, event: Event) -> None:
        if type(event) is TurnStarted:
            self._turn_id = event.turn_id

    def on_item(self, position: int, item: Item) -> None:
        return None

    def _is_too_much(self) -> bool:
        """Whoever works at home, or above it, does not want all of that copied."""
        if not Path.home().resolve().is_relative_to(self._folder):
            return False
        if not self._is_told:
            self._is_told = True
            self._tell(f"{self._folder} holds your home folder: its files are not kept for undo")
        return True

    def _made(self) -> Keeping:
        if self._keeping is None:
            from treadle.sessions.library import Library
            from treadle.workspace.checkpoints import Checkpoints, Keeping

            checkpoints = Checkpoints(self._folder, Library().checkpoints(self._folder))
            self._keeping = Keeping(checkpoints, self._store.append, self._tell)
        return self._keeping
