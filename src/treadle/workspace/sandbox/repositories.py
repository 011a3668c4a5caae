"""Whether a file at a protected path came out of a repository, by a checkout or a clone.

    checkout   a commit from before the first command has the file at this path; also in a linked
               worktree, and in a clone of such a repository. The result names it: a command of an
               earlier session may have made the commit
    clone      of a folder of this machine that commands cannot write to: its commits have it
    download   with the network open, into a folder that has only what this session made: it stays,
               because no one can say where it came from

The place decides: a file counts only where its repository has it as a protected one, too. A clone
or a worktree in a protected folder (`git clone . .vscode`) would make any file one. What stays is
named in the result.

Used by `protected_paths.py`, which moves other files away.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from treadle.lib.files.file_view import LOCAL_FILES
from treadle.lib.files.protected_paths import (
    GIT_FOLDER,
    PROTECTED_IN_GIT,
    PROTECTED_IN_WORKTREE,
    find_read_only_part,
)
from treadle.lib.git.config import drop_subsection, read_config
from treadle.lib.git.objects import GitHistory
from treadle.lib.git.repository import is_git_folder, may_be_bare, read_git_link
from treadle.workspace.sandbox import git_folders
from treadle.workspace.supervisor.syscalls import is_born_before

MAX_REPOSITORIES = 100
MAX_ENTRIES = 2000

IsOutOfReach = Callable[[Path], bool]


class Repositories:
    """The repositories below one root. `is_out_of_reach`: no command can have changed a path."""

    def __init__(self, root: Path, opened_ns: int, is_out_of_reach: IsOutOfReach) -> None:
        self._root, self._opened_ns = root, opened_ns
        self._is_out_of_reach = is_out_of_reach
        self._histories: dict[Path, GitHistory] | None = None
        self._sources: dict[Path, GitHistory | None] = {}
        self._brought: dict[Path, bool] = {}  # whether it was named
        self.had_network = False

    def open(self, folders: Iterable[str]) -> None:
        """Read the commits of these git folders, once: later, a command could have made them."""
        if self._histories is None:
            gits = [Path(folder) for folder in folders][:MAX_REPOSITORIES]
            self._histories = {git.parent: GitHistory(git, self._root) for git in gits}

    def has_file(self, path: Path) -> bool:
        """Whether this file came out of a repository."""
        folders = [folder for folder in path.parents if folder.is_relative_to(self._root)]
        return any(self._has_in(f, path) for f in folders if self._is_same_place(f, path))

    def _is_same_place(self, folder: Path, path: Path) -> bool:
        """Whether a file is protected in the work tree `folder` for the same reason as here."""
        if folder == self._root:
            return True
        part = find_read_only_part(str(path.relative_to(folder)))
        is_outside = not find_read_only_part(str(folder.relative_to(self._root)))
        whole = find_read_only_part(str(path.relative_to(self._root)))
        return is_outside and bool(part) and part == whole

    def take_brought(self) -> list[Path]:
        """The files that stay because they came out of a repository; each of them once."""
        brought = [path for path, is_named in self._brought.items() if not is_named]
        self._brought |= dict.fromkeys(brought, True)
        self._sources = {}
        return brought

    def _has_in(self, folder: Path, path: Path) -> bool:
        name, known = str(path.relative_to(folder)), (self._histories or {}).get(folder)
        if known is not None:
            return self._note(path, known.has_file(path, name))
        git = folder / GIT_FOLDER
        if git.is_symlink():
            return False
        if git.is_file():
            history = self._find_history_of_worktree(git)
            return self._note(path, history is not None and history.has_file(path, name))
        if not is_git_folder(git):
            return False
        if folder not in self._sources:
            self._sources[folder] = self._open_source(git)
        source = self._sources[folder]
        if source is not None:
            return self._note(path, source.has_file(path, name))
        is_download = self.had_network and self._is_made(folder)
        return self._note(path, is_download and GitHistory(git, self._root).has_file(path, name))

    def _note(self, path: Path, is_brought: bool) -> bool:
        if is_brought:
            self._brought.setdefault(path, False)
        return is_brought

    def _find_history_of_worktree(self, link: Path) -> GitHistory | None:
        """The repository of which this is a linked worktree, if it is older than the commands."""
        target = read_git_link(link)
        if target is None or target.parent.name != "worktrees":
            return None
        git = target.parent.parent
        return (self._histories or {}).get(git.parent) if git.name == GIT_FOLDER else None

    def _open_source(self, git: Path) -> GitHistory | None:
        """The repository on this machine of which this one is a clone."""
        config = read_config(LOCAL_FILES, f"{git}/config") or ()
        urls = [value for key, value in config if drop_subsection(key) == "remote.url"]
        if len(urls) != 1:
            return None
        source = Path(os.path.realpath(urls[0].removeprefix("file://")))
        known = self._histories or {}
        for worktree in (source, source.parent):
            if worktree in known and source in (worktree, worktree / GIT_FOLDER):
                return known[worktree]
        if not self._is_out_of_reach(source):
            return None
        found = [path for path in (source / GIT_FOLDER, source) if is_git_folder(path)]
        return GitHistory(found[0], self._root) if found else None

    def _is_made(self, folder: Path) -> bool:
        """Whether this session made the folder, or all that is in it."""
        if is_born_before(str(folder), self._opened_ns) is False:
            return True
        names = os.listdir(folder)  # noqa: PTH208 - names are wanted, not paths
        return len(names) <= MAX_ENTRIES and all(
            is_born_before(f"{folder}/{name}", self._opened_ns) is False for name in names
        )


MAX_FILES = 500
"""A protected folder with more files is not looked into: nothing of it is trusted."""

IsTrusted = Callable[[Path], bool]


def list_untrusted(
    path: Path,
    root: Path,
    is_written: IsTrusted,
    is_in_repository: IsTrusted,
    is_older: Callable[[str], bool],
) -> list[Path]:
    """The files of `path` that are not trusted; `path` itself if nothing in it is trusted.
    `is_older`: whether a path existed before the session."""
    if path.name == GIT_FOLDER:
        return git_folders.list_harmful_parts(path, root)
    part = _find_git_part(path)
    if part:
        harmful, head = _list_harmful_git_part(path, part), path.parents[part.count("/")] / "HEAD"
        is_made_bare = harmful and GIT_FOLDER not in head.parts and not is_older(str(head))
        # Without it the folder is no repository; its `config` may be a file of the user.
        return [head] if is_made_bare else harmful
    files = _list_files(path)
    if files is None:
        return [path]
    untrusted = [file for file in files if not is_written(file) and not is_in_repository(file)]
    return [path] if untrusted == files else untrusted


def _find_git_part(path: Path) -> str:
    """The name of a protected part of a git folder, such as `hooks`; "" for other paths."""
    for part in PROTECTED_IN_GIT:
        git = path.parents[part.count("/")]
        is_git = git.name == GIT_FOLDER or may_be_bare(LOCAL_FILES, str(git))
        if path == git / part and is_git:
            return part
    is_in_worktree = path.parts[-4:-2] == (GIT_FOLDER, "worktrees")
    return path.name if is_in_worktree and path.name in PROTECTED_IN_WORKTREE else ""


def _list_harmful_git_part(path: Path, part: str) -> list[Path]:
    if part == "hooks":
        return git_folders.list_hooks(path)
    if part == "config":
        return [] if git_folders.is_harmless_config(path) else [path]
    if part == "modules":
        return git_folders.list_harmful_modules(path)
    return [path]


def _list_files(path: Path) -> list[Path] | None:
    """The files and symlinks at or below a path; None if there are too many, or none."""
    if path.is_symlink() or not path.is_dir():
        return [path]
    files: list[Path] = []
    for folder, names, inner in os.walk(path):
        links = [name for name in names if (Path(folder) / name).is_symlink()]
        files += [Path(folder) / name for name in (*inner, *links)]
        if len(files) > MAX_FILES:
            return None
    return files or None
