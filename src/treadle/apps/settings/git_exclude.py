"""Keeps a file that is only for this user out of git, in this clone: `.git/info/exclude`.

No git is run: it may run programs that the repository names. Used where rules are saved.
"""

from __future__ import annotations

import os
from pathlib import Path


def exclude_from_git(file: Path) -> Path | None:
    """Add the file to the exclude file of its repository, and return that; None if nothing was
    written: no repository, the file is ignored already, or the exclude file cannot be written."""
    from treadle.workspace.sandbox.git_folders import read_text

    file = file.absolute()
    top = next((one for one in file.parents if (one / ".git").exists()), None)
    git_dir = _find_common_dir(top / ".git") if top is not None else None
    if top is None or git_dir is None:
        return None
    exclude, path = git_dir / "info" / "exclude", file.relative_to(top).as_posix()
    text = read_text(exclude) or ""
    if _is_ignored(top, path, text):
        return None
    start = "" if not text or text.endswith("\n") else "\n"
    try:
        exclude.parent.mkdir(exist_ok=True)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        with os.fdopen(os.open(exclude, flags, 0o644), "a", encoding="utf-8") as out:
            out.write(f"{start}/{path}\n")
    except OSError:
        return None
    return exclude


def _find_common_dir(git: Path) -> Path | None:
    """The git folder of the repository; of a worktree only if the repository knows it."""
    from treadle.workspace.sandbox.git_folders import (
        is_git_folder,
        join_path,
        read_git_link,
        read_text,
    )

    if git.is_symlink():
        return None
    if git.is_dir():
        return git if is_git_folder(git) else None
    target = read_git_link(git)
    if target is None or (read_text(target / "gitdir") or "").strip() != str(git):
        return None
    common = join_path(target, read_text(target / "commondir") or "")
    return common if is_git_folder(common) else None


def _is_ignored(top: Path, path: str, exclude: str) -> bool:
    """Whether the exclude file or a .gitignore ignores the path or a folder that it is in."""
    from treadle.workspace.checkpoints.gitignore import GITIGNORE, IgnoreRules
    from treadle.workspace.sandbox.git_folders import read_text

    rules = IgnoreRules().with_gitignore("", exclude)
    *folders, _ = parts = path.split("/")
    for depth in range(len(parts)):
        folder = "/".join(folders[:depth])
        rules = rules.with_gitignore(folder, read_text(top / folder / GITIGNORE) or "")
        if rules.is_ignored("/".join(parts[: depth + 1]), is_folder=depth < len(folders)):
            return True
    return False
