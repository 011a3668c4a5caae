"""Keeps a file that is only for this user out of git, in this clone: `.git/info/exclude`.

No git is run: it may run programs that the repository names. Used where rules are saved.
"""

from __future__ import annotations

import os
from pathlib import Path

from treadle.lib.files.file_view import read_text
from treadle.lib.git.ignore import GITIGNORE, IgnoreRules
from treadle.lib.git.repository import find_own_repository, find_repository


def exclude_from_git(file: Path) -> Path | None:
    """Add the file to the exclude file of its repository, and return that; None if nothing was
    written: no repository, the file is ignored already, or the exclude file cannot be written."""
    file = file.absolute()
    top = find_repository(file.parent)
    repository = find_own_repository(top / ".git") if top is not None else None
    if top is None or repository is None:
        return None
    exclude, path = Path(repository.common, "info/exclude"), file.relative_to(top).as_posix()
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


def _is_ignored(top: Path, path: str, exclude: str) -> bool:
    """Whether the exclude file or a .gitignore ignores the path or a folder that it is in."""
    rules = IgnoreRules().with_gitignore("", exclude)
    *folders, _ = parts = path.split("/")
    for depth in range(len(parts)):
        folder = "/".join(folders[:depth])
        rules = rules.with_gitignore(folder, read_text(top / folder / GITIGNORE) or "")
        if rules.is_ignored("/".join(parts[: depth + 1]), is_folder=depth < len(folders)):
            return True
    return False
