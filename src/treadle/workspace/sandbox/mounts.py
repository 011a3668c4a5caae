"""Bubblewrap's options for what is protected, hidden or read-only in writable folders.

Knows no names of files: `protected_paths.py` finds the entries, `bubblewrap.py` adds the options to
those of the sandbox.
"""

# ruff: noqa: PTH114, PTH116 - pathlib would slow down every command

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from treadle.core.errors import WorkspaceError
from treadle.lib.files.file_view import READ_FLAGS
from treadle.lib.files.protected_paths import GIT_FOLDER
from treadle.workspace.sandbox.stand_ins import StandIns
from treadle.workspace.sandbox.tree_scan import (
    GIT,
    HIDDEN,
    PINNED,
    PROTECTED,
    READ_ONLY,
    SOCKET,
    UNLISTED,
    FoundEntry,
)
from treadle.workspace.supervisor.set_aside import open_folder

MAX_MOUNTS = 300
"""Mounts for what is protected: 100 take 20 ms, 300 take 100 ms. More is an error; only what
commands made may be left out, because it is looked at again when a command has ended."""

MAX_DENIED = 300
"""Mounts for deny rules; each of them has to hold, so more is an error."""

MAX_COPY_BYTES = 1 << 20

MOUNT_ORDER = {
    HIDDEN: 0, UNLISTED: 0, READ_ONLY: 1, PINNED: 1, SOCKET: 2, GIT: 3, PROTECTED: 4
}  # fmt: skip
"""The kinds that are mounted; if there are too many mounts, the first kinds are."""

_HAS_TO_HOLD = frozenset({HIDDEN, UNLISTED, READ_ONLY, PINNED})


def choose_mounts(entries: Iterable[FoundEntry]) -> list[FoundEntry]:
    """All that have to hold, and of what commands made the nearest ones that fit the limit."""
    order = sorted(
        entries,
        key=lambda e: (_may_be_left_out(e), MOUNT_ORDER[e.kind], e.path.count("/"), e.path),
    )
    needed = sum(not _may_be_left_out(entry) for entry in order)
    return order[: max(MAX_MOUNTS, needed)]


def _may_be_left_out(entry: FoundEntry) -> bool:
    return entry.is_made and entry.kind not in _HAS_TO_HOLD


def make_mount_options(
    entries: Sequence[FoundEntry],
    writable: Sequence[Path],
    stand_ins: StandIns,
    copies: Path | None = None,
) -> list[str]:
    """Options for bubblewrap, outer folders first. WorkspaceError if too much has to be hidden.

    `copies`: a folder outside the roots, if other commands run. They could swap a folder for a
    symlink, and bubblewrap would then show what it names. So copies are mounted instead of files
    that lie deeper, and folders there are hidden.
    """
    _refuse_too_many(entries)
    hidden = {entry.path for entry in entries if entry.kind in (HIDDEN, UNLISTED)}
    options: list[str] = []
    for entry in sorted(entries, key=lambda e: (e.path, MOUNT_ORDER[e.kind])):
        if hidden and _is_covered(entry, hidden):
            continue
        if copies is None or entry.kind not in (GIT, PROTECTED) or _is_pinned(entry, writable):
            options += _make_mount(entry, writable, stand_ins)
        else:
            options += (made := _make_copy_mount(entry, writable, copies))
            if "--tmpfs" in made:
                hidden.add(entry.path)
    return options


def _refuse_too_many(entries: Sequence[FoundEntry]) -> None:
    """WorkspaceError if there are too many mounts that have to hold."""
    denied = sum(entry.kind in (HIDDEN, READ_ONLY) for entry in entries)
    unlisted = sum(entry.kind == UNLISTED for entry in entries)
    pinned = sum(entry.kind == PINNED for entry in entries)
    if denied > MAX_DENIED or denied + pinned > 2 * MAX_DENIED:
        raise WorkspaceError(
            f"the deny rules match {denied} files, and the sandbox can protect {MAX_DENIED}; write "
            "the rules for folders, or run without the sandbox"
        )
    protected = sum(e.kind not in _HAS_TO_HOLD and not e.is_made for e in entries)
    if protected > MAX_MOUNTS:
        raise WorkspaceError(
            f"{protected} paths here decide what programs run later, or are sockets, and the "
            f"sandbox can protect {MAX_MOUNTS}; work in a folder below, remove what is not "
            "needed, or run without the sandbox"
        )
    if unlisted > MAX_DENIED:
        raise WorkspaceError(
            f"{unlisted} folders cannot be listed, and the sandbox can hide {MAX_DENIED}; give "
            "yourself permission to read them (chmod u+rx), or run without the sandbox"
        )


def _is_covered(entry: FoundEntry, hidden: set[str]) -> bool:
    """Whether it is in a folder that is hidden, or is such a folder under another kind."""
    is_hidden = entry.path in hidden and entry.kind not in (HIDDEN, UNLISTED)
    return is_hidden or any(str(folder) in hidden for folder in Path(entry.path).parents)


def _is_pinned(entry: FoundEntry, writable: Sequence[Path]) -> bool:
    """Whether no running command can have replaced it: it and all its folders are mounts."""
    parent = Path(entry.path).parent
    is_direct = parent in writable or (parent.name == GIT_FOLDER and parent.parent in writable)
    return is_direct and not os.path.islink(entry.path)


def _make_copy_mount(entry: FoundEntry, writable: Sequence[Path], copies: Path) -> list[str]:
    root = next(root for root in writable if Path(entry.path).is_relative_to(root))
    *above, name = Path(entry.path).relative_to(root).parts
    try:
        folder = open_folder(str(root), above)
    except OSError:
        return []
    try:
        data = _read_entry(name, folder)
    except OSError:
        return []  # a symlink, or gone
    finally:
        os.close(folder)
    if entry.kind == GIT:
        return []  # commands write to it; its parts are mounted
    if data is None:  # without permissions: for git, files that are not there are deleted
        return ["--perms", "0000", "--tmpfs", entry.path, "--remount-ro", entry.path]
    copy = copies / str(len(list(copies.iterdir())))
    copy.write_bytes(data)
    return ["--ro-bind", str(copy), entry.path]


def _read_entry(name: str, folder: int) -> bytes | None:
    """What is in a file; None for what is none."""
    fd = os.open(name, READ_FLAGS, dir_fd=folder)
    try:
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        return os.read(fd, MAX_COPY_BYTES) if is_file else None
    finally:
        os.close(fd)


def _make_mount(entry: FoundEntry, writable: Sequence[Path], stand_ins: StandIns) -> list[str]:
    path = os.path.realpath(entry.path)
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except OSError:
        return []  # a symlink to nothing
    is_inside = any(path.startswith(f"{root}/") for root in writable)
    if path != entry.path and entry.kind not in (HIDDEN, UNLISTED) and not is_inside:
        return []  # a symlink to what is read-only anyway
    if entry.kind in (HIDDEN, UNLISTED, SOCKET):
        if not is_folder:
            stand_in = stand_ins.find(path) if entry.kind == HIDDEN else os.devnull
            return ["--ro-bind", stand_in, path]
        return ["--perms", "0000", "--tmpfs", path, "--remount-ro", path]
    # A mount cannot be renamed. The parts of a git folder could be renamed with it otherwise.
    is_writable = entry.kind in (GIT, PINNED) and is_folder
    return ["--bind" if is_writable else "--ro-bind", path, path]
