"""Paths in a writable folder that a command must not change or create.

An existing path is mounted over itself, read-only. For a missing one, an empty folder is the
placeholder while a command runs. Every parent folder is a mount of its own, because a mount cannot
be renamed but its parent could. Used by `bubblewrap.py`.
"""

# ruff: noqa: PTH101, PTH102, PTH106, PTH108, PTH208 - pathlib would slow down every command

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from treadle.core.errors import WorkspaceError

PROTECTED_PATHS = (
    ".treadle", ".claude", ".mcp.json", ".envrc", ".vscode", ".idea",
    ".git/hooks", ".git/config", ".git/modules", ".git/config.worktree", ".git/commondir",
)  # fmt: skip
"""Settings of agents, git and editors: they decide what runs on the host."""

PROTECTED_NAMES = frozenset(name.partition("/")[0] for name in PROTECTED_PATHS)
"""Their first parts, which are protected anywhere in a path."""

GIT_COMMONDIR = ".git/commondir"
WITHOUT_PLACEHOLDER = frozenset({".git/config.worktree", GIT_COMMONDIR})
"""Mostly absent, and a placeholder breaks git: removed if a command creates one."""

_HOOKS_PATH = re.compile(r"^\s*hookspath\s*=\s*([^#;\n]+)", re.IGNORECASE | re.MULTILINE)

PLACEHOLDER_MODE = 0o555
"""No folder of the user has this mode, so a placeholder of a killed agent is recognized."""

PLACEHOLDER = stat.S_IFDIR | PLACEHOLDER_MODE


class ProtectedPaths:
    """The protected paths below one writable root, and the placeholders for missing ones."""

    def __init__(self, root: Path, names: Iterable[str] = PROTECTED_PATHS) -> None:
        self._root = str(root)
        names = dict.fromkeys((*names, *_find_hook_folders(root)))
        self._names = [(name, Path(name).parts) for name in names]
        self._placeholders: dict[str, int] = {}
        self._watched: set[str] = set()
        self._removed: list[str] = []

    def mount_options(self) -> list[str]:
        """Options for bubblewrap. WorkspaceError if a symlink makes protection impossible."""
        options: list[str] = []
        seen: set[str] = set()
        for name, parts in self._names:
            for path, is_last in self._path_mounts(name, parts):
                if path not in seen:
                    seen.add(path)
                    options += ["--ro-bind" if is_last else "--bind", path, path]
        return options

    def _path_mounts(self, name: str, parts: tuple[str, ...]) -> list[tuple[str, bool]]:
        """The mounts that protect a path: its parent folders, then the read-only path itself."""
        mounts: list[tuple[str, bool]] = []
        path = self._root
        for number, part in enumerate(parts, start=1):
            path = f"{path}/{part}"
            mode = _read_mode(path)
            is_last = number == len(parts)
            if is_last and (path in self._watched or (name == GIT_COMMONDIR and mode)):
                # Created by a command that still runs, or that was killed with its agent: git
                # itself creates no such file in a repository's own folder.
                self._watched.add(path)
                self._removed = self.remove_created()
                return mounts
            if stat.S_ISLNK(mode):
                raise WorkspaceError(
                    f"the sandbox cannot protect {path}, which is a symlink; "
                    "replace it by its target, or run without the sandbox"
                )
            if not mode or (mode == PLACEHOLDER and _is_placeholder(path)):
                if name in WITHOUT_PLACEHOLDER and is_last:
                    self._watched.add(path)
                    return mounts
                return [*mounts, (path, True)] if self._make_placeholder(path) else mounts
            is_last = is_last or not stat.S_ISDIR(mode)
            mounts.append((path, is_last))
            if is_last:
                break
        return mounts

    def _make_placeholder(self, path: str) -> bool:
        """Create an empty folder at a missing path; False if nothing can be created there.

        A shared lock marks it as used by a sandbox: removing the folder would undo the mount.
        """
        while path not in self._placeholders:
            try:
                os.mkdir(path, PLACEHOLDER_MODE)
                os.chmod(path, PLACEHOLDER_MODE)
            except FileExistsError:
                pass
            except OSError:
                return False
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(fd, fcntl.LOCK_SH)
            try:
                is_same = os.path.samestat(os.fstat(fd), os.lstat(path))
            except FileNotFoundError:
                is_same = False  # another agent removed it while we waited for the lock
            if is_same:
                self._placeholders[path] = fd
            else:
                os.close(fd)
        return True

    def remove_created(self) -> list[str]:
        """Remove forbidden files that were created; returns them for the note of the result."""
        removed, self._removed = self._removed, []
        for path in sorted(self._watched):
            if stat.S_ISLNK(mode := _read_mode(path)) or stat.S_ISREG(mode):
                os.unlink(path)
                removed.append(path.removeprefix(self._root + "/"))
        return removed

    def remove_placeholders(self) -> list[int]:
        """Remove the placeholders, except those that another agent's sandbox uses.

        The caller closes the returned descriptors: only then the file system removes the folders,
        which takes milliseconds.
        """
        fds = list(self._placeholders.values())
        for path, fd in self._placeholders.items():
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_placeholder(path):
                    os.rmdir(path)
            except OSError:
                pass
        self._placeholders.clear()
        self._watched.clear()
        return fds


def _find_hook_folders(root: Path) -> list[str]:
    """The folders of a repository's hooks (core.hooksPath) that lie inside it."""
    try:
        with (root / ".git/config").open(encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 20)
    except OSError:
        return []
    found = (Path(os.path.normpath(name.strip().strip('"'))) for name in _HOOKS_PATH.findall(text))
    return [str(path) for path in found if not path.is_absolute() and path.parts[:1] != ("..",)]


def _is_placeholder(path: str) -> bool:
    try:
        return os.lstat(path).st_mode == PLACEHOLDER and not os.listdir(path)
    except OSError:
        return False


def _read_mode(path: str) -> int:
    """Its type and permissions, symlinks not followed; 0 if it does not exist."""
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0
