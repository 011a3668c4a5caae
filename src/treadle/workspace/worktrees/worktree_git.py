"""Runs git with the environment of a command, and without variables of another repository.

Only for folders that the user trusts: see lib/git/run.py. Used by worktrees.py and merge.py, and by
applications.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from treadle.core.errors import WorkspaceError
from treadle.lib.git import run
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
