"""The folders of runs: each run has its own, and a lost one can be restored on another machine.

    path = await workspaces.prepare(task, run_id)        filled from the task
    await workspaces.snapshot(run_id, step)              at the end of every turn
    restored = await workspaces.restore(task, run_id)    by the next worker
    await workspaces.remove(run_id)

    ROOT/FLEET/RUN/files    the folder; runs of several fleets may have the same id
    ROOT/FLEET/RUN/state    what it was filled with (workspace_snapshot.py)
    ROOT/mirrors/           local mirrors of repositories (workspace_source.py)

Snapshots go to a SnapshotStore; the database of the fleet is one, so every machine reads them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import uuid
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from treadle.apps.fleet.folders.git_snapshot import (
    GIT_FOLDER,
    SavedRepository,
    apply_repository,
    capture_repository,
    has_repository,
    list_roots,
)
from treadle.apps.fleet.folders.workspace_snapshot import (
    MAX_FILE_BYTES,
    MAX_TOTAL_BYTES,
    Baseline,
    FolderChanges,
    apply_changes,
    capture_changes,
    scan_folder,
)
from treadle.apps.fleet.folders.workspace_source import fill_folder
from treadle.apps.fleet.task import FleetTask
from treadle.core.errors import ConfigError, WorkspaceError
from treadle.lib.files.flock import wait_for_lock
from treadle.lib.files.private_files import make_private_folder
from treadle.lib.git.run import GitError
from treadle.lib.text.text import plural
from treadle.sessions.library import default_root
from treadle.sessions.open_store import check_session_id

NAMED_PATHS = 5  # of those that are not in a snapshot


class SnapshotStore(Protocol):
    """Bytes by key, for all machines. A put replaces, and is complete or not there."""

    @property
    def fleet_id(self) -> str:
        """The name of the folder of its runs; "" if only one fleet uses this machine."""

    async def put_blob(self, key: str, data: bytes) -> None: ...

    async def get_blob(self, key: str) -> bytes | None: ...


class WorkspaceSnapshot(msgspec.Struct, frozen=True):
    """The changes at the end of a step. `commit` is what the folder was filled from, if it is a
    repository; `place` names the folder in which the snapshot was taken."""

    step: int
    place: str
    commit: str
    changes: FolderChanges
    repository: SavedRepository | None = None


def encode_snapshot(snapshot: WorkspaceSnapshot) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(snapshot), level=1)


def decode_snapshot(data: bytes) -> WorkspaceSnapshot:
    try:
        return msgspec.msgpack.decode(zlib.decompress(data), type=WorkspaceSnapshot)
    except (zlib.error, msgspec.DecodeError) as error:
        raise WorkspaceError(f"the snapshot of the workspace is damaged: {error}") from error


async def apply_snapshot(folder: Path, snapshot: WorkspaceSnapshot) -> None:
    await asyncio.to_thread(apply_changes, folder, snapshot.changes)
    if snapshot.repository is not None:
        await apply_repository(folder, snapshot.repository)


class RestoredWorkspace(msgspec.Struct, frozen=True):
    """A folder to continue in.

    `is_intact`: the folder in which the run worked last, with everything in it. Otherwise it is
    new: filled from the task, then brought to the `snapshot` of `step` ("" and 0 if there was
    none). What happened in the folder after that step is lost; `lost_effects` has sentences about
    it, for the transcript.
    """

    path: Path
    snapshot: str = ""
    step: int = 0
    is_intact: bool = False
    lost_effects: tuple[str, ...] = ()


class _RunFolderState(msgspec.Struct, frozen=True):
    """Beside the folder: how it was filled. `place` is a name that no other folder has."""

    place: str
    commit: str
    baseline: Baseline
    roots: tuple[str, ...] = ()  # of its repository


def get_default_folder() -> Path:
    """Where the folders of runs are; not below ~/.treadle, in which no agent may edit files."""
    return default_root().parent / "fleet"


class RunWorkspaces:
    """The folders of the runs of this machine, below `root`."""

    def __init__(
        self,
        root: Path,
        snapshots: SnapshotStore,
        *,
        max_file_bytes: int = MAX_FILE_BYTES,
        max_total_bytes: int = MAX_TOTAL_BYTES,
    ) -> None:
        self._root = root.expanduser().absolute()
        self._snapshots = snapshots
        self._max_file_bytes, self._max_total_bytes = max_file_bytes, max_total_bytes

    async def prepare(self, task: FleetTask, run_id: str) -> Path:
        """The folder of a run that begins. WorkspaceError if its source cannot be had."""
        return await self._fill(task, run_id)

    async def restore(self, task: FleetTask, run_id: str) -> RestoredWorkspace:
        """The folder of a run that another worker began, here or on another machine."""
        if await self.has_latest(run_id):
            return RestoredWorkspace(self._files(run_id), is_intact=True)
        place = await self._snapshots.get_blob(_place_key(run_id))
        if place is None:  # no worker came as far as a folder
            return RestoredWorkspace(await self._fill(task, run_id))
        data = await self._snapshots.get_blob(_snapshot_key(run_id))
        if data is None:
            lost = "the machine was lost; all changes of the files since the run began are lost"
            return RestoredWorkspace(await self._fill(task, run_id), lost_effects=(lost,))
        snapshot = decode_snapshot(data)
        path = await self._fill(task, run_id, snapshot)
        return RestoredWorkspace(
            path, _name_snapshot(run_id, snapshot), snapshot.step, False, _list_losses(snapshot)
        )

    async def has_latest(self, run_id: str) -> bool:
        """Whether the folder in which the run worked last is here."""
        state = await asyncio.to_thread(self._read_state, run_id)
        place = await self._snapshots.get_blob(_place_key(run_id))
        return state is not None and place == state.place.encode()

    async def snapshot(self, run_id: str, step: int) -> str:
        """Keep what the run changed; returns the name of the snapshot. The last one counts."""
        state = await asyncio.to_thread(self._read_state, run_id)
        if state is None:
            raise WorkspaceError(f"the run {run_id} has no folder on this machine")
        repository, leave_out = None, list[bytes]()
        if has_repository(self._files(run_id)):
            leave_out = [GIT_FOLDER]
            repository = await capture_repository(
                self._files(run_id), state.roots, self._max_total_bytes
            )
        changes = await asyncio.to_thread(self._capture, run_id, state.baseline, leave_out)
        if leave_out and repository is None:
            unsaved = (GIT_FOLDER, *changes.unsaved)
            changes = msgspec.structs.replace(changes, unsaved=unsaved)
        snapshot = WorkspaceSnapshot(step, state.place, state.commit, changes, repository)
        data = await asyncio.to_thread(encode_snapshot, snapshot)
        await self._snapshots.put_blob(_snapshot_key(run_id), data)
        return _name_snapshot(run_id, snapshot)

    async def has_begun(self, run_id: str) -> bool:
        """Whether a worker has filled a folder for the run."""
        return await self._snapshots.get_blob(_place_key(run_id)) is not None

    async def save_latest(self, run_id: str) -> None:
        """A snapshot of a run that no worker has, if the folder in which it worked last is here."""
        if await self.has_latest(run_id):
            data = await self._snapshots.get_blob(_snapshot_key(run_id))
            await self.snapshot(run_id, decode_snapshot(data).step if data is not None else 0)

    async def remove(self, run_id: str) -> None:
        """Delete the folder of a run on this machine; its snapshot stays."""
        await asyncio.to_thread(_remove_tree, self._folder(run_id))

    async def remove_lost(self, run_id: str) -> None:
        """Delete the folder of a run that went on elsewhere, or was deleted. A folder without a
        state stays: another worker of this machine may be filling it."""
        async with self._lock():
            state = await asyncio.to_thread(self._read_state, run_id)
            if state is None:
                return
            if await self._snapshots.get_blob(_place_key(run_id)) != state.place.encode():
                await self.remove(run_id)

    async def remove_all_lost(self) -> None:
        """The same for all runs that have a folder on this machine."""
        root = self._root / self._snapshots.fleet_id
        for run_id in await asyncio.to_thread(_list_folders, root):
            await self.remove_lost(run_id)

    async def export(self, task: FleetTask, run_id: str, target: Path) -> tuple[str, ...]:
        """Fill a new folder with the files of a run as of its last snapshot, to look at them or to
        work on; sentences about what is not in it."""
        target = await asyncio.to_thread(target.resolve)
        if await asyncio.to_thread(_has_content, target):
            raise WorkspaceError(f"{target} is not empty; name a new folder")
        data = await self._snapshots.get_blob(_snapshot_key(run_id))
        snapshot = decode_snapshot(data) if data is not None else None
        try:
            await asyncio.to_thread(_remove_tree, target)
            await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
            commit = snapshot.commit if snapshot is not None else ""
            await fill_folder(task, target, self._root / "mirrors", commit)
            if snapshot is None:
                return ("the run has no snapshot: the files are those of the task",)
            await apply_snapshot(target, snapshot)
        except OSError as error:
            raise WorkspaceError(f"{target} cannot be filled: {error}") from error
        return _list_unsaved(snapshot)

    # --- the folder ------------------------------------------------------------------------

    async def _fill(
        self, task: FleetTask, run_id: str, snapshot: WorkspaceSnapshot | None = None
    ) -> Path:
        """A folder that was begun and not completed, or is out of date, is made anew."""
        folder, files = self._folder(run_id), self._files(run_id)
        try:
            async with self._lock():
                await self.remove(run_id)
            await asyncio.to_thread(make_private_folder, folder)
            commit = snapshot.commit if snapshot is not None else ""
            commit = await fill_folder(task, files, self._root / "mirrors", commit)
            baseline = await asyncio.to_thread(scan_folder, files)
            roots = await list_roots(files)
            if snapshot is not None:
                await apply_snapshot(files, snapshot)
        except GitError as error:
            message = f"the repository of the run {run_id} cannot be read: {error}"
            raise WorkspaceError(message) from error
        except OSError as error:
            message = f"the folder of the run {run_id} cannot be made: {error}"
            raise WorkspaceError(message) from error
        state = _RunFolderState(uuid.uuid4().hex, commit, baseline, roots)
        # Before the first effect: from now on no other folder of this run is the newest one. And
        # before the state: with it, a folder that is not the newest one is removed.
        await self._snapshots.put_blob(_place_key(run_id), state.place.encode())
        await asyncio.to_thread(self._write_state, run_id, state)
        return files

    @asynccontextmanager
    async def _lock(self) -> AsyncIterator[None]:
        """No other worker of this machine removes a folder of this fleet."""
        root = self._root / self._snapshots.fleet_id
        await asyncio.to_thread(make_private_folder, root)
        async with wait_for_lock(root):
            yield

    def _capture(
        self, run_id: str, baseline: Baseline, leave_out: Sequence[bytes]
    ) -> FolderChanges:
        return capture_changes(
            self._files(run_id),
            baseline,
            leave_out=leave_out,
            max_file_bytes=self._max_file_bytes,
            max_total_bytes=self._max_total_bytes,
        )

    def _folder(self, run_id: str) -> Path:
        if ":" in run_id:
            raise ConfigError(f"{run_id!r} cannot be the id of a run: containers mount its folder")
        return self._root / self._snapshots.fleet_id / check_session_id(run_id)

    def _files(self, run_id: str) -> Path:
        return self._folder(run_id) / "files"

    def _read_state(self, run_id: str) -> _RunFolderState | None:
        try:
            data = (self._folder(run_id) / "state").read_bytes()
            state = msgspec.msgpack.decode(data, type=_RunFolderState)
        except (OSError, msgspec.DecodeError):
            return None
        return state if self._files(run_id).is_dir() else None

    def _write_state(self, run_id: str, state: _RunFolderState) -> None:
        """Written last, at once: a folder without it is not complete."""
        path = self._folder(run_id) / "state"
        partial = path.with_suffix(".partial")
        partial.write_bytes(msgspec.msgpack.encode(state))
        partial.rename(path)


def _place_key(run_id: str) -> str:
    return f"workspaces/{run_id}/place"


def _snapshot_key(run_id: str) -> str:
    return f"workspaces/{run_id}/snapshot"


def _name_snapshot(run_id: str, snapshot: WorkspaceSnapshot) -> str:
    return f"{run_id}@{snapshot.step}"


def _list_losses(snapshot: WorkspaceSnapshot) -> tuple[str, ...]:
    lost = (
        f"the machine was lost; the files are as they were at the end of step {snapshot.step}, and "
        "later changes of files are lost"
    )
    return (lost, *_list_unsaved(snapshot))


def _list_unsaved(snapshot: WorkspaceSnapshot) -> tuple[str, ...]:
    unsaved = snapshot.changes.unsaved
    if not unsaved:
        return ()
    names = ", ".join(os.fsdecode(path) for path in unsaved[:NAMED_PATHS])
    more = ", …" if len(unsaved) > NAMED_PATHS else ""
    count = plural(len(unsaved), "path")
    return (f"{count} had no room in the snapshot and must be made again: {names}{more}",)


def _list_folders(root: Path) -> list[str]:
    return (
        sorted(one.name for one in root.iterdir() if (one / "state").is_file())
        if (root.is_dir())
        else []
    )


def _has_content(path: Path) -> bool:
    return path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir())))


def _remove_tree(path: Path) -> None:
    """Also of folders that the run made read-only."""

    def make_writable(remove: Callable[..., Any], name: str, _: object) -> None:
        failed = Path(name)
        failed.parent.chmod(0o700)
        if failed.is_dir() and not failed.is_symlink():
            failed.chmod(0o700)
            shutil.rmtree(failed)
        else:
            failed.unlink(missing_ok=True)

    if path.exists():
        shutil.rmtree(path, onerror=make_writable)
