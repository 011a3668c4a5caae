"""The worktrees of whole sessions (`treadle --worktree NAME`).

    worktree = await worktrees.enter("fix")      a new one, or as the last session left it
    end = await worktrees.leave(worktree)        removed if nothing is in it, else it stays

Unlike the worktree of a child agent it has a branch, `treadle/NAME`, checked out, and nothing of it
is merged or committed for the user. It is removed only if it has no file that its commit does not
have, also no ignored one, and no commit that is not elsewhere. Used by the command line; uses
worktrees.py.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec

from treadle.core.errors import WorkspaceError
from treadle.lib.text.text import plural, shorten_home
from treadle.workspace.worktrees.merge import WorktreeEnd
from treadle.workspace.worktrees.worktree_git import (
    RECORD_FILE,
    Repository,
    WorktreeRecord,
    find_git_dir,
    open_repository,
    read_record,
)
from treadle.workspace.worktrees.worktrees import (
    BRANCH_FOLDER,
    Worktree,
    Worktrees,
    format_ref,
)

NAME_PATTERN = re.compile(r"[0-9A-Za-z]+([._-][0-9A-Za-z]+)*", re.ASCII)
MAX_NAME_CHARS = 60


class SessionWorktrees(Worktrees):
    """The worktrees of the sessions of one folder; their `state_dir` has no others."""

    def list_names(self) -> list[str]:
        """The names of those that are there."""
        folder = self.get_path("")
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    async def enter(self, name: str) -> Worktree:
        """The worktree of this name. WorkspaceError if it cannot be made, or is in use."""
        is_name = NAME_PATTERN.fullmatch(name) and len(name) <= MAX_NAME_CHARS
        if not is_name or name.endswith(".lock"):
            raise WorkspaceError(
                f"{name!r} is no name for a worktree: it has letters and digits, with single "
                f"`-`, `_` or `.` between them, at most {MAX_NAME_CHARS}"
            )
        repository = await open_repository(self.folder)
        async with self._change(repository):
            path = self.get_path(name)
            git_dir = find_git_dir(repository, path)
            if git_dir is None and path.exists():
                raise WorkspaceError(
                    f"git knows no worktree at {path}, and there are files: move them away, or "
                    "choose another name"
                )
            if git_dir is None or not path.is_dir():
                return await self._make_for_session(repository, name, git_dir)
            record = read_record(git_dir)
            if record is None:  # a crash while it was made
                record = WorktreeRecord(repository.head)
                (git_dir / RECORD_FILE).write_bytes(msgspec.json.encode(record))
            return Worktree(self, repository, name, git_dir, record)

    async def has_changes(self) -> bool:
        """Whether the folder itself has changes that a new worktree does not have."""
        repository = await open_repository(self.folder)
        return bool(await repository.run("status", "--porcelain"))

    async def leave(self, worktree: Worktree) -> WorktreeEnd:
        """Remove the worktree if there is nothing in it that is not elsewhere."""
        async with self._change(worktree.repository):
            try:
                end = await self._examine(worktree)
                if end.status == "unchanged":
                    await self._remove(worktree.top, worktree.git_dir)
                    await self._delete_merged_branch(worktree)
                return end
            finally:
                worktree.release()

    async def _make_for_session(
        self, repository: Repository, name: str, git_dir: Path | None
    ) -> Worktree:
        if git_dir is not None:  # its files were deleted: git refuses to make it again
            await self._remove(self.get_path(name), git_dir)
        tip = await repository.find_commit(format_ref(name))
        branch = f"{BRANCH_FOLDER}/{name}"
        path = str(self.get_path(name))
        how = (path, branch) if tip else ("-b", branch, path, repository.head)
        record = WorktreeRecord(repository.head, tip or "")
        return await self._add(repository, name, record, tip or repository.head, *how)

    async def _examine(self, worktree: Worktree) -> WorktreeEnd:
        status = ("status", "--porcelain", "-z", "--no-renames", "--ignored")
        listed = (await worktree.run_git(*status)).split("\0")[:-1]
        head = (await worktree.run_git("rev-parse", "HEAD")).strip()
        if not listed and await self._is_elsewhere(worktree, head):
            return WorktreeEnd("unchanged")
        branch = (await worktree.run_git("rev-parse", "--abbrev-ref", "HEAD")).strip()
        files = tuple(line[3:] for line in listed)
        root = await self._find_own_root(worktree, head)
        path = str(worktree.root)
        return WorktreeEnd("left", files, branch, worktree.record.base, path=path, root=root)

    async def _find_own_root(self, worktree: Worktree, commit: str) -> str:
        """The first commit of a history that has no commit of the folder's, as that of a variant
        (`treadle whatif`): git refuses to merge it."""
        base = worktree.record.base
        if not await worktree.run_git("rev-list", "--max-count=1", base, f"^{commit}"):
            return ""  # it continues the base, as nearly always
        roots, ours = [
            (await worktree.run_git("rev-list", "--max-parents=0", one)).split()
            for one in (commit, base)
        ]
        return roots[-1] if set(roots).isdisjoint(ours) else ""

    async def _is_elsewhere(self, worktree: Worktree, commit: str) -> bool:
        """Whether a commit is one that the worktree began with, or that the folder has by now."""
        known = (worktree.record.base, await worktree.repository.find_commit("HEAD"))
        for one in filter(None, known):
            missing = await worktree.run_git("rev-list", "--max-count=1", commit, f"^{one}")
            if not missing.strip():
                return True
        return False

    async def _delete_merged_branch(self, worktree: Worktree) -> None:
        """A branch that was there before is the user's, and stays."""
        if worktree.record.tip:
            return
        ref, repository = format_ref(worktree.name), worktree.repository
        tip = await repository.find_commit(ref)
        known = (worktree.record.base, await repository.find_commit("HEAD"))
        if tip and tip in known:
            await repository.run("update-ref", "-d", ref, tip)


def describe_session_end(name: str, end: WorktreeEnd) -> str:
    """What became of the worktree of a session, and what the user can do with it."""
    if end.status == "unchanged":
        return f"the worktree {name} has no changes; it is removed"
    has = plural(len(end.files), "uncommitted or ignored path") if end.files else "its commits"
    is_on_branch = end.branch != "HEAD"
    where = f"on the branch {end.branch}" if is_on_branch else "on no branch"
    path = shlex.quote(end.path)
    path = shorten_home(path) if path == end.path else path  # a quoted ~ is no home
    first = "commit there first, then " if end.files else ""
    tip = shlex.quote(end.branch) if is_on_branch else f"$(git -C {path} rev-parse HEAD)"
    take = f"cherry-pick {end.root[:12]}..{tip}" if end.root else f"merge {tip}"
    return (
        f"the worktree {name} stays, with {has}, {where}: {path}\n"
        f"`treadle --worktree {name} --continue` continues; {first}`git {take}` "
        f"takes its commits over; `git worktree remove {path}` deletes it"
    )
