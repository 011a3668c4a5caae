"""Brings the changes of a worktree back into the folder of the user; and what became of it, as a
value and as a text (WorktreeEnd).

A file is written only if the folder still has it as the worktree began with it, or has the new
content already. If one file is different, nothing is written. The index of the user is not touched.
Used by worktrees.py.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from treadle.core.errors import WorkspaceError
from treadle.lib.text.text import plural
from treadle.workspace.worktrees.worktree_git import Repository

MAX_LISTED = 20
COMMIT_CHARS = 12


class WorktreeEnd(msgspec.Struct, frozen=True):
    """What became of a worktree.

    unchanged  there was no change         merged  its changes are in the folder
    kept       they are in `branch`        left    the worktree is still at `path`
    `base` is the commit that the branch is compared with, `refused` are the paths that kept the
    changes from being merged, `top` is the way to the top of the repository if that is not the
    folder. `root` is the first commit of a branch that has nothing of the folder's history.
    """

    status: Literal["unchanged", "merged", "kept", "left"]
    files: tuple[str, ...] = ()
    branch: str = ""
    base: str = ""
    top: str = ""
    refused: tuple[str, ...] = ()
    path: str = ""
    root: str = ""


def describe_end(end: WorktreeEnd) -> str:
    """What became of the changes, and what to do with them."""
    files = _list_names(end.files)
    if end.status == "unchanged":
        return "It changed no files."
    if end.status == "merged":
        return f"Its changes are in the folder now, not committed: {files}"
    if end.status == "left":
        inner = _list_names(end.refused)
        return f"Its worktree stays at {end.path}, because of the repositories in it: {inner}"
    why = "It did not finish, so nothing is merged."
    if end.refused:
        refused = _list_names(end.refused)
        why = (
            f"Nothing is merged: changed in the folder meanwhile, or not to be written: {refused}."
        )
    advice = advise(end.branch, end.base, end.top)
    return f"{why} All its changes are in the branch {end.branch}: {files}. {advice}"


def advise(branch: str, base: str, top: str = "") -> str:
    """What to do with a branch that has the changes of an agent.

    `git merge` and `git cherry-pick` refuse while the user has uncommitted changes in the same
    files. `git apply` changes the files themselves: all that is asked, or nothing.
    """
    commits = f"{base[:COMMIT_CHARS]} {branch}"
    apply = f"git -C {shlex.quote(top)} apply" if top else "git apply"
    return (
        f"See them with `git diff {commits}`, take them over with "
        f"`git diff --binary {commits} | {apply}` (if git refuses that, commit your own changes "
        f"and add `--3way`), delete them with `git branch -D {branch}`."
    )


def _list_names(names: Sequence[str]) -> str:
    more = f" and {plural(len(names) - MAX_LISTED, 'more file')}" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more


SUBMODULE_MODE = "160000"
NO_FILE = ("000000", "")  # mode and blob of a path that does not exist


class WorktreeChange(msgspec.Struct, frozen=True):
    """A path of the repository that differs: (mode, blob) before and after."""

    path: str
    old: tuple[str, str]
    new: tuple[str, str]

    @property
    def is_submodule(self) -> bool:
        return SUBMODULE_MODE in (self.old[0], self.new[0])


async def list_changes(repository: Repository, base: str, tree: str) -> list[WorktreeChange]:
    listed = await repository.run("diff-tree", "-r", "-z", "--no-renames", base, tree)
    fields = listed.split("\0")[:-1]
    changes: list[WorktreeChange] = []
    for head, path in zip(fields[::2], fields[1::2], strict=True):
        old_mode, new_mode, old_blob, new_blob, _ = head.lstrip(":").split(" ")
        old, new = _make_entry(old_mode, old_blob), _make_entry(new_mode, new_blob)
        changes.append(WorktreeChange(path, old, new))
    return changes


async def find_conflicts(
    repository: Repository, changes: Sequence[WorktreeChange], scratch: Path
) -> list[str]:
    """The paths that the folder has in a third version: the user, or another agent, changed them
    meanwhile."""
    present = await _read_present(repository, [change.path for change in changes], scratch)
    removed = {change.path for change in changes if change.new == NO_FILE}
    return [
        change.path
        for change in changes
        if present.get(change.path, NO_FILE) not in (change.old, change.new)
        or _is_blocked(repository.top, change.path, removed)
    ]


async def write_changes(
    repository: Repository, changes: Sequence[WorktreeChange], tree: str, scratch: Path
) -> None:
    """Make the files of the folder as they are in the tree. Check for conflicts first."""
    removed = [change.path for change in changes if change.new == NO_FILE]
    await asyncio.to_thread(_remove_files, repository.top, removed)
    written = "".join(f"{change.path}\0" for change in changes if change.new != NO_FILE)
    await repository.run("read-tree", tree, index=scratch)
    await repository.run(
        *("checkout-index", "--force", "--quiet", "-z", "--stdin"),
        stdin=os.fsencode(written),
        index=scratch,
    )


async def _read_present(
    repository: Repository, paths: Sequence[str], scratch: Path
) -> dict[str, tuple[str, str]]:
    """What the files of the folder are now, as git would store them."""
    update = ("update-index", "--add", "--remove", "-z", "--stdin")
    present: dict[str, tuple[str, str]] = {}
    try:
        names = os.fsencode("".join(f"{path}\0" for path in paths))
        await repository.run(*update, stdin=names, index=scratch)
    except WorkspaceError:  # a folder or a symlink stands where a file was: find out which
        for path in paths:
            try:
                await repository.run(*update, stdin=os.fsencode(f"{path}\0"), index=scratch)
            except WorkspaceError:
                present[path] = ("", "")
    listed = await repository.run("ls-files", "--stage", "-z", index=scratch)
    for line in listed.split("\0")[:-1]:
        head, _, path = line.partition("\t")
        mode, blob, _ = head.split(" ")
        present[path] = (mode, blob)
    return present


def _is_blocked(top: Path, path: str, removed: Collection[str]) -> bool:
    """Whether something else is in the way: a file or a symlink instead of a folder of the path,
    or a folder instead of the file."""
    parts = Path(path).parts
    for end in range(1, len(parts)):
        folder = Path(*parts[:end])
        is_folder = (top / folder).is_dir() and not (top / folder).is_symlink()
        if os.path.lexists(top / folder) and not is_folder and str(folder) not in removed:
            return True
    if not (top / path).is_dir() or (top / path).is_symlink():
        return False
    return not any(name.startswith(f"{path}/") for name in removed)


def _make_entry(mode: str, blob: str) -> tuple[str, str]:
    return NO_FILE if mode == NO_FILE[0] else (mode, blob)


def _remove_files(top: Path, paths: Sequence[str]) -> None:
    for path in paths:
        file = top / path
        with suppress(FileNotFoundError):
            file.unlink()
        for folder in file.parents:  # as git does: no empty folders
            if folder == top:
                break
            try:
                folder.rmdir()
            except OSError:
                break
