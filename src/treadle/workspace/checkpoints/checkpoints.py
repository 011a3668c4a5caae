"""The checkpoints of one folder: take, compare, go back, undo.

Contents are kept under a folder of their own, outside the project. The calls block on the disk,
so they run in a thread; one at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from treadle.core.errors import WorkspaceError
from treadle.workspace.checkpoints.ground import Ground
from treadle.workspace.checkpoints.objects import Node, Objects
from treadle.workspace.checkpoints.restoring import (
    Change,
    Flat,
    Restored,
    Restoring,
    above,
    changes,
    flat,
    lies_in,
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
NOT_KEPT = "what was there was not kept"
CHANGED = "it was changed since"


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
        # What stands there now and was not kept could never be brought back.
        unknown = {skipped.path for skipped in now.skipped}
        folders = [path for path in target.folders if not lies_in(path, unknown)]
        wanted = {p: node for p, node in target.files.items() if now.files.get(p) != node}
        with self._restoring() as work:
            work.remove(path for path in now.files if target.lacks_file(path))
            # A link or a file may stand where a folder has to be, and the other way round.
            work.remove(now.others.intersection(folders))
            work.remove_folders(path for path in now.folders if target.lacks_folder(path))
            work.make_folders(folders)
            work.write({p: node for p, node in wanted.items() if not lies_in(p, unknown)})
            for path in wanted:
                if lies_in(path, unknown):
                    work.leave(path, UNKNOWN)
            return work.result()

    def _apply(self, old: str, new: str) -> Restored:
        before, after = self._flat(old), self._flat(new)
        now, _ = self._scan()
        unknown = {skipped.path for skipped in now.skipped}
        files: dict[str, Node] = {}
        gone: list[str] = []
        with self._restoring() as work:
            for path in (change.path for change in changes(before, after)):
                if lies_in(path, unknown):
                    work.leave(path, UNKNOWN)
                elif lies_in(path, after.left):
                    work.leave(path, NOT_KEPT)
                elif now.files.get(path) == after.files.get(path):
                    continue
                elif now.files.get(path) != before.files.get(path) or lies_in(path, before.left):
                    work.leave(path, CHANGED)
                elif path in after.files:
                    files[path] = after.files[path]
                else:
                    gone.append(path)
            # What goes makes room first: a link may stand where a folder has to be.
            work.remove(gone)
            work.remove(now.others.intersection(place for path in files for place in above(path)))
            work.remove_folders(path for path in before.folders if after.lacks_folder(path))
            new_folders = (path for path in after.folders if before.lacks_folder(path))
            work.make_folders(path for path in new_folders if not lies_in(path, unknown))
            work.write(files)
            return work.result()

    @contextmanager
    def _restoring(self) -> Iterator[Restoring]:
        ground = Ground(self.root)
        try:
            yield Restoring(ground, self._objects)
        finally:
            ground.close()

    def _flat(self, tree: str) -> Flat:
        try:
            return flat(self._objects, tree)
        except OSError as error:
            raise ValueError(f"the checkpoint {tree} is not there any more") from error
