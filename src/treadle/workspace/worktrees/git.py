"""Runs git for the engine: no hooks, no terminal, no variables of another repository.

Only for folders that the user trusts: the settings of a repository can name programs (filters) that
git runs. Used by worktrees.py and merge.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from asyncio.subprocess import PIPE
from collections.abc import Mapping
from pathlib import Path

import msgspec

from treadle.core.errors import WorkspaceError
from treadle.workspace.environment import build_environment, split_search_path

GIT_TIMEOUT = 300.0
# The hooks and the file monitor of a repository are programs that nobody asked for here.
SAFE_SETTINGS = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.quotePath=false")
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
    settings = [word for setting in SAFE_SETTINGS for word in ("-c", setting)]
    environment = build_environment(os.environ, sandboxed=False, extra={"LC_ALL": "C.UTF-8"})
    safe_path, _ = split_search_path(environment["PATH"], (folder,))
    program = shutil.which("git", path=safe_path)
    if program is None:
        raise WorkspaceError("git is not installed, or not in PATH")
    process = await asyncio.create_subprocess_exec(
        program,
        *settings,
        *arguments,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=folder,
        env={**environment, **(env or {})},
        start_new_session=True,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin), GIT_TIMEOUT)
    except TimeoutError:
        raise WorkspaceError(f"git {arguments[0]} did not end in {GIT_TIMEOUT:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.communicate()
    if process.returncode != 0:
        said = err.decode(errors="replace").strip() or f"exit code {process.returncode}"
        raise WorkspaceError(f"git {arguments[0]}: {said[:500]}")
    return out.decode(errors="surrogateescape")
