"""What undo, redo and rewind do to the files of a session, as hosts show it.

How files are restored is conversation/undo.py; commands/restore.py asks the user.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

import msgspec

from treadle.apps.conversation import undo
from treadle.apps.conversation.session.lifecycle import SessionLifecycle
from treadle.apps.conversation.undo import FileChange
from treadle.core.errors import StoreError
from treadle.core.transcript.entries import Rewound
from treadle.sessions import history

if TYPE_CHECKING:
    from treadle.apps.conversation.undo import PlannedRestore
    from treadle.workspace.checkpoints.checkpoints import Checkpoints
    from treadle.workspace.checkpoints.restore import RestoreResult

RestoreAction = Literal["undo", "redo"]


class FileUndo:
    """`include` are paths of files that are restored although the user changed them, too, or may
    have; `./a` is `a`."""

    def __init__(self, session: SessionLifecycle) -> None:
        self._session = session

    async def preview(
        self, action: RestoreAction, include: Collection[str] = ()
    ) -> tuple[str, list[FileChange]]:
        """What `undo` or `redo` would do: a title that names the turn, and the files. ConfigError
        if `include` names another file."""
        include = normalize_paths(include)
        planned = await self._plan(action, include)
        undo.check_named(planned, include)
        return undo.describe_plan_title(planned), _list_changes(planned)

    async def run(self, action: RestoreAction, include: Collection[str] = ()) -> str:
        """Undo the file changes of the last turn that is not undone, or bring back what the last
        undo or rewind changed; a message about it."""
        self._session.require_idle(f"/{action}")  # a turn may have begun since the question
        include = normalize_paths(include)
        planned = await self._plan(action, include)
        restored = await self._restore(planned, include)
        session_id = self._session.driver.session_id
        notes = undo.describe_notes(planned, include, session_id, f"/{action} PATH")
        parts = [undo.describe_result(planned, restored), *undo.list_skipped(restored)[:3], notes]
        return "; ".join(filter(None, parts))

    async def preview_rewind(self, turn_id: str) -> list[FileChange]:
        """What a rewind to before this turn would do to files."""
        planned = await self._plan_rewind(turn_id)
        return _list_changes(planned) if planned is not None else []

    async def rewind(self, turn_id: str, include: Collection[str] | None) -> str:
        """Rewind the session to before this turn; a message about the files that were restored,
        none without `include`."""
        message = ""

        async def edit() -> None:
            nonlocal message
            planned = await self._plan_rewind(turn_id) if include is not None else None
            if planned is not None:
                restored = await self._restore(planned, include or ())
                parts = [undo.list_restored(restored), *undo.list_skipped(restored)[:3]]
                message = "; ".join(parts)
            self._session.agent_session.store.append(Rewound(turn_id))

        history.find_turn(await self._session.flush(), turn_id)  # raises if there is none
        await self._session.reconfigure(edit, keeps_view=False)
        return message

    async def list_changed_files(self) -> dict[str, str]:
        """The files that the agent added, removed or changed, without what is undone."""
        session_dir = await self._session.flush()
        return {**await undo.list_changed_files(self._open_checkpoints(), session_dir)}

    async def _plan(self, action: RestoreAction, include: Collection[str]) -> PlannedRestore:
        session_dir = await self._session.flush()
        plan = undo.plan_redo if action == "redo" else undo.plan_undo
        try:
            return await plan(self._open_checkpoints(), session_dir, include)
        except undo.NothingButUsersFiles as error:
            raise StoreError(f"{error}; /{action} PATH restores one") from error

    async def _plan_rewind(self, turn_id: str) -> PlannedRestore | None:
        session_dir = await self._session.flush()
        turn = history.find_turn(session_dir, turn_id)
        return await undo.plan_rewind(self._open_checkpoints(), session_dir, turn)

    async def _restore(self, planned: PlannedRestore, include: Collection[str]) -> RestoreResult:
        store = self._session.agent_session.store
        return await undo.run_restore(self._open_checkpoints(), store, planned, include)

    def _open_checkpoints(self) -> Checkpoints:
        from treadle.workspace.checkpoints.checkpoints import Checkpoints

        folder = self._session.folder
        return Checkpoints(folder, self._session.library.checkpoint_dir(folder))


def normalize_paths(paths: Collection[str]) -> list[str]:
    return [os.path.normpath(path) for path in paths]


def _list_changes(planned: PlannedRestore) -> list[FileChange]:
    return [FileChange(**msgspec.structs.asdict(change)) for change in planned.plan.changes]
