"""Runs git with the environment of a command, and without variables of another repository; and the
files of a worktree that git does not know: its record, its lock.

Only for folders that the user trusts: see lib/git/run.py. Used by worktrees.py and merge.py, and by
applications.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from treadle.core.errors import WorkspaceError
from treadle.lib.git import run
from treadle.lib.git.repository import list_worktrees, read_path
from treadle.workspace.environment import build_environment

IDENTITY = {
    f"GIT_{role}_{field}": value
    for role in ("AUTHOR", "COMMITTER")
    for field, value in (("NAME", "treadle"), ("EMAIL", "treadle@localhost"))
}


class Repository(msgspec.Struct, frozen=True):
    """The repository of a folder. `top` has its files; `folder` is `top` or below it.

    `git_dir` is that of `top`, `common_dir` is shared by all worktrees of the repository.
    """

    folder: Path
    top: Path
    git_dir: Path
    common_dir: Path
    head: str

    async def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        index: Path | None = None,
        worktree: Path | None = None,
        git_dir: Path | None = None,
    ) -> str:
        """Run git on `top`, or on a linked worktree with its git folder. A `.git` file in the
        worktree is not read: an agent could have changed it."""
        top, git_dir = worktree or self.top, git_dir or self.git_dir
        env = {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(top), **IDENTITY}
        if index is not None:
            env["GIT_INDEX_FILE"] = str(index)
        return await run_git(top, *arguments, stdin=stdin, env=env)

    async def find_commit(self, name: str) -> str:
        """The id of a commit; "" if there is none of that name."""
        try:
            return (
                await self.run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
            ).strip()
        except WorkspaceError:
            return ""

    async def read_setting(self, name: str) -> str:
        """A setting of the repository; "" if it is not set."""
        try:
            return (await self.run("config", "--get", name)).strip()
        except WorkspaceError:
            return ""


async def open_repository(folder: Path) -> Repository:
    """The repository that the folder is part of. WorkspaceError if no worktree can be made of it,
    with the reason."""
    try:
        is_inside = (await run_git(folder, "rev-parse", "--is-inside-work-tree")).strip()
    except WorkspaceError as error:
        raise WorkspaceError(f"{folder} has no git repository ({error})") from error
    if is_inside != "true":
        raise WorkspaceError(
            f"{folder} is a bare repository or a git folder: it has no files to work on"
        )
    shown = await run_git(
        folder,
        *("rev-parse", "--path-format=absolute"),
        *("--show-toplevel", "--git-dir", "--git-common-dir"),
    )
    top, git_dir, common_dir = (Path(line) for line in shown.splitlines())
    repository = Repository(folder, top, git_dir, common_dir, "")
    head = await repository.find_commit("HEAD")
    if not head:
        raise WorkspaceError(f"the repository of {folder} has no commit yet: make a first commit")
    return msgspec.structs.replace(repository, head=head)


async def run_git(
    folder: Path, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> str:
    """The output of git. WorkspaceError if it fails, cannot be run or does not end."""
    environment = build_environment(os.environ, sandboxed=False, extra=env)
    try:
        return await run.run_git(folder, *arguments, environment=environment, stdin=stdin)
    except run.GitError as error:
        raise WorkspaceError(str(error)) from error


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
