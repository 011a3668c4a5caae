"""Paths in a writable folder that a command must find as they are, there or not.

An existing one is mounted over itself, read-only. An absent one would be anybody's to create: an
empty folder holds its place while a command runs. Every folder on the way is a mount of its
own, for a mount cannot be renamed and what lies above it could. Above it stands `bubblewrap.py`.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from treadle.core.errors import WorkspaceError

PROTECTED = (
    ".treadle",
    ".mcp.json",
    ".envrc",
    ".vscode",
    ".idea",
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".git/commondir",
)
"""What runs, or decides what runs, on the host: the agent's settings, git's, the editors'."""

APPEARING = frozenset({".git/config.worktree", ".git/commondir"})
"""Mostly absent, and git does not bear a placeholder for them: removed if a command made one."""

PLACEHOLDER_MODE = 0o555
"""No folder of the user's has this mode, so one that a killed agent left is known as ours."""


class Protection:
    """The protected paths below one writable root, and the placeholders that stand in for some."""

    def __init__(self, root: Path, names: Iterable[str] = PROTECTED) -> None:
        self.root = root
        self.names = tuple(names)
        self._placeholders: dict[Path, int] = {}
        self._appearing: set[Path] = set()

    def mounts(self) -> list[str]:
        """Options for bubblewrap. WorkspaceError where a link makes protection impossible."""
        options: list[str] = []
        seen: set[Path] = set()
        for name in self.names:
            for path, is_last in self._way(name):
                if path in seen:
                    continue
                seen.add(path)
                kind = "--ro-bind" if is_last else "--bind"
                options += [kind, str(path), str(path)]
        return options

    def _way(self, name: str) -> list[tuple[Path, bool]]:
        """The mounts that protect a name: the folders on the way, then what is kept read-only."""
        way: list[tuple[Path, bool]] = []
        path = self.root
        parts = Path(name).parts
        for number, part in enumerate(parts, start=1):
            path /= part
            if path.is_symlink():
                raise WorkspaceError(
                    f"the sandbox cannot protect {path}, which is a symbolic link; "
                    "replace it by what it points to, or run without the sandbox"
                )
            is_last = number == len(parts) or not path.is_dir()
            if not path.exists() or _is_placeholder(path):
                if name in APPEARING and is_last and number == len(parts):
                    self._appearing.add(path)
                    return way
                return [*way, (path, True)] if self._hold_place(path) else way
            self._appearing.discard(path)
            way.append((path, is_last))
            if is_last:
                break
        return way

    def _hold_place(self, path: Path) -> bool:
        """An empty folder in the place of what is absent; False where nobody can create anything.

        A shared lock says that a sandbox relies on it: taking the folder away from under a mount
        in use would undo the mount.
        """
        while path not in self._placeholders:
            try:
                path.mkdir(mode=PLACEHOLDER_MODE)
                path.chmod(PLACEHOLDER_MODE)
            except FileExistsError:
                pass
            except OSError:
                return False
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(fd, fcntl.LOCK_SH)
            try:
                is_same = os.path.samestat(os.fstat(fd), path.lstat())
            except FileNotFoundError:
                is_same = False  # another agent removed it while we waited for the lock
            if is_same:
                self._placeholders[path] = fd
            else:
                os.close(fd)
        return True

    def sweep(self) -> list[str]:
        """Remove what must not have appeared; what was removed, for the note of the result."""
        removed = []
        for path in sorted(self._appearing):
            if path.is_symlink() or path.is_file():
                path.unlink()
                removed.append(str(path.relative_to(self.root)))
        return removed

    def release(self) -> None:
        """Remove the placeholders, but for those that another agent's sandbox relies on."""
        for path, fd in self._placeholders.items():
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_placeholder(path):
                    path.rmdir()
            except OSError:
                pass
            finally:
                os.close(fd)
        self._placeholders.clear()
        self._appearing.clear()


def _is_placeholder(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
        return mode == stat.S_IFDIR | PLACEHOLDER_MODE and not any(path.iterdir())
    except OSError:
        return False
