"""Files of a git folder that commands have to write, and that can make git run something later.

    worktrees/NAME/commondir         names the repository of a linked worktree: always this one
    rebase-merge/git-rebase-todo     what `git rebase --continue` does, commands (`exec`) included
    config.lock, ../.gitmodules.lock  keeps git from changing the protected file

They are not mounted, because then a command could not remove a worktree or rebase. What is harmful
and was not there before is moved away when a command has ended. Used by `protected_paths.py`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from treadle.lib.files.file_view import read_text
from treadle.lib.files.protected_paths import GIT_FOLDER
from treadle.lib.git.repository import list_worktrees, read_path
from treadle.workspace.supervisor.set_aside import open_folder

NEW_FILE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
COMMONDIR, COMMONDIR_TEXT = "commondir", b"../..\n"
REBASE_FOLDER, REBASE_TODO = "rebase-merge", "git-rebase-todo"
LOCKS = ("config.lock", "config.worktree.lock")
MODULES_LOCK = ".gitmodules.lock"

_EXEC_LINE = re.compile(r"^\s*(?:exec|x)\s.*", re.MULTILINE)


class GitControlFiles:
    """Those of the git folders below one root."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._before: frozenset[tuple[str, str]] = frozenset()

    def begin(self, gits: Iterable[str]) -> None:
        """What is harmful before a command is the user's."""
        self._before = frozenset(found for git in gits for found in _find_harmful(git))

    def list_harmful(self, gits: Iterable[str]) -> list[str]:
        """The files with something harmful that was not there before."""
        found = (found for git in gits for found in _find_harmful(git))
        return list(dict.fromkeys(path for path, line in found if (path, line) not in self._before))

    def restore(self, path: str) -> None:
        """Make what git needs in the place of a file that was moved away."""
        *above, name = path[len(self._root) + 1 :].split("/")
        if name != COMMONDIR:
            return
        with contextlib.suppress(OSError):  # a folder of it is gone, or something is there again
            folder = open_folder(self._root, above)
            try:
                fd = os.open(name, NEW_FILE_FLAGS, 0o644, dir_fd=folder)
                os.write(fd, COMMONDIR_TEXT)
                os.close(fd)
            finally:
                os.close(folder)


def _find_harmful(git: str) -> Iterator[tuple[str, str]]:
    """(file, line) of what redirects git, makes it run a command, or locks a protected file."""
    worktrees = list_worktrees(git)
    locks = [f"{place}/{name}" for place in (git, *worktrees) for name in LOCKS]
    if git.endswith(f"/{GIT_FOLDER}"):
        locks.append(f"{git.removesuffix(GIT_FOLDER)}{MODULES_LOCK}")
    yield from ((lock, "") for lock in locks if os.path.lexists(lock))
    for folder in map(Path, worktrees):
        file = folder / COMMONDIR
        if os.path.lexists(file) and read_path(file) != Path(git):
            yield str(file), read_text(file) or ""
    for rebase in (Path(place, REBASE_FOLDER) for place in (git, *worktrees)):
        if not os.path.lexists(rebase):
            continue
        if os.path.islink(rebase):  # noqa: PTH114 - it may be gone, or unreadable
            yield str(rebase), ""
            continue
        todo = rebase / REBASE_TODO
        text = read_text(todo)
        if text is None and os.path.lexists(todo):
            yield str(todo), ""
        for match in _EXEC_LINE.finditer(text or ""):
            yield str(todo), match.group()
