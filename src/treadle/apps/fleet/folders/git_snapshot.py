"""The repository of a run as one unit: its new objects as a pack, and its small files.

    roots = await list_roots(folder)                   the hashes that the folder was filled with
    saved = await capture_repository(folder, roots)
    await apply_repository(fresh_folder, saved)        WorkspaceError if it would not be whole

A run may repack its repository, so files of it that differ are no unit: a pack that is left out
would take the objects along that it replaced. git runs without the configuration of the repository,
which the agent may have changed. Used by workspaces.py.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

import msgspec

from treadle.apps.fleet.folders.workspace_snapshot import (
    FolderChanges,
    SavedPath,
    apply_changes,
    capture_changes,
)
from treadle.core.errors import WorkspaceError
from treadle.lib.git.index import list_entries
from treadle.lib.git.run import GitError, plain_repository, run_git

GIT_FOLDER = b".git"
MAX_TIPS_BYTES = 8 << 20  # of a file in which hashes are looked for
_HASH = re.compile(rb"\b[0-9a-f]{40}\b")
_NO_PACK = 32  # bytes of a pack without objects


class SavedRepository(msgspec.Struct, frozen=True):
    """`files` are those of `.git` beside its objects; `tips` the objects that they name, with all
    that these need; `pack` has what is not in the `roots` of them."""

    files: tuple[SavedPath, ...]
    tips: tuple[str, ...]
    pack: bytes


def has_repository(folder: Path) -> bool:
    git = folder / ".git"
    return git.is_dir() and not git.is_symlink() and (git / "objects").is_dir()


async def list_roots(folder: Path) -> tuple[str, ...]:
    """The objects that the files of a repository name; () if the folder has none."""
    if not has_repository(folder):
        return ()
    files = await asyncio.to_thread(_read_files, folder, MAX_TIPS_BYTES)
    return await _find_tips(folder, files)


async def capture_repository(
    folder: Path, roots: Sequence[str], max_bytes: int
) -> SavedRepository | None:
    """None if it has no room, or is not whole."""
    files = await asyncio.to_thread(_read_files, folder, max_bytes)
    if files.unsaved or (folder / ".git/objects/info/alternates").exists():
        return None
    try:
        tips = await _find_tips(folder, files)
        wanted = "\n".join([*tips, *(f"^{root}" for root in roots), ""])
        words = ("pack-objects", "--revs", "--stdout", "-q", "--delta-base-offset")
        pack = await _run_plain(folder, *words, stdin=wanted.encode()) if tips else b""
    except GitError:
        return None
    if len(pack) + sum(len(one.data) for one in files.saved) > max_bytes:
        return None
    return SavedRepository(files.saved, tips, pack)


async def apply_repository(folder: Path, saved: SavedRepository) -> None:
    """Bring the repository of a freshly filled folder to the state of the capture."""
    git = folder / ".git"
    try:
        await asyncio.to_thread((git / "objects").mkdir, parents=True, exist_ok=True)
        if len(saved.pack) > _NO_PACK:
            await _run_plain(folder, "index-pack", "--stdin", "--fix-thin", stdin=saved.pack)
        await asyncio.to_thread(_replace_files, git, saved.files)
        words = ("rev-list", "--objects", "--quiet", "--stdin")
        await _run_plain(folder, *words, stdin="\n".join([*saved.tips, ""]).encode())
    except (GitError, OSError) as error:
        raise WorkspaceError(
            f"the repository of the run cannot be restored: {error}. Its source has changed since "
            "the run began; retry the run with another id to begin anew"
        ) from error


def _read_files(folder: Path, limit: int) -> FolderChanges:
    """The files of `.git` beside the objects and locks, as changes of an empty folder."""
    changes = capture_changes(
        folder / ".git", {}, max_file_bytes=limit, max_total_bytes=limit, leave_out=(b"objects",)
    )
    kept = tuple(one for one in changes.saved if not one.path.endswith(b".lock"))
    return FolderChanges(kept, (), changes.unsaved)


def _replace_files(git: Path, files: tuple[SavedPath, ...]) -> None:
    for entry in [*git.iterdir()]:
        if entry.name != "objects":
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    apply_changes(git, FolderChanges(files, ()))


async def _find_tips(folder: Path, files: FolderChanges) -> tuple[str, ...]:
    """The objects that the files name, and that are there."""
    named: set[str] = set()
    for one in files.saved:
        if not stat.S_ISREG(one.mode):
            continue
        if one.path == b"index":
            try:
                named |= {entry.digest.hex() for entry in list_entries(one.data)}
            except ValueError as error:
                raise GitError(str(error)) from error
            named |= await _list_index_trees(folder)
        else:
            named |= {found.decode() for found in _HASH.findall(one.data)}
    words = ("cat-file", "--batch-check=%(objectname) %(objecttype)")
    listing = await _run_plain(folder, *words, stdin="\n".join([*sorted(named), ""]).encode())
    lines = [line.split() for line in listing.decode().splitlines()]
    return tuple(name for name, kind, *_ in lines if kind != "missing")


async def _list_index_trees(folder: Path) -> set[str]:
    """The trees that the index keeps for the next commit; none if one of them is missing."""
    words = ("rev-list", "--objects", "--no-object-names", "--indexed-objects")
    try:
        return {*(await _run_plain(folder, *words, stdin=b"")).decode().split()}
    except GitError:
        return set()


async def _run_plain(folder: Path, *words: str, stdin: bytes) -> bytes:
    """git with the objects and the index of the folder, and without its configuration."""
    git = folder / ".git"
    with plain_repository(
        GIT_OBJECT_DIRECTORY=os.fspath(git / "objects"), GIT_INDEX_FILE=os.fspath(git / "index")
    ) as environment:
        place = Path(environment["GIT_DIR"])
        out = await run_git(place, *words, environment=environment, stdin=stdin)
    return out.encode(errors="surrogateescape")
