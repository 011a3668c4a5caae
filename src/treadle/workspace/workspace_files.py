"""The files of a local workspace: which paths belong to it, and their reads and writes.

Paths are resolved as the kernel does (files.py); writes are atomic and one at a time for a file.
The base of local.py, which adds processes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

from treadle.core.contracts.workspace import FileContent
from treadle.core.errors import WorkspaceError
from treadle.lib.files.protected_paths import find_aliased_part
from treadle.workspace import files
from treadle.workspace.temp_files import TempFiles

_T = TypeVar("_T")


class WorkspaceFiles:
    """`roots` may be read and written, `readable` are read only; the first root is that of relative
    paths."""

    def __init__(
        self, roots: tuple[Path, ...], readable: tuple[Path, ...], temp_files: TempFiles
    ) -> None:
        self._root = roots[0]
        self._roots = roots
        self._readable = (*roots, *readable)
        self._temp_files = temp_files
        self._locks: WeakValueDictionary[Path, asyncio.Lock] = WeakValueDictionary()

    @property
    def root(self) -> Path:
        return self._root

    def resolve(self, path: str, *, for_write: bool = False) -> Path:
        root, rest = files.locate(self._readable, self._root, path)
        if for_write:
            self._refuse_aliased_protected(path, root / rest)
        return root / rest

    def _refuse_aliased_protected(self, path: str, real: Path) -> None:
        """A protected file may be changed only under its own name: the target of a symlink may
        have changed since the approval."""
        named = os.path.normpath(self._root / Path(path).expanduser())
        if named != str(real) and find_aliased_part(str(real)):
            raise WorkspaceError(f"{path} resolves to {real}, which is protected; use that path")

    async def read(self, path: str, *, limit: int | None = None) -> FileContent:
        root, rest = files.locate(self._readable, self._root, path)
        return await asyncio.to_thread(files.read, root, rest, limit)

    async def read_outside(self, path: str, *, limit: int | None = None) -> FileContent:
        """A file anywhere, which a policy has allowed to read."""
        real = self.resolve_outside(path)
        return await asyncio.to_thread(files.read, Path("/"), str(real.relative_to("/")), limit)

    def resolve_outside(self, path: str) -> Path:
        """The real path. Not through the folders that commands can write, where a symlink may have
        changed since the approval; not what differs by process."""
        given = self._root / Path(path).expanduser()
        named, real = os.path.normpath(given), Path(os.path.realpath(given))
        is_plain = os.path.realpath(named) == str(real)
        if not is_plain or any(Path(named).is_relative_to(root) for root in self._roots):
            raise WorkspaceError(f"{path} resolves to {real}, outside of the folder; use that path")
        if any(real.is_relative_to(top) for top in ("/proc", "/sys", "/dev", "/run")):
            raise WorkspaceError(f"{path} is not a file on disk; read it with bash")
        return real

    async def write(
        self, path: str, data: bytes, *, expected: str | None = None, mode: int | None = None
    ) -> FileContent:
        """`expected` is the digest it was read with, or "" for a file that must be new."""
        root, rest = files.locate(self._roots, self._root, path)
        self._refuse_aliased_protected(path, root / rest)
        async with self._file_lock(root / rest):
            self._before_write(root / rest)
            return await _run_uncancelled(
                lambda: files.write(root, rest, data, self._temp_files, expected, mode)
            )

    async def remove(self, path: str, *, expected: str | None = None) -> None:
        root, rest = files.locate(self._roots, self._root, path, follow=False)
        self._refuse_aliased_protected(path, root / rest)
        async with self._file_lock(root / rest):
            await _run_uncancelled(lambda: files.remove(root, rest, expected=expected))

    def _file_lock(self, path: Path) -> asyncio.Lock:
        return self._locks.setdefault(path, asyncio.Lock())

    def _before_write(self, path: Path) -> None:
        """Called under the lock of the file."""


async def _run_uncancelled(work: Callable[[], _T]) -> _T:
    """Run in a thread and wait for it even if cancelled, so that writes are never partial."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
