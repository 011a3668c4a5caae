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

from treadle.core.contracts.mutator import MutationContext, MutationPoint
from treadle.core.contracts.policy import PermissionRequest
from treadle.core.contracts.store import Store
from treadle.core.events import Event, TurnStarted
from treadle.core.transcript.items import Item
from treadle.core.transcript.transcript import Transcript

if TYPE_CHECKING:
    from treadle.workspace.checkpoints import CheckpointRecorder


class TurnCheckpoints:
    """An Observer of where a turn begins, and a Mutator where it ends.

    `before` is for the policy, which sees every call, also those of children.
    """

    name = "checkpoints"
    points: frozenset[MutationPoint] = frozenset({"after_turn_ended"})

    def __init__(self, folder: Path, store: Store, notify: Callable[[str], None] | None) -> None:
        self._folder = folder
        self._store = store
        self._notify = notify or (lambda text: None)
        self._recorder: CheckpointRecorder | None = None
        self._turn_id = ""
        self._recorded_turn_id = ""  # the turn whose beginning is kept
        self._is_warned = False
        self._lock = asyncio.Lock()

    async def before_call(self, request: PermissionRequest) -> None:
        """Return when the files are kept as they were before this call."""
        if (
            request.tool.effect == "pure"
            or self._recorded_turn_id == self._turn_id
            or self._contains_home()
        ):
            return
        async with self._lock:
            if self._recorded_turn_id != self._turn_id:
                await self._get_recorder().record(self._turn_id)
                self._recorded_turn_id = self._turn_id

    async def mutate(self, context: MutationContext) -> Transcript | None:
        if (
            context.session_id == self._store.session_id
            and self._recorded_turn_id == context.turn_id
        ):
            await self._get_recorder().record(context.turn_id)
        return None

    def on_event(self, event: Event) -> None:
        if type(event) is TurnStarted:
            self._turn_id = event.turn_id

    def on_item(self, position: int, item: Item) -> None:
        return None

    def _contains_home(self) -> bool:
        """Whoever works at home, or above it, does not want all of that copied."""
        if not Path.home().resolve().is_relative_to(self._folder):
            return False
        if not self._is_warned:
            self._is_warned = True
            self._notify(f"{self._folder} holds your home folder: its files are not kept for undo")
        return True

    def _get_recorder(self) -> CheckpointRecorder:
        if self._recorder is None:
            from treadle.sessions.library import Library
            from treadle.workspace.checkpoints import CheckpointRecorder, Checkpoints

            checkpoints = Checkpoints(self._folder, Library().checkpoint_dir(self._folder))
            self._recorder = CheckpointRecorder(checkpoints, self._store.append, self._notify)
        return self._recorder
