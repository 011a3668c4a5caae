"""What a run changed in its folder, as one value that can be stored and applied elsewhere.

    baseline = scan_folder(root)             the folder as it was filled
    captured = capture_changes(root, baseline)
    apply_changes(fresh_root, captured)      the same folder, on another machine

Only changes are kept: the rest comes from the task again. A file beyond the limits is left out and
named. Blocking: the caller uses a thread. Used by workspaces.py and, for the files of a repository,
by git_snapshot.py.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from treadle.core.errors import WorkspaceError

MAX_FILE_BYTES = 8 << 20
MAX_TOTAL_BYTES = 32 << 20

# Path: mode, size, time of the last change, inode. Not ctime: a hard link elsewhere changes it.
Baseline = dict[bytes, tuple[int, int, int, int]]


class SavedPath(msgspec.Struct, frozen=True, array_like=True):
    """A file (`data`), symlink (`data` is its target) or folder that is new or changed."""

    path: bytes
    mode: int
    mtime_ns: int
    data: bytes


class FolderChanges(msgspec.Struct, frozen=True):
    """What differs from the baseline. `unsaved` are paths that were too large, or unreadable."""

    saved: tuple[SavedPath, ...]
    removed: tuple[bytes, ...]
    unsaved: tuple[bytes, ...] = ()


def scan_folder(root: Path) -> Baseline:
    """Every path below the root; symlinks are not followed."""
    return {
        path: (info.st_mode, info.st_size, info.st_mtime_ns, info.st_ino)
        for path, info in _walk(str(root))
    }


def _walk(root: str, folder: str = "") -> Iterator[tuple[bytes, os.stat_result]]:
    """Paths from the root with their stat, each folder before what is in it."""
    try:
        entries = sorted(os.scandir(f"{root}/{folder}"), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        path = folder + entry.name
        try:
            info = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        yield os.fsencode(path), info
        if stat.S_ISDIR(info.st_mode):
            yield from _walk(root, f"{path}/")


def capture_changes(
    root: Path,
    baseline: Baseline,
    *,
    max_file_bytes: int = MAX_FILE_BYTES,
    max_total_bytes: int = MAX_TOTAL_BYTES,
    leave_out: Collection[bytes] = (),
) -> FolderChanges:
    """Small files first, so that a large one does not take their room. `leave_out` are folders of
    the root that count as not changed."""
    present: set[bytes] = set()
    changed: list[tuple[bytes, os.stat_result]] = []
    for path, info in _walk(str(root)):
        if path.partition(b"/")[0] in leave_out:
            continue
        present.add(path)
        if _has_changed(info, baseline.get(path)):
            changed.append((path, info))
    room, saved, unsaved = max_total_bytes, list[SavedPath](), list[bytes]()
    for path, info in sorted(changed, key=lambda one: (one[1].st_size, one[0])):
        fits = stat.S_ISDIR(info.st_mode) or info.st_size <= min(max_file_bytes, room)
        data = _read_path(root / os.fsdecode(path), info, max_file_bytes) if fits else None
        if data is None:
            unsaved.append(path)
            continue
        room -= len(data)
        saved.append(SavedPath(path, info.st_mode, info.st_mtime_ns, data))
    removed = sorted(
        path
        for path in baseline
        if path not in present and path.partition(b"/")[0] not in leave_out
    )
    saved.sort(key=lambda one: one.path)
    return FolderChanges(tuple(saved), tuple(removed), tuple(sorted(unsaved)))


def _has_changed(info: os.stat_result, before: tuple[int, int, int, int] | None) -> bool:
    if before is None:
        return True
    if stat.S_ISDIR(info.st_mode):
        return info.st_mode != before[0]  # its size and time follow from what is in it
    return (info.st_mode, info.st_size, info.st_mtime_ns, info.st_ino) != before


def _read_path(path: Path, info: os.stat_result, limit: int) -> bytes | None:
    try:
        if stat.S_ISDIR(info.st_mode):
            return b""
        if stat.S_ISLNK(info.st_mode):
            return os.fsencode(path.readlink())
        if not stat.S_ISREG(info.st_mode):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(limit + 1)  # it may have grown since
        return data if len(data) <= limit else None
    except OSError:
        return None


def apply_changes(root: Path, changes: FolderChanges) -> None:
    """Bring a freshly filled folder to the state of the capture."""
    for path in changes.removed:
        _remove(_locate(root, path))
    for one in changes.saved:
        _apply_path(_locate(root, one.path), one)
    for one in reversed(changes.saved):  # last, and from below: a folder may be read-only
        if stat.S_ISDIR(one.mode):
            _locate(root, one.path).chmod(stat.S_IMODE(one.mode))


def _apply_path(target: Path, saved: SavedPath) -> None:
    if stat.S_ISDIR(saved.mode):
        if target.is_symlink() or not target.is_dir():
            _remove(target)
            target.mkdir()
        return
    _remove(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    if stat.S_ISLNK(saved.mode):
        target.symlink_to(os.fsdecode(saved.data))
        return
    target.write_bytes(saved.data)
    target.chmod(stat.S_IMODE(saved.mode))
    os.utime(target, ns=(saved.mtime_ns, saved.mtime_ns))


def _locate(root: Path, path: bytes) -> Path:
    """A path below the root, with no symlink on the way to it."""
    parts = os.fsdecode(path).split("/")
    if any(part in ("", ".", "..") for part in parts):
        raise WorkspaceError(f"the snapshot has a path that leaves the folder: {path!r}")
    target = root.joinpath(*parts)
    for folder in target.parents[: len(parts) - 1]:
        if folder.is_symlink():
            raise WorkspaceError(f"the snapshot has a path through a symlink: {path!r}")
    return target


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except (FileNotFoundError, NotADirectoryError):
        pass
