"""The files of a worktree that git does not know: its record, and how it is removed.

Used by worktrees.py.
"""

from __future__ import annotations

import contextlib
import shutil
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from treadle.lib.git.repository import list_worktrees, read_path
from treadle.workspace.worktrees.worktree_git import Repository

RECORD_FILE = "treadle.json"  # in the git folder of the worktree
SCRATCH_PREFIX = "index-"
SCRATCH_SECONDS = 3600.0


class WorktreeRecord(msgspec.Struct, frozen=True):
    """What is stored with a worktree: the commit that its changes are compared with, and the commit
    of its branch that it continues, if it does."""

    base: str
    tip: str = ""


def remove_old_scratch(folder: Path) -> None:
    """Files that a killed process left."""
    for file in folder.glob(f"{SCRATCH_PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > SCRATCH_SECONDS:
                file.unlink()


def find_git_dir(repository: Repository, path: Path) -> Path | None:
    """The git folder of the worktree at this path."""
    folders = map(Path, list_worktrees(str(repository.common_dir)))
    return next((one for one in folders if read_path(one / "gitdir") == path / ".git"), None)


def read_record(git_dir: Path) -> WorktreeRecord | None:
    try:
        record = msgspec.json.decode((git_dir / RECORD_FILE).read_bytes(), type=WorktreeRecord)
    except (OSError, msgspec.MsgspecError):
        return None
    is_commit = all(set(text) <= set("0123456789abcdef") for text in (record.base, record.tip))
    return record if is_commit and record.base else None


def find_existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def remove_tree(path: Path) -> None:
    """Remove a folder with all in it, also in folders that are read-only."""

    def make_writable(function: Callable[..., Any], failed: str, error: object) -> None:
        parent = Path(failed).parent
        with contextlib.suppress(OSError):
            parent.chmod(parent.stat().st_mode | stat.S_IRWXU)
            if Path(failed).is_dir():
                Path(failed).chmod(stat.S_IRWXU)
            function(failed)

    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, onerror=make_writable)
