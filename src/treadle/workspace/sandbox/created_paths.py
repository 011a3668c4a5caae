"""Which files at a protected path that a command made are not trusted.

Trusted is what a tool wrote with the user's approval, what a commit from before the session has at
the same path (a checkout brings it), and what `git init` and `git clone` write. Used by
`protected_paths.py`, which moves the rest away.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from treadle.lib.files.file_view import LOCAL_FILES
from treadle.lib.files.protected_paths import GIT_FOLDER, PROTECTED_IN_GIT, PROTECTED_IN_WORKTREE
from treadle.lib.git.repository import may_be_bare
from treadle.workspace.sandbox import git_folders

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
