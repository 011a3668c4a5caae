"""What became of a worktree, as a value and as a text for the model and the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from treadle.core.text import plural

MAX_LISTED = 20


class WorktreeEnd(msgspec.Struct, frozen=True):
    """What became of a worktree.

    unchanged  there was no change         merged  its changes are in the folder
    kept       they are in `branch`        left    the worktree is still at `path`
    `refused` are the paths that kept the changes from being merged.
    """

    status: Literal["unchanged", "merged", "kept", "left"]
    files: tuple[str, ...] = ()
    branch: str = ""
    refused: tuple[str, ...] = ()
    path: str = ""


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
    return f"{why} All its changes are in the branch {end.branch}: {files}. {advise(end.branch)}"


def advise(branch: str) -> str:
    """What to do with a branch that has the changes of an agent."""
    return (
        f"See them with `git show {branch}`, take them over with `git merge --squash {branch}`, "
        f"delete them with `git branch -D {branch}`."
    )


def _list_names(names: Sequence[str]) -> str:
    more = f" and {plural(len(names) - MAX_LISTED, 'more file')}" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more
