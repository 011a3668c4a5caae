"""The checkpoints of one folder: take, compare, go back, undo.

Contents are kept under a folder of their own, outside the project. The calls block on the disk,
so they run in a thread; one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

from treadle.core.errors import WorkspaceError
from treadle.workspace.checkpoints.objects import Objects
from treadle.workspace.checkpoints.restoring import (
    Change,
    Flat,
    Restored,
    Restoring,
    changes,
    flat,
)
from treadle.workspace.checkpoints.scanning import (
    MOST_FILE_BYTES,
    MOST_FILES,
    Scan,
    Skipped,
    Table,
    TooManyFiles,
)

T = TypeVar("T")
UNKNOWN = "what is there now was not kept, so it is left alone"


class Snapshot(msgspec.Struct, frozen=True):
    """A folder at one moment. `read` counts the files that were not known from before."""

    tree: str
    files: int
    read: int
    skipped: tuple[Skipped, ...] = ()


class Checkpoints:
    """Checkpoints of `root`, kept under `store`."""

    def __init__(
        self,
        root: Path,
        store: Path,
        *,
        most_file_bytes: int = MOST_FILE_BYTES,
        most_files: int = MOST_FILES,
    ) -> None:
        self.root = root
        self._objects = Objects(store / "objects")
        self._most_file_bytes = most_file_bytes
        self._most_files = most_files
        self._table: Table = {}
        self._turn = asyncio.Lock()

    async def take(self) -> Snapshot:
        """Keep the files as they are now."""
        return await self._do(self._take)

    async def restore(self, tree: str) -> Restored:
        """Make the files what they were in this tree."""
        return await self._do(lambda: self._restore(tree))

    async def changes(self, old: str, new: str) -> list[Change]:
        """What differs between two trees."""
        return await self._do(lambda: changes(self._flat(old), self._flat(new)))

    async def apply(self, old: str, new: str) -> Restored:
        """Carry over what changed from `old` to `new`, and nothing else.

        A file that is now neither as in one nor as in the other was changed by somebody since:
        it is left alone and named. `apply(after, before)` of a turn is undo, the reverse redo.
        """
        return await self._do(lambda: self._apply(old, new))

    async def sweep(self, trees: Iterable[str]) -> int:
        """Forget every content that none of these trees needs; the bytes freed."""
        kept = list(trees)
        self._table = {}  # what it names may be forgotten now
        return await self._do(lambda: self._objects.sweep(kept))

    # --- in a thread -----------------------------------------------------------------------

    async def _do(self, work: Callable[[], T]) -> T:
        async with self._turn:
            try:
                return await asyncio.to_thread(work)
            except TooManyFiles as error:
                raise WorkspaceError(f"{error}: no checkpoint was taken") from error
            except (OSError, ValueError) as error:
                raise WorkspaceError(f"the checkpoint cannot be used: {error}") from error

    def _scan(self, target: Flat | None = None) -> tuple[Scan, str]:
        objects = self._objects
        scan = Scan(
            self.root,
            objects,
            self._table,
            most_bytes=self._most_file_bytes,
            most_files=self._most_files,
            rules=None if target is None else (lambda folder: target.rules(objects, folder)),
        )
        tree = scan.tree()
        self._table = scan.table
        return scan, tree

    def _take(self) -> Snapshot:
        scan, tree = self._scan()
        return Snapshot(tree, len(scan.files), scan.read, tuple(scan.skipped))

    def _restore(self, tree: str) -> Restored:
        target = self._flat(tree)
        # Looked at with the target's own rules: what was ignored then was not kept, and what
        # was not kept must not be taken for something that came later.
        now, _ = self._scan(target)
        work = Restoring(self.root, self._objects)
        known = target.files.keys() | target.left
        work.remove(path for path in now.files if path not in known)
        # A link or a file may stand where a folder has to be, and the other way round.
        work.remove_folders([path for path in now.folders if path not in set(target.folders)])
        work.make_folders(target.folders)
        # What stands there now and was not kept could never be brought back.
        unknown = {skipped.path for skipped in now.skipped}
        wanted = {p: node for p, node in target.files.items() if now.files.get(p) != node}
        work.write({path: node for path, node in wanted.items() if path not in unknown})
        left = [Skipped(path, UNKNOWN) for path in wanted if path in unknown]
        done = work.result()
        return msgspec.structs.replace(done, skipped=(*done.skipped, *left))

    def _apply(self, old: str, new: str) -> Restored:
        before, after = self._flat(old), self._flat(new)
        now, _ = self._scan()
        work = Restoring(self.root, self._objects)
        unknown = {skipped.path for skipped in now.skipped}
        others: list[Skipped] = []
        gone: list[str] = []
        for change in changes(before, after):
            path = change.path
            if path in unknown:
                others.append(Skipped(path, UNKNOWN))
            elif now.files.get(path) == after.files.get(path):
                continue
            elif now.files.get(path) != before.files.get(path):
                others.append(Skipped(path, "it was changed since"))
            elif path in after.files:
                work.make_folders(_above(path))
                work.write({path: after.files[path]})
            else:
                gone.append(path)
        work.remove(gone)
        work.remove_folders([path for path in before.folders if path not in set(after.folders)])
        work.make_folders([path for path in after.folders if path not in set(before.folders)])
        done = work.result()
        return msgspec.structs.replace(done, skipped=(*done.skipped, *others))

    def _flat(self, tree: str) -> Flat:
        try:
            return flat(self._objects, tree)
        except OSError as error:
            raise ValueError(f"the checkpoint {tree} is not there any more") from error


def _above(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]
